// The loops for any CPU of the target architecture: 128-bit vectors where its baseline has them.
#include "kernels_impl.hpp"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace hierring {
namespace {

#if defined(__aarch64__)
// Every 64-bit Arm converts f16; without hardware it takes the generic form some 20 instructions.
struct Baseline : GenericIsa<16> {
    // Reads f16 in memory order.
    [[gnu::always_inline]] static inline Pair<F32> load_f16(const std::byte *from) {
        return {vcvt_f32_f16(load_vector<float16x4_t>(from)),
                vcvt_f32_f16(load_vector<float16x4_t>(from + 8))};
    }

    // Writes f16 in memory order.
    [[gnu::always_inline]] static inline void store_f16(std::byte *to, Pair<F32> value) {
        store_vector(to, vcvt_f16_f32(value.a));
        store_vector(to + 8, vcvt_f16_f32(value.b));
    }
};
#else
using Baseline = GenericIsa<16>;
#endif

} // namespace

constinit const KernelTable kScalarKernels = make_table<Baseline>("scalar");

} // namespace hierring
