// Element types and reduction operators, numbered as in hierring/dtypes.py.
//
// The numbers travel between ranks inside descriptors and index the kernel tables, so an entry may
// be appended but never moved.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hierring {

enum class DType : std::uint8_t {
    f64,
    f32,
    f16,
    bf16,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    b8,
    c64,
    c128,
};
inline constexpr std::size_t kDTypeCount = 15;

enum class Op : std::uint8_t { sum, prod, min, max, band, bor, bxor };
inline constexpr std::size_t kOpCount = 7;

inline constexpr const char *kDTypeNames[kDTypeCount] = {
    "float64", "float32", "float16", "bfloat16", "int8", "int16",     "int32",      "int64",
    "uint8",   "uint16",  "uint32",  "uint64",   "bool", "complex64", "complex128",
};
inline constexpr const char *kOpNames[kOpCount] = {"sum",  "prod", "min", "max",
                                                   "band", "bor",  "bxor"};
inline constexpr std::uint8_t kItemsizes[kDTypeCount] = {8, 4, 2, 2, 1, 2, 4, 8,
                                                         1, 2, 4, 8, 1, 8, 16};

// Returns the bytes of one element.
constexpr std::size_t itemsize(DType type) { return kItemsizes[static_cast<std::size_t>(type)]; }

// Tells whether the type is one of the three that are computed in f32 and may be mixed in one
// reduction.
constexpr bool computes_in_f32(DType type) {
    return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

// Returns the type in which a reduction of this type is computed, and in which a partial result
// that will be reduced further must be kept to be rounded once only.
constexpr DType accumulation_type(DType type) { return computes_in_f32(type) ? DType::f32 : type; }

constexpr bool is_complex(DType type) { return type == DType::c64 || type == DType::c128; }

// Tells whether scale and divisor apply to the type: real and complex floating point only.
constexpr bool is_floating(DType type) { return type <= DType::bf16 || is_complex(type); }

// Tells whether the operator is defined for the type: no bitwise operators on floating point, no
// order on complex numbers.
constexpr bool reducible(DType type, Op op) {
    if (op == Op::sum || op == Op::prod) {
        return true;
    }
    const bool bitwise = op == Op::band || op == Op::bor || op == Op::bxor;
    return bitwise ? !is_floating(type) : !is_complex(type);
}

} // namespace hierring
