// Kernels and views without Python: under sanitizers, in strange floating-point environments, and
// on other architectures. Sources and destinations are heap blocks of the exact size, so that
// AddressSanitizer sees any byte too many.
#include "dtype.hpp"
#include "kernels.hpp"
#include "strided.hpp"

#undef NDEBUG
#include <cassert>
#include <cfenv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace hierring;

namespace {

using Block = std::unique_ptr<std::byte[]>;

// Returns a block of exactly nbytes bytes, off any alignment but that of its allocator.
Block random_block(std::mt19937 &random, std::size_t nbytes) {
    Block block(new std::byte[nbytes]);
    for (std::size_t i = 0; i < nbytes; ++i) {
        block[i] = static_cast<std::byte>(random() & 0x3f); // small numbers in any type: no NaN
    }
    return block;
}

// Runs `check` on every level.
template <class Check>
void on_every_level(Check check) {
    const std::string before = simd_level();
    for (const std::string_view level : simd_levels()) {
        assert(set_simd_level(level));
        assert(simd_level() == level);
        check();
    }
    assert(!set_simd_level("none"));
    assert(set_simd_level(before));
}

// Every type, operator, number of sources and small count gives the bits of the first level, in
// place and not, and reads and writes nothing else.
void test_levels_agree() {
    std::mt19937 random(1);
    constexpr std::size_t kSourceCounts[] = {1, 2, 3, 8, 9, 17};
    for (std::size_t type_number = 0; type_number < kDTypeCount; ++type_number) {
        const auto type = static_cast<DType>(type_number);
        for (std::size_t op_number = 0; op_number < kOpCount; ++op_number) {
            const auto op = static_cast<Op>(op_number);
            if (!reducible(type, op)) {
                continue;
            }
            for (const std::size_t number : kSourceCounts) {
                for (std::size_t count = 0; count < 140; count += 1 + count / 7) {
                    const std::size_t nbytes = count * itemsize(type);
                    std::vector<Block> blocks;
                    std::vector<Source> sources;
                    for (std::size_t k = 0; k < number; ++k) {
                        blocks.push_back(random_block(random, nbytes));
                        sources.push_back({blocks.back().get(), type, k % 2 == 0 ? 1.0 : 0.5});
                    }
                    Block expected(new std::byte[nbytes]);
                    assert(set_simd_level("scalar"));
                    reduce(expected.get(), type, sources, count, op, 3.0);
                    on_every_level([&] {
                        Block result(new std::byte[nbytes]);
                        reduce(result.get(), type, sources, count, op, 3.0);
                        assert(std::memcmp(result.get(), expected.get(), nbytes) == 0);
                        Block in_place(new std::byte[nbytes]);
                        std::memcpy(in_place.get(), sources.back().data, nbytes);
                        std::vector<Source> aliased = sources;
                        aliased.back().data = in_place.get();
                        reduce(in_place.get(), type, aliased, count, op, 3.0);
                        assert(std::memcmp(in_place.get(), expected.get(), nbytes) == 0);
                    });
                }
            }
        }
    }
}

// Sums are what plain loops give.
void test_plain_sums() {
    for (const std::size_t number : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 100, 1024}) {
        constexpr std::size_t kCount = 1500;
        std::vector<std::vector<double>> values(number, std::vector<double>(kCount));
        std::vector<double> expected(kCount);
        std::vector<Source> sources;
        for (std::size_t k = 0; k < number; ++k) {
            for (std::size_t i = 0; i < kCount; ++i) {
                values[k][i] = 0.1 * static_cast<double>(i) + 1.0 / static_cast<double>(k + 3);
                expected[i] = k == 0 ? values[k][i] : expected[i] + values[k][i];
            }
            sources.push_back({values[k].data(), DType::f64});
        }
        on_every_level([&] {
            std::vector<double> result(kCount);
            reduce(result.data(), DType::f64, sources, kCount, Op::sum, 1.0);
            assert(result == expected);
        });
    }
}

