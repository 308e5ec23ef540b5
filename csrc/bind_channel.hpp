// A channel as the binding files hold it.
#pragma once

#include "bind.hpp"
#include "channel_pipeline.hpp"

#include <memory>
#include <nanobind/nanobind.h>
#include <stdexcept>

namespace hierring {

// Lets Python handle its signals; true if that raised an exception. Called without the GIL.
bool handle_signals();

// A channel with its pipeline, and the views of the operation in progress.
struct PyChannel {
    PyChannel(const PySegment &segment, unsigned local_rank, const Geometry &geometry, bool ring)
        : segment(segment.open()), channel(segment.open(), local_rank, geometry, ring),
          pipeline(channel) {
        channel.set_signal_hook(handle_signals);
    }

    // Refuses to write to the parent's shared memory.
    void own() const {
        if (channel.in_forked_child()) {
            throw std::runtime_error("this channel belongs to the parent process");
        }
    }

    // Runs a wait without the GIL.
    template <typename Wait>
    int wait(Wait &&wait) {
        own();
        Status status;
        {
            const nanobind::gil_scoped_release release;
            status = wait();
        }
        if (status == Status::interrupted) {
            throw nanobind::python_error();
        }
        return static_cast<int>(status);
    }

    std::shared_ptr<Segment> segment;
    Channel channel;
    Pipeline pipeline;
    nanobind::object x, out;
};

void bind_whole_call(nanobind::module_ &module);

} // namespace hierring
