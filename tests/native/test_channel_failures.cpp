// What a rank notices when its peers do not come: time, a leaver, a break, a signal; and misuse.
#include "channel_pipeline.hpp"
#include "check.hpp"
#include "tensor.hpp"

#include <memory>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace hierring;
using namespace hierring::test;

namespace {

constexpr Geometry kTwo{2, 128, 2, 64};
constexpr std::int64_t kForEver = std::int64_t{1} << 62;
constexpr std::int64_t kMillisecond = 1'000'000;

// Both ranks of a node of two, in one thread or two.
struct Pair {
    std::shared_ptr<Segment> segment = make();
    Channel a{segment, 0, kTwo, false}, b{segment, 1, kTwo, false};
    Pipeline pa{a}, pb{b};

    Pair() { CHECK(a.reserve() == 0 && b.reserve() == 0); }

    static std::shared_ptr<Segment> make() {
        std::shared_ptr<Segment> segment;
        CHECK(Segment::make_private(Layout(kTwo).nbytes(), segment) == 0);
        return segment;
    }
};

// A sum of the tensor into itself.
Operation sum(Tensor &tensor, bool self_verdict = true) {
    return {Operation::Kind::reduce,
            &tensor.view(),
            &tensor.view(),
            tensor.type(),
            tensor.type(),
            Op::sum,
            1.0,
            1.0,
            0,
            self_verdict,
            tensor.count(),
            128 / itemsize(tensor.type()),
            {}};
}

template <typename Error, typename Act>
bool throws(Act &&act) {
    try {
        act();
    } catch (const Error &) {
        return true;
    }
    return false;
}

void test_time_passes() {
    Pair pair;
    pair.a.arrive(1, 7, {}, 1.0, nullptr);
    CHECK(pair.a.arrivals(0) == Status::pending);
    CHECK(pair.a.arrivals(now_ns() + 20 * kMillisecond) == Status::pending);
    CHECK(pair.a.blocker() == 1 && pair.a.missing() == std::vector<unsigned>{1});
    CHECK(pair.b.peer(0).waiting_for == 1 && pair.b.peer(0).seq == 1);
    pair.b.arrive(1, 7, {}, 1.0, nullptr);
    CHECK(pair.a.arrivals(0) == Status::done && pair.a.missing().empty());
    CHECK(pair.b.peer(0).waiting_for == -1);
}

void test_a_leaver_is_noticed_asleep() {
    Pair pair;
    pair.a.arrive(1, 7, {}, 1.0, nullptr);
    std::thread leaver([&] { pair.b.leave(); });
    CHECK(pair.a.arrivals(kForEver) == Status::left && pair.a.blocker() == 1);
    leaver.join();
    CHECK(pair.a.peer(1).left && !pair.a.peer(0).left);
}

// Leaving takes nothing back: what a rank published before still completes.
void test_a_leaver_has_arrived() {
    Pair pair;
    pair.b.arrive(1, 7, {}, 1.0, nullptr);
    pair.b.leave();
    pair.a.arrive(1, 7, {}, 1.0, nullptr);
    CHECK(pair.a.arrivals(kForEver) == Status::done);
}

void test_the_first_cause_stays() {
    Pair pair;
    CHECK(!pair.a.abort_cause());
    pair.a.arrive(1, 7, {}, 1.0, nullptr);
    std::thread breaker([&] { CHECK(pair.b.set_abort(3, 17, "out of order")); });
    CHECK(pair.a.arrivals(kForEver) == Status::aborted);
    breaker.join();
    CHECK(!pair.a.set_abort(4, 18, "me too"));
    const auto cause = pair.a.abort_cause();
    CHECK(cause && cause->kind == 3 && cause->rank == 17 && cause->text == "out of order");
    CHECK(pair.a.arrivals(0) == Status::aborted);
}

void test_a_long_cause_is_cut() {
    Pair pair;
    CHECK(pair.a.set_abort(1, 0, std::string(5000, 'x')));
    CHECK(pair.b.abort_cause()->text == std::string(kCauseBytes, 'x'));
}

// Whoever died over its cause leaves a break without one.
void test_a_half_written_cause() {
    Pair pair;
    reinterpret_cast<Header *>(pair.segment->data())->abort.state.store(1);
    pair.a.arrive(1, 7, {}, 1.0, nullptr);
    CHECK(pair.a.arrivals(0) == Status::aborted);
    const auto cause = pair.a.abort_cause();
    CHECK(cause && cause->kind == 0 && cause->rank == -1 && cause->text.empty());
}

void test_one_inquires() {
    Pair pair;
    CHECK(pair.b.claim_inquiry() && !pair.a.claim_inquiry() && !pair.b.claim_inquiry());
}

// An interrupted run goes on where it stopped, and ends right.
void test_an_interrupted_run_goes_on() {
    Pair pair;
    static int signals;
    signals = 0;
    pair.a.set_signal_hook([] { return ++signals % 2 == 1; });
    Tensor x(DType::i32, 500, 0), y(DType::i32, 500, 0);
    for (std::size_t i = 0; i < 500; ++i) {
        store(x.at(i), DType::i32, static_cast<int>(i));
        store(y.at(i), DType::i32, static_cast<int>(i * i % 100));
    }
    std::vector<std::byte> want = x.elements();
    const Source sources[] = {{x.at(0), DType::i32}, {y.at(0), DType::i32}};
    reduce(want.data(), DType::i32, sources, 500, Op::sum, 1.0);
    pair.a.arrive(1, 7, {}, 1.0, nullptr);
    pair.pa.begin(sum(x));
    CHECK(pair.pa.run(kForEver) == Status::interrupted && signals == 1);
    std::thread peer([&] {
        pair.b.arrive(1, 7, {}, 1.0, nullptr);
        pair.pb.begin(sum(y));
        Status status;
        while ((status = pair.pb.run(now_ns() + kMillisecond)) == Status::pending) {
        }
        CHECK(status == Status::done);
    });
    Status status;
    while ((status = pair.pa.run(kForEver)) == Status::interrupted) {
    }
    CHECK(status == Status::done);
    peer.join();
    CHECK(x.elements() == want && y.elements() == want);
    CHECK(pair.pa.base() == pair.pb.base() && pair.pa.stats().copied_bytes == 2000);
}

// Before the verdict nothing but own cells is written, however long the tensor is.
void test_two_pieces_ahead_at_most() {
    Pair pair;
    Tensor x(DType::f64, 200, 0);
    const auto before = x.elements();
    pair.a.arrive(1, 7, {}, 1.0, nullptr);
    pair.pa.begin(sum(x, false));
    CHECK(pair.pa.advance() == Pipeline::kProgressed);
    CHECK(pair.pa.advance() == Pipeline::kProgressed);
    CHECK(pair.pa.advance() == 0 && pair.pa.block(0) == Status::pending);
    pair.b.arrive(1, 7, {}, 1.0, nullptr);
    CHECK(pair.pa.advance() == 0 && x.elements() == before);
    CHECK(pair.pa.stats().staged_bytes == 2 * 64 && pair.pa.stats().window_bytes == 0);
    CHECK(throws<std::logic_error>([&] { pair.pa.run(0); }));
    CHECK(throws<std::logic_error>([&] { pair.pa.finish(); }));
    pair.pa.fail();
    pair.pb.fail();
    CHECK(pair.pa.base() == kTwo.window_cells && pair.pb.base() == pair.pa.base());
}

void test_contracts() {
    Pair pair;
    CHECK(throws<std::invalid_argument>([&] { pair.a.arrive(2, 7, {}, 1.0, nullptr); }));
    const std::vector<std::byte> long_text(kDescriptorBytes + 1);
    CHECK(throws<std::invalid_argument>([&] { pair.a.arrive(1, 7, long_text, 1.0, nullptr); }));
    Tensor x(DType::f32, 65, 0);
    CHECK(throws<std::invalid_argument>([&] { pair.a.arrive(1, 7, {}, 1.0, &x.view()); }));
    pair.a.arrive(1, 7, {}, 1.0, nullptr); // the refused ones changed nothing
    CHECK(throws<std::invalid_argument>([&] { pair.a.descriptor(1); }));
    CHECK(throws<std::logic_error>([&] { pair.a.verdict_code(); }));
    pair.b.arrive(1, 7, {}, 1.0, nullptr);
    CHECK(throws<std::invalid_argument>([&] { pair.b.publish_verdict(1, 0, {}, {}); }));
    CHECK(throws<std::invalid_argument>([&] { pair.a.publish_verdict(2, 0, {}, {}); }));
    const auto refused = [&](auto change) {
        Operation operation = sum(x);
        change(operation);
        return throws<std::invalid_argument>([&] { pair.pa.begin(operation); });
    };
    CHECK(refused([](Operation &o) { o.cell_elems = 33; }));
    CHECK(refused([](Operation &o) { o.cell_elems = 0; }));
    CHECK(refused([](Operation &o) { o.count = 64; }));
    CHECK(refused([](Operation &o) { o.type = DType::f64; }));
    CHECK(refused([](Operation &o) { o.work_type = DType::i32; }));
    CHECK(refused([](Operation &o) { o.op = Op::band; }));
    CHECK(refused([](Operation &o) { o.runners = 3; }));
    CHECK(refused([](Operation &o) { o.x = nullptr; }));
    CHECK(refused([](Operation &o) { o.rows = {{0, 32, 0}}; }));
    CHECK(refused([](Operation &o) { o.rows = {{0, 32, 0}, {32, 33, 32}}; }));
    CHECK(refused([](Operation &o) { o.rows = {{0, 32, 0}, {32, 32, 34}, {64, 1, 0}}; }));
    CHECK(refused([](Operation &o) { o.kind = Operation::Kind::copy, o.node_divisor = 2; }));
    CHECK(!refused([](Operation &) {}));
    CHECK(throws<std::logic_error>([&] { pair.pa.begin(sum(x)); }));
}

void test_sizes_are_compared() {
    Pair pair;
    Geometry other = kTwo;
    other.window_cells = 3;
    std::shared_ptr<Segment> segment;
    CHECK(Segment::make_private(2 * Layout(other).nbytes(), segment) == 0);
    Channel first(segment, 0, kTwo, false), second(segment, 1, other, false),
        third(segment, 1, kTwo, true);
    CHECK(first.reserve() == 0);
    CHECK(throws<std::invalid_argument>([&] { second.reserve(); }));
    CHECK(throws<std::invalid_argument>([&] { third.reserve(); }));
    other.cell_bytes = 1 << 16;
    CHECK(throws<std::invalid_argument>([&] { Channel(pair.segment, 0, other, false); }));
    CHECK(throws<std::invalid_argument>([&] { Channel(pair.segment, 2, kTwo, false); }));
}

// A forked child has the memory, but not the seat.
void test_a_child_cannot_leave() {
    Pair pair;
    const pid_t child = fork();
    if (child == 0) {
        const bool foreign = pair.b.in_forked_child();
        pair.b.leave();
        _exit(foreign ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!pair.b.in_forked_child() && !pair.a.peer(1).left);
}

} // namespace

int main() {
    alarm(60);
    test_time_passes();
    test_a_leaver_is_noticed_asleep();
    test_a_leaver_has_arrived();
    test_the_first_cause_stays();
    test_a_long_cause_is_cut();
    test_a_half_written_cause();
    test_one_inquires();
    test_an_interrupted_run_goes_on();
    test_two_pieces_ahead_at_most();
    test_contracts();
    test_sizes_are_compared();
    test_a_child_cannot_leave();
    std::puts("channel failures: ok");
}
