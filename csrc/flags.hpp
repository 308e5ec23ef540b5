// Single-writer flags in shared memory, and the handshake that lets their readers sleep.
//
// A publisher stores the flag, then looks whether anybody sleeps. A sleeper announces itself, then
// looks at the flag a last time. Each side stores before it loads, and all four operations are
// seq_cst, hence in one total order: either the publisher sees the sleeper, or the sleeper sees the
// new value. With release and acquire both could miss each other, on x86 too, where a store may
// still be in the store buffer when the load behind it is done. The orders stand on the operations
// themselves and not in fences, which ThreadSanitizer does not follow.
#pragma once

#include "layout.hpp"

#include <cerrno>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hierring {

// A flag word and the count of its sleepers, somewhere in the segment.
struct Flag {
    Word *word;
    Word *sleepers;
};

// Tells whether a wrapping counter has come as far as `want`: right as long as the two are less
// than 2^31 apart.
constexpr bool reached(std::uint32_t have, std::uint32_t want) {
    return static_cast<std::int32_t>(have - want) >= 0;
}

// Wakes all that sleep on the word, in whatever process: never FUTEX_PRIVATE_FLAG.
inline void wake_all(Word &word) noexcept {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t *>(&word), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

// Sleeps while the word holds `seen`, for at most `nanoseconds`; may return early for no reason.
inline void sleep_on(Word &word, std::uint32_t seen, std::int64_t nanoseconds) noexcept {
    const timespec limit{.tv_sec = static_cast<time_t>(nanoseconds / 1'000'000'000),
                         .tv_nsec = static_cast<long>(nanoseconds % 1'000'000'000)};
    syscall(SYS_futex, reinterpret_cast<std::uint32_t *>(&word), FUTEX_WAIT, seen, &limit, nullptr,
            0);
}

// Stores a new value and wakes whoever sleeps for it. Only the flag's one writer calls it. All that
// the writer did before is visible to whoever sees the value.
inline void publish(Flag flag, std::uint32_t value) noexcept {
    flag.word->store(value, std::memory_order_seq_cst);
    if (flag.sleepers->load(std::memory_order_seq_cst) != 0) {
        wake_all(*flag.word);
    }
}

// Reads a flag; what its writer did before publishing that value is visible afterwards.
inline std::uint32_t look(Flag flag) noexcept { return flag.word->load(std::memory_order_acquire); }

// Announces a sleeper for as long as it lives. Between its construction and sleep_on() the flag
// must be read once more, by last_look().
class Sleeper {
  public:
    explicit Sleeper(Flag flag) noexcept : flag_(flag) {
        flag_.sleepers->fetch_add(1, std::memory_order_seq_cst);
    }
    Sleeper(const Sleeper &) = delete;
    Sleeper &operator=(const Sleeper &) = delete;
    ~Sleeper() { flag_.sleepers->fetch_sub(1, std::memory_order_seq_cst); }

    std::uint32_t last_look() const noexcept { return flag_.word->load(std::memory_order_seq_cst); }

  private:
    Flag flag_;
};

} // namespace hierring
