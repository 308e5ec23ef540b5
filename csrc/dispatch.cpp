// reduce(): chooses the loops of the level in use and feeds them runs of equally typed sources.
#include "copy_bytes.hpp"
#include "kernel_table.hpp"
#include "kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hierring {
namespace {

// Bytes of a block of partial results: a few of them stay in the first-level cache beside the
// sources.
constexpr std::size_t kBlockBytes = 4096;

// Returns the levels this CPU can run, lowest first.
std::span<const KernelTable *const> available_tables() {
    static const std::vector<const KernelTable *> tables = [] {
        std::vector<const KernelTable *> found{&kScalarKernels};
#if defined(__x86_64__)
        const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") &&
                          __builtin_cpu_supports("fma");
        if (avx2) {
            found.push_back(&kAvx2Kernels);
        }
        if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
            found.push_back(&kAvx512Kernels);
        }
#endif
        return found;
    }();
    return tables;
}

// The level in use. Relaxed: a table is constant data, initialised before any thread runs, and
// which table a concurrent reduce() sees does not change its result.
std::atomic<const KernelTable *> &active_table() {
    static std::atomic<const KernelTable *> active{available_tables().back()};
    return active;
}

// While it lives the thread rounds to nearest even, keeps subnormals and traps nothing, whatever
// the caller (or a library built with -ffast-math) has set. Restores the caller's flags, sticky
// ones too.
class FloatEnvironment {
#if defined(__x86_64__)
  public:
    FloatEnvironment() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(kAllMasked); }
    ~FloatEnvironment() { _mm_setcsr(saved_); }

  private:
    static constexpr unsigned kAllMasked = 0x1f80; // MXCSR at reset
    unsigned saved_;
#elif defined(__aarch64__)
  public:
    FloatEnvironment() noexcept {
        asm volatile("mrs %0, fpcr" : "=r"(control_));
        asm volatile("mrs %0, fpsr" : "=r"(status_));
        asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}) : "memory");
    }
    ~FloatEnvironment() {
        asm volatile("msr fpcr, %0" : : "r"(control_) : "memory");
        asm volatile("msr fpsr, %0" : : "r"(status_) : "memory");
    }

  private:
    std::uint64_t control_, status_;
#else
#error "teach FloatEnvironment this architecture's control word"
#endif

  public:
    FloatEnvironment(const FloatEnvironment &) = delete;
    FloatEnvironment &operator=(const FloatEnvironment &) = delete;
};

// Returns the type whose loops reduce `type`: that of its components where complex numbers are
// summed, unsigned where signed does the same, bytes where only bits count. Its size divides that
// of `type`.
DType loop_type(DType type, Op op) {
    if (is_complex(type) && op == Op::sum) {
        return type == DType::c64 ? DType::f32 : DType::f64;
    }
    if (is_floating(type) || type == DType::b8) {
        return type;
    }
    if (op == Op::band || op == Op::bor || op == Op::bxor) {
        return DType::u8;
    }
    if (type <= DType::i64 && (op == Op::sum || op == Op::prod)) {
        constexpr int kToUnsigned = static_cast<int>(DType::u8) - static_cast<int>(DType::i8);
        return static_cast<DType>(static_cast<int>(type) + kToUnsigned);
    }
    return type;
}

// One call of reduce() in the types of the loops.
struct Work {
    const KernelTable &table;
    std::byte *dst;
    DType dst_type;
    std::span<const Source> sources;
    Op op;
    double divisor;
    bool scaled; // a scale or the divisor is not 1.0

    // Returns the type of source k.
    DType source_type(std::size_t k) const { return loop_type(sources[k].type, op); }

    // Returns how many sources from `first` on, at most `limit`, are of one type.
    std::size_t run_length(std::size_t first, std::size_t limit) const {
        const std::size_t end = std::min(sources.size(), first + limit);
        std::size_t k = first + 1;
        while (k < end && sources[k].type == sources[first].type) {
            ++k;
        }
        return k - first;
    }

    // Returns the loop for a combination of types, or nullptr if there is none.
    Loop loop(DType first, DType rest, DType to, Op op_or_sum) const {
        const auto row = static_cast<std::size_t>(op_or_sum);
        return computes_in_f32(to)
                   ? table.f32[f32_index(first)][f32_index(rest)][f32_index(to)][row]
                   : table.uniform[static_cast<std::size_t>(to)][row];
    }
};