// The caller's rounding direction and flush-to-zero do not reach the result, and are still there
// after.
void test_float_environment() {
    const std::vector<float> ones(40, 1.0F);
    const std::vector<float> tiny(40, std::numeric_limits<float>::epsilon() / 4);
    const std::vector<float> subnormal(40, std::numeric_limits<float>::denorm_min());
    on_every_level([&] {
        for (const int direction : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
            std::vector<float> result(40);
            const Source sources[] = {{ones.data(), DType::f32}, {tiny.data(), DType::f32}};
            const Source negated[] = {{ones.data(), DType::f32}, {tiny.data(), DType::f32, -1.0}};
            std::feclearexcept(FE_ALL_EXCEPT);
            assert(std::fesetround(direction) == 0);
            reduce(result.data(), DType::f32, sources, 40, Op::sum, 1.0);
            const int after = std::fegetround();
            assert(std::fesetround(FE_TONEAREST) == 0);
            assert(after == direction && result == ones && std::fetestexcept(FE_ALL_EXCEPT) == 0);
            assert(std::fesetround(direction) == 0);
            reduce(result.data(), DType::f32, negated, 40, Op::sum, 1.0);
            assert(std::fesetround(FE_TONEAREST) == 0);
            assert(result == ones);
        }
        std::vector<float> result(40);
        const Source sources[] = {{subnormal.data(), DType::f32}, {subnormal.data(), DType::f32}};
#if defined(__x86_64__)
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040); // flush to zero, denormals are zero
#endif
        reduce(result.data(), DType::f32, sources, 40, Op::sum, 1.0);
#if defined(__x86_64__)
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        assert(after == (before | 0x8040));
#endif
        for (const float value : result) {
            assert(value == 2 * std::numeric_limits<float>::denorm_min());
        }
    });
}

// min and max give NaN wherever one is, and order zeros by their sign.
void test_nan_and_zeros() {
    const double nan = std::nan("");
    const double cases[][2] = {{nan, 1}, {1, nan}, {nan, nan}, {0.0, -0.0}, {-0.0, 0.0}};
    on_every_level([&] {
        for (const auto &[a, b] : cases) {
            const std::vector<double> first(21, a), second(21, b);
            const Source sources[] = {{first.data(), DType::f64}, {second.data(), DType::f64}};
            std::vector<double> low(21), high(21);
            reduce(low.data(), DType::f64, sources, 21, Op::min, 1.0);
            reduce(high.data(), DType::f64, sources, 21, Op::max, 1.0);
            for (std::size_t i = 0; i < 21; ++i) {
                const bool is_nan = std::isnan(a) || std::isnan(b);
                assert(std::isnan(low[i]) == is_nan && std::isnan(high[i]) == is_nan);
                assert(is_nan || (std::signbit(low[i]) && !std::signbit(high[i])));
            }
        }
    });
}

// Every f16 widens to what its bits mean, and every f32 near the middle of two goes to the right
// one.
void test_float16() {
    std::vector<std::uint16_t> halves(0x7c01); // up to infinity, which rounds as 65536 would
    std::vector<float> meant(halves.size());
    for (std::size_t h = 0; h < halves.size(); ++h) {
        const int exponent = static_cast<int>(h >> 10), fraction = static_cast<int>(h & 0x3ff);
        halves[h] = static_cast<std::uint16_t>(h);
        meant[h] = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                 : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    }
    std::vector<float> values;
    std::vector<std::uint16_t> expected;
    for (std::size_t h = 0; h + 1 < halves.size(); ++h) {
        const float middle = meant[h] + (meant[h + 1] - meant[h]) / 2;
        const auto even = static_cast<std::uint16_t>(h + h % 2);
        values.insert(values.end(), {std::nextafter(middle, 0.0F), middle, -middle,
                                     std::nextafter(middle, 1e9F)});
        expected.insert(expected.end(), {halves[h], even, static_cast<std::uint16_t>(even | 0x8000),
                                         halves[h + 1]});
    }
    const float infinity = std::numeric_limits<float>::infinity();
    meant.back() = infinity;
    on_every_level([&] {
        std::vector<float> wide(halves.size());
        const Source narrow_source[] = {{halves.data(), DType::f16}};
        reduce(wide.data(), DType::f32, narrow_source, wide.size(), Op::sum, 1.0);
        assert(wide == meant);
        std::vector<std::uint16_t> narrow(values.size());
        const Source wide_source[] = {{values.data(), DType::f32}};
        reduce(narrow.data(), DType::f16, wide_source, narrow.size(), Op::sum, 1.0);
        assert(narrow == expected);
    });
}

