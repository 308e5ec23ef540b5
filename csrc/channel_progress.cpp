// Pipeline, second part: which step may be done, and what to sleep on if none may.
#include "channel_pipeline.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace hierring {

// --- what may be done ---

// Whether the counter of all peers among the first `ranks` ranks has reached `target`, a piece
// index. `low` is a lower bound of the slowest, renewed when it does not suffice.
bool Pipeline::all_reached(CounterKind kind, unsigned ranks, std::uint64_t target,
                           std::uint64_t &low) {
    if (low >= target) {
        return true;
    }
    std::uint64_t slowest = std::numeric_limits<std::uint64_t>::max();
    for (unsigned rank = 0; rank < ranks; ++rank) {
        if (rank == channel_.local_rank()) {
            continue;
        }
        const std::uint32_t have = look(channel_.flag(rank, kind));
        const auto ahead = static_cast<std::int32_t>(have - static_cast<std::uint32_t>(target));
        slowest = std::min(slowest, target + static_cast<std::uint64_t>(std::int64_t{ahead}));
    }
    low = slowest;
    return low >= target;
}

bool Pipeline::can_stage() {
    const unsigned window_cells = channel_.layout().geometry().window_cells;
    if (staged_ == end_ || staged_ - copied_ >= window_cells) {
        return false;
    }
    // The first two find their cells free: all ranks have reduced all pieces before base, or this
    // rank would not have ended the operation before. And there are no more before the verdict.
    if (staged_ - base_ < 2) {
        return true;
    }
    return open_ && all_reached(kReduced, channel_.local_size(), staged_ - 1, low_reduced_);
}

bool Pipeline::can_reduce() {
    if (!open_ || reduced_ == staged_) {
        return false;
    }
    if (walks_ring()) {
        const Gate gate = gate_of_ring();
        return reached(look(gate.flag), gate.value);
    }
    return all_reached(kStaged, channel_.local_size(), reduced_ + 1, low_staged_);
}

// Whether step 2 goes from neighbour to neighbour.
bool Pipeline::walks_ring() const noexcept {
    return channel_.ring_schedule() && channel_.local_size() > 1 &&
           operation_.kind == Operation::Kind::reduce;
}

// What ring step ring_step_ waits for: prev's step before. The partial sum of the last step has
// come past all other ranks, each of which had staged the piece: no look at their staged is needed
// before the window is written.
Pipeline::Gate Pipeline::gate_of_ring() {
    const unsigned n = channel_.local_size();
    const unsigned prev = (channel_.local_rank() + n - 1) % n;
    const CounterKind kind = ring_step_ == 1 ? kStaged : kRingStep;
    const std::uint64_t need =
        ring_step_ == 1 ? reduced_ + 1 : ring_steps_before(reduced_) + ring_step_ - 1;
    return {static_cast<int>(prev), channel_.flag(prev, kind), static_cast<std::uint32_t>(need)};
}

bool Pipeline::can_copy() {
    if (copied_ == reduced_) {
        return false;
    }
    if (operation_.runners == 0) {
        return all_reached(kReduced, channel_.local_size(), copied_ + 1, low_reduced_);
    }
    return (!is_runner() || gathered_ > copied_) &&
           all_reached(kGathered, operation_.runners, copied_ + 1, low_gathered_);
}

std::size_t Pipeline::reduced() {
    if (!active_) {
        return pieces_;
    }
    all_reached(kReduced, channel_.local_size(), end_, low_reduced_);
    const std::uint64_t all = std::clamp(std::min(low_reduced_, reduced_), base_, end_);
    reported_ = all;
    return static_cast<std::size_t>(all - base_);
}

void Pipeline::gathered(std::size_t done) {
    if (!active_ || !is_runner() || done > pieces_ || base_ + done < gathered_) {
        throw std::invalid_argument("only runners gather, and only forwards");
    }
    gathered_ = base_ + done;
    count_up(kGathered, gathered_);
}

// With self_verdict: compares the digests once all are there.
Pipeline::Opening Pipeline::try_open() {
    if (open_) {
        return Opening::open;
    }
    if (!operation_.self_verdict || !channel_.all_arrived()) {
        return Opening::waiting;
    }
    if (channel_.local_difference() >= 0) {
        return Opening::differed;
    }
    open_ = true;
    return Opening::open;
}

