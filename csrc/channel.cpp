#include "channel.hpp"

#include <algorithm>
#include <ctime>
#include <stdexcept>
#include <unistd.h>

namespace hierring {
namespace {

// Blocks of strided data pass through it: small enough for the first-level cache to keep it.
constexpr std::size_t kScratchBytes = 16384;

// Hashes what all ranks must agree on; never 0 (FNV-1a).
std::uint64_t geometry_hash(const Geometry &geometry, bool ring_schedule) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::uint64_t part :
         {std::uint64_t{geometry.local_size}, std::uint64_t{geometry.cell_bytes},
          std::uint64_t{geometry.window_cells}, std::uint64_t{geometry.small_bytes},
          std::uint64_t{ring_schedule}}) {
        hash = (hash ^ part) * 0x100000001b3;
    }
    return hash | 1;
}

} // namespace

Channel::Channel(std::shared_ptr<Segment> segment, unsigned local_rank, const Geometry &geometry,
                 bool ring_schedule)
    : segment_(std::move(segment)), layout_(geometry), local_rank_(local_rank),
      ring_schedule_(ring_schedule), scratch_(kScratchBytes) {
    if (!Layout::valid(geometry) || local_rank >= geometry.local_size) {
        throw std::invalid_argument("these sizes make no channel");
    }
    if (segment_->nbytes() < layout_.nbytes()) {
        throw std::invalid_argument("the segment is too small for these sizes");
    }
    sources_.reserve(geometry.local_size);
}

// Leaves the hash of the sizes in the header, or compares it with that of whoever came first.
void Channel::agree_on_geometry() {
    const std::uint64_t ours = geometry_hash(layout_.geometry(), ring_schedule_);
    std::uint64_t theirs = 0;
    if (!header().geometry.compare_exchange_strong(theirs, ours, std::memory_order_relaxed) &&
        theirs != ours) {
        throw std::invalid_argument("the sizes differ from those of another local rank");
    }
}

int Channel::reserve() {
    const std::size_t window = layout_.window_nbytes();
    const std::size_t share = round_up((window + local_size() - 1) / local_size(), kPage);
    const std::size_t first = std::min(local_rank_ * share, window);
    // Every rank writes to the header below, so each makes sure that it is there.
    int error = segment_->reserve(layout_.header(), layout_.header_nbytes());
    if (error == 0) {
        error = segment_->reserve(layout_.slot(local_rank_), layout_.slot_nbytes());
    }
    if (error == 0) {
        error = segment_->reserve(layout_.window() + first, std::min(share, window - first));
    }
    if (error == 0) {
        agree_on_geometry();
        StatusLine &status = head(local_rank_).status;
        status.since_ns.store(now_ns(), std::memory_order_relaxed);
        status.waiting_for.store(-1, std::memory_order_relaxed);
        status.pid.store(static_cast<std::uint32_t>(getpid()), std::memory_order_relaxed);
    }
    return error;
}

void Channel::start_at(std::uint64_t seq) noexcept {
    seq_ = seq - 1;
    SlotHead &own = head(local_rank_);
    for (const std::uint64_t before : {seq - 1, seq - 2}) {
        own.arrival[before & 1].seq.store(static_cast<std::uint32_t>(before));
        if (local_rank_ == 0) {
            verdict_line(before & 1).seq.store(static_cast<std::uint32_t>(before));
        }
    }
}

// --- arrival ---

Flag Channel::arrival_flag(unsigned local_rank, unsigned parity) const noexcept {
    SlotHead &slot = head(local_rank);
    return {&slot.arrival[parity].seq, &slot.sleepers.arrival[parity]};
}

void Channel::arrive(std::uint64_t seq, std::uint64_t digest, std::span<const std::byte> descriptor,
                     double scale, const View *small) {
    const std::size_t nbytes = small == nullptr ? 0 : small->nbytes();
    std::byte *const payload = write_arrival(seq, digest, descriptor, scale, nbytes);
    if (nbytes != 0) {
        pack(*small, 0, small->count(), payload);
    }
    announce();
}

void Channel::arrive(std::uint64_t seq, std::uint64_t digest, std::span<const std::byte> descriptor,
                     std::span<const std::byte> small) {
    std::byte *const payload = write_arrival(seq, digest, descriptor, 1.0, small.size());
    if (!small.empty()) {
        copy(payload, small.data(), small.size());
    }
    announce();
}

