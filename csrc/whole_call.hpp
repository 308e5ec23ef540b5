// An all-reduce inside one node in a single call: what takes Python's engine a dozen calls.
//
// It does what the engine does, in the same order, for the plainest of cases: contiguous tensors,
// no scale, one node. Whatever is not plain it leaves to the engine, at one of two points: before
// it has entered the operation, or after it. In the second case everything that the engine would
// have done up to its first wait has been done.
#pragma once

#include "channel.hpp"
#include "channel_pipeline.hpp"

#include <cstdint>
#include <optional>

namespace hierring {

// What all calls with one dtype, operator and count have in common.
struct Recipe {
    DType type = DType::f64;
    Op op = Op::sum;
    std::size_t count = 0;
    std::size_t cell_elems = 0;
    double divisor = 1.0;
    std::uint64_t digest = 0;
    std::size_t descriptor_nbytes = 0;
    std::byte descriptor[kDescriptorBytes];

    std::size_t nbytes() const { return count * itemsize(type); }
};

class WholeCall {
  public:
    WholeCall(Channel &channel, Pipeline &pipeline) : channel_(channel), pipeline_(pipeline) {}

    // Tells whether a call may begin here: the channel is this process's own, which has not left
    // it, and nobody has broken it.
    bool ready() const noexcept {
        return !channel_.in_forked_child() && !channel_.broken() && !channel_.has_left();
    }

    // Tells whether the tensor travels with the arrival.
    bool small(const Recipe &recipe) const noexcept {
        return recipe.nbytes() <= channel_.layout().geometry().small_bytes;
    }

    // Enters the next operation and runs it to its end, if that comes soon. Then true; `out` holds
    // the result. Else false: the operation has been entered, and its pipeline has begun if it is
    // a large one. x and out are the same, or do not overlap; until the operation ends, they stay.
    bool run_small(const Recipe &recipe, const std::byte *x, std::byte *out);

    // The same. `done` if it has ended, interrupted if a signal handler has raised an exception;
    // after any other status the engine looks for itself.
    Status run_large(const Recipe &recipe, std::byte *x, std::byte *out);

    // Calls that it has completed.
    std::uint64_t completed_small() const noexcept { return completed_small_; }
    std::uint64_t completed_large() const noexcept { return completed_large_; }

    // The last operation that it has completed.
    std::uint64_t settled() const noexcept { return settled_; }

  private:
    void complete(std::uint64_t &counter) noexcept;

    Channel &channel_;
    Pipeline &pipeline_;
    std::optional<View> x_, out_; // of the large operation in progress
    std::uint64_t completed_small_ = 0, completed_large_ = 0;
    std::uint64_t settled_ = 0;
};

} // namespace hierring