// Calls `loop` for elements [at, at + count) of sources [first, first + run), after `partial`
// unless it is nullptr.
void call_loop(Loop loop, const Work &work, void *to, const void *partial, std::size_t first,
               std::size_t run, std::size_t at, std::size_t count, double divisor) {
    const void *data[kMaxLoopSources];
    double scales[kMaxLoopSources];
    std::size_t operands = 0;
    if (partial != nullptr) {
        data[operands] = partial;
        scales[operands++] = 1.0;
    }
    for (std::size_t k = first; k < first + run; ++k) {
        data[operands] = static_cast<const std::byte *>(work.sources[k].data) +
                         at * itemsize(work.source_type(k));
        scales[operands++] = work.sources[k].scale;
    }
    loop({to, data, work.scaled ? scales : nullptr, operands, count, divisor});
}

// Reduces elements [at, at + count), at most a block, by runs of sources of one type: partial
// results stay in a block of the type computed in, and only the last loop writes dst.
void reduce_block(const Work &work, std::size_t at, std::size_t count) {
    alignas(64) std::byte partial[kBlockBytes];
    const DType partial_type = accumulation_type(work.dst_type);
    std::byte *const dst = work.dst + at * itemsize(work.dst_type);
    for (std::size_t done = 0; done < work.sources.size();) {
        const void *const before = done > 0 ? partial : nullptr;
        const DType type = work.source_type(done);
        const DType first = done > 0 ? partial_type : type;
        std::size_t run = work.run_length(done, kMaxLoopSources - (done > 0));
        if (done + run == work.sources.size()) {
            if (const Loop loop = work.loop(first, type, work.dst_type, work.op)) {
                call_loop(loop, work, dst, before, done, run, at, count, work.divisor);
                return;
            }
        }
        Loop loop = work.loop(first, type, partial_type, work.op);
        if (loop == nullptr) { // only before the first source: then just convert it
            loop = work.loop(type, type, partial_type, Op::sum);
            run = 1;
        }
        call_loop(loop, work, partial, before, done, run, at, count, 1.0);
        done += run;
    }
    const Loop convert = work.loop(partial_type, partial_type, work.dst_type, Op::sum);
    call_loop(convert, work, dst, partial, 0, 0, at, count, work.divisor);
}

// Reduces all elements: in one loop if there is one for it, else by blocks.
void reduce_all(const Work &work, std::size_t count) {
    const DType type = work.source_type(0);
    if (work.run_length(0, kMaxLoopSources) == work.sources.size()) {
        if (const Loop loop = work.loop(type, type, work.dst_type, work.op)) {
            call_loop(loop, work, work.dst, nullptr, 0, work.sources.size(), 0, count,
                      work.divisor);
            return;
        }
    }
    const std::size_t block = kBlockBytes / itemsize(accumulation_type(work.dst_type));
    for (std::size_t at = 0; at < count; at += block) {
        reduce_block(work, at, std::min(block, count - at));
    }
}

// Tells whether the arguments keep the contract of reduce().
[[maybe_unused]] bool allowed(DType dst_type, std::span<const Source> sources, Op op) {
    return !sources.empty() && sources.size() <= kMaxSources && reducible(dst_type, op) &&
           std::all_of(sources.begin(), sources.end(), [&](const Source &source) {
               return source.type == dst_type ||
                      (computes_in_f32(source.type) && computes_in_f32(dst_type));
           });
}

} // namespace

void reduce(void *dst, DType dst_type, std::span<const Source> sources, std::size_t count, Op op,
            double divisor) noexcept {
    assert(allowed(dst_type, sources, op));
    if (count == 0) {
        return;
    }
    const bool floating = is_floating(dst_type);
    const bool scaled =
        floating && (divisor != 1.0 || std::any_of(sources.begin(), sources.end(),
                                                   [](const Source &s) { return s.scale != 1.0; }));
    if (sources.size() == 1 && !scaled && sources[0].type == dst_type && dst_type != DType::b8) {
        return copy(dst, sources[0].data, count * itemsize(dst_type));
    }
    const DType type = loop_type(dst_type, op);
    const Work work{*active_table().load(std::memory_order_relaxed),
                    static_cast<std::byte *>(dst),
                    type,
                    sources,
                    op,
                    divisor,
                    scaled};
    const std::size_t parts = itemsize(dst_type) / itemsize(type);
    if (floating) {
        const FloatEnvironment environment;
        reduce_all(work, count * parts);
    } else {
        reduce_all(work, count * parts);
    }
}

void copy(void *dst, const void *src, std::size_t nbytes) noexcept {
    if (dst != src && nbytes > 0) {
        copy_bytes(dst, src, nbytes);
    }
}

std::vector<std::string_view> simd_levels() {
    std::vector<std::string_view> names;
    for (const KernelTable *table : available_tables()) {
        names.emplace_back(table->name);
    }
    return names;
}

const char *simd_level() noexcept { return active_table().load(std::memory_order_relaxed)->name; }

bool set_simd_level(std::string_view name) noexcept {
    for (const KernelTable *table : available_tables()) {
        if (name == table->name) {
            active_table().store(table, std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

} // namespace hierring
