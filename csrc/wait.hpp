// How a rank waits for a flag of a peer: spin, yield, sleep, and look around while time passes.
#pragma once

#include "flags.hpp"

#include <cstdint>

namespace hierring {

// What a wait came to. The first six are numbered as in hierring/_core.pyi.
enum class Status : int {
    done = 0,
    pending = 1,     // `until` passed first
    aborted = 2,     // the abort word is set
    dead = 3,        // the awaited rank's liveness lock is gone
    left = 4,        // the awaited rank has left
    mismatch = 5,    // the digests differ
    interrupted = 6, // a signal handler raised an exception
};

// CLOCK_MONOTONIC in nanoseconds.
std::int64_t now_ns() noexcept;

// Converts seconds of CLOCK_MONOTONIC, infinity included.
std::int64_t to_ns(double seconds) noexcept;

// What a waiting rank must notice besides its flag.
class Watch {
  public:
    // Tells whether the channel is broken. Cheap: one load.
    virtual bool aborted() const noexcept = 0;

    // Lets pending signals be handled; true if that raised an exception, which then waits for the
    // caller.
    virtual bool interrupted() = 0;

    // Returns done for a rank that is there, else left or dead.
    virtual Status fate(unsigned local_rank) const noexcept = 0;

  protected:
    ~Watch() = default;
};

// The ladder of waiting, with its patience and the time of the last look around.
class Waiter {
  public:
    explicit Waiter(Watch &watch) noexcept : watch_(watch) {}

    // Sets how many pause instructions and then sched_yield rounds go before the first sleep.
    void set_patience(unsigned pauses, unsigned yields) noexcept {
        pauses_ = pauses;
        yields_ = yields;
    }

    // Waits until the flag of `local_rank` reaches `value`, at most until `until_ns` (0: only
    // looks). Sleeps in pieces of at most 10 ms and looks around that often, however short the
    // single calls are. `dead` and `left` are answered only if the flag, read once more afterwards,
    // still has not got there: what a rank published before it went counts.
    Status wait(Flag flag, std::uint32_t value, unsigned local_rank, std::int64_t until_ns);

    // The first rungs of the ladder alone: pauses and yields. True once the flag has got there.
    bool spin(Flag flag, std::uint32_t value, std::int64_t until_ns) noexcept;

    // Looks at the abort word and for signals if 10 ms have passed since the last time, for loops
    // that work and never wait. done, aborted, interrupted, or pending after `until_ns`.
    Status glance(std::int64_t until_ns);

  private:
    Status look_around(Flag flag, std::uint32_t value, unsigned local_rank, std::int64_t now);

    Watch &watch_;
    unsigned pauses_ = 30;
    unsigned yields_ = 100;
    std::int64_t last_look_ns_ = 0;
};

} // namespace hierring
