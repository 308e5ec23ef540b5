// What lies where in a node's segment, and who may touch which word when.
//
//   header | verdict 0, verdict 1 | slot of local rank 0 | slot of local rank 1 | ... | window
//
// Every part begins on a page, so that the rank that uses it most can be the first to touch it. A
// new segment is all zero, and zero is the start value of every word below. Nothing is ever reset:
// counters run on and wrap, and are compared by distance (flags.hpp). docs/memory-model.md argues
// why the plain memory between the words is never read while it is written.
//
// "Owner" is the rank the slot belongs to, "peers" are the other ranks of the node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hierring {

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4, "a Word is also a futex");
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "needed across processes");

// Words of different writers, or read by different waits, are this far apart: two cache lines,
// because the adjacent-line prefetcher of x86 pulls lines in pairs.
inline constexpr std::size_t kLine = 128;
inline constexpr std::size_t kPage = 4096;

inline constexpr std::size_t kInlineBytes = 48; // what fits beside a flag in its 64-byte line
inline constexpr std::size_t kDescriptorBytes = 512;
inline constexpr std::size_t kDetailBytes = 1024;
inline constexpr std::size_t kCauseBytes = 900;
inline constexpr unsigned kMaxLocalSize = 1024; // sources of one reduction

// Bits of Arrival::payload, beside the length of the payload: what of the call is worth reading.
inline constexpr std::uint32_t kScaled = 1u << 31; // the scale is not 1
inline constexpr std::uint32_t kClaims = 1u << 30; // x and out are in buffers that peers can map
inline constexpr std::uint32_t kFresh = 1u << 29;  // and the peers have yet to map one of them
inline constexpr std::uint32_t kGone = 1u << 28;   // some buffers are no more
inline constexpr std::uint32_t kPayloadBytes = kGone - 1; // the length

inline constexpr std::size_t kGoneIds = 15; // told in one call

// "I have entered operation seq", one for odd and one for even seq.
//   seq      written by the owner (seq_cst), read by peers (acquire; seq_cst before sleeping)
//   the rest plain, written by the owner before seq, read by peers after seq was seen; written
//            again two operations later, when every peer has left this one
struct alignas(kLine) Arrival {
    Word seq;
    std::uint32_t payload; // bytes of the payload of a small operation, and the bits above
    std::uint64_t digest;
    std::byte inline_payload[kInlineBytes]; // the payload, if it is that short
};
static_assert(sizeof(Arrival) == kLine && offsetof(Arrival, inline_payload) == 16);

// A count of pieces through the life of the channel, low 32 bits.
//   value    written by the owner (seq_cst), read by peers (acquire; seq_cst before sleeping)
struct alignas(kLine) Counter {
    Word value;
};
static_assert(sizeof(Counter) == kLine);

// How many ranks sleep, or are about to, on each flag of the slot. Away from the flags, for a
// publisher looks at it every time and peers write it only when they go to sleep.
//   all      added to and taken from by peers (seq_cst), read by the owner (seq_cst). A rank killed
//            in its sleep leaves its 1 behind: from then on, wakes that wake nobody.
struct alignas(kLine) Sleepers {
    Word arrival[2];
    Word staged;
    Word reduced;
    Word gathered;
    Word ring_step;
};
static_assert(sizeof(Sleepers) == kLine);

// What the owner was last seen doing, for the text of a timeout, and whether it has left.
//   all      written by the owner, read by anyone at any time; relaxed, and no field vouches for
//            another, except left: stored seq_cst after all the owner's other work, and looked at
//            (seq_cst) by a peer, which reads the flag it waits for once more afterwards
struct alignas(kLine) StatusLine {
    std::atomic<std::uint64_t> seq;
    std::atomic<std::int64_t> since_ns; // CLOCK_MONOTONIC of the last arrival
    std::atomic<std::uint32_t> phase;
    std::atomic<std::uint32_t> step;
    std::atomic<std::int32_t> waiting_for; // local rank or -1
    std::atomic<std::uint32_t> pid;
    Word left;
};
static_assert(sizeof(StatusLine) == kLine);

// Where a tensor begins in a buffer that its owner's peers can map (shared_buffer.hpp).
struct SharedPlace {
    std::uint64_t id;                    // of the buffer
    std::uint64_t offset;                // of the tensor in it
    std::uint64_t nbytes, device, inode; // of the buffer
    std::int32_t fd;                     // in the owner's process
    std::uint32_t fresh; // 1: the owner does not know yet that all peers have mapped it
};

// The rest of a call, one for odd and one for even seq.
//   all      plain; written by the owner before Arrival::seq, read by peers after it was seen
struct alignas(kLine) Call {
    double scale;
    std::uint32_t descriptor_nbytes;
    std::byte descriptor[kDescriptorBytes];
    alignas(kLine) SharedPlace x, out; // with kClaims
    std::uint64_t gone_count;          // with kGone
    std::uint64_t gone[kGoneIds];
};

