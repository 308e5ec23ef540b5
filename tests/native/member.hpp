// A rank of a pretended node: it does what the engine would do, and checks every result.
#pragma once

#include "channel_pipeline.hpp"
#include "check.hpp"
#include "tensor.hpp"

#include <numeric>
#include <random>
#include <vector>

namespace hierring::test {

// One operation, the same on all ranks but for the odd one.
struct Plan {
    enum Kind { barrier, small, reduce, scatter, gather } kind;
    DType type, work_type;
    Op op;
    std::size_t count;      // elements in all
    std::size_t cell_elems; // elements of a piece
    unsigned runners;       // 0: no network
    bool verdict;           // local rank 0 gives it; else the digests do
    bool average, scaled, in_place;
    int odd;       // the rank that calls something else, or -1
    unsigned salt; // of the data
};

class Member {
  public:
    Member(const std::shared_ptr<Segment> &segment, unsigned rank, const Geometry &geometry,
           bool ring, unsigned seed)
        : clock(geometry.local_size), channel(segment, rank, geometry, ring), pipeline(channel),
          rank_(rank), n_(geometry.local_size), random_(seed * 64 + rank) {
        channel.set_clock(clock);
    }

    // As if so many operations and pieces had been.
    void start_at(std::uint64_t seq, std::uint64_t base) {
        channel.start_at(seq);
        pipeline.start_at(base);
        seq_ = seq - 1;
    }

    // Carries an operation out and checks what came of it.
    void perform(const Plan &plan);

    PhaseClock clock;
    Channel channel;
    Pipeline pipeline;

  private:
    bool is_large(const Plan &plan) const { return plan.kind >= Plan::reduce; }
    bool happens(unsigned one_in) { return random_() % one_in == 0; }
    std::int64_t some_time() { return happens(3) ? now_ns() + 200'000 : now_ns() + (1LL << 50); }
    void dawdle();
    int value(const Plan &plan, unsigned rank, std::size_t i) const;
    double scale(const Plan &plan, unsigned rank) const;
    double node_divisor(const Plan &plan) const;
    double out_divisor(const Plan &plan) const;
    unsigned owner(const Plan &plan, std::size_t piece) const;
    std::vector<Row> rows(const Plan &plan) const;
    std::vector<std::byte> expected(const Plan &plan) const;
    void add_network(const Plan &plan, std::byte *work, std::size_t count) const;
    void exchange(const Plan &plan, std::size_t piece);

    // Every instant of the operations so far is on one account, and no wait is on two.
    void check_clock() {
        CHECK(clock.hand() == Spent::other);
        clock.stop();
        const PhaseClock::Reading reading = clock.read();
        const auto sum = [](const auto &times) {
            return std::accumulate(times.begin(), times.end(), std::int64_t{0});
        };
        CHECK(sum(reading.accounts) == reading.total);
        CHECK(sum(reading.waited) <= reading.total && reading.waited[rank_] == 0);
    }

    bool opening(const Plan &plan);
    bool opening_by_verdict(const Plan &plan);
    bool finish_large(const Plan &plan);
    bool finish_large_as_runner(const Plan &plan);

    unsigned rank_, n_;
    std::minstd_rand random_;
    std::uint64_t seq_ = 0;
};

} // namespace hierring::test