unsigned Pipeline::advance() {
    if (!active_) {
        return kFinished;
    }
    unsigned answer = 0;
    const bool was_open = open_;
    if (try_open() == Opening::differed) {
        return kDiffered;
    }
    if (open_ != was_open) {
        answer |= kProgressed;
    }
    // What peers wait for comes first: reduce frees their cells, stage feeds them, copy only us.
    PhaseClock &clock = channel_.clock();
    const Spent before = clock.hand();
    if (before == Spent::wait_peer && blamed_ >= 0) {
        const std::int64_t since = clock.last();
        clock.mark();
        clock.waited(static_cast<unsigned>(blamed_), clock.last() - since);
    }
    blamed_ = -1;
    if (can_reduce()) {
        clock.turn(operation_.kind == Operation::Kind::copy ? Spent::stage : Spent::reduce_scatter);
        reduce();
        answer |= kProgressed;
    }
    if (can_stage()) {
        clock.turn(Spent::stage);
        stage();
        answer |= kProgressed;
    }
    if (can_copy()) {
        clock.turn(Spent::allgather);
        copy_out();
        answer |= kProgressed;
    }
    clock.turn(before);
    if (open_ && copied_ == end_) {
        finish();
        answer |= kFinished;
    } else if (answer == 0 && open_ && is_runner() && before != Spent::inter_node) {
        const int rank = gate().rank; // a runner may nap or yield now, and come back here
        blamed_ = rank == static_cast<int>(channel_.local_rank()) ? -1 : rank;
    }
    return answer;
}

// --- waiting ---

// The first rank among the first `ranks`, in cyclic order behind us, whose counter is short of
// `target`.
Pipeline::Gate Pipeline::first_behind(CounterKind kind, unsigned ranks, std::uint64_t target) {
    const unsigned n = channel_.local_size();
    for (unsigned i = 1; i < n; ++i) {
        const unsigned rank = (channel_.local_rank() + i) % n;
        const Flag flag = channel_.flag(rank, kind);
        if (rank < ranks && !reached(look(flag), static_cast<std::uint32_t>(target))) {
            return {static_cast<int>(rank), flag, static_cast<std::uint32_t>(target)};
        }
    }
    return {};
}

// What holds the next step back, once nothing can be done. That this one flag is enough, though
// another may move first, is the deadlock argument of docs/memory-model.md: whatever the awaited
// rank waits for itself does not depend on a step that became possible here in the meantime.
Pipeline::Gate Pipeline::gate() {
    const unsigned n = channel_.local_size();
    if (is_runner()) {
        const std::uint64_t told = reported_;
        const bool news = base_ + reduced() > told;
        reported_ = told;
        if (news) {
            return {}; // the network has new work, and the caller has not heard of it
        }
    }
    if (staged_ > reduced_) {
        return walks_ring() ? gate_of_ring() : first_behind(kStaged, n, reduced_ + 1);
    }
    if (staged_ != end_ && staged_ - copied_ < channel_.layout().geometry().window_cells) {
        // A runner is content with less: the next piece to exchange.
        return first_behind(kReduced, n,
                            is_runner() ? std::min(staged_ - 1, reported_ + 1) : staged_ - 1);
    }
    return gate_of_copy();
}

// What the next copy waits for; for a runner, first of all for its next piece to exchange.
Pipeline::Gate Pipeline::gate_of_copy() {
    const unsigned n = channel_.local_size();
    if (operation_.runners == 0) {
        return first_behind(kReduced, n, copied_ + 1);
    }
    if (is_runner() && reported_ < reduced_) {
        return first_behind(kReduced, n, reported_ + 1);
    }
    const Gate others = first_behind(kGathered, operation_.runners, copied_ + 1);
    if (others.rank >= 0 || !is_runner() || gathered_ > copied_) {
        return others;
    }
    // Only the own exchange is missing, which no flag announces: a nap until `until`.
    const auto own = channel_.local_rank();
    return {static_cast<int>(own), channel_.flag(own, kGathered),
            static_cast<std::uint32_t>(copied_ + 1)};
}

Status Pipeline::block(std::int64_t until_ns) {
    if (!active_ || can_stage() || can_reduce() || can_copy()) {
        return Status::done;
    }
    if (!open_) {
        return operation_.self_verdict ? channel_.await_next_arrival(until_ns)
                                       : channel_.await_verdict(until_ns);
    }
    if (copied_ == end_) {
        return Status::done;
    }
    const Gate gate = this->gate();
    if (gate.rank < 0) {
        return Status::done;
    }
    const auto rank = static_cast<unsigned>(gate.rank);
    const Spent account =
        rank == channel_.local_rank() ? Spent::inter_node : Spent::wait_peer; // own exchange or not
    return channel_.wait_for(gate.flag, gate.value, rank, account, until_ns);
}

Status Pipeline::run(std::int64_t until_ns) {
    if (active_ && !open_ && !operation_.self_verdict) {
        throw std::logic_error("run() needs the verdict: open() or fail() first");
    }
    if (active_ && is_runner()) {
        throw std::logic_error("a runner exchanges between advance() and block()");
    }
    while (true) {
        const unsigned answer = advance();
        if ((answer & kFinished) != 0) {
            return Status::done;
        }
        if ((answer & kDiffered) != 0) {
            return Status::mismatch;
        }
        const Status status =
            (answer & kProgressed) != 0 ? channel_.glance(until_ns) : block(until_ns);
        if (status != Status::done) {
            return status;
        }
    }
}

} // namespace hierring
