// Views and the copies between them and contiguous memory.
//
// Both directions walk the same way: elements first to the end of the run they begin in, then whole
// runs, then the begin of the last one. Divisions happen once per call, to find the first run.
#include "strided.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
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

// Copies between a strided side and a contiguous side. Unpack: from the contiguous to the strided.
template <bool Unpack>
[[gnu::always_inline]] inline void move_bytes(std::byte *strided, std::byte *contiguous,
                                              std::size_t nbytes) {
    if constexpr (Unpack) {
        std::memcpy(strided, contiguous, nbytes);
    } else {
        std::memcpy(contiguous, strided, nbytes);
    }
}

// Moves `count` runs of Nbytes bytes each, `stride` bytes apart; the copies are single
// instructions.
template <bool Unpack, std::size_t Nbytes>
void move_small_runs(std::byte *strided, std::ptrdiff_t stride, std::byte *contiguous,
                     std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        move_bytes<Unpack>(strided, contiguous, Nbytes);
        strided += stride;
        contiguous += Nbytes;
    }
}

// Moves `count` runs of any length.
template <bool Unpack>
void move_runs(std::byte *strided, std::ptrdiff_t stride, std::byte *contiguous, std::size_t count,
               std::size_t run_nbytes) {
    switch (run_nbytes) {
    case 1:
        return move_small_runs<Unpack, 1>(strided, stride, contiguous, count);
    case 2:
        return move_small_runs<Unpack, 2>(strided, stride, contiguous, count);
    case 4:
        return move_small_runs<Unpack, 4>(strided, stride, contiguous, count);
    case 8:
        return move_small_runs<Unpack, 8>(strided, stride, contiguous, count);
    case 12:
        return move_small_runs<Unpack, 12>(strided, stride, contiguous, count);
    case 16:
        return move_small_runs<Unpack, 16>(strided, stride, contiguous, count);
    case 32:
        return move_small_runs<Unpack, 32>(strided, stride, contiguous, count);
    case 64:
        return move_small_runs<Unpack, 64>(strided, stride, contiguous, count);
    default:
        for (std::size_t i = 0; i < count; ++i) {
            move_bytes<Unpack>(strided, contiguous, run_nbytes);
            strided += stride;
            contiguous += run_nbytes;
        }
    }
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

    // Moves the position `count` runs along the innermost axis, to its end at most, and from there
    // to the begin of the next row, or back to the first run after the last row.
    static void advance(const Part &part, Position &position, std::size_t count) {
        std::size_t axis = part.axes.size() - 1;
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
            advance(part, position, 1);
        }
        const std::size_t run_nbytes = part.run_count * itemsize;
        const View::Axis row = part.axes.back();
        for (std::size_t runs = count / part.run_count; runs > 0;) {
            const std::size_t some =
                std::min(runs, row.extent - position.index[part.axes.size() - 1]);
            move_runs<Unpack>(position.at, row.stride, contiguous, some, run_nbytes);
            contiguous += some * run_nbytes;
            runs -= some;
            advance(part, position, some);
        }
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
