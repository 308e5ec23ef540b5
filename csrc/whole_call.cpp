#include "whole_call.hpp"

#include <array>
#include <utility>

namespace hierring {
namespace {

// How long a small call waits for the others before the engine takes over. The caller holds
// Python's lock meanwhile: less than the time that Python itself lets a thread keep it.
constexpr std::int64_t kSoon = 200'000;

// The same for a large one, which holds no lock. The engine's own wait costs nothing by then.
constexpr std::int64_t kLater = 20'000'000;

View contiguous(std::byte *data, const Recipe &recipe) {
    const auto size = static_cast<std::ptrdiff_t>(itemsize(recipe.type));
    const std::array<Piece, 1> piece{
        Piece{data, {static_cast<std::ptrdiff_t>(recipe.count)}, {size}}};
    return View(piece, itemsize(recipe.type));
}

} // namespace

void WholeCall::complete(std::uint64_t &counter) noexcept {
    channel_.note(Phase::idle, 0, -1);
    settled_ = channel_.seq();
    ++counter;
}

bool WholeCall::run_small(const Recipe &recipe, const std::byte *x, std::byte *out) {
    channel_.arrive(channel_.seq() + 1, recipe.digest,
                    {recipe.descriptor, recipe.descriptor_nbytes}, {x, recipe.nbytes()});
    if (!channel_.all_arrived() && !channel_.arrivals_soon(now_ns() + kSoon)) {
        return false;
    }
    if (channel_.local_difference() >= 0) {
        return false;
    }
    channel_.reduce_small(out, recipe.type, recipe.type, recipe.count, recipe.op, recipe.divisor);
    complete(completed_small_);
    return true;
}

Status WholeCall::run_large(const Recipe &recipe, std::byte *x, std::byte *out) {
    x_.emplace(contiguous(x, recipe));
    out_.emplace(contiguous(out, recipe));
    channel_.arrive(channel_.seq() + 1, recipe.digest,
                    {recipe.descriptor, recipe.descriptor_nbytes}, {});
    pipeline_.begin({
        .kind = Operation::Kind::reduce,
        .x = &*x_,
        .out = &*out_,
        .type = recipe.type,
        .work_type = recipe.type,
        .op = recipe.op,
        .node_divisor = recipe.divisor,
        .out_divisor = 1.0,
        .runners = 0,
        .self_verdict = true,
        .count = recipe.count,
        .cell_elems = recipe.cell_elems,
        .rows = {},
    });
    const Status status = pipeline_.run(now_ns() + kLater);
    if (status == Status::done) {
        complete(completed_large_);
    }
    return status;
}

} // namespace hierring
