#include "channel_claims.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <stdexcept>

namespace hierring {
namespace {

// The buffers that operations of this process have claimed, whatever their channel.
class Pins {
  public:
    // False, and nothing done, if one of them is pinned.
    bool add(std::uint64_t a, std::uint64_t b) {
        const std::scoped_lock lock(mutex_);
        if (std::ranges::any_of(ids_, [&](std::uint64_t id) { return id == a || id == b; })) {
            return false;
        }
        ids_.push_back(a);
        ids_.push_back(b);
        return true;
    }
    void remove(std::uint64_t a, std::uint64_t b) noexcept {
        const std::scoped_lock lock(mutex_);
        std::erase_if(ids_, [&](std::uint64_t id) { return id == a || id == b; });
    }

  private:
    std::mutex mutex_;
    std::vector<std::uint64_t> ids_;
};

// Never destroyed: a channel may outlive the statics of this library.
Pins &pins() {
    static auto *const all = new Pins;
    return *all;
}

// The mapper of ranks that are processes.
int map_from_process(pid_t process, const SharedPlace &place, Claims::Mapped &made) {
    std::shared_ptr<PeerBuffer> buffer;
    const SharedIdentity identity{.id = place.id,
                                  .fd = place.fd,
                                  .device = static_cast<dev_t>(place.device),
                                  .inode = static_cast<ino_t>(place.inode),
                                  .nbytes = static_cast<std::size_t>(place.nbytes)};
    const int error = map_peer(process, identity, buffer);
    if (error == 0) {
        made.data = buffer->data();
        made.keep = std::move(buffer);
    }
    return error;
}

} // namespace

Claims::Claims(unsigned local_size, bool possible)
    : possible_(possible), mapper_(map_from_process), peers_(local_size) {}

// Finds the buffer of one half of a claim; false if this channel has no use for it.
bool Claims::locate(const std::byte *first, std::size_t nbytes, Own &own) const {
    own.buffer = find_shared(first, nbytes);
    if (own.buffer == nullptr) {
        return false;
    }
    own.id = own.buffer->id();
    own.offset = static_cast<std::uint64_t>(first - own.buffer->data());
    const auto known = known_.find(own.id);
    own.fresh = known == known_.end();
    return own.fresh || known->second == Standing::mapped;
}

void Claims::make(const std::byte *x, const std::byte *out, std::size_t nbytes) {
    release();
    if (!possible_ || nbytes == 0 || !locate(x, nbytes, x_)) {
        x_ = {};
        return;
    }
    if (x == out) {
        out_ = x_;
    } else if (!locate(out, nbytes, out_)) {
        x_ = out_ = {};
        return;
    }
    if (!pins().add(x_.id, out_.id)) {
        x_ = out_ = {};
        return;
    }
    thread_ = std::this_thread::get_id();
    armed_ = true;
}

void Claims::release() noexcept {
    if (armed_) {
        armed_ = false;
        pins().remove(x_.id, out_.id);
        x_ = out_ = {};
    }
}

void Claims::settle(bool mapped) {
    for (const Own *own : {&x_, &out_}) {
        if (own->fresh) {
            known_[own->id] = mapped ? Standing::mapped : Standing::refused;
        }
    }
}

int Claims::break_off() noexcept {
    if (!armed_) {
        return 0;
    }
    torn_ = true;
    const int error = out_.buffer->renew();
    release();
    forget_all();
    return error;
}

void Claims::write(const Own &own, SharedPlace &place) noexcept {
    const SharedIdentity identity = own.buffer->identity(); // all of one moment
    place = {.id = identity.id,
             .offset = own.offset,
             .nbytes = identity.nbytes,
             .device = identity.device,
             .inode = identity.inode,
             .fd = identity.fd,
             .fresh = own.fresh ? 1u : 0u};
}

// Puts own buffers that peers have mapped, and that are no more, in line to be told.
void Claims::hear_of_gone() {
    std::array<std::uint64_t, 64> ids;
    std::size_t count;
    do {
        count = gone_since(serial_, ids);
        for (const std::uint64_t id : std::span(ids).first(count)) {
            const auto known = known_.find(id);
            if (known != known_.end()) {
                if (known->second == Standing::mapped) {
                    gone_.push_back(id);
                }
                known_.erase(known);
            }
        }
    } while (count == ids.size());
}

std::uint32_t Claims::describe(Call &call) {
    std::uint32_t bits = 0;
    if (!known_.empty()) {
        hear_of_gone();
    } else if (armed_) {
        serial_ = gone_serial(); // what went before concerns no peer of this channel
    }
    if (!gone_.empty()) {
        bits |= kGone;
        call.gone_count = std::min(gone_.size(), kGoneIds);
        for (std::size_t i = 0; i < call.gone_count; ++i) {
            call.gone[i] = gone_.front();
            gone_.pop_front();
        }
    }
    if (armed_) {
        bits |= kClaims | (x_.fresh || out_.fresh ? kFresh : 0);
        write(x_, call.x);
        write(out_, call.out);
    }
    return bits;
}

bool Claims::map(unsigned local_rank, pid_t process, const Call &call) {
    for (const SharedPlace *place : {&call.x, &call.out}) {
        auto &mapped = peers_[local_rank];
        if (place->fresh == 0 || mapped.contains(place->id)) {
            continue;
        }
        Mapped made;
        if (mapper_(process, *place, made) != 0) {
            return false;
        }
        mapped.emplace(place->id, std::move(made));
    }
    return true;
}

std::byte *Claims::find(unsigned local_rank, const SharedPlace &place) const {
    const auto found = peers_[local_rank].find(place.id);
    if (found == peers_[local_rank].end()) {
        throw std::logic_error("a peer's buffer is not mapped, though the peer knows that it is");
    }
    return found->second.data + place.offset;
}

void Claims::forget(unsigned local_rank, std::span<const std::uint64_t> ids) noexcept {
    for (const std::uint64_t id : ids) {
        peers_[local_rank].erase(id);
    }
}

void Claims::forget_all() noexcept {
    for (auto &peer : peers_) {
        peer.clear();
    }
}

std::size_t Claims::mapped() const noexcept {
    std::size_t count = 0;
    for (const auto &peer : peers_) {
        count += peer.size();
    }
    return count;
}

} // namespace hierring
