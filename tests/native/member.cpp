#include "member.hpp"

#include <algorithm>
#include <thread>

namespace hierring::test {
namespace {

constexpr std::int64_t kForEver = std::int64_t{1} << 62;

std::span<const std::byte> bytes_of(const std::uint64_t &value) {
    return {reinterpret_cast<const std::byte *>(&value), sizeof value};
}

} // namespace

// Lets another rank go first, sometimes.
void Member::dawdle() {
    if (happens(4)) {
        std::this_thread::yield();
    }
    if (happens(200)) {
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
    }
}

int Member::value(const Plan &plan, unsigned rank, std::size_t i) const {
    return static_cast<int>((i * 7 + rank * 13 + plan.salt) % 17) - 8;
}

double Member::scale(const Plan &plan, unsigned rank) const {
    return !plan.scaled ? 1.0 : rank % 2 == 0 ? 2.0 : 0.5;
}

double Member::node_divisor(const Plan &plan) const {
    return plan.average && plan.runners == 0 ? n_ : 1.0;
}

double Member::out_divisor(const Plan &plan) const {
    return plan.average && plan.runners != 0 ? n_ : 1.0;
}

// Whose a piece is; n_: another node's.
unsigned Member::owner(const Plan &plan, std::size_t piece) const {
    const bool with_others = plan.kind == Plan::gather && plan.runners != 0;
    return static_cast<unsigned>((piece + plan.salt) % (n_ + (with_others ? 1 : 0)));
}

// Ragged pieces for scatter and gather; no rows for the others.
std::vector<Row> Member::rows(const Plan &plan) const {
    std::vector<Row> rows;
    if (plan.kind != Plan::scatter && plan.kind != Plan::gather) {
        return rows;
    }
    std::int64_t first = 0, own = 0;
    const auto total = static_cast<std::int64_t>(plan.count);
    for (std::size_t i = 0; first < total; ++i) {
        const auto most = static_cast<std::int64_t>(plan.cell_elems);
        const std::int64_t count =
            std::min(total - first, 1 + static_cast<std::int64_t>(i * 5 + plan.salt) % most);
        const bool mine = owner(plan, i) == rank_;
        if (plan.kind == Plan::scatter) {
            rows.push_back({first, count, mine ? own : -1});
        } else {
            rows.push_back({mine ? own : -1, count, first});
        }
        own += mine ? count : 0;
        first += count;
    }
    return rows;
}

// What the other nodes do to `count` elements of a reduction: they add 1.
void Member::add_network(const Plan &plan, std::byte *work, std::size_t count) const {
    std::vector<std::byte> ones(count * itemsize(plan.work_type) + 1);
    for (std::size_t i = 0; i < count; ++i) {
        store(ones.data() + i * itemsize(plan.work_type), plan.work_type, 1);
    }
    const Source sources[] = {{work, plan.work_type}, {ones.data(), plan.work_type}};
    hierring::reduce(work, plan.work_type, sources, count, Op::sum, 1.0);
}

// The result of a reduction, or of a gather, as one rank would compute it by itself.
std::vector<std::byte> Member::expected(const Plan &plan) const {
    const std::size_t size = itemsize(plan.type);
    std::vector<std::byte> result(plan.count * size + 1);
    if (plan.kind == Plan::gather) {
        std::vector<std::size_t> taken(n_);
        std::size_t at = 0, piece = 0;
        for (const Row &row : rows(plan)) {
            const unsigned from = owner(plan, piece++);
            for (std::int64_t i = 0; i < row.count; ++i, ++at) {
                store(&result[at * size], plan.type,
                      from == n_ ? 3 : value(plan, from, taken[from]++));
            }
        }
        return result;
    }
    std::vector<std::vector<std::byte>> inputs;
    std::vector<Source> sources;
    for (unsigned rank = 0; rank < n_; ++rank) {
        inputs.emplace_back(plan.count * size + 1);
        for (std::size_t i = 0; i < plan.count; ++i) {
            store(&inputs.back()[i * size], plan.type, value(plan, rank, i));
        }
        sources.push_back({inputs.back().data(), plan.type, scale(plan, rank)});
    }
    std::vector<std::byte> work(plan.count * itemsize(plan.work_type) + 1);
    hierring::reduce(work.data(), plan.work_type, sources, plan.count, plan.op, node_divisor(plan));
    if (plan.runners != 0 && plan.kind != Plan::small) {
        add_network(plan, work.data(), plan.count);
    }
    const Source last{work.data(), plan.work_type};
    hierring::reduce(result.data(), plan.type, {&last, 1}, plan.count, Op::sum, out_divisor(plan));
    return result;
}

// A runner's share of a piece on the network.
void Member::exchange(const Plan &plan, std::size_t piece) {
    const std::vector<Row> all = rows(plan);
    const std::size_t count = all.empty()
                                  ? std::min(plan.cell_elems, plan.count - piece * plan.cell_elems)
                                  : static_cast<std::size_t>(all[piece].count);
    const std::size_t first = count * rank_ / plan.runners;
    const std::size_t last = count * (rank_ + 1) / plan.runners;
    const std::size_t size = itemsize(plan.kind == Plan::gather ? plan.type : plan.work_type);
    std::byte *const cell = pipeline.window(piece);
    if (plan.kind != Plan::gather) {
        add_network(plan, cell + first * size, last - first);
    } else if (owner(plan, piece) == n_) {
        for (std::size_t i = first; i < last; ++i) {
            store(cell + i * size, plan.type, 3);
        }
    }
}

bool Member::finish_large_as_runner(const Plan &plan) {
    std::size_t exchanged = 0, told = 0;
    while (true) {
        const unsigned answer = pipeline.advance();
        if ((answer & Pipeline::kDiffered) != 0) {
            return false;
        }
        if ((answer & Pipeline::kFinished) != 0) {
            return true;
        }
        const std::size_t ready = pipeline.reduced();
        for (; exchanged < ready; ++exchanged) {
            exchange(plan, exchanged);
            dawdle();
        }
        if (told != exchanged) {
            told = happens(2) ? exchanged : told + 1; // one by one, or together
            pipeline.gathered(told);
        } else if ((answer & Pipeline::kProgressed) == 0) {
            const Status status = pipeline.block(some_time());
            CHECK(status == Status::done || status == Status::pending);
        }
    }
}

bool Member::finish_large(const Plan &plan) {
    if (rank_ < plan.runners) {
        return finish_large_as_runner(plan);
    }
    while (true) {
        dawdle();
        const Status status = pipeline.run(some_time());
        if (status != Status::pending) {
            CHECK(status == Status::done || status == Status::mismatch);
            return status == Status::done;
        }
    }
}

bool Member::opening_by_verdict(const Plan &plan) {
    if (is_large(plan)) {
        for (auto i = random_() % 4; i > 0; --i) {
            CHECK((pipeline.advance() & ~Pipeline::kProgressed) == 0);
        }
    }
    if (rank_ == 0) {
        CHECK(channel.arrivals(kForEver) == Status::done);
        const int difference = channel.local_difference();
        std::vector<std::byte> sum;
        if (plan.kind == Plan::small && difference < 0) {
            sum.resize(plan.count * itemsize(plan.work_type));
            channel.reduce_small(sum.data(), plan.work_type, plan.type, plan.count, plan.op,
                                 node_divisor(plan));
        }
        channel.publish_verdict(seq_, difference, bytes_of(seq_), sum);
    }
    while (true) {
        const Status status = channel.verdict(seq_, some_time());
        if (status == Status::done) {
            break;
        }
        CHECK(status == Status::pending);
    }
    CHECK(std::ranges::equal(channel.verdict_detail(), bytes_of(seq_)));
    return channel.verdict_code() < 0;
}

// Whether all ranks have called the same.
bool Member::opening(const Plan &plan) {
    if (plan.verdict) {
        return opening_by_verdict(plan);
    }
    CHECK(channel.arrivals(kForEver) == Status::done && channel.missing().empty());
    return channel.local_difference() < 0;
}

void Member::perform(const Plan &common) {
    Plan plan = common;
    std::uint64_t digest = plan.salt;
    if (plan.odd == static_cast<int>(rank_)) {
        plan.kind = static_cast<Plan::Kind>((plan.kind + 1 + plan.salt % 4) % 5);
        plan.count = std::min({plan.count, plan.cell_elems, 64 / itemsize(plan.type)});
        plan.in_place = plan.average = false;
        ++digest;
    }
    const std::vector<Row> rows = this->rows(plan);
    std::size_t x_count = plan.kind == Plan::barrier ? 0 : plan.count, out_count = x_count;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::size_t &own = plan.kind == Plan::scatter ? out_count : x_count;
        own = (i == 0 ? 0 : own) +
              (owner(plan, i) == rank_ ? static_cast<std::size_t>(rows[i].count) : 0);
    }
    Tensor x(plan.type, x_count, random_()), apart(plan.type, out_count, random_());
    const bool in_place = plan.in_place && rows.empty();
    Tensor &out = in_place ? x : apart;
    for (std::size_t i = 0; i < x_count; ++i) {
        store(x.at(i), plan.type, value(plan, rank_, i));
    }
    const std::vector<std::byte> x_before = x.elements(), out_before = out.elements();