// Writes all of the arrival but its payload; returns where that belongs.
std::byte *Channel::write_arrival(std::uint64_t seq, std::uint64_t digest,
                                  std::span<const std::byte> descriptor, double scale,
                                  std::size_t nbytes) {
    if (seq != seq_ + 1) {
        throw std::invalid_argument("operations must be entered in sequence");
    }
    if (descriptor.size() > kDescriptorBytes || nbytes > layout_.geometry().small_bytes) {
        throw std::invalid_argument("the descriptor or the small payload is too long");
    }
    // What stood here belongs to operation seq - 2. All peers have left it: they have arrived at
    // seq - 1, or we would not be here.
    seq_ = seq;
    seen_ = 0;
    SlotHead &own = head(local_rank_);
    Call &call = own.call[parity()];
    call.scale = scale;
    call.descriptor_nbytes = static_cast<std::uint32_t>(descriptor.size());
    std::copy(descriptor.begin(), descriptor.end(), call.descriptor);

    Arrival &arrival = own.arrival[parity()];
    arrival.payload = static_cast<std::uint32_t>(nbytes) | (scale == 1.0 ? 0 : kScaled);
    arrival.digest = digest;
    return nbytes <= kInlineBytes ? arrival.inline_payload
                                  : at(layout_.slot(local_rank_) + layout_.small(parity()));
}

// Publishes a written arrival.
void Channel::announce() noexcept {
    SlotHead &own = head(local_rank_);
    own.status.seq.store(seq_, std::memory_order_relaxed);
    own.status.since_ns.store(now_ns(), std::memory_order_relaxed);
    note(Phase::enter, 0, -1);
    publish(arrival_flag(local_rank_, parity()), static_cast<std::uint32_t>(seq_));
}

// The first peer, in cyclic order behind us, that has not arrived, or the own rank if all have.
unsigned Channel::first_missing() noexcept {
    while (seen_ + 1 < local_size()) {
        const unsigned peer = (local_rank_ + seen_ + 1) % local_size();
        if (!reached(look(arrival_flag(peer, parity())), static_cast<std::uint32_t>(seq_))) {
            return peer;
        }
        ++seen_;
    }
    return local_rank_;
}

bool Channel::all_arrived() noexcept { return first_missing() == local_rank_; }

Status Channel::await_next_arrival(std::int64_t until_ns) {
    const unsigned peer = first_missing();
    if (peer == local_rank_) {
        return Status::done;
    }
    return wait_for(arrival_flag(peer, parity()), static_cast<std::uint32_t>(seq_), peer,
                    Spent::wait_arrival, until_ns);
}

Status Channel::arrivals(std::int64_t until_ns) {
    while (!all_arrived()) {
        const Status status = await_next_arrival(until_ns);
        if (status != Status::done) {
            return status;
        }
    }
    head(local_rank_).status.waiting_for.store(-1, std::memory_order_relaxed);
    return Status::done;
}

bool Channel::arrivals_soon(std::int64_t until_ns) {
    while (true) {
        const unsigned peer = first_missing();
        if (peer == local_rank_) {
            return true;
        }
        const TimedWait timed(*clock_, Spent::wait_arrival, peer);
        if (!waiter_.spin(arrival_flag(peer, parity()), static_cast<std::uint32_t>(seq_),
                          until_ns)) {
            return false;
        }
    }
}

std::vector<unsigned> Channel::missing() const {
    std::vector<unsigned> ranks;
    for (unsigned rank = 0; rank < local_size(); ++rank) {
        if (!reached(look(arrival_flag(rank, parity())), static_cast<std::uint32_t>(seq_))) {
            ranks.push_back(rank);
        }
    }
    return ranks;
}

int Channel::local_difference() const noexcept {
    const std::uint64_t expected = head(0).arrival[parity()].digest;
    for (unsigned rank = 1; rank < local_size(); ++rank) {
        if (head(rank).arrival[parity()].digest != expected) {
            return static_cast<int>(rank);
        }
    }
    return -1;
}

std::span<const std::byte> Channel::descriptor(unsigned local_rank) const {
    if (local_rank >= local_size() ||
        !reached(look(arrival_flag(local_rank, parity())), static_cast<std::uint32_t>(seq_))) {
        throw std::invalid_argument("this local rank has not arrived");
    }
    const Call &call = head(local_rank).call[parity()];
    return {call.descriptor, call.descriptor_nbytes};
}

double Channel::scale(unsigned local_rank) const noexcept {
    const SlotHead &slot = head(local_rank);
    const bool scaled = (slot.arrival[parity()].payload & kScaled) != 0;
    return scaled ? slot.call[parity()].scale : 1.0;
}

} // namespace hierring
