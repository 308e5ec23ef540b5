// The arithmetic of a reduction, the same bits on every SIMD level.
//
// Nothing here knows about ranks, cells or flags: memory in, memory out. A kernel reads only its
// sources and writes only [dst, dst + count * itemsize), since the bytes next to it may belong to
// another rank.
#pragma once

#include "dtype.hpp"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace hierring {

// The most sources that one reduce() accepts.
inline constexpr std::size_t kMaxSources = 1024;

// One operand of a reduction. `data` needs no alignment. `scale` multiplies each element before the
// operator; 1.0 changes no bit, and integers and bool ignore it.
struct Source {
    const void *data;
    DType type;
    double scale = 1.0;
};

// Computes dst[i] = (scale_0 * source_0[i] op ... op scale_k * source_k[i]) / divisor, left to
// right.
//
// All types must be equal, or all be among f32, f16 and bf16: these are computed in f32 and rounded
// once, to nearest even, at the store. Integers wrap modulo 2^n. bool: sum, max, bor give "any",
// prod, min, band "all", any non-zero byte is true, results are 0 or 1. min and max give NaN if any
// operand is NaN, and order -0 below +0. Complex products are the textbook (ac - bd, ad + bc).
// divisor 1.0 changes no bit; other divisors divide (no reciprocal). scale and divisor are rounded
// to the type computed in. One source with no scale is a conversion. reducible(type, op), 1 <=
// sources.size() <= kMaxSources.
//
// dst may be exactly one of the sources if their types are equal; else it overlaps none. Any
// floating-point environment of the caller is set aside and restored. Never allocates, never
// throws.
void reduce(void *dst, DType dst_type, std::span<const Source> sources, std::size_t count, Op op,
            double divisor) noexcept;

// Copies nbytes bytes between regions that do not overlap (or are the same).
void copy(void *dst, const void *src, std::size_t nbytes) noexcept;

// Returns the levels this CPU can run, lowest first: "scalar" always, then "avx2", "avx512".
std::vector<std::string_view> simd_levels();

// Returns the level in use: the highest one unless set_simd_level() chose another.
const char *simd_level() noexcept;

// Chooses a level for the whole process; false, and no change, if this CPU cannot run it.
bool set_simd_level(std::string_view name) noexcept;

} // namespace hierring
