// Memory that ranks share besides the segment: the buffers that an all-reduce on one node reads and
// writes in place. This is what one rank knows of its own and of its peers' on one channel.
//
// A rank claims x and out for an operation before it arrives. From then on a peer may read x and
// write out, until the operation has ended for this rank too, or everybody knows that it goes by
// way of the segment. If it ends otherwise, a peer may still write, whenever: so the claim must
// then be ended by break_off(), which leaves the peers the old pages.
#pragma once

#include "layout.hpp"
#include "shared_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <sys/types.h>
#include <thread>
#include <unordered_map>
#include <vector>

namespace hierring {

class Claims {
  public:
    // A peer's buffer, mapped here for as long as `keep` lives.
    struct Mapped {
        std::shared_ptr<void> keep;
        std::byte *data = nullptr;
    };
    // Maps a buffer of the process; 0 or an errno.
    using Mapper = int (*)(pid_t process, const SharedPlace &place, Mapped &made);

    // `possible`: whether this channel can do without staging at all.
    Claims(unsigned local_size, bool possible);
    Claims(const Claims &) = delete;
    Claims &operator=(const Claims &) = delete;
    ~Claims() { release(); }

    // For tests whose ranks are threads of one process.
    void set_mapper(Mapper mapper) noexcept { mapper_ = mapper; }

    // --- the own call ---

    // Claims nbytes bytes at x and at out for the operation that is about to be entered. Not if one
    // of them is in no shared buffer, or in one that a peer could not map, or in one that another
    // operation of this process has claimed: break_off() could not take it from under that one.
    void make(const std::byte *x, const std::byte *out, std::size_t nbytes);

    // Writes the claim, if there is one, and some of the buffers that are gone to the own call; the
    // bits for Arrival::payload.
    std::uint32_t describe(Call &call);

    bool armed() const noexcept { return armed_; }

    // Tells whether the claim was made by this thread: nobody else may end it.
    bool mine() const noexcept { return thread_ == std::this_thread::get_id(); }

    // The operation is over, or no peer will touch the memory: nothing is claimed any more.
    void release() noexcept;

    // All peers have mapped what was fresh; or not all, and it is never claimed again here.
    void settle(bool mapped);

    // Ends a claim while a peer may still write: puts fresh pages under out, and lets go of the
    // peers' memory. 0, or an errno if out still is where peers may write. x keeps its pages: peers
    // only read it.
    int break_off() noexcept;

    // Tells whether break_off() has ended an operation: no other may come on this channel.
    bool torn() const noexcept { return torn_; }

    // --- the peers' calls ---

    // Maps what the peer's claim calls fresh; false if that failed.
    bool map(unsigned local_rank, pid_t process, const Call &call);

    // Finds where a claim of a peer is mapped here. Throws std::logic_error if it is not.
    std::byte *find(unsigned local_rank, const SharedPlace &place) const;

    // Unmaps what a peer has said is gone, or what it has claimed in vain.
    void forget(unsigned local_rank, std::span<const std::uint64_t> ids) noexcept;

    // Unmaps everything of the peers'; no operation may be in progress.
    void forget_all() noexcept;

    // Buffers of peers that are mapped at present.
    std::size_t mapped() const noexcept;

  private:
    // Half of a claim.
    struct Own {
        std::shared_ptr<SharedBuffer> buffer;
        std::uint64_t id = 0, offset = 0;
        bool fresh = false;
    };
    enum class Standing { mapped, refused };

    bool locate(const std::byte *first, std::size_t nbytes, Own &own) const;
    static void write(const Own &own, SharedPlace &place) noexcept;
    void hear_of_gone();

    bool possible_;
    Mapper mapper_;
    Own x_, out_;
    bool armed_ = false, torn_ = false;
    std::thread::id thread_;
    std::unordered_map<std::uint64_t, Standing> known_; // own buffers, by id
    std::deque<std::uint64_t> gone_;                    // peers have mapped them, and must be told
    std::uint64_t serial_ = 0;                          // of gone_since()
    std::vector<std::unordered_map<std::uint64_t, Mapped>> peers_;
};

} // namespace hierring
