// Views and the copies between them and contiguous memory.
//
// Both directions walk the same way: elements first to the end of the run they begin in, then whole
// runs, then the begin of the last one. Divisions happen once per call, to find the first run.
#include "strided.hpp"

#include "strided_copy.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <stdexcept>

namespace hierring {
namespace {

constexpr std::size_t kMaxBytes = PTRDIFF_MAX;

// The most axes a part can have: each has an extent of at least 2, and all elements fit in memory.
constexpr std::size_t kMaxAxes = 64;

// Returns a * b, or throws if it is no number of bytes.
std::size_t checked_product(std::size_t a, std::size_t b) {
    std::size_t product;
    if (__builtin_mul_overflow(a, b, &product) || product > kMaxBytes) {
        throw std::invalid_argument("the view has more bytes than memory can have");
    }
    return product;
}

} // namespace

// The walk over a view's parts.
class Walker {
  public:
    // Moves elements [first, first + count) of the view.
    template <bool Unpack>
    static void move(const View &view, std::size_t first, std::size_t count,
                     std::byte *contiguous) noexcept {
        assert(first <= view.count_ && count <= view.count_ - first);
        if (count == 0) {
            return;
        }
        const auto after = std::upper_bound(
            view.parts_.begin(), view.parts_.end(), first,
            [](std::size_t at, const View::Part &part) { return at < part.first; });
        for (auto part = after - 1; count > 0; ++part) {
            const std::size_t begin = first - part->first;
            const std::size_t some = std::min(count, part->count - begin);
            move_part<Unpack>(*part, view.itemsize_, begin, some, contiguous);
            contiguous += some * view.itemsize_;
            first += some;
            count -= some;
        }
    }

  private:
    using Part = View::Part;

    // A position among the runs of a part: one index per axis, and the address it means.
    struct Position {
        std::array<std::size_t, kMaxAxes> index;
        std::byte *at;
    };

    // Returns the position of a run.
    static Position seek(const Part &part, std::size_t run) {
        Position position;
        position.at = part.base;
        for (std::size_t axis = part.axes.size(); axis-- > 0;) {
            const auto [extent, stride] = part.axes[axis];
            position.index[axis] = run % extent;
            position.at += static_cast<std::ptrdiff_t>(run % extent) * stride;
            run /= extent;
        }
        return position;
    }

    // Moves the position `count` steps along an axis, to its end at most, and from there to the
    // next index of the axis around it, or back to the first run after the last one.
    static void advance(const Part &part, Position &position, std::size_t axis, std::size_t count) {
        position.at += static_cast<std::ptrdiff_t>(count) * part.axes[axis].stride;
        position.index[axis] += count;
        while (position.index[axis] == part.axes[axis].extent) {
            position.index[axis] = 0;
            position.at -=
                static_cast<std::ptrdiff_t>(part.axes[axis].extent) * part.axes[axis].stride;
            if (axis == 0) {
                return;
            }
            --axis;
            ++position.index[axis];
            position.at += part.axes[axis].stride;
        }
    }

    // Moves `runs` whole runs from the position on: by several rows at a time where they begin at
    // the begin of a row and that is faster, else along one row.
    template <bool Unpack>
    static std::byte *move_whole_runs(const Part &part, Position &position, std::size_t runs,
                                      std::size_t run_nbytes, std::byte *contiguous) {
        const std::size_t last = part.axes.size() - 1;
        const View::Axis row = part.axes[last];
        const View::Axis outer = last > 0 ? part.axes[last - 1] : View::Axis{1, PTRDIFF_MAX};
        const auto move_tiles = std::abs(outer.stride) < std::abs(row.stride)
                                    ? square_tiles<Unpack>(run_nbytes)
                                    : nullptr;
        while (runs > 0) {
            std::size_t some;
            if (move_tiles != nullptr && position.index[last] == 0 && runs >= 2 * row.extent) {
                const std::size_t rows =
                    std::min(runs / row.extent, outer.extent - position.index[last - 1]);
                move_tiles(position.at, outer.stride, row.stride, contiguous, rows, row.extent);
                advance(part, position, last - 1, rows);
                some = rows * row.extent;
            } else {
                some = std::min(runs, row.extent - position.index[last]);
                move_runs<Unpack>(position.at, row.stride, contiguous, some, run_nbytes);
                advance(part, position, last, some);
            }
            contiguous += some * run_nbytes;
            runs -= some;
        }
        return contiguous;
    }