// The fixed part of a slot. Behind it: small payloads (even, odd), then staging cells 0 and 1.
//   small[p]    plain; as Call
//   staging[c]  plain; written by the owner before it publishes staged (ring: ring_step), read by
//               peers after that and until they publish reduced
struct SlotHead {
    Arrival arrival[2];
    Counter staged;    // pieces packed; also: the window cells of these pieces are free to write
    Counter reduced;   // pieces whose chunk of the owner is in the window (copy: the whole piece)
    Counter gathered;  // runners only: pieces exchanged with the other nodes
    Counter ring_step; // ring schedule: steps 1 to n - 2 done, n - 2 a piece (n = local_size)
    Sleepers sleepers;
    StatusLine status;
    Call call[2];
};

// "The opening of operation seq ended so", one for odd and one for even seq.
//   seq      written by local rank 0 (seq_cst), read by all (acquire; seq_cst before sleeping)
//   the rest plain; written by local rank 0 before seq, read by all after seq was seen; written
//            again two operations later. Behind it lies room for a longer payload.
struct alignas(kLine) Verdict {
    Word seq;
    std::int32_t code;
    std::uint32_t detail_nbytes;
    std::uint32_t payload_nbytes;
    std::byte inline_payload[kInlineBytes];
    alignas(kLine) Word sleepers; // as Sleepers
    alignas(kLine) std::byte detail[kDetailBytes];
};
static_assert(offsetof(Verdict, inline_payload) == 16);

// The first cause of a break.
//   state    0 -> 1 by compare-and-swap of whoever is first, 1 -> 2 (release) by the same; read by
//            all (acquire) when a wait takes long and when asked for
//   the rest plain; written by the first while state is 1, read by all once it is 2
struct alignas(kLine) Abort {
    Word state;
    std::int32_t kind;
    std::int32_t rank;
    std::uint32_t text_nbytes;
    char text[kCauseBytes];
};

struct Header {
    // 0 -> hash of the geometry by compare-and-swap of the first rank to come; read by the others.
    alignas(kLine) std::atomic<std::uint64_t> geometry;
    // 0 -> 1 by compare-and-swap of the rank that composes the cause of a timeout.
    alignas(kLine) Word inquiry;
    Abort abort;
};

// Rounds up to a multiple.
constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// The sizes that all ranks of a node agree on.
struct Geometry {
    unsigned local_size;
    std::size_t cell_bytes;
    unsigned window_cells;
    std::size_t small_bytes;
    bool operator==(const Geometry &) const = default;
};

// Offsets into the segment.
class Layout {
  public:
    // Requires valid(geometry).
    constexpr explicit Layout(const Geometry &geometry) : geometry_(geometry) {}

    // Tells whether the sizes make a layout: alignment, the counts that the protocol needs, and no
    // overflow.
    static constexpr bool valid(const Geometry &g) {
        constexpr std::size_t most = std::size_t{1} << 32;
        return g.local_size >= 1 && g.local_size <= kMaxLocalSize && g.cell_bytes >= 64 &&
               g.cell_bytes <= most && g.cell_bytes % 64 == 0 && g.window_cells >= 2 &&
               g.window_cells <= 4096 && g.small_bytes >= 64 &&
               g.small_bytes <= most / 32 && // below kPayloadBytes
               g.small_bytes % 64 == 0;
    }

    constexpr const Geometry &geometry() const { return geometry_; }

    constexpr std::size_t header() const { return 0; }
    constexpr std::size_t verdict(unsigned parity) const {
        return round_up(sizeof(Header), kPage) + parity * verdict_nbytes();
    }
    // A verdict may carry a sum and a count, or two halves: twice a small payload.
    constexpr std::size_t verdict_payload_nbytes() const { return 2 * geometry_.small_bytes; }
    constexpr std::size_t header_nbytes() const { return verdict(2); }

    constexpr std::size_t slot(unsigned local_rank) const {
        return header_nbytes() + local_rank * slot_nbytes();
    }
    constexpr std::size_t small(unsigned parity) const {
        return sizeof(SlotHead) + parity * round_up(geometry_.small_bytes, kLine);
    }
    constexpr std::size_t staging(unsigned cell) const {
        return round_up(small(2), kPage) + cell * round_up(geometry_.cell_bytes, kLine);
    }
    // A rank alone on its node stages nothing: its sums go from x straight to the window.
    constexpr std::size_t slot_nbytes() const {
        return round_up(staging(geometry_.local_size > 1 ? 2 : 0), kPage);
    }

    // The window is one region: consecutive cells are adjacent.
    constexpr std::size_t window() const { return slot(geometry_.local_size); }
    constexpr std::size_t window_nbytes() const {
        return round_up(geometry_.window_cells * geometry_.cell_bytes, kPage);
    }
    constexpr std::size_t nbytes() const { return window() + window_nbytes(); }

  private:
    constexpr std::size_t verdict_nbytes() const {
        return round_up(sizeof(Verdict) + verdict_payload_nbytes(), kPage);
    }

    Geometry geometry_;
};

} // namespace hierring
