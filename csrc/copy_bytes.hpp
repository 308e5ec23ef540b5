// The plain copy, kept away from `rep movsb`.
#pragma once

#include <cstddef>
#include <cstring>

namespace hierring {

// Long enough to make the call cheap, and shorter than where any C library starts to think of
// `rep movsb`: glibc does from 2 KiB on.
inline constexpr std::size_t kCopyBlock = 1024;

// Copies nbytes bytes between regions that do not overlap.
//
// Block by block, because glibc gives copies of 2 KiB to about 512 KiB to `rep movsb` where the CPU
// claims to be good at it, and not all that claim it are: on an AMD EPYC under KVM 64 KiB took 32
// us so and take 2.5 us in blocks. Cells are of just that size.
[[gnu::always_inline]] inline void copy_bytes(void *dst, const void *src, std::size_t nbytes) {
    auto *to = static_cast<std::byte *>(dst);
    const auto *from = static_cast<const std::byte *>(src);
    while (nbytes > kCopyBlock) {
        std::size_t block = kCopyBlock;
        // The compiler must not know the length, or it puts its own `rep movs` in place of the
        // call.
        asm("" : "+r"(block));
        std::memcpy(to, from, block);
        to += kCopyBlock;
        from += kCopyBlock;
        nbytes -= kCopyBlock;
    }
    std::memcpy(to, from, nbytes);
}

} // namespace hierring
