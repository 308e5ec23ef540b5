// What a SIMD level offers to the dispatcher: one loop per operator and combination of types.
//
// The files kernels_<level>.cpp are compiled for CPUs that the process may not be running on. So
// that the linker can never pick a function of theirs for the rest of the program, they share
// nothing with it but plain data of this header, and all their functions have internal linkage.
#pragma once

#include "dtype.hpp"

#include <cstddef>

namespace hierring {

// The most sources of one call of a loop. Eight streams are what hardware prefetchers follow with
// ease; reduce() handles more by blocks.
inline constexpr std::size_t kMaxLoopSources = 8;

// Operands of one loop, in elements of their types. `scales` is nullptr if all scales and the
// divisor are 1.0: the loop then has no multiplication and no division.
struct LoopArguments {
    void *dst;
    const void *const *sources;
    const double *scales;
    std::size_t source_count;
    std::size_t count;
    double divisor;
};

using Loop = void (*)(const LoopArguments &);

// The types computed in f32, as indices of KernelTable::f32. In the order of DType.
inline constexpr std::size_t kF32Family = 3;

// Returns the index of f32, f16 or bf16 in KernelTable::f32.
constexpr std::size_t f32_index(DType type) {
    return static_cast<std::size_t>(type) - static_cast<std::size_t>(DType::f32);
}

struct KernelTable {
    const char *name;
    // All operands of one type. Signed integers have only min and max, and integers wider than a
    // byte nothing bitwise, where u<n> and u8 do the same; complex numbers have only prod.
    Loop uniform[kDTypeCount][kOpCount];
    // [type of the first source][type of the others][type of dst][op]. With T one of the 16-bit
    // types: T,T,T and f32,T,f32 for all ops; for sum also T,T,f32 and f32,T,T and f32,f32,T, of
    // which the first and the last also convert (one source). The rest is nullptr, and made of
    // these.
    Loop f32[kF32Family][kF32Family][kF32Family][kOpCount];
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

} // namespace hierring
