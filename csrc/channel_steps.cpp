// Pipeline, third part: the steps. Each is called only when its conditions hold.
#include "channel_data.hpp"
#include "channel_pipeline.hpp"

#include <algorithm>

namespace hierring {

Row Pipeline::row(std::uint64_t piece) const noexcept {
    const std::size_t i = piece - base_;
    if (!operation_.rows.empty()) {
        return operation_.rows[i];
    }
    const std::size_t first = i * operation_.cell_elems;
    const auto index = static_cast<std::int64_t>(first);
    return {operation_.x != nullptr ? index : -1,
            static_cast<std::int64_t>(std::min(operation_.cell_elems, operation_.count - first)),
            operation_.out != nullptr ? index : -1};
}

// Chunk borders fall on cache lines in the staging cell and in the window cell alike, hence in the
// units of the narrower type: no line is written by two ranks. The last chunks may be empty.
Pipeline::Chunk Pipeline::chunk(const Row &row, unsigned owner) const noexcept {
    const std::size_t narrow = std::min(itemsize(operation_.type), itemsize(operation_.work_type));
    const auto count = static_cast<std::size_t>(row.count);
    const std::size_t n = channel_.local_size();
    const std::size_t size = round_up((count + n - 1) / n, std::max<std::size_t>(1, 64 / narrow));
    return {std::min(owner * size, count), std::min((owner + 1) * size, count)};
}

std::byte *Pipeline::window_cell(std::uint64_t piece) const noexcept {
    const Geometry &geometry = channel_.layout().geometry();
    return channel_.at(channel_.layout().window() +
                       piece % geometry.window_cells * geometry.cell_bytes);
}

std::byte *Pipeline::window(std::size_t piece) const noexcept { return window_cell(base_ + piece); }

std::byte *Pipeline::staging_cell(unsigned local_rank, std::uint64_t piece) const noexcept {
    return channel_.staging(local_rank, piece % 2);
}

// The number of a piece within its operation, for the status line.
std::uint32_t Pipeline::step_number(std::uint64_t piece) const noexcept {
    return static_cast<std::uint32_t>(piece - base_);
}

// Steps 1 to n - 2 count in ring_step. Step 0 has its own counter, staged, because it runs ahead of
// the others by up to two pieces, and step n - 1 has reduced.
std::uint64_t Pipeline::ring_steps_before(std::uint64_t piece) const noexcept {
    const unsigned n = channel_.local_size();
    return n > 2 ? piece * (n - 2) : 0;
}

// What partial sums of the ring schedule are kept in.
DType Pipeline::partial_type() const noexcept { return accumulation_type(operation_.type); }

// 1. x -> own staging cell. With the ring schedule this is its step 0.
void Pipeline::stage() {
    const std::uint64_t piece = staged_;
    const unsigned own = channel_.local_rank();
    const unsigned n = channel_.local_size();
    const bool has_data = operation_.kind == Operation::Kind::reduce && n > 1;
    channel_.note(Phase::stage, step_number(piece), -1);
    if (has_data && channel_.ring_schedule()) {
        // The chunk that will end up at prev starts its way here.
        const Row row = this->row(piece);
        const Chunk part = chunk(row, (own + n - 1) % n);
        const std::size_t size = itemsize(partial_type());
        Source source{nullptr, operation_.type, channel_.scale(own)};
        reduce_with(staging_cell(own, piece) + part.begin * size, partial_type(), {&source, 1}, 0,
                    *operation_.x, static_cast<std::size_t>(row.x_first) + part.begin, part.count(),
                    operation_.op, 1.0, channel_.scratch());
        stats_.staged_bytes += part.count() * size;
    } else if (has_data) {
        // All chunks but the own: what comes before it, and what comes after.
        const Row row = this->row(piece);
        const Chunk mine = chunk(row, own);
        const auto first = static_cast<std::size_t>(row.x_first);
        const auto count = static_cast<std::size_t>(row.count);
        const std::size_t size = itemsize(operation_.type);
        std::byte *const cell = staging_cell(own, piece);
        pack(*operation_.x, first, mine.begin, cell);
        pack(*operation_.x, first + mine.end, count - mine.end, cell + mine.end * size);
        stats_.staged_bytes += (count - mine.count()) * size;
    }
    ++staged_;
    count_up(kStaged, staged_);
}

// 2. All ranks' data of the own chunk -> window.
void Pipeline::reduce() {
    const unsigned n = channel_.local_size();
    channel_.note(Phase::reduce, step_number(reduced_), -1);
    if (operation_.kind == Operation::Kind::copy) {
        const Row row = this->row(reduced_);
        if (row.x_first >= 0) {
            const auto count = static_cast<std::size_t>(row.count);
            pack(*operation_.x, static_cast<std::size_t>(row.x_first), count,
                 window_cell(reduced_));
            stats_.window_bytes += count * itemsize(operation_.work_type);
        }
        publish_reduced();
    } else if (channel_.ring_schedule() && n > 1) {
        reduce_ring();
    } else {
        const Row row = this->row(reduced_);
        const Chunk mine = chunk(row, channel_.local_rank());
        sources_.clear();
        for (unsigned rank = 0; rank < n; ++rank) {
            sources_.push_back(
                {staging_cell(rank, reduced_) + mine.begin * itemsize(operation_.type),
                 operation_.type, channel_.scale(rank)});
        }
        reduce_own_chunk(row, mine, channel_.local_rank());
    }
}

// Step s = ring_step_ of the ring, for piece R: the partial sum of chunk own - 1 - s is taken from
// prev's staging cell, own data is added, and the result goes to the own cell, where next will find
// it, or, as the last step, to the window.
void Pipeline::reduce_ring() {
    const unsigned own = channel_.local_rank();
    const unsigned n = channel_.local_size();
    const unsigned step = ring_step_;
    const Row row = this->row(reduced_);
    const Chunk part = chunk(row, (own + 2 * n - 1 - step) % n);
    const std::size_t offset = part.begin * itemsize(partial_type());
    sources_.clear();
    sources_.push_back({staging_cell((own + n - 1) % n, reduced_) + offset, partial_type()});
    sources_.push_back({nullptr, operation_.type, channel_.scale(own)});
    if (step == n - 1) {
        ring_step_ = 1;
        reduce_own_chunk(row, part, 1);
        return;
    }
    reduce_with(staging_cell(own, reduced_) + offset, partial_type(), sources_, 1, *operation_.x,
                static_cast<std::size_t>(row.x_first) + part.begin, part.count(), operation_.op,
                1.0, channel_.scratch());
    stats_.staged_bytes += part.count() * itemsize(partial_type());
    ++ring_step_;
    count_up(kRingStep, ring_steps_before(reduced_) + step);
}

// Reduces sources_, with x at sources_[own], to the window. Without a network the chunk goes on to
// out while it is in cache.
void Pipeline::reduce_own_chunk(const Row &row, Chunk mine, std::size_t own) {
    const std::uint64_t piece = reduced_;
    const std::size_t size = itemsize(operation_.work_type);
    if (mine.count() != 0) {
        reduce_with(window_cell(piece) + mine.begin * size, operation_.work_type, sources_, own,
                    *operation_.x, static_cast<std::size_t>(row.x_first) + mine.begin, mine.count(),
                    operation_.op, operation_.node_divisor, channel_.scratch());
        stats_.window_bytes += mine.count() * size;
    }
    publish_reduced();
    if (operation_.runners == 0) {
        deliver_range(piece, mine.begin, mine.end);
    }
}

void Pipeline::publish_reduced() {
    ++reduced_;
    count_up(kReduced, reduced_);
}

// 4. Window -> out.
void Pipeline::copy_out() {
    const std::uint64_t piece = copied_;
    const Row row = this->row(piece);
    const auto count = static_cast<std::size_t>(row.count);
    channel_.note(Phase::copy, step_number(piece), -1);
    if (operation_.kind == Operation::Kind::reduce && operation_.runners == 0) {
        const Chunk mine = chunk(row, channel_.local_rank()); // delivered in step 2
        deliver_range(piece, 0, mine.begin);
        deliver_range(piece, mine.end, count);
    } else {
        deliver_range(piece, 0, count);
    }
    ++copied_; // published by staging a piece that needs the cell
}

// Elements [begin, end) of a piece: window -> out, if this rank wants them.
void Pipeline::deliver_range(std::uint64_t piece, std::size_t begin, std::size_t end) {
    const Row row = this->row(piece);
    if (row.out_first < 0 || begin == end) {
        return;
    }
    deliver(*operation_.out, static_cast<std::size_t>(row.out_first) + begin, operation_.type,
            window_cell(piece) + begin * itemsize(operation_.work_type), operation_.work_type,
            end - begin, operation_.out_divisor, channel_.scratch());
    stats_.copied_bytes += (end - begin) * itemsize(operation_.type);
}

} // namespace hierring
