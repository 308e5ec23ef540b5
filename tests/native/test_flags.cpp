// Flags and waits: no wake-up is lost, and a wait notices what happens around it.
//
// A hang is a failure: the alarm ends it.
#include "check.hpp"
#include "wait.hpp"

#include <cstdio>
#include <memory>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace hierring;

namespace {

constexpr std::int64_t kHour = 3'600'000'000'000;
constexpr std::int64_t kMillisecond = 1'000'000;

struct Line {
    alignas(kLine) Word word{0};
    alignas(kLine) Word sleepers{0};
    Flag flag() { return {&word, &sleepers}; }
};

// Nothing happens around, unless told so.
struct Quiet : Watch {
    mutable int looks = 0;
    int signals = 0;
    bool is_aborted = false, is_interrupted = false;
    Status peer = Status::done;

    bool aborted() const noexcept override { return is_aborted; }
    bool interrupted() override {
        ++signals;
        return is_interrupted;
    }
    Status fate(unsigned) const noexcept override {
        ++looks;
        return peer;
    }
};

void test_compare_wraps() {
    CHECK(reached(5, 5) && reached(6, 5) && !reached(4, 5));
    CHECK(reached(0, 0xffffffffu) && reached(3, 0xfffffffeu) && !reached(0xfffffffeu, 3));
    CHECK(reached(0x80000000u, 1) && !reached(0x80000001u, 1));
}

// Sleeps without a limit, so that one lost wake-up hangs for good.
void sleep_until(Flag flag, std::uint32_t value) {
    const Sleeper sleeper(flag);
    for (std::uint32_t seen; !reached(seen = sleeper.last_look(), value);) {
        sleep_on(*flag.word, seen, kHour);
    }
}

// A publisher and a sleeper start each round together, so that the store of the one meets the last
// look of the other. The payload keeps the store buffer busy: the flag's store is still in it when
// the sleepers are counted. With release and acquire in place of seq_cst this hangs,
// on x86 after some 100 000 rounds.
void test_no_wake_up_is_lost() {
    constexpr std::uint32_t first = 0xffffff00u; // wraps soon
    constexpr std::uint32_t rounds = 200'000;
    constexpr unsigned lines = 8;
    Line flag, start, end;
    std::vector<Line> payload(lines);
    flag.word = first;
    const auto meet = [](Word &mine, Word &other, std::uint32_t round) {
        mine.store(round, std::memory_order_release);
        for (int i = 0; !reached(other.load(std::memory_order_acquire), round); ++i) {
            if (i > 1000) {
                std::this_thread::yield();
            }
        }
    };
    const auto spin = [](std::minstd_rand &random, unsigned most) {
        for (auto i = random() % most; i > 0; --i) {
            std::atomic_signal_fence(std::memory_order_seq_cst);
        }
    };
    std::thread sleeper([&] {
        std::minstd_rand random(1);
        for (std::uint32_t i = 1; i <= rounds; ++i) {
            meet(end.word, start.word, i);
            spin(random, 2048); // it is the first to leave meet(), which its peer awaits spinning
            sleep_until(flag.flag(), first + i);
            for (const Line &line : payload) {
                CHECK(line.word.load(std::memory_order_relaxed) == i);
            }
        }
        end.word = rounds + 1;
    });
    std::minstd_rand random(2);
    for (std::uint32_t i = 1; i <= rounds; ++i) {
        meet(start.word, end.word, i);
        spin(random, 64);
        for (Line &line : payload) {
            line.word.store(i, std::memory_order_relaxed);
        }
        publish(flag.flag(), first + i);
    }
    sleeper.join();
    CHECK(flag.sleepers == 0);
}

// One publisher, many sleepers on one flag, each waiting for every value through the whole ladder.
void test_all_sleepers_wake() {
    constexpr unsigned sleepers = 4;
    constexpr std::uint32_t rounds = 5'000;
    Line go;
    std::vector<std::unique_ptr<Line>> done;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < sleepers; ++i) {
        done.push_back(std::make_unique<Line>());
    }
    for (unsigned i = 0; i < sleepers; ++i) {
        threads.emplace_back([&, i] {
            Quiet quiet;
            Waiter waiter(quiet);
            waiter.set_patience(i, i % 2);
            for (std::uint32_t round = 1; round <= rounds; ++round) {
                CHECK(waiter.wait(go.flag(), round, 0, now_ns() + kHour) == Status::done);
                publish(done[i]->flag(), round);
            }
        });
    }
    Quiet quiet;
    Waiter waiter(quiet);
    waiter.set_patience(0, 0);
    for (std::uint32_t round = 1; round <= rounds; ++round) {
        publish(go.flag(), round);
        for (const auto &line : done) {
            CHECK(waiter.wait(line->flag(), round, 0, now_ns() + kHour) == Status::done);
        }
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

void test_a_wait_notices() {
    Line line;
    Quiet quiet;
    const auto wait = [&](std::int64_t until) {
        Waiter waiter(quiet);
        waiter.set_patience(2, 2);
        return waiter.wait(line.flag(), 1, 0, until);
    };
    CHECK(wait(0) == Status::pending);
    CHECK(wait(now_ns() + 25 * kMillisecond) == Status::pending);
    quiet.peer = Status::left;
    CHECK(wait(now_ns() + kHour) == Status::left);
    quiet.peer = Status::dead;
    CHECK(wait(now_ns() + kHour) == Status::dead);
    quiet.is_interrupted = true;
    CHECK(wait(now_ns() + kHour) == Status::interrupted);
    quiet.is_aborted = true;
    CHECK(wait(0) == Status::aborted);
    CHECK(wait(now_ns() + kHour) == Status::aborted);
    line.word = 1; // what is there counts, whatever else happened
    CHECK(wait(0) == Status::done);
    CHECK(line.sleepers == 0);
}

// A peer that published and then went is no failure: the flag is read again after its fate.
void test_last_words_count() {
    struct Parting : Quiet {
        Line *line = nullptr;
        Status fate(unsigned) const noexcept override {
            publish(line->flag(), 1);
            return Status::dead;
        }
    } parting;
    Line line;
    parting.line = &line;
    Waiter waiter(parting);
    CHECK(waiter.wait(line.flag(), 1, 0, now_ns() + kHour) == Status::done);
}

// However short the single waits are, the world is looked at, but not at every one of them.
void test_short_waits_look_around_too() {
    Line line;
    Quiet quiet;
    Waiter waiter(quiet);
    waiter.set_patience(0, 0);
    const std::int64_t end = now_ns() + 100 * kMillisecond;
    int waits = 0;
    for (; now_ns() < end; ++waits) {
        CHECK(waiter.wait(line.flag(), 1, 0, waits % 2 == 0 ? 0 : now_ns() + 50'000) ==
              Status::pending);
    }
    CHECK(quiet.looks >= 2 && quiet.looks <= 12 && waits > quiet.looks);
    CHECK(waiter.glance(end + kHour) == Status::done);
    const int signals = quiet.signals;
    while (quiet.signals == signals) {
        CHECK(waiter.glance(end + kHour) == Status::done);
    }
}

void test_seconds() {
    CHECK(to_ns(0.0) == 0 && to_ns(-1.0) == 0 && to_ns(2.5) == 2'500'000'000);
    CHECK(to_ns(1.0 / 0.0) > kHour);
}

} // namespace

int main() {
    alarm(110);
    test_compare_wraps();
    test_seconds();
    test_a_wait_notices();
    test_last_words_count();
    test_short_waits_look_around_too();
    test_all_sleepers_wake();
    test_no_wake_up_is_lost();
    std::puts("flags: ok");
}
