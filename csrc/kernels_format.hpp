// Vectors of one SIMD level, and the formats in which they are loaded and stored.
//
// A level is a class `Isa` with kVectorBytes and the conversions of 16-bit floats; GenericIsa has
// these for any CPU. A format turns elements in memory into vectors to compute with, and back.
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

} // namespace
} // namespace hierring
