// The loops of one SIMD level, as templates over its vector width and its conversions of 16-bit
// floats.
//
// Every level compiles these same templates, so that levels differ in nothing but the width; each
// element sees the same operations in the same order at any width, thus the same bits. A level is a
// class `Isa` with kVectorBytes and widen/narrow functions; GenericIsa has them for any CPU.
//
// Everything is in an unnamed namespace, see kernel_table.hpp. For the same reason nothing of the
// standard library with code in it is included.
#pragma once

#include "kernel_table.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hierring {
namespace {

// A vector of Bytes / sizeof(T) lanes, with lane-wise operators of the compiler.
template <class T, std::size_t Bytes>
struct VectorOf {
    typedef T Type __attribute__((vector_size(Bytes)));
};
template <class T, std::size_t Bytes>
using Vector = typename VectorOf<T, Bytes>::Type;

// The integers of the lanes' size, for the bits of floating-point lanes and the indices of
// shuffles.
template <class V>
using MaskOf =
    Vector<std::conditional_t<sizeof(V{}[0]) == 4, std::int32_t, std::int64_t>, sizeof(V)>;

// Two vectors that are loaded, computed with and stored together. Elements need not lie in them in
// memory order, as long as all operands of a loop agree.
template <class V>
struct Pair {
    V a, b;
};

// Reads one vector at any alignment.
template <class V>
[[gnu::always_inline]] inline V load_vector(const std::byte *from) {
    V value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

// Writes one vector at any alignment.
template <class V>
[[gnu::always_inline]] inline void store_vector(std::byte *to, V value) {
    __builtin_memcpy(to, &value, sizeof value);
}

// Copies nbytes < 2 * sizeof(Block) bytes, at least sizeof(Block), as two blocks that may overlap.
template <class Block>
[[gnu::always_inline]] inline void copy_two(std::byte *to, const std::byte *from,
                                            std::size_t nbytes) {
    Block head, tail;
    __builtin_memcpy(&head, from, sizeof head);
    __builtin_memcpy(&tail, from + nbytes - sizeof tail, sizeof tail);
    __builtin_memcpy(to, &head, sizeof head);
    __builtin_memcpy(to + nbytes - sizeof tail, &tail, sizeof tail);
}

// Copies 1 <= nbytes < 128 bytes without the cost of a call for so few.
[[gnu::always_inline]] inline void copy_few(std::byte *to, const std::byte *from,
                                            std::size_t nbytes) {
    if (nbytes >= 16) {
        for (; nbytes >= 32; nbytes -= 16, from += 16, to += 16) {
            store_vector(to, load_vector<Vector<std::uint64_t, 16>>(from));
        }
        copy_two<Vector<std::uint64_t, 16>>(to, from, nbytes);
    } else if (nbytes >= 8) {
        copy_two<std::uint64_t>(to, from, nbytes);
    } else if (nbytes >= 4) {
        copy_two<std::uint32_t>(to, from, nbytes);
    } else if (nbytes >= 2) {
        copy_two<std::uint16_t>(to, from, nbytes);
    } else {
        *to = *from;
    }
}

// Takes the bits of one vector for another of the same size.
template <class To, class From>
[[gnu::always_inline]] inline To bits(From value) {
    static_assert(sizeof(To) == sizeof(From));
    return reinterpret_cast<To>(value);
}

// Vectors of Bytes bytes, and 16-bit floats in plain integer arithmetic. The float environment must
// be the one reduce() sets up: subnormals of f32 are needed.
template <std::size_t Bytes>
struct GenericIsa {
    static constexpr std::size_t kVectorBytes = Bytes;
    using F32 = Vector<float, Bytes>;
    using U32 = Vector<std::uint32_t, Bytes>;
    using I32 = Vector<std::int32_t, Bytes>;
    using U16 = Vector<std::uint16_t, Bytes / 2>;

    // f16 to f32, exact; a NaN becomes quiet.
    [[gnu::always_inline]] static inline F32 widen_f16(U16 value) {
        const I32 word = bits<I32>(__builtin_convertvector(value, U32));
        const I32 sign = (word & 0x8000) << 16;
        const I32 magnitude = word & 0x7fff;
        const I32 normal = (magnitude << 13) + (112 << 23); // rebias the exponent: 127 - 15
        const I32 subnormal = bits<I32>(__builtin_convertvector(magnitude, F32) * 0x1p-24f);
        const I32 quiet = (magnitude > 0x7c00) & 0x400000;
        const I32 special = (magnitude << 13) | 0x7f800000 | quiet;
        const I32 finite = magnitude < 0x400 ? subnormal : normal;
        return bits<F32>(sign | (magnitude < 0x7c00 ? finite : special));
    }

    // f32 to f16, to nearest even; a NaN becomes quiet and keeps the top of its payload.
    [[gnu::always_inline]] static inline U16 narrow_f16(F32 value) {
        const I32 word = bits<I32>(value);
        const I32 magnitude = word & 0x7fffffff;
        // Adding 0.5 leaves multiples of 2^-24, the subnormal step, rounded by the addition itself.
        const I32 subnormal = bits<I32>(bits<F32>(magnitude) + 0.5f) - 0x3f000000;
        const I32 normal = (magnitude - (112 << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
        const I32 nan = ((magnitude >> 13) & 0x3ff) | 0x7e00;
        I32 result = magnitude < 0x38800000 ? subnormal : normal;    // below 2^-14
        result = magnitude > 0x477fefff ? (I32{} + 0x7c00) : result; // 65520 and above is infinity
        result = magnitude > 0x7f800000 ? nan : result;
        return __builtin_convertvector(bits<U32>(result | ((word >> 16) & 0x8000)), U16);
    }

    // f32 to bf16 in the high half of each lane, to nearest even. The low halves are of no meaning.
    // A NaN must have a low half of zero, from which the addition carries nothing.
    [[gnu::always_inline]] static inline U32 round_clean_bf16(F32 value) {
        const U32 word = bits<U32>(value);
        return word + 0x7fff + ((word >> 16) & 1);
    }

    // The same for any NaN, which becomes quiet.
    [[gnu::always_inline]] static inline U32 round_bf16(F32 value) {
        return value == value ? round_clean_bf16(value) : (bits<U32>(value) | 0x400000);
    }

    // Reads f16 in memory order.
    [[gnu::always_inline]] static inline Pair<F32> load_f16(const std::byte *from) {
        return {widen_f16(load_vector<U16>(from)), widen_f16(load_vector<U16>(from + Bytes / 2))};
    }

    // Writes f16 in memory order.
    [[gnu::always_inline]] static inline void store_f16(std::byte *to, Pair<F32> value) {
        store_vector(to, narrow_f16(value.a));
        store_vector(to + Bytes / 2, narrow_f16(value.b));
    }

    // Reads bf16 in memory order, exact.
    [[gnu::always_inline]] static inline Pair<F32> load_bf16(const std::byte *from) {
        const U16 a = load_vector<U16>(from);
        const U16 b = load_vector<U16>(from + Bytes / 2);
        return {bits<F32>(__builtin_convertvector(a, U32) << 16),
                bits<F32>(__builtin_convertvector(b, U32) << 16)};
    }

    // Writes bf16 in memory order.
    [[gnu::always_inline]] static inline void store_bf16(std::byte *to, Pair<F32> value) {
        store_vector(to, __builtin_convertvector(round_bf16(value.a) >> 16, U16));
        store_vector(to + Bytes / 2, __builtin_convertvector(round_bf16(value.b) >> 16, U16));
    }
};

// Formats: how kLanes elements of kItemsize bytes in memory become a pair of vectors to compute
// with.

// Elements of `Components` lanes of type T (2: complex numbers).
template <class Isa, class T, std::size_t Components = 1>
struct Plain {
    using Lane = T;
    using Compute = Vector<T, Isa::kVectorBytes>;
    static constexpr std::size_t kItemsize = sizeof(T) * Components;
    static constexpr std::size_t kLanes = 2 * Isa::kVectorBytes / kItemsize;
    [[gnu::always_inline]] static inline Pair<Compute> load(const std::byte *from) {
        return {load_vector<Compute>(from), load_vector<Compute>(from + Isa::kVectorBytes)};
    }
    [[gnu::always_inline]] static inline void store(std::byte *to, Pair<Compute> value) {
        store_vector(to, value.a);
        store_vector(to + Isa::kVectorBytes, value.b);
    }
};

// Bytes of which any non-zero one is true; computed with and written as 0 or 1.
template <class Isa>
struct Bool : Plain<Isa, std::uint8_t> {
    using Compute = typename Plain<Isa, std::uint8_t>::Compute;
    [[gnu::always_inline]] static inline Pair<Compute> load(const std::byte *from) {
        const Pair<Compute> raw = Plain<Isa, std::uint8_t>::load(from);
        return {bits<Compute>(raw.a != 0) & 1, bits<Compute>(raw.b != 0) & 1};
    }
};

// What the 16-bit formats share.
template <class Isa>
struct HalfWidth {
    using Lane = float;
    using Compute = Vector<float, Isa::kVectorBytes>;
    static constexpr std::size_t kItemsize = 2;
    static constexpr std::size_t kLanes = 2 * Isa::kVectorBytes / sizeof(float);
};

template <class Isa>
struct Half : HalfWidth<Isa> {
    using Compute = typename HalfWidth<Isa>::Compute;
    [[gnu::always_inline]] static inline Pair<Compute> load(const std::byte *from) {
        return Isa::load_f16(from);
    }
    [[gnu::always_inline]] static inline void store(std::byte *to, Pair<Compute> value) {
        Isa::store_f16(to, value);
    }
};

// bf16 in loops together with f32.
template <class Isa>
struct BFloat : HalfWidth<Isa> {
    using Compute = typename HalfWidth<Isa>::Compute;
    [[gnu::always_inline]] static inline Pair<Compute> load(const std::byte *from) {
        return Isa::load_bf16(from);
    }
    [[gnu::always_inline]] static inline void store(std::byte *to, Pair<Compute> value) {
        Isa::store_bf16(to, value);
    }
};

// bf16 in loops where all operands are: elements of even and odd index apart, which takes no
// shuffles (a bf16 is the high half of an f32, the odd one of two adjacent 16-bit lanes, in little
// endian).
template <class Isa>
struct BFloatOnly : HalfWidth<Isa> {
    using Compute = typename HalfWidth<Isa>::Compute;
    using Words = Vector<std::uint32_t, Isa::kVectorBytes>;
    [[gnu::always_inline]] static inline Pair<Compute> load(const std::byte *from) {
        const Words words = load_vector<Words>(from);
        return {bits<Compute>(words << 16), bits<Compute>(words & 0xffff0000)};
    }
    [[gnu::always_inline]] static inline void store(std::byte *to, Pair<Compute> value) {
        store_words(to, Isa::round_bf16(value.a), Isa::round_bf16(value.b));
    }
    // Stores what unscaled operands gave: a NaN is one of theirs, a mix of their bits (see
    // FloatMin) or the CPU's own, and none of these has a bit in its low half.
    [[gnu::always_inline]] static inline void store_unscaled(std::byte *to, Pair<Compute> value) {
        store_words(to, Isa::round_clean_bf16(value.a), Isa::round_clean_bf16(value.b));
    }

  private:
    // Writes the high halves of both, interleaved.
    [[gnu::always_inline]] static inline void store_words(std::byte *to, Words a, Words b) {
        store_vector(to, (a >> 16) | (b & 0xffff0000));
    }
};
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

// Arithmetics: `enter` each operand, `combine` them left to right, `leave` with the result.

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

// One loop: the first source in format First, the others in Rest, the result in Dst.
template <class First, class Rest, class Dst, class Arith>
struct Reduction {
    using Compute = typename Dst::Compute;
    using Lane = typename Dst::Lane;
    static constexpr std::size_t kLanes = Dst::kLanes;
    static_assert(First::kLanes == kLanes && Rest::kLanes == kLanes);
    static constexpr bool kFloating = std::is_floating_point_v<Lane>;

    // The arguments in the types of the loop; `scales` and `divisor` are set only if scaled.
    struct Operands {
        std::byte *dst;
        const std::byte *sources[kMaxLoopSources];
        Lane scales[kMaxLoopSources];
        Lane divisor;
        std::size_t source_count;
    };

    // Loads kLanes elements of a source and makes operands of them.
    template <class Format, bool Scaled>
    [[gnu::always_inline]] static inline Pair<Compute> enter(const std::byte *from, Lane scale) {
        Pair<Compute> value = Format::load(from);
        if constexpr (Scaled) {
            value = {value.a * scale, value.b * scale};
        }
        return {Arith::enter(value.a), Arith::enter(value.b)};
    }

    // Combines an operand with those before it.
    [[gnu::always_inline]] static inline Pair<Compute> combine(Pair<Compute> x, Pair<Compute> y) {
        return {Arith::combine(x.a, y.a), Arith::combine(x.b, y.b)};
    }

    // Makes results of the combined operands.
    template <bool Scaled>
    [[gnu::always_inline]] static inline Pair<Compute> leave(Pair<Compute> value, Lane divisor) {
        value = {Arith::leave(value.a), Arith::leave(value.b)};
        if constexpr (Scaled) {
            value = {value.a / divisor, value.b / divisor};
        }
        return value;
    }

    // Writes kLanes elements.
    template <bool Scaled>
    [[gnu::always_inline]] static inline void store(std::byte *to, Pair<Compute> value) {
        if constexpr (!Scaled && requires { Dst::store_unscaled(to, value); }) {
            Dst::store_unscaled(to, value);
        } else {
            Dst::store(to, value);
        }
    }

    // Reduces 2 * kLanes elements from `at` on. Count is the number of sources, 0 if known only at
    // run time. All loads come before the first store: dst may be one of the sources.
    template <bool Scaled, std::size_t Count>
    [[gnu::always_inline]] static inline void group(const Operands &operands, std::size_t at) {
        const std::size_t count = Count != 0 ? Count : operands.source_count;
        const std::byte *from = operands.sources[0] + at * First::kItemsize;
        Pair<Compute> x = enter<First, Scaled>(from, operands.scales[0]);
        Pair<Compute> y =
            enter<First, Scaled>(from + kLanes * First::kItemsize, operands.scales[0]);
#pragma GCC unroll 1
        for (std::size_t k = 1; k < count; ++k) {
            from = operands.sources[k] + at * Rest::kItemsize;
            const Lane scale = operands.scales[k];
            x = combine(x, enter<Rest, Scaled>(from, scale));
            y = combine(y, enter<Rest, Scaled>(from + kLanes * Rest::kItemsize, scale));
        }
        std::byte *to = operands.dst + at * Dst::kItemsize;
        store<Scaled>(to, leave<Scaled>(x, operands.divisor));
        store<Scaled>(to + kLanes * Dst::kItemsize, leave<Scaled>(y, operands.divisor));
    }

    // Loads `count` <= kLanes elements of a source, and zeros beyond them.
    template <class Format>
    [[gnu::always_inline]] static inline Pair<Compute> enter_some(const std::byte *from,
                                                                  std::size_t count, Lane scale) {
        if (count == kLanes) {
            return enter<Format, kFloating>(from, scale);
        }
        std::byte padded[kLanes * Format::kItemsize] = {};
        copy_few(padded, from, count * Format::kItemsize);
        return enter<Format, kFloating>(padded, scale);
    }

    // Reduces what is left from `at` on, by kLanes elements, the last ones padded with zeros. There
    // is one such function for all source counts and scales: 1.0 changes no bit.
    [[gnu::noinline]] static void finish(const Operands &operands, std::size_t at,
                                         std::size_t count) {
        while (at < count) {
            const std::size_t left = count - at;
            const std::size_t some = left < kLanes ? left : kLanes;
            Pair<Compute> value = enter_some<First>(operands.sources[0] + at * First::kItemsize,
                                                    some, operands.scales[0]);
#pragma GCC unroll 1
            for (std::size_t k = 1; k < operands.source_count; ++k) {
                const std::byte *from = operands.sources[k] + at * Rest::kItemsize;
                value = combine(value, enter_some<Rest>(from, some, operands.scales[k]));
            }
            value = leave<kFloating>(value, operands.divisor);
            std::byte *to = operands.dst + at * Dst::kItemsize;
            if (some == kLanes) {
                Dst::store(to, value);
            } else {
                std::byte padded[kLanes * Dst::kItemsize];
                Dst::store(padded, value);
                copy_few(to, padded, some * Dst::kItemsize);
            }
            at += some;
        }
    }

    // Reduces all elements.
    template <bool Scaled, std::size_t Count>
    [[gnu::always_inline]] static inline void loop(const Operands &operands, std::size_t count) {
        std::size_t at = 0;
        for (; count - at >= 2 * kLanes; at += 2 * kLanes) {
            group<Scaled, Count>(operands, at);
        }
        if (at < count) {
            finish(operands, at, count);
        }
    }

    // The entry of KernelTable.
    static void run(const LoopArguments &arguments) {
        const bool scaled = kFloating && arguments.scales != nullptr;
        Operands operands;
        operands.dst = static_cast<std::byte *>(arguments.dst);
        operands.source_count = arguments.source_count;
        operands.divisor = static_cast<Lane>(scaled ? arguments.divisor : 1.0);
        for (std::size_t k = 0; k < arguments.source_count; ++k) {
            operands.sources[k] = static_cast<const std::byte *>(arguments.sources[k]);
            operands.scales[k] = static_cast<Lane>(scaled ? arguments.scales[k] : 1.0);
        }
        if constexpr (kFloating) {
            if (scaled) {
                return loop<true, 0>(operands, arguments.count);
            }
        }
        if (arguments.source_count == 2) {
            return loop<false, 2>(operands, arguments.count);
        }
        loop<false, 0>(operands, arguments.count);
    }
};

// Fills the row of one type, for operators that all operands share one format for.
template <class Format, class... Ariths>
struct Row {
    static constexpr void fill(KernelTable &table, DType type, const Op (&ops)[sizeof...(Ariths)]) {
        const Loop loops[] = {&Reduction<Format, Format, Format, Ariths>::run...};
        for (std::size_t i = 0; i < sizeof...(Ariths); ++i) {
            table.uniform[static_cast<std::size_t>(type)][static_cast<std::size_t>(ops[i])] =
                loops[i];
        }
    }
};

// Sets the loop of one combination of types that are computed in f32.
template <class First, class Rest, class Dst, class Arith>
constexpr void set_f32(KernelTable &table, DType first, DType rest, DType dst, Op op) {
    table.f32[f32_index(first)][f32_index(rest)][f32_index(dst)][static_cast<std::size_t>(op)] =
        &Reduction<First, Rest, Dst, Arith>::run;
}

// Fills what the table promises for all operators, with a 16-bit type in formats T and, where all
// operands have it, Only.
template <class Isa, class T, class Only, class Arith>
constexpr void fill_f32_operator(KernelTable &table, DType type, Op op) {
    set_f32<Only, Only, Only, Arith>(table, type, type, type, op);
    set_f32<Plain<Isa, float>, T, Plain<Isa, float>, Arith>(table, DType::f32, type, DType::f32,
                                                            op);
}

// Fills all loops that read or write a 16-bit type, but those between two such types.
template <class Isa, class T, class Only>
constexpr void fill_16_bits(KernelTable &table, DType type) {
    using F32 = Plain<Isa, float>;
    fill_f32_operator<Isa, T, Only, Sum>(table, type, Op::sum);
    fill_f32_operator<Isa, T, Only, Product>(table, type, Op::prod);
    fill_f32_operator<Isa, T, Only, FloatMin>(table, type, Op::min);
    fill_f32_operator<Isa, T, Only, FloatMax>(table, type, Op::max);
    set_f32<T, T, F32, Sum>(table, type, type, DType::f32, Op::sum);
    set_f32<F32, T, T, Sum>(table, DType::f32, type, type, Op::sum);
    set_f32<F32, F32, T, Sum>(table, DType::f32, DType::f32, type, Op::sum);
}

// Fills the rows of one integer width: arithmetic is that of the unsigned type, order differs.
template <class Isa, class Signed, class Unsigned>
constexpr void fill_integers(KernelTable &table, DType is_signed, DType is_unsigned) {
    Row<Plain<Isa, Unsigned>, Sum, Product, IntegerMin, IntegerMax>::fill(
        table, is_unsigned, {Op::sum, Op::prod, Op::min, Op::max});
    Row<Plain<Isa, Signed>, IntegerMin, IntegerMax>::fill(table, is_signed, {Op::min, Op::max});
}

// Returns the table of a level.
template <class Isa>
constexpr KernelTable make_table(const char *name) {
    KernelTable table{};
    table.name = name;
    fill_integers<Isa, std::int8_t, std::uint8_t>(table, DType::i8, DType::u8);
    fill_integers<Isa, std::int16_t, std::uint16_t>(table, DType::i16, DType::u16);
    fill_integers<Isa, std::int32_t, std::uint32_t>(table, DType::i32, DType::u32);
    fill_integers<Isa, std::int64_t, std::uint64_t>(table, DType::i64, DType::u64);
    Row<Plain<Isa, std::uint8_t>, And, Or, Xor>::fill(table, DType::u8,
                                                      {Op::band, Op::bor, Op::bxor});
    Row<Bool<Isa>, Or, Or, Or, And, And, And, Xor>::fill(
        table, DType::b8, {Op::sum, Op::max, Op::bor, Op::prod, Op::min, Op::band, Op::bxor});
    Row<Plain<Isa, double>, Sum, Product, FloatMin, FloatMax>::fill(
        table, DType::f64, {Op::sum, Op::prod, Op::min, Op::max});
    Row<Plain<Isa, float, 2>, ComplexProduct>::fill(table, DType::c64, {Op::prod});
    Row<Plain<Isa, double, 2>, ComplexProduct>::fill(table, DType::c128, {Op::prod});

    using F32 = Plain<Isa, float>;
    set_f32<F32, F32, F32, Sum>(table, DType::f32, DType::f32, DType::f32, Op::sum);
    set_f32<F32, F32, F32, Product>(table, DType::f32, DType::f32, DType::f32, Op::prod);
    set_f32<F32, F32, F32, FloatMin>(table, DType::f32, DType::f32, DType::f32, Op::min);
    set_f32<F32, F32, F32, FloatMax>(table, DType::f32, DType::f32, DType::f32, Op::max);
    fill_16_bits<Isa, Half<Isa>, Half<Isa>>(table, DType::f16);
    fill_16_bits<Isa, BFloat<Isa>, BFloatOnly<Isa>>(table, DType::bf16);
    return table;
}

} // namespace
} // namespace hierring
