// Pipeline, first part: the life of an operation.
#include "channel_pipeline.hpp"

#include <algorithm>
#include <stdexcept>

namespace hierring {
namespace {

// Counters that no step publishes (gathered without a network, ring_step without the ring schedule)
// must not fall 2^31 behind, so all of them are brought up to base once in this many pieces.
constexpr std::uint64_t kRefreshEvery = 1 << 16;

// The most pieces of one operation, times ranks: with the above, far from 2^31.
constexpr std::uint64_t kMostSteps = 1 << 28;

} // namespace

Pipeline::Pipeline(Channel &channel) : channel_(channel) { sources_.reserve(channel.local_size()); }

void Pipeline::start_at(std::uint64_t base) noexcept {
    base_ = round_up(base, channel_.layout().geometry().window_cells);
    refresh_counters();
}

// Throws if the description does not hold together.
void Pipeline::check(const Operation &o) const {
    const bool same_family =
        o.type == o.work_type || (computes_in_f32(o.type) && computes_in_f32(o.work_type));
    std::size_t widest = std::max(itemsize(o.type), itemsize(o.work_type));
    if (o.kind == Operation::Kind::reduce && channel_.ring_schedule()) {
        widest = std::max(widest, itemsize(accumulation_type(o.type)));
    }
    if (o.cell_elems == 0 || o.cell_elems > channel_.layout().geometry().cell_bytes / widest) {
        throw std::invalid_argument("cell_elems elements must fit in a cell, and be at least 1");
    }
    if (!same_family || (o.kind == Operation::Kind::copy && o.type != o.work_type)) {
        throw std::invalid_argument("the window cannot have this dtype");
    }
    if (o.kind == Operation::Kind::copy && (o.node_divisor != 1.0 || o.out_divisor != 1.0)) {
        throw std::invalid_argument("a copy does not divide");
    }
    if (o.kind == Operation::Kind::reduce && (o.x == nullptr || !reducible(o.type, o.op))) {
        throw std::invalid_argument("a reduction needs x, and an operator defined for its dtype");
    }
    if (o.runners > channel_.local_size()) {
        throw std::invalid_argument("more runners than local ranks");
    }
    for (const View *view : {o.x, o.out}) {
        if (view != nullptr && view->itemsize() != itemsize(o.type)) {
            throw std::invalid_argument("a view is not of this dtype");
        }
        if (view != nullptr && o.rows.empty() && view->count() != o.count) {
            throw std::invalid_argument("a view is not of this count");
        }
    }
    std::size_t total = 0;
    for (const Row &row : o.rows) {
        check_row(o, row);
        total += static_cast<std::size_t>(row.count);
    }
    if (!o.rows.empty() && total != o.count) {
        throw std::invalid_argument("the pieces do not add up to count");
    }
}

// Throws if a piece is too long or leaves its views.
void Pipeline::check_row(const Operation &o, const Row &row) const {
    const auto inside = [&row](const View *view, std::int64_t first) {
        return first < 0 || (view != nullptr && static_cast<std::size_t>(first) <= view->count() &&
                             static_cast<std::size_t>(row.count) <=
                                 view->count() - static_cast<std::size_t>(first));
    };
    const bool fits = row.count >= 0 && static_cast<std::size_t>(row.count) <= o.cell_elems;
    const bool lacks_x = o.kind == Operation::Kind::reduce && row.x_first < 0;
    if (!fits || lacks_x || !inside(o.x, row.x_first) || !inside(o.out, row.out_first)) {
        throw std::invalid_argument("a piece is too long, or reaches out of x or out");
    }
}

void Pipeline::begin(Operation operation) {
    if (active_) {
        throw std::logic_error("the operation before has not ended");
    }
    check(operation);
    const std::size_t pieces =
        operation.rows.empty()
            ? operation.count / operation.cell_elems + (operation.count % operation.cell_elems != 0)
            : operation.rows.size();
    if (pieces > kMostSteps / channel_.local_size()) {
        throw std::invalid_argument("too many pieces; use larger cells");
    }
    operation_ = std::move(operation);
    pieces_ = pieces;
    end_ = base_ + pieces;
    staged_ = reduced_ = copied_ = gathered_ = reported_ = base_;
    low_staged_ = low_reduced_ = low_gathered_ = base_;
    ring_step_ = 1;
    active_ = true;
    open_ = false;
}

// Publishes all counters as if all pieces before base had used them.
void Pipeline::refresh_counters() noexcept {
    for (const CounterKind kind : {kStaged, kReduced, kGathered}) {
        count_up(kind, base_);
    }
    count_up(kRingStep, ring_steps_before(base_));
}

void Pipeline::count_up(CounterKind kind, std::uint64_t value) noexcept {
    publish(channel_.flag(channel_.local_rank(), kind), static_cast<std::uint32_t>(value));
}

void Pipeline::open() {
    if (!active_) {
        throw std::logic_error("no operation has begun");
    }
    open_ = true;
}

// Ends the operation. Peers still in it wait for counters up to the new base at most, so these may
// be refreshed.
void Pipeline::move_base(std::uint64_t pieces) noexcept {
    const std::uint64_t before = base_;
    base_ = round_up(base_ + pieces, channel_.layout().geometry().window_cells);
    active_ = false;
    if (base_ / kRefreshEvery != before / kRefreshEvery) {
        refresh_counters();
    }
}

// W covers the two pieces at most that some ranks have staged and others, refused or in a small
// operation, have not.
void Pipeline::fail() noexcept {
    move_base(channel_.layout().geometry().window_cells);
    pieces_ = 0;
}

void Pipeline::finish() {
    if (!active_) {
        return;
    }
    if (!open_ || copied_ != end_) {
        throw std::logic_error("the operation is not complete");
    }
    move_base(pieces_);
}

} // namespace hierring
