// One rank's end of the shared memory of a node: arrivals, verdicts, small operations, status and
// failure. Large operations are in channel_pipeline.hpp.
//
// One thread at a time uses a Channel. Nothing here allocates, throws (but for
// std::invalid_argument and std::logic_error, where the caller broke the contract) or writes
// outside the own slot, except where said.
#pragma once

#include "kernels.hpp"
#include "layout.hpp"
#include "phase_clock.hpp"
#include "segment.hpp"
#include "strided.hpp"
#include "wait.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace hierring {

// What a rank is doing, numbered as in hierring/_core.pyi.
enum class Phase : std::uint32_t { idle, enter, stage, opening, reduce, net, copy };

// One of the counters of a slot, and where its sleepers are counted.
struct CounterKind {
    Counter SlotHead::*counter;
    Word Sleepers::*sleepers;
};
inline constexpr CounterKind kStaged{&SlotHead::staged, &Sleepers::staged};
inline constexpr CounterKind kReduced{&SlotHead::reduced, &Sleepers::reduced};
inline constexpr CounterKind kGathered{&SlotHead::gathered, &Sleepers::gathered};
inline constexpr CounterKind kRingStep{&SlotHead::ring_step, &Sleepers::ring_step};

class Channel final : Watch {
  public:
    // A snapshot of a rank's status line.
    struct Peer {
        std::uint64_t seq;
        std::uint32_t phase;
        std::uint32_t step;
        std::int32_t waiting_for;
        double age_s;
        bool left;
        std::uint32_t pid;
    };

    // Why a channel broke.
    struct Cause {
        int kind;
        int rank;
        std::string_view text;
    };

    // Handles pending signals; true if that left an exception. Called without the GIL.
    using SignalHook = bool (*)();

    // Touches no shared memory yet. Throws std::invalid_argument if the sizes make no layout or do
    // not fit the segment.
    Channel(std::shared_ptr<Segment> segment, unsigned local_rank, const Geometry &geometry,
            bool ring_schedule);

    // Reserves and first-touches the header, the own slot and the own share of the window, and
    // takes its place there; 0 or an errno. Everything else comes after it: memory of a full file
    // system must not be touched. Throws std::invalid_argument if the sizes differ from a peer's.
    int reserve();

    void set_patience(unsigned pauses, unsigned yields) noexcept {
        waiter_.set_patience(pauses, yields);
    }
    void set_signal_hook(SignalHook hook) noexcept { signal_hook_ = hook; }

    // Books the channel's steps and waits on this clock, which must outlive it.
    void set_clock(PhaseClock &clock) noexcept { clock_ = &clock; }
    PhaseClock &clock() const noexcept { return *clock_; }

    // For tests of wrap-around: as if the operations before `seq` had been. All ranks, before any
    // operation, with a barrier afterwards.
    void start_at(std::uint64_t seq) noexcept;

    // Tells whether this process is a fork of the one that made the channel: it must not write.
    bool in_forked_child() const noexcept { return generation_ != fork_generation(); }

    // --- arrival ---

    // The current operation, or the last one.
    std::uint64_t seq() const noexcept { return seq_; }

    // Publishes the arrival at operation `seq`, which follows the one before.
    void arrive(std::uint64_t seq, std::uint64_t digest, std::span<const std::byte> descriptor,
                double scale, const View *small);

    // The same with a contiguous payload and no scale.
    void arrive(std::uint64_t seq, std::uint64_t digest, std::span<const std::byte> descriptor,
                std::span<const std::byte> small);

    // Waits for all arrivals at the current operation.
    Status arrivals(std::int64_t until_ns);

    // Waits for them without sleeping or looking around; false if that was not enough.
    bool arrivals_soon(std::int64_t until_ns);

    // Tells whether all have arrived, without waiting.
    bool all_arrived() noexcept;

    // The ranks that have not arrived.
    std::vector<unsigned> missing() const;

    // The rank last waited for, or -1.
    int blocker() const noexcept { return blocker_; }

    // After arrivals(): the lowest rank whose digest is not local rank 0's, or -1.
    int local_difference() const noexcept;

    // What a rank gave to arrive() for the current operation, which it must have entered.
    std::span<const std::byte> descriptor(unsigned local_rank) const;
    double scale(unsigned local_rank) const noexcept;

    // --- verdict (channel_call.cpp) ---

    // Local rank 0 alone, after arrivals(): publishes how the opening of the operation ended.
    void publish_verdict(std::uint64_t seq, int code, std::span<const std::byte> detail,
                         std::span<const std::byte> payload);

    // Waits for the verdict on the current operation; the others may be called once it is there.
    Status verdict(std::uint64_t seq, std::int64_t until_ns);
    int verdict_code() const;
    std::span<const std::byte> verdict_detail() const;

    // --- small operations (channel_call.cpp) ---

