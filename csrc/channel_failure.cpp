// What ranks know of each other's state, and how a channel breaks.
#include "channel.hpp"

#include <algorithm>
#include <ctime>
#include <stdexcept>

namespace hierring {

Status Channel::wait_for(Flag flag, std::uint32_t value, unsigned local_rank, Spent account,
                         std::int64_t until_ns) {
    // A verdict may be late because of any rank of the world: local rank 0 is not to blame.
    const bool blamed = account == Spent::wait_arrival || account == Spent::wait_peer;
    const TimedWait timed(*clock_, account, blamed ? local_rank : TimedWait::kNobody);
    auto &waiting_for = head(local_rank_).status.waiting_for;
    blocker_ = static_cast<int>(local_rank);
    waiting_for.store(blocker_, std::memory_order_relaxed);
    const Status status = waiter_.wait(flag, value, local_rank, until_ns);
    if (status == Status::done) {
        waiting_for.store(-1, std::memory_order_relaxed);
    }
    return status;
}

bool Channel::aborted() const noexcept {
    return header().abort.state.load(std::memory_order_acquire) != 0;
}

bool Channel::interrupted() { return signal_hook_ != nullptr && signal_hook_(); }

Status Channel::fate(unsigned local_rank) const noexcept {
    if (head(local_rank).status.left.load(std::memory_order_seq_cst) != 0) {
        return Status::left;
    }
    return segment_->alive(local_rank) ? Status::done : Status::dead;
}

void Channel::note(Phase phase, std::uint32_t step, int waiting_for) noexcept {
    StatusLine &status = head(local_rank_).status;
    status.phase.store(static_cast<std::uint32_t>(phase), std::memory_order_relaxed);
    status.step.store(step, std::memory_order_relaxed);
    status.waiting_for.store(waiting_for, std::memory_order_relaxed);
}

Channel::Peer Channel::peer(unsigned local_rank) const {
    if (local_rank >= local_size()) {
        throw std::invalid_argument("no such local rank");
    }
    const StatusLine &status = head(local_rank).status;
    // First, and acquire: whoever sees the mark sees the last word of a rank that has left.
    const bool left = status.left.load(std::memory_order_acquire) != 0;
    const std::int64_t since = status.since_ns.load(std::memory_order_relaxed);
    return {
        .seq = status.seq.load(std::memory_order_relaxed),
        .phase = status.phase.load(std::memory_order_relaxed),
        .step = status.step.load(std::memory_order_relaxed),
        .waiting_for = status.waiting_for.load(std::memory_order_relaxed),
        .age_s = since == 0 ? 0.0 : static_cast<double>(now_ns() - since) * 1e-9,
        .left = left,
        .pid = status.pid.load(std::memory_order_relaxed),
    };
}

// Wakes whoever sleeps on any flag of this rank, announced or about to be.
void Channel::wake_all_of(unsigned local_rank) const noexcept {
    for (const unsigned parity : {0u, 1u}) {
        wake_all(*arrival_flag(local_rank, parity).word);
        if (local_rank == 0) {
            wake_all(*verdict_flag(parity).word);
        }
    }
    for (const CounterKind kind : {kStaged, kReduced, kGathered, kRingStep}) {
        wake_all(*flag(local_rank, kind).word);
    }
}

bool Channel::set_abort(int kind, int rank, std::string_view text) noexcept {
    Abort &abort = header().abort;
    std::uint32_t unset = 0;
    if (!abort.state.compare_exchange_strong(unset, 1, std::memory_order_acq_rel)) {
        return false;
    }
    abort.kind = kind;
    abort.rank = rank;
    abort.text_nbytes = static_cast<std::uint32_t>(std::min(text.size(), kCauseBytes));
    std::copy_n(text.data(), abort.text_nbytes, abort.text);
    abort.state.store(2, std::memory_order_release);
    // Whoever misses this, being between its last look and its sleep, looks again within 10 ms.
    for (unsigned peer = 0; peer < local_size(); ++peer) {
        wake_all_of(peer);
    }
    return true;
}

std::optional<Channel::Cause> Channel::abort_cause() const noexcept {
    const Abort &abort = header().abort;
    std::uint32_t state = abort.state.load(std::memory_order_acquire);
    for (int i = 0; state == 1 && i < 200; ++i) { // 1 KB is being written: 0.2 s is for ever
        const timespec nap{.tv_sec = 0, .tv_nsec = 1'000'000};
        nanosleep(&nap, nullptr);
        state = abort.state.load(std::memory_order_acquire);
    }
    if (state == 0) {
        return std::nullopt;
    }
    if (state == 1) {
        return Cause{0, -1, {}};
    }
    return Cause{abort.kind, abort.rank, {abort.text, abort.text_nbytes}};
}

bool Channel::claim_inquiry() noexcept {
    std::uint32_t unclaimed = 0;
    return header().inquiry.compare_exchange_strong(unclaimed, 1, std::memory_order_relaxed);
}

void Channel::leave() noexcept {
    if (in_forked_child()) {
        return; // it is the parent's seat
    }
    head(local_rank_).status.left.store(1, std::memory_order_seq_cst);
    wake_all_of(local_rank_);
}

} // namespace hierring
