// The protocol of a node: ranks as threads over one segment, random operations, every result
// checked bit for bit. Also meant for the thread, address and undefined-behaviour sanitizers.
#include "member.hpp"

#include <barrier>
#include <memory>
#include <thread>
#include <unistd.h>

using namespace hierring;
using namespace hierring::test;

namespace {

constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8,  DType::i32,
                            DType::u16, DType::u64, DType::b8,  DType::c64,  DType::c128};

// What a node is made of, and where its counters start.
struct Setting {
    Geometry geometry;
    bool ring;
    unsigned pauses, yields;
    std::uint64_t seq, base;
};

template <typename T>
T one_of(std::minstd_rand &random, std::initializer_list<T> values) {
    return values.begin()[random() % values.size()];
}

Plan make_plan(std::minstd_rand &random, const Setting &setting) {
    Plan plan{};
    plan.kind = static_cast<Plan::Kind>(random() % 5);
    plan.type = kTypes[random() % std::size(kTypes)];
    plan.work_type = computes_in_f32(plan.type)
                         ? one_of(random, {DType::f32, DType::bf16, plan.type, plan.type})
                         : plan.type;
    do {
        plan.op = static_cast<Op>(random() % kOpCount);
        // The ring multiplies in another order, and signs of complex zeros show it.
    } while (!reducible(plan.type, plan.op) ||
             (setting.ring && is_complex(plan.type) && plan.op == Op::prod));
    // Room for the partial sums of the ring schedule, which are f32 for the narrow types.
    const std::size_t widest =
        std::max(itemsize(accumulation_type(plan.type)), itemsize(plan.work_type));
    plan.cell_elems = setting.geometry.cell_bytes / widest - random() % 3;
    plan.verdict = random() % 2 == 0;
    plan.runners = static_cast<unsigned>(random() % (setting.geometry.local_size + 1));
    plan.average = is_floating(plan.type) && plan.op == Op::sum && plan.kind != Plan::gather &&
                   random() % 2 == 0;
    plan.scaled = is_floating(plan.type) && random() % 3 == 0;
    plan.in_place = random() % 2 == 0;
    plan.odd = random() % 4 == 0 && setting.geometry.local_size > 1
                   ? static_cast<int>(random() % setting.geometry.local_size)
                   : -1;
    plan.salt = static_cast<unsigned>(random() % 1000);
    if (plan.kind == Plan::small) {
        plan.count = random() % (setting.geometry.small_bytes / widest + 1);
        plan.runners = plan.verdict ? plan.runners : 0;
        plan.work_type = plan.verdict ? plan.work_type : plan.type; // straight to out
    } else {
        plan.count = random() % (plan.cell_elems * 12);
        plan.count =
            plan.kind == Plan::reduce ? plan.count : plan.count + 1; // rows must not be empty
    }
    return plan;
}

void run_node(const Setting &setting, unsigned operations, unsigned seed, bool file) {
    const unsigned n = setting.geometry.local_size;
    std::shared_ptr<Segment> segment;
    const std::size_t nbytes = Layout(setting.geometry).nbytes();
    CHECK((file ? Segment::create(nbytes, "/dev/shm", false, segment)
                : Segment::make_private(nbytes, segment)) == 0);
    std::minstd_rand random(seed);
    std::vector<Plan> plans;
    for (unsigned i = 0; i < operations; ++i) {
        plans.push_back(make_plan(random, setting));
    }
    std::barrier start(n);
    std::vector<std::uint64_t> bases(n);
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < n; ++rank) {
        threads.emplace_back([&, rank] {
            CHECK(segment->lock(rank) == 0);
            Member member(segment, rank, setting.geometry, setting.ring, seed);
            CHECK(member.channel.reserve() == 0);
            member.channel.set_patience(setting.pauses, setting.yields);
            member.start_at(setting.seq, setting.base);
            start.arrive_and_wait();
            for (const Plan &plan : plans) {
                member.perform(plan);
            }
            bases[rank] = member.pipeline.base();
            member.channel.leave();
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const std::uint64_t base : bases) {
        CHECK(base == bases[0] && base % setting.geometry.window_cells == 0);
    }
}

} // namespace

// Arguments: operations per setting, first seed.
int main(int argc, char **argv) {
    alarm(115);
    const auto argument = [&](int i, unsigned otherwise) {
        return argc > i ? static_cast<unsigned>(std::stoul(argv[i])) : otherwise;
    };
    const unsigned operations = argument(1, 40);
    unsigned seed = argument(2, 1);
    for (unsigned n = 1; n <= 5; ++n) {
        for (const bool ring : {false, true}) {
            for (unsigned variant = 0; variant < 3; ++variant, ++seed) {
                std::minstd_rand random(seed);
                const Setting setting{
                    .geometry = {n, 64 * (1 + random() % 8),
                                 static_cast<unsigned>(2 + random() % 7), 64 * (1 + random() % 4)},
                    .ring = ring,
                    .pauses = one_of(random, {0u, 30u}),
                    .yields = one_of(random, {0u, 2u, 100u}),
                    // Before the wrap of 32 bits, and of the seq whose parity comes with it.
                    .seq = variant == 0 ? 1 : (1ull << 32) - 5 - random() % 9,
                    .base = variant == 0 ? 0 : (1ull << 32) - 30 - random() % 60,
                };
                context = "seed " + std::to_string(seed) + ", ranks " + std::to_string(n) +
                          (ring ? ", ring" : ", direct");
                run_node(setting, operations, seed, variant == 2);
            }
        }
    }
    std::puts("channel: ok");
}
