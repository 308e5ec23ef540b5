#include "wait.hpp"

#include <algorithm>
#include <ctime>
#include <limits>
#include <sched.h>

namespace hierring {
namespace {

// Often enough that Ctrl-C and a dead peer feel immediate, seldom enough to cost no CPU: one look
// takes a few microseconds.
constexpr std::int64_t kLookEvery = 10'000'000;

// Tells the core that this is a spin loop.
inline void pause_instruction() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

} // namespace

std::int64_t now_ns() noexcept {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

std::int64_t to_ns(double seconds) noexcept {
    constexpr double most = 9e9; // nearly 300 years, in seconds; below 2^63 ns
    if (!(seconds > 0)) {
        return 0;
    }
    return static_cast<std::int64_t>(std::min(seconds, most) * 1e9);
}

bool Waiter::spin(Flag flag, std::uint32_t value, std::int64_t until_ns) noexcept {
    for (unsigned i = 0; i < pauses_; ++i) {
        pause_instruction();
        if (reached(look(flag), value)) {
            return true;
        }
    }
    for (unsigned i = 0; i < yields_ && now_ns() < until_ns; ++i) {
        sched_yield();
        if (reached(look(flag), value)) {
            return true;
        }
    }
    return false;
}

Status Waiter::wait(Flag flag, std::uint32_t value, unsigned local_rank, std::int64_t until_ns) {
    if (reached(look(flag), value)) {
        return Status::done;
    }
    if (until_ns > 0 && spin(flag, value, until_ns)) {
        return Status::done;
    }
    std::int64_t now = now_ns();
    if (now >= until_ns) { // nobody sleeps, so the line with the sleepers is left alone
        return look_around(flag, value, local_rank, now);
    }
    const Sleeper sleeper(flag);
    while (true) {
        const std::uint32_t seen = sleeper.last_look();
        if (reached(seen, value)) {
            return Status::done;
        }
        const Status around = look_around(flag, value, local_rank, now);
        if (around != Status::pending || now >= until_ns) {
            return around;
        }
        sleep_on(*flag.word, seen, std::min(kLookEvery, until_ns - now));
        now = now_ns();
    }
}

// Returns pending if there is nothing to tell.
Status Waiter::look_around(Flag flag, std::uint32_t value, unsigned local_rank, std::int64_t now) {
    if (watch_.aborted()) {
        return Status::aborted;
    }
    if (now - last_look_ns_ < kLookEvery) {
        return Status::pending;
    }
    last_look_ns_ = now;
    if (watch_.interrupted()) {
        return Status::interrupted;
    }
    const Status fate = watch_.fate(local_rank);
    if (fate == Status::done) {
        return Status::pending;
    }
    return reached(look(flag), value) ? Status::done : fate;
}

Status Waiter::glance(std::int64_t until_ns) {
    const std::int64_t now = now_ns();
    if (now - last_look_ns_ < kLookEvery) {
        return Status::done;
    }
    last_look_ns_ = now;
    if (watch_.aborted()) {
        return Status::aborted;
    }
    if (watch_.interrupted()) {
        return Status::interrupted;
    }
    return now >= until_ns ? Status::pending : Status::done;
}

} // namespace hierring