    ++seq_;
    const std::uint64_t word = seq_ * 100 + rank_;
    dawdle();
    clock.start();
    channel.arrive(seq_, digest, bytes_of(word), scale(plan, rank_),
                   plan.kind == Plan::small ? &x.view() : nullptr);
    if (is_large(plan)) {
        const bool copies = plan.kind == Plan::gather;
        pipeline.begin({copies ? Operation::Kind::copy : Operation::Kind::reduce, &x.view(),
                        &out.view(), plan.type, copies ? plan.type : plan.work_type, plan.op,
                        node_divisor(plan), out_divisor(plan), plan.runners, !plan.verdict,
                        plan.count, plan.cell_elems, rows});
    }
    dawdle();
    bool good = (is_large(plan) && !plan.verdict) || opening(plan);
    if (good && is_large(plan)) {
        if (plan.verdict) {
            pipeline.open();
        }
        good = finish_large(plan);
    }
    CHECK(good == (common.odd < 0));
    check_clock();
    const unsigned peer = static_cast<unsigned>(random_() % n_);
    const std::uint64_t peers_word = seq_ * 100 + peer;
    CHECK(std::ranges::equal(channel.descriptor(peer), bytes_of(peers_word)));
    if (!good) {
        CHECK(x.elements() == x_before && out.elements() == out_before);
        pipeline.fail();
        return;
    }
    if (plan.kind == Plan::small && plan.verdict) {
        channel.finish_small(out.view(), plan.type, plan.work_type, 0, plan.count,
                             out_divisor(plan));
    } else if (plan.kind == Plan::small) {
        channel.reduce_small_to(out.view(), plan.type, plan.count, plan.op, node_divisor(plan));
    }
    std::vector<std::byte> want = plan.kind == Plan::barrier ? out_before : expected(plan);
    if (plan.kind == Plan::scatter) {
        std::vector<std::byte> mine;
        for (const Row &row : rows) {
            const auto from = want.begin() + row.x_first * itemsize(plan.type);
            if (row.out_first >= 0) {
                mine.insert(mine.end(), from, from + row.count * itemsize(plan.type));
            }
        }
        want = mine;
    }
    want.resize(out.elements().size());
    CHECK(out.elements() == want && out.gaps_untouched() && x.gaps_untouched());
    CHECK(in_place || x.elements() == x_before);
}

} // namespace hierring::test
