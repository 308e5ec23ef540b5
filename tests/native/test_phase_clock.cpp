// Time is booked once, on the right account, and to the nanosecond.
#include "channel_pipeline.hpp"
#include "check.hpp"

#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>

using namespace hierring;

namespace {

constexpr std::int64_t kForEver = std::int64_t{1} << 62;
constexpr std::int64_t kMillisecond = 1'000'000;

std::int64_t booked(const PhaseClock &clock, Spent account) {
    return clock.read().accounts[static_cast<std::size_t>(account)];
}

std::int64_t sum(const PhaseClock::Reading &reading) {
    return std::accumulate(reading.accounts.begin(), reading.accounts.end(), std::int64_t{0});
}

// Works until the clock of the machine has moved on.
void pass_time() {
    const std::int64_t begin = now_ns();
    while (now_ns() - begin < 1000) {
    }
}

void test_accounts_add_up() {
    PhaseClock clock;
    for (int call = 0; call < 3; ++call) {
        const std::int64_t began = now_ns();
        CHECK(clock.start() >= began);
        pass_time();
        CHECK(clock.turn(Spent::stage) == Spent::other);
        pass_time();
        CHECK(clock.turn(Spent::stage) == Spent::stage);
        CHECK(clock.turn(Spent::inter_node) == Spent::stage);
        CHECK(sum(clock.read()) == clock.read().total); // in the middle of a call, too
        clock.start();                                  // its second part
        CHECK(clock.hand() == Spent::other);
        clock.stop();
        clock.stop();
        CHECK(sum(clock.read()) == clock.read().total);
    }
    CHECK(booked(clock, Spent::other) >= 3000 && booked(clock, Spent::stage) >= 3000);
    CHECK(booked(clock, Spent::allgather) == 0 && booked(clock, Spent::wait_peer) == 0);
}

void test_a_standing_clock_books_nothing() {
    PhaseClock clock(2);
    clock.turn(Spent::stage);
    pass_time();
    {
        const TimedWait wait(clock, Spent::wait_peer, 1);
    }
    clock.mark();
    clock.stop();
    CHECK(clock.read().total == 0 && sum(clock.read()) == 0 && clock.read().waited[1] == 0);
    CHECK(clock.hand() == Spent::other);
}

void test_waits_by_peer() {
    PhaseClock clock(2);
    clock.start();
    {
        const TimedWait outer(clock, Spent::wait_peer, TimedWait::kNobody);
        pass_time();
        {
            const TimedWait inner(clock, Spent::wait_peer, 1);
            pass_time();
        }
        CHECK(clock.hand() == Spent::wait_peer);
    }
    CHECK(clock.hand() == Spent::other);
    clock.stop();
    const auto reading = clock.read();
    CHECK(reading.waited[0] == 0 && reading.waited[1] >= 1000);
    CHECK(reading.waited[1] <= booked(clock, Spent::wait_peer));
}

// A late peer is found in the account of arrivals, against its name, and nowhere else.
void test_a_channel_books_its_waits() {
    const Geometry geometry{2, 4096, 2, 64};
    std::shared_ptr<Segment> segment;
    CHECK(Segment::make_private(Layout(geometry).nbytes(), segment) == 0);
    Channel early(segment, 0, geometry, false), late(segment, 1, geometry, false);
    CHECK(early.reserve() == 0 && late.reserve() == 0);
    PhaseClock clock(2);
    early.set_clock(clock);
    clock.start();
    early.arrive(1, 7, {}, 1.0, nullptr);
    std::thread peer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        late.arrive(1, 7, {}, 1.0, nullptr);
    });
    CHECK(early.arrivals(kForEver) == Status::done);
    clock.stop();
    peer.join();
    const auto reading = clock.read();
    CHECK(booked(clock, Spent::wait_arrival) > 40 * kMillisecond);
    CHECK(reading.waited[1] == booked(clock, Spent::wait_arrival));
    CHECK(reading.total == booked(clock, Spent::wait_arrival) + booked(clock, Spent::other));
    CHECK(booked(clock, Spent::other) < booked(clock, Spent::wait_arrival));
}

// A runner that comes back again and again, instead of sleeping in block(), blames its peer, too.
void test_a_polling_runner_books_its_waits() {
    const Geometry geometry{2, 4096, 2, 64};
    std::shared_ptr<Segment> segment;
    CHECK(Segment::make_private(Layout(geometry).nbytes(), segment) == 0);
    Channel early(segment, 0, geometry, false), late(segment, 1, geometry, false);
    CHECK(early.reserve() == 0 && late.reserve() == 0);
    PhaseClock clock(2);
    early.set_clock(clock);
    Pipeline here(early), there(late);
    std::vector<float> x(512, 1.0f), y(512, 2.0f);
    const auto view = [](std::vector<float> &values) {
        const Piece piece{reinterpret_cast<std::byte *>(values.data()),
                          {static_cast<std::ptrdiff_t>(values.size())},
                          {sizeof(float)}};
        return View({&piece, 1}, sizeof(float));
    };
    const View mine = view(x), theirs = view(y);
    const auto operation = [](const View &values) {
        return Operation{Operation::Kind::reduce,
                         &values,
                         &values,
                         DType::f32,
                         DType::f32,
                         Op::sum,
                         1.0,
                         1.0,
                         2,
                         false,
                         512,
                         1024,
                         {}};
    };
    early.arrive(1, 7, {}, 1.0, nullptr);
    late.arrive(1, 7, {}, 1.0, nullptr);
    here.begin(operation(mine));
    there.begin(operation(theirs));
    here.open();
    there.open();
    clock.start();
    while (here.advance() != 0) {
    }
    clock.turn(Spent::wait_peer);
    const std::int64_t begin = now_ns();
    // By the clock of its own: the machine may take the processor away between two readings.
    while (clock.read().waited[1] < 20 * kMillisecond) {
        CHECK(here.advance() == 0); // the peer has staged nothing
        CHECK(now_ns() - begin < 60'000 * kMillisecond);
    }
    const auto waiting = clock.read();
    CHECK(waiting.waited[1] <= now_ns() - begin && waiting.waited[0] == 0);
    CHECK(waiting.waited[1] <= booked(clock, Spent::wait_peer));
    while (there.advance() != 0) { // stages; its reduction is done, too
    }
    while (here.reduced() < 1) {
        here.advance();
    }
    CHECK(booked(clock, Spent::reduce_scatter) > 0);
    clock.turn(Spent::inter_node); // messages are under way: whoever is behind is not waited for
    const auto before = clock.read().waited[1];
    CHECK(here.advance() == 0 && here.advance() == 0);
    CHECK(clock.read().waited[1] == before);
    here.gathered(1);
    there.gathered(1);
    while ((here.advance() & Pipeline::kFinished) == 0) {
    }
    clock.stop();
    CHECK(x[0] == 3.0f && x[511] == 3.0f && sum(clock.read()) == clock.read().total);
}

} // namespace

int main() {
    test_accounts_add_up();
    test_a_standing_clock_books_nothing();
    test_waits_by_peer();
    test_a_channel_books_its_waits();
    test_a_polling_runner_books_its_waits();
    std::puts("phase clock: ok");
}
