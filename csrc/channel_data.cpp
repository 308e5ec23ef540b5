#include "channel_data.hpp"

#include <algorithm>

namespace hierring {
namespace {

// Moves every source on by `count` elements.
void skip(std::span<Source> sources, std::size_t count) {
    for (Source &source : sources) {
        source.data = static_cast<const std::byte *>(source.data) + count * itemsize(source.type);
    }
}

} // namespace

void deliver(const View &out, std::size_t first, DType out_type, const void *src, DType src_type,
             std::size_t count, double divisor, std::span<std::byte> scratch) noexcept {
    const bool plain = out_type == src_type && (divisor == 1.0 || !is_floating(out_type));
    std::byte *const direct =
        out.contiguous() && count != 0 ? out.data() + first * out.itemsize() : nullptr;
    if (plain && direct != nullptr) {
        copy(direct, src, count * out.itemsize());
    } else if (plain) {
        unpack(out, first, count, src);
    } else if (direct != nullptr) {
        const Source source{src, src_type};
        reduce(direct, out_type, {&source, 1}, count, Op::sum, divisor);
    } else {
        const std::size_t block = scratch.size() / out.itemsize();
        for (std::size_t done = 0; done < count; done += block) {
            const std::size_t now = std::min(block, count - done);
            const Source source{static_cast<const std::byte *>(src) + done * itemsize(src_type),
                                src_type};
            reduce(scratch.data(), out_type, {&source, 1}, now, Op::sum, divisor);
            unpack(out, first + done, now, scratch.data());
        }
    }
}

void reduce_with(void *dst, DType dst_type, std::span<Source> sources, std::size_t own,
                 const View &x, std::size_t first, std::size_t count, Op op, double divisor,
                 std::span<std::byte> scratch) noexcept {
    if (x.contiguous()) {
        sources[own].data = x.data() + first * x.itemsize();
        reduce(dst, dst_type, sources, count, op, divisor);
        return;
    }
    const std::size_t block = scratch.size() / x.itemsize();
    std::byte *to = static_cast<std::byte *>(dst);
    for (std::size_t done = 0; done < count; done += block) {
        const std::size_t now = std::min(block, count - done);
        pack(x, first + done, now, scratch.data());
        sources[own].data = scratch.data();
        reduce(to, dst_type, sources, now, op, divisor);
        skip(sources, now);
        to += now * itemsize(dst_type);
    }
}

void reduce_into(const View &out, DType type, std::span<Source> sources, std::size_t count, Op op,
                 double divisor, std::span<std::byte> scratch) noexcept {
    if (out.contiguous()) {
        reduce(out.data(), type, sources, count, op, divisor);
        return;
    }
    const std::size_t block = scratch.size() / out.itemsize();
    for (std::size_t done = 0; done < count; done += block) {
        const std::size_t now = std::min(block, count - done);
        reduce(scratch.data(), type, sources, now, op, divisor);
        unpack(out, done, now, scratch.data());
        skip(sources, now);
    }
}

} // namespace hierring
