// The loops for x86-64 with AVX-512 F, BW, DQ and VL. Called only where dispatch.cpp has found all.
#if defined(__x86_64__)
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) ||                   \
    !defined(__AVX512VL__)
#error "compile this file with -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif
#include "kernels_impl.hpp"

#include <immintrin.h>

namespace hierring {
namespace {

constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// GCC 12 takes the unmasked intrinsics' undefined pass-through for an uninitialised variable, so
// these are the zero-masking ones with every lane chosen, which compile to the same instructions.
constexpr __mmask16 kAllLanes = 0xffff;

struct Avx512 : GenericIsa<64> {
    // Reads f16 in memory order.
    [[gnu::always_inline]] static inline Pair<F32> load_f16(const std::byte *from) {
        const auto a = load_vector<__m256i>(from);
        const auto b = load_vector<__m256i>(from + 32);
        return {_mm512_maskz_cvtph_ps(kAllLanes, a), _mm512_maskz_cvtph_ps(kAllLanes, b)};
    }

    // Writes f16 in memory order.
    [[gnu::always_inline]] static inline void store_f16(std::byte *to, Pair<F32> value) {
        store_vector(to, _mm512_maskz_cvtps_ph(kAllLanes, value.a, kNearestEven));
        store_vector(to + 32, _mm512_maskz_cvtps_ph(kAllLanes, value.b, kNearestEven));
    }
};

} // namespace

constinit const KernelTable kAvx512Kernels = make_table<Avx512>("avx512");

} // namespace hierring
#endif