    // After arrivals(): reduces the payloads of all ranks, in rank order, with their scales.
    void reduce_small(void *dst, DType dst_type, DType type, std::size_t count, Op op,
                      double divisor);

    // The same into the first elements of a view.
    void reduce_small_to(const View &out, DType type, std::size_t count, Op op, double divisor);

    // After verdict(): converts elements [first, first + count) of its payload to `out`, divided.
    void finish_small(const View &out, DType type, DType work_type, std::size_t first,
                      std::size_t count, double divisor);

    // --- status and failure ---

    // Writes the own status line.
    void note(Phase phase, std::uint32_t step, int waiting_for) noexcept;
    Peer peer(unsigned local_rank) const;

    // Tells whether somebody has broken the channel.
    bool broken() const noexcept { return aborted(); }

    // Tells whether this rank has left it.
    bool has_left() const noexcept {
        return head(local_rank_).status.left.load(std::memory_order_relaxed) != 0;
    }

    // Breaks the channel, if nobody has yet, and wakes all ranks; true for the one whose cause
    // counts. Text beyond kCauseBytes is cut off. Writes the header.
    bool set_abort(int kind, int rank, std::string_view text) noexcept;

    // The cause of the break, if there is one; (0, -1, "") if its writer died over it.
    std::optional<Cause> abort_cause() const noexcept;

    // True for the first caller in the node. Writes the header.
    bool claim_inquiry() noexcept;

    // Marks this rank as left and wakes those who wait for it. Nothing in a forked child.
    void leave() noexcept;

    // --- for Pipeline ---

    const Layout &layout() const noexcept { return layout_; }
    unsigned local_rank() const noexcept { return local_rank_; }
    unsigned local_size() const noexcept { return layout_.geometry().local_size; }
    bool ring_schedule() const noexcept { return ring_schedule_; }

    std::byte *at(std::size_t offset) const noexcept { return segment_->data() + offset; }
    SlotHead &head(unsigned local_rank) const noexcept {
        return *reinterpret_cast<SlotHead *>(at(layout_.slot(local_rank)));
    }
    std::byte *staging(unsigned local_rank, unsigned cell) const noexcept {
        return at(layout_.slot(local_rank) + layout_.staging(cell));
    }
    Flag flag(unsigned local_rank, CounterKind kind) const noexcept {
        SlotHead &slot = head(local_rank);
        return {&(slot.*kind.counter).value, &(slot.sleepers.*kind.sleepers)};
    }
    std::span<std::byte> scratch() noexcept { return scratch_; }

    // Waits for a flag of a peer, and tells the peers and the clock so.
    Status wait_for(Flag flag, std::uint32_t value, unsigned local_rank, Spent account,
                    std::int64_t until_ns);

    // Waits for the verdict, without looking at it.
    Status await_verdict(std::int64_t until_ns);

    // Waits for the first arrival that is missing; done if none is.
    Status await_next_arrival(std::int64_t until_ns);

    // Looks around if it is time again; see Waiter.
    Status glance(std::int64_t until_ns) { return waiter_.glance(until_ns); }

  private:
    bool aborted() const noexcept override;
    bool interrupted() override;
    Status fate(unsigned local_rank) const noexcept override;

    unsigned parity() const noexcept { return static_cast<unsigned>(seq_ & 1); }
    Header &header() const noexcept { return *reinterpret_cast<Header *>(at(layout_.header())); }
    Verdict &verdict_line(unsigned parity) const noexcept {
        return *reinterpret_cast<Verdict *>(at(layout_.verdict(parity)));
    }
    std::byte *write_arrival(std::uint64_t seq, std::uint64_t digest,
                             std::span<const std::byte> descriptor, double scale,
                             std::size_t nbytes);
    void announce() noexcept;
    Flag arrival_flag(unsigned local_rank, unsigned parity) const noexcept;
    Flag verdict_flag(unsigned parity) const noexcept;
    const std::byte *verdict_payload() const noexcept;
    void check_verdict() const;
    const std::byte *small_payload(unsigned local_rank) const noexcept;
    std::span<Source> small_sources(DType type, std::size_t count);
    unsigned first_missing() noexcept;
    void agree_on_geometry();
    void wake_all_of(unsigned local_rank) const noexcept;

    std::shared_ptr<Segment> segment_;
    Layout layout_;
    unsigned local_rank_;
    bool ring_schedule_;
    unsigned generation_ = fork_generation();
    Waiter waiter_{*this};
    SignalHook signal_hook_ = nullptr;
    PhaseClock standing_; // unless there is another one
    PhaseClock *clock_ = &standing_;

    std::uint64_t seq_ = 0; // the current operation, or the last one
    unsigned seen_ = 0;     // peers behind us, in cyclic order, whose arrival was seen
    int blocker_ = -1;
    std::vector<std::byte> scratch_;
    std::vector<Source> sources_;
};

} // namespace hierring