// Packs and unpacks a random view against nested loops.
void test_views() {
    std::mt19937 random(2);
    for (int trial = 0; trial < 2000; ++trial) {
        const std::size_t item = std::size_t{1} << (random() % 5);
        const std::ptrdiff_t rows = 1 + random() % 9, columns = 1 + random() % 70;
        const std::ptrdiff_t width = columns + random() % 3;
        std::ptrdiff_t column_stride = static_cast<std::ptrdiff_t>(item);
        std::ptrdiff_t row_stride = width * column_stride;
        Block memory = random_block(random, static_cast<std::size_t>(rows * row_stride));
        std::byte *base = memory.get();
        if (random() % 3 == 0) {
            base += (columns - 1) * column_stride;
            column_stride = -column_stride;
        }
        if (random() % 3 == 0) {
            base += (rows - 1) * row_stride;
            row_stride = -row_stride;
        }
        Piece piece{base, {rows, columns}, {row_stride, column_stride}};
        if (random() % 3 == 0) {
            std::swap(piece.shape[0], piece.shape[1]);
            std::swap(piece.strides[0], piece.strides[1]);
        }
        std::vector<std::byte *> elements;
        for (int copies = 0; copies < 2; ++copies) {
            for (std::ptrdiff_t i = 0; i < piece.shape[0]; ++i) {
                for (std::ptrdiff_t j = 0; j < piece.shape[1]; ++j) {
                    elements.push_back(base + i * piece.strides[0] + j * piece.strides[1]);
                }
            }
        }
        const Piece pieces[] = {piece, piece};
        const View view(pieces, item);
        assert(view.count() == elements.size() && view.data() == base);
        const std::size_t first = random() % (view.count() + 1);
        const std::size_t count = random() % (view.count() - first + 1);
        Block packed(new std::byte[count * item]);
        pack(view, first, count, packed.get());
        for (std::size_t i = 0; i < count; ++i) {
            assert(std::memcmp(packed.get() + i * item, elements[first + i], item) == 0);
        }
        Block fresh = random_block(random, count * item);
        unpack(view, first, count, fresh.get());
        const std::size_t newest = count > view.count() / 2 ? count - view.count() / 2 : 0;
        for (std::size_t i = newest; i < count; ++i) { // the others were written again by the copy
            assert(std::memcmp(fresh.get() + i * item, elements[first + i], item) == 0);
        }
    }
}

// A description that makes no sense is refused.
void test_refused_views() {
    const Piece bad[] = {
        {nullptr, {2}, {}}, {nullptr, {-1}, {4}}, {nullptr, {PTRDIFF_MAX, 2}, {0, 0}}};
    for (const Piece &piece : bad) {
        bool refused = false;
        try {
            const View view({&piece, 1}, 4);
        } catch (const std::invalid_argument &) {
            refused = true;
        }
        assert(refused);
    }
}

} // namespace

int main() {
    test_levels_agree();
    test_plain_sums();
    test_float_environment();
    test_nan_and_zeros();
    test_float16();
    test_views();
    test_refused_views();
    std::printf("kernels:");
    for (const std::string_view level : simd_levels()) {
        std::printf(" %.*s", static_cast<int>(level.size()), level.data());
    }
    std::printf(" ok\n");
}
