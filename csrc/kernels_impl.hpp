// The loops of one SIMD level, as templates over formats and arithmetics.
//
// Every level compiles these same templates, so that levels differ in nothing but the width; each
// element sees the same operations in the same order at any width, thus the same bits.
//
// Everything is in an unnamed namespace, see kernel_table.hpp.
#pragma once

#include "kernel_table.hpp"
#include "kernels_arithmetic.hpp"
#include "kernels_format.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hierring {
namespace {

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
        // Sums are what training waits for. Other operators get by with fewer, smaller loops.
        if constexpr (std::is_same_v<Arith, Sum>) {
            if (!scaled && operands.source_count == 2) {
                return loop<false, 2>(operands, arguments.count);
            }
            if constexpr (kFloating) {
                if (scaled) {
                    return loop<true, 0>(operands, arguments.count);
                }
            }
        } else if (scaled) {
            return finish(operands, 0, arguments.count);
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
