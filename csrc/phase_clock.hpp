// Where a rank's time inside collectives goes: a clock with one hand and an account for each phase.
//
// Between two readings the hand points at one account, and the interval goes there. So each instant
// is in exactly one account, and they add up to the total to the nanosecond, whatever happens in
// between. What does not move the hand costs nothing; nor does a clock that stands still.
//
// Private memory of one rank. One thread at a time uses it: the one that is inside a collective.
#pragma once

#include "wait.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hierring {

// What time can be spent on, numbered as in hierring/_core.pyi; docs/algorithms.md says what
// counts.
enum class Spent : std::uint32_t {
    stage,
    reduce_scatter,
    inter_node,
    allgather,
    wait_arrival,
    wait_verdict,
    wait_peer,
    other,
};
inline constexpr std::size_t kSpentCount = 8;

class PhaseClock {
  public:
    // All accounts in nanoseconds; those waited are part of the wait accounts, by local rank.
    struct Reading {
        std::array<std::int64_t, kSpentCount> accounts;
        std::int64_t total;
        std::vector<std::int64_t> waited;
    };

    explicit PhaseClock(unsigned local_size = 0) : waited_(local_size) {}

    // A call begins, or goes on with its next part: the hand points at `other`. Returns the time.
    std::int64_t start() noexcept {
        const std::int64_t now = now_ns();
        if (running_) {
            book(now);
        } else {
            running_ = true;
            started_ = last_ = now;
        }
        hand_ = Spent::other;
        return now;
    }

    // The call is over; nothing if none is under way.
    void stop() noexcept {
        if (running_) {
            book(now_ns());
            total_ += last_ - started_;
            running_ = false;
            hand_ = Spent::other;
        }
    }

    // Points the hand at another account. Returns where it pointed.
    Spent turn(Spent account) noexcept {
        const Spent before = hand_;
        if (running_ && account != before) {
            book(now_ns());
            hand_ = account;
        }
        return before;
    }

    // Where the hand points.
    Spent hand() const noexcept { return hand_; }

    // Books the time so far, and leaves the hand where it is.
    void mark() noexcept {
        if (running_) {
            book(now_ns());
        }
    }

    // The last reading.
    std::int64_t last() const noexcept { return last_; }

    // Notes that so much of what has been booked was a wait for a peer.
    void waited(unsigned local_rank, std::int64_t nanoseconds) noexcept {
        if (local_rank < waited_.size()) {
            waited_[local_rank] += nanoseconds;
        }
    }

    // What has been booked so far.
    Reading read() const {
        return {accounts_, total_ + (running_ ? last_ - started_ : 0), waited_};
    }

  private:
    // The time since the last reading goes to the account that the hand points at.
    void book(std::int64_t now) noexcept {
        accounts_[static_cast<std::size_t>(hand_)] += now - last_;
        last_ = now;
    }

    bool running_ = false;
    Spent hand_ = Spent::other;
    std::int64_t started_ = 0, last_ = 0, total_ = 0;
    std::array<std::int64_t, kSpentCount> accounts_{};
    std::vector<std::int64_t> waited_;
};

// A wait, as the clock sees it, for as long as it lives.
class TimedWait {
  public:
    // `local_rank` is the peer to blame, or kNobody.
    TimedWait(PhaseClock &clock, Spent account, unsigned local_rank) noexcept
        : clock_(clock), before_(clock.turn(account)), began_(clock.last()),
          local_rank_(local_rank) {}
    TimedWait(const TimedWait &) = delete;
    TimedWait &operator=(const TimedWait &) = delete;
    ~TimedWait() {
        if (clock_.turn(before_) == before_) {
            clock_.mark(); // the wait was part of a longer one
        }
        clock_.waited(local_rank_, clock_.last() - began_);
    }

    static constexpr unsigned kNobody = ~0u;

  private:
    PhaseClock &clock_;
    Spent before_;
    std::int64_t began_;
    unsigned local_rank_;
};

} // namespace hierring
