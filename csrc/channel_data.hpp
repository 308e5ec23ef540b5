// Moves of data between cells and tensors: where a kernel meets a strided view.
#pragma once

#include "kernels.hpp"
#include "strided.hpp"

#include <cstddef>
#include <span>

namespace hierring {

// Converts `count` elements at src to elements [first, first + count) of a view, divided. Equal
// types and divisor 1 (or a type that has no division) make a plain copy. Strided views go through
// scratch.
void deliver(const View &out, std::size_t first, DType out_type, const void *src, DType src_type,
             std::size_t count, double divisor, std::span<std::byte> scratch) noexcept;

// Reduces `count` elements to dst, as reduce(). sources[own] stands for elements [first, ...) of x,
// and its data is set here; the others are contiguous. All sources' data may be changed.
void reduce_with(void *dst, DType dst_type, std::span<Source> sources, std::size_t own,
                 const View &x, std::size_t first, std::size_t count, Op op, double divisor,
                 std::span<std::byte> scratch) noexcept;

// Reduces contiguous sources to the first `count` elements of a view of the same type.
void reduce_into(const View &out, DType type, std::span<Source> sources, std::size_t count, Op op,
                 double divisor, std::span<std::byte> scratch) noexcept;

} // namespace hierring
