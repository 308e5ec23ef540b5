// Strided memory as one sequence of elements, and copies between it and contiguous memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hierring {

// One strided array as its owner describes it: extents in elements, strides in bytes (negative and
// zero are legal), `base` the address of element (0, ..., 0).
struct Piece {
    std::byte *base;
    std::vector<std::ptrdiff_t> shape;
    std::vector<std::ptrdiff_t> strides;
};

// A read-only description of memory that others own: the elements of each piece in C order, piece
// after piece. It never allocates after construction and may be used by several threads at a time.
class View {
  public:
    // Throws std::invalid_argument if itemsize is 0, an extent is negative, shape and strides
    // differ in length, or the bytes do not fit in a std::ptrdiff_t.
    View(std::span<const Piece> pieces, std::size_t itemsize);

    std::size_t count() const noexcept { return count_; }
    std::size_t itemsize() const noexcept { return itemsize_; }
    std::size_t nbytes() const noexcept { return count_ * itemsize_; }

    // Tells whether the elements are one contiguous run in order (an empty view is).
    bool contiguous() const noexcept { return contiguous_; }

    // Returns the address of the first element; with contiguous(), all others follow it. nullptr if
    // empty.
    std::byte *data() const noexcept;

  private:
    friend class Walker;

    // One loop over runs: `extent` of them, `stride` bytes apart.
    struct Axis {
        std::size_t extent;
        std::ptrdiff_t stride;
    };

    // A piece reduced to what a copy needs: the longest contiguous inner run, and the axes around
    // it, outermost first, with no extent of 1 and no two that could be one.
    struct Part {
        std::byte *base;
        std::size_t run_count; // elements of one run
        std::vector<Axis> axes;
        std::size_t first; // index in the view of this part's first element
        std::size_t count; // elements
    };

    void append(const Piece &piece);

    std::vector<Part> parts_; // never an empty one; sorted by `first`, without gaps
    std::size_t itemsize_;
    std::size_t count_ = 0;
    bool contiguous_ = true;
};

// Copies elements [first, first + count) of the view to dst. The range must lie in the view.
void pack(const View &view, std::size_t first, std::size_t count, void *dst) noexcept;

// Copies `count` elements at src over elements [first, first + count) of the view. Where a view
// meets one address twice (stride 0) the last one in C order stays.
void unpack(const View &view, std::size_t first, std::size_t count, const void *src) noexcept;

} // namespace hierring
