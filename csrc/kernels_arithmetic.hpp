// The operators of one SIMD level, on vectors of any width.
//
// An arithmetic lets each operand `enter`, will `combine` them left to right, and the result
// `leave`.
//
// Everything is in an unnamed namespace, see kernel_table.hpp.
#pragma once

#include "kernels_format.hpp"

#include <cstddef>

namespace hierring {
namespace {

struct Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V enter(V value) {
        return value;
    }
    template <class V>
    [[gnu::always_inline]] static inline V leave(V value) {
        return value;
    }
};

struct Sum : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V a, V b) {
        return a + b;
    }
};

struct Product : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V a, V b) {
        return a * b;
    }
};

struct And : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V a, V b) {
        return a & b;
    }
};

struct Or : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V a, V b) {
        return a | b;
    }
};

struct Xor : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V a, V b) {
        return a ^ b;
    }
};

struct IntegerMin : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V a, V b) {
        return a < b ? a : b;
    }
};

struct IntegerMax : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V a, V b) {
        return a > b ? a : b;
    }
};

// The two selections agree, and the or changes nothing, unless the operands compare equal or
// unordered. Equal ones of different bits are zeros: the or keeps the sign, so -0 is below +0. With
// a NaN each operand is selected once, and NaN bits or'ed with any bits are a NaN.
struct FloatMin : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V a, V b) {
        using Mask = MaskOf<V>;
        return bits<V>(bits<Mask>(a < b ? a : b) | bits<Mask>(b < a ? b : a));
    }
};

// The negated minimum of the negated operands.
struct FloatMax : FloatMin {
    template <class V>
    [[gnu::always_inline]] static inline V enter(V value) {
        return -value;
    }
    template <class V>
    [[gnu::always_inline]] static inline V leave(V value) {
        return -value;
    }
};

// (a, b) * (c, d) as (ac - bd, ad + bc), each product rounded, real parts in the even lanes. Adding
// the negated bd is subtracting it.
struct ComplexProduct : Arithmetic {
    template <class V>
    [[gnu::always_inline]] static inline V combine(V x, V y) {
        using Mask = MaskOf<V>;
        constexpr std::size_t kLanes = sizeof(V) / sizeof(V{}[0]);
        Mask even{}, odd{}, swapped{}, sign{};
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            even[lane] = lane & ~std::size_t{1};
            odd[lane] = lane | 1;
            swapped[lane] = lane ^ 1;
        }
        V negative_zeros{};
        for (std::size_t lane = 0; lane < kLanes; lane += 2) {
            negative_zeros[lane] = -0.0;
        }
        sign = bits<Mask>(negative_zeros);
        const V first = x * __builtin_shuffle(y, even);
        const V second = __builtin_shuffle(x, swapped) * __builtin_shuffle(y, odd);
        return first + bits<V>(bits<Mask>(second) ^ sign);
    }
};

} // namespace
} // namespace hierring
