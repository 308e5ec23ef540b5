// Large operations: a tensor goes through the node piece by piece, in cells that stay in cache.
//
// Piece t, an index that runs on through the life of the channel, uses staging cell t % 2 of each
// rank and cell t % W of the window, which all ranks share. With n local ranks, E elements in the
// piece and chunk r the part that local rank r owns:
//
//   1. stage    pack all chunks but the own into the own staging cell; staged = t + 1
//   2. reduce   own chunk of all ranks' data -> window; reduced = t + 1
//   3. net      (the caller's) exchange the window cell with other nodes; gathered = t + 1
//   4. copy     window cell -> out
//
//   time      ->
//   piece 0   stage  reduce  net     net     copy
//   piece 1          stage   reduce  net     net     copy
//   piece 2                  stage   reduce  net     net     copy
//
// Who may do what when, with S, R, C the own next piece to stage, reduce, copy:
//   stage t    C > t - W, and t is one of the first two of the operation or all peers' reduced
//              > t - 2: the own cell has been read. staged > t therefore also says that this rank
//              needs window cell t % W no more.
//   reduce t   the verdict is good, and all peers' staged > t: their data is there, and window cell
//              t % W is free.
//   copy t     runners == 0: all reduced > t; else the runners' gathered > t.
// The ring schedule replaces step 2: a partial sum of each chunk walks through the staging cells
// from neighbour to neighbour and ends in the window at its owner.
//
// An operation begins at piece `base`, a multiple of W. When it ends, or fails, base moves on by
// the same amount on every rank. docs/memory-model.md proves that this is enough.
#pragma once

#include "channel.hpp"

#include <cstdint>
#include <vector>

namespace hierring {

// Where a piece comes from and goes to; -1: from or to nowhere on this rank.
struct Row {
    std::int64_t x_first;
    std::int64_t count;
    std::int64_t out_first;
};

// One large operation as its caller describes it. The views outlive it.
struct Operation {
    enum class Kind { reduce, copy } kind;
    const View *x;
    const View *out;
    DType type;
    DType work_type; // of the window
    Op op;
    double node_divisor;
    double out_divisor;
    unsigned runners; // local ranks 0..runners-1 exchange the window with other nodes
    bool self_verdict;
    std::size_t count;
    std::size_t cell_elems;
    std::vector<Row> rows; // empty: piece i is [i * cell_elems, ...) of x and out
};

class Pipeline {
  public:
    // Answer of advance().
    static constexpr unsigned kProgressed = 1, kFinished = 2, kDiffered = 4;

    struct Stats {
        std::uint64_t staged_bytes = 0;
        std::uint64_t window_bytes = 0;
        std::uint64_t copied_bytes = 0;
    };

    explicit Pipeline(Channel &channel);

    // Starts the channel's current operation. Throws std::invalid_argument, with nothing changed,
    // if the description does not hold together.
    void begin(Operation operation);

    // The verdict is good.
    void open();

    // The verdict is bad, or the channel's operation was no large one on this rank but failed: base
    // moves on as on all other ranks.
    void fail() noexcept;

    // Does up to one step of each kind, without waiting. A runner whose clock has been on wait_peer
    // since the last call has waited for the rank that held it back then.
    unsigned advance();

    // Sleeps on the flag that holds the next step back; see gate(). For a runner, done also if
    // reduced() has more to tell than it last did.
    Status block(std::int64_t until_ns);

    // advance() and block() until the end; mismatch if the digests differ (with self_verdict). Not
    // for a runner.
    Status run(std::int64_t until_ns);

    std::uint64_t base() const noexcept { return base_; }
    std::size_t pieces() const noexcept { return pieces_; }

    // Pieces of this operation that all ranks have reduced.
    std::size_t reduced();

    // A runner is through with the first `done` pieces: sent, received, and no request open on
    // them.
    void gathered(std::size_t done);

    // The window cell of a piece of this operation.
    std::byte *window(std::size_t piece) const noexcept;

    // Ends a completed operation; nothing if there is none.
    void finish();

    const Stats &stats() const noexcept { return stats_; }

    // For tests of wrap-around: the next piece is `base`, rounded up to W. As Channel::start_at.
    void start_at(std::uint64_t base) noexcept;

  private:
    // A chunk of a piece, in elements.
    struct Chunk {
        std::size_t begin, end;
        std::size_t count() const { return end - begin; }
    };
    // A flag to sleep on; rank -1: there is no need to.
    struct Gate {
        int rank = -1;
        Flag flag{};
        std::uint32_t value = 0;
    };
    enum class Opening { open, waiting, differed };

    void check(const Operation &operation) const;
    void check_row(const Operation &operation, const Row &row) const;
    void refresh_counters() noexcept;
    void move_base(std::uint64_t pieces) noexcept;

    // Which step may be done (channel_progress.cpp).
    Opening try_open();
    bool all_reached(CounterKind kind, unsigned ranks, std::uint64_t target, std::uint64_t &low);
    bool can_stage();
    bool can_reduce();
    bool can_copy();
    bool is_runner() const noexcept { return channel_.local_rank() < operation_.runners; }
    Gate gate();
    Gate gate_of_copy();
    Gate gate_of_ring();
    bool walks_ring() const noexcept;
    Gate first_behind(CounterKind kind, unsigned ranks, std::uint64_t target);
    void count_up(CounterKind kind, std::uint64_t value) noexcept;

    // Steps (channel_steps.cpp).
    void stage();
    void reduce();
    void reduce_ring();
    void copy_out();
    void reduce_own_chunk(const Row &row, Chunk mine, std::size_t own);
    void deliver_range(std::uint64_t piece, std::size_t begin, std::size_t end);
    void publish_reduced();
    Row row(std::uint64_t piece) const noexcept;
    Chunk chunk(const Row &row, unsigned owner) const noexcept;
    std::byte *window_cell(std::uint64_t piece) const noexcept;
    std::byte *staging_cell(unsigned local_rank, std::uint64_t piece) const noexcept;
    std::uint32_t step_number(std::uint64_t piece) const noexcept;
    std::uint64_t ring_steps_before(std::uint64_t piece) const noexcept;
    DType partial_type() const noexcept;

    Channel &channel_;
    Operation operation_{};
    bool active_ = false;
    bool open_ = false;

    std::uint64_t base_ = 0;
    std::size_t pieces_ = 0;
    std::uint64_t end_ = 0;      // base + pieces
    std::uint64_t staged_ = 0;   // S: the next piece to stage
    std::uint64_t reduced_ = 0;  // R
    std::uint64_t copied_ = 0;   // C
    std::uint64_t gathered_ = 0; // runners: the next piece to exchange
    std::uint64_t reported_ = 0; // what reduced() last answered, as a piece index
    unsigned ring_step_ = 1;     // ring: next step of piece R
    int blamed_ = -1;            // runners: whom they wait for between two calls of advance()

    // Private copies of the slowest peer's counters, so that a flag line is fetched again only when
    // more is needed than was seen.
    std::uint64_t low_staged_ = 0;
    std::uint64_t low_reduced_ = 0;
    std::uint64_t low_gathered_ = 0;

    std::vector<Source> sources_;
    Stats stats_;
};

} // namespace hierring
