// Test data: tensors in several memory layouts, filled so that any misplaced element shows.
#pragma once

#include "check.hpp"
#include "kernels.hpp"
#include "strided.hpp"

#include <cstdint>
#include <cstring>
#include <vector>

namespace hierring::test {

inline constexpr std::byte kGap{0xA5};

// Writes a small integer as an element of the type; all types hold it exactly (bool: non-zero).
inline void store(std::byte *at, DType type, int value) {
    if (type == DType::b8) {
        *at = std::byte{value != 0};
        return;
    }
    if (!is_floating(type)) {
        const auto wide = static_cast<std::int64_t>(value);
        std::memcpy(at, &wide, itemsize(type)); // little-endian
        return;
    }
    if (type == DType::f64 || is_complex(type)) {
        const double parts[2] = {static_cast<double>(value), 1.0};
        const float halves[2] = {static_cast<float>(value), 1.0f};
        std::memcpy(at, type == DType::c64 ? static_cast<const void *>(halves) : parts,
                    itemsize(type));
        return;
    }
    const float narrow = static_cast<float>(value);
    const Source source{&narrow, DType::f32};
    reduce(at, type, {&source, 1}, 1, Op::sum, 1.0);
}

// A tensor of `count` elements and its view, in one of four layouts: contiguous, every third
// element, backwards, or two pieces apart. The bytes between hold kGap.
class Tensor {
  public:
    Tensor(DType type, std::size_t count, unsigned layout)
        : type_(type), layout_(count < 2 ? 0 : layout % 4), step_(layout_ == 1 ? 3 : 1),
          size_(itemsize(type)), memory_((count * step_ + 16) * size_, kGap), view_(make(count)) {
        for (std::size_t i = 0; i < count; ++i) {
            std::memset(at(i), 0, size_);
        }
    }

    const View &view() const { return view_; }
    DType type() const { return type_; }
    std::size_t count() const { return view_.count(); }

    // The address of element i.
    std::byte *at(std::size_t i) { return memory_.data() + offset(i, view_.count()); }

    // The elements one after the other.
    std::vector<std::byte> elements() const {
        std::vector<std::byte> packed(view_.nbytes());
        pack(view_, 0, view_.count(), packed.data());
        return packed;
    }

    // Whether the bytes between and around the elements are as they were.
    bool gaps_untouched() const {
        std::vector<bool> is_element(memory_.size());
        for (std::size_t i = 0; i < count(); ++i) {
            for (std::size_t k = 0; k < size_; ++k) {
                is_element[offset(i, count()) + k] = true;
            }
        }
        for (std::size_t k = 0; k < memory_.size(); ++k) {
            if (!is_element[k] && memory_[k] != kGap) {
                return false;
            }
        }
        return true;
    }

  private:
    std::size_t offset(std::size_t i, std::size_t count) const {
        switch (layout_) {
        case 2:
            return (count - 1 - i + 8) * size_;
        case 3:
            return (i + (i < count / 2 ? 4 : 11)) * size_;
        default:
            return (i * step_ + 8) * size_;
        }
    }

    View make(std::size_t count) {
        const auto piece = [&](std::size_t first, std::size_t n, std::ptrdiff_t stride) {
            return Piece{memory_.data() + offset(first, count),
                         {static_cast<std::ptrdiff_t>(n)},
                         {stride * static_cast<std::ptrdiff_t>(size_)}};
        };
        std::vector<Piece> pieces;
        if (layout_ == 3) {
            pieces = {piece(0, count / 2, 1), piece(count / 2, count - count / 2, 1)};
        } else {
            pieces = {piece(0, count, layout_ == 2 ? -1 : static_cast<std::ptrdiff_t>(step_))};
        }
        return View(pieces, size_);
    }

    DType type_;
    unsigned layout_;
    std::size_t step_;
    std::size_t size_;
    std::vector<std::byte> memory_;
    View view_;
};

} // namespace hierring::test
