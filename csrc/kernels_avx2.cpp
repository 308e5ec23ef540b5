// The loops for x86-64 with AVX2 and F16C. Called only where dispatch.cpp has found both.
#if defined(__x86_64__)
#if !defined(__AVX2__) || !defined(__F16C__)
#error "compile this file with -mavx2 -mf16c"
#endif
#include "kernels_impl.hpp"

#include <immintrin.h>

namespace hierring {
namespace {

constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

struct Avx2 : GenericIsa<32> {
    // Reads f16 in memory order.
    [[gnu::always_inline]] static inline Pair<F32> load_f16(const std::byte *from) {
        return {_mm256_cvtph_ps(load_vector<__m128i>(from)),
                _mm256_cvtph_ps(load_vector<__m128i>(from + 16))};
    }

    // Writes f16 in memory order.
    [[gnu::always_inline]] static inline void store_f16(std::byte *to, Pair<F32> value) {
        store_vector(to, _mm256_cvtps_ph(value.a, kNearestEven));
        store_vector(to + 16, _mm256_cvtps_ph(value.b, kNearestEven));
    }

    // Reads bf16 in memory order, exact.
    [[gnu::always_inline]] static inline Pair<F32> load_bf16(const std::byte *from) {
        const __m256i a = _mm256_cvtepu16_epi32(load_vector<__m128i>(from));
        const __m256i b = _mm256_cvtepu16_epi32(load_vector<__m128i>(from + 16));
        return {bits<F32>(_mm256_slli_epi32(a, 16)), bits<F32>(_mm256_slli_epi32(b, 16))};
    }

    // Writes bf16 in memory order. The pack works on 128-bit halves: a0-3 b0-3 a4-7 b4-7, put in
    // order by quarters. Its operands fit in 16 bits, so that it never saturates.
    [[gnu::always_inline]] static inline void store_bf16(std::byte *to, Pair<F32> value) {
        const __m256i a = bits<__m256i>(round_bf16(value.a) >> 16);
        const __m256i b = bits<__m256i>(round_bf16(value.b) >> 16);
        store_vector(to, _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0b11'01'10'00));
    }
};

} // namespace

constinit const KernelTable kAvx2Kernels = make_table<Avx2>("avx2");

} // namespace hierring
#endif