    // Moves elements [begin, begin + count) of one part.
    template <bool Unpack>
    static void move_part(const Part &part, std::size_t itemsize, std::size_t begin,
                          std::size_t count, std::byte *contiguous) {
        if (part.axes.empty()) {
            return move_bytes<Unpack>(part.base + begin * itemsize, contiguous, count * itemsize);
        }
        const std::size_t offset = begin % part.run_count;
        Position position = seek(part, begin / part.run_count);
        if (offset > 0 || count < part.run_count) {
            const std::size_t some = std::min(count, part.run_count - offset);
            move_bytes<Unpack>(position.at + offset * itemsize, contiguous, some * itemsize);
            contiguous += some * itemsize;
            count -= some;
            advance(part, position, part.axes.size() - 1, 1);
        }
        const std::size_t run_nbytes = part.run_count * itemsize;
        contiguous =
            move_whole_runs<Unpack>(part, position, count / part.run_count, run_nbytes, contiguous);
        if (const std::size_t rest = count % part.run_count) {
            move_bytes<Unpack>(position.at, contiguous, rest * itemsize);
        }
    }
};

View::View(std::span<const Piece> pieces, std::size_t itemsize) : itemsize_(itemsize) {
    if (itemsize == 0) {
        throw std::invalid_argument("itemsize must be at least 1");
    }
    for (const Piece &piece : pieces) {
        append(piece);
    }
    contiguous_ = parts_.empty() || (parts_.size() == 1 && parts_[0].axes.empty());
}

std::byte *View::data() const noexcept { return parts_.empty() ? nullptr : parts_[0].base; }

// Adds a piece behind the last one: drops extents of 1, joins an axis with the one inside it where
// its stride says that they are one, and a contiguous piece with a contiguous one that it follows
// in memory.
void View::append(const Piece &piece) {
    if (piece.shape.size() != piece.strides.size()) {
        throw std::invalid_argument("shape and strides differ in length");
    }
    std::size_t count = 1;
    bool empty = false;
    for (const std::ptrdiff_t extent : piece.shape) {
        if (extent < 0) {
            throw std::invalid_argument("an extent is negative");
        }
        empty = empty || extent == 0;
        count =
            checked_product(count, static_cast<std::size_t>(std::max<std::ptrdiff_t>(extent, 1)));
    }
    checked_product(count, itemsize_);
    if (empty) {
        return;
    }
    checked_product(count_ + count, itemsize_);

    Part part{piece.base, 1, {}, count_, count};
    for (std::size_t axis = 0; axis < piece.shape.size(); ++axis) {
        const auto extent = static_cast<std::size_t>(piece.shape[axis]);
        const std::ptrdiff_t stride = piece.strides[axis];
        if (extent == 1) {
            continue;
        }
        if (!part.axes.empty() &&
            part.axes.back().stride == static_cast<std::ptrdiff_t>(extent) * stride) {
            part.axes.back() = {part.axes.back().extent * extent, stride};
        } else {
            part.axes.push_back({extent, stride});
        }
    }
    if (!part.axes.empty() && part.axes.back().stride == static_cast<std::ptrdiff_t>(itemsize_)) {
        part.run_count = part.axes.back().extent;
        part.axes.pop_back();
    }

    count_ += count;
    if (!parts_.empty() && part.axes.empty() && parts_.back().axes.empty() &&
        parts_.back().base + parts_.back().count * itemsize_ == part.base) {
        parts_.back().count += count;
        parts_.back().run_count += count;
    } else {
        parts_.push_back(std::move(part));
    }
}

void pack(const View &view, std::size_t first, std::size_t count, void *dst) noexcept {
    Walker::move<false>(view, first, count, static_cast<std::byte *>(dst));
}

void unpack(const View &view, std::size_t first, std::size_t count, const void *src) noexcept {
    // Unpacking only reads the contiguous side.
    Walker::move<true>(view, first, count,
                       const_cast<std::byte *>(static_cast<const std::byte *>(src)));
}

} // namespace hierring
