// What the binding files share.
#pragma once

#include "segment.hpp"

#include <memory>
#include <nanobind/nanobind.h>
#include <stdexcept>
#include <string>

namespace hierring {

// A hold on a mapping, which close() gives up.
struct PySegment {
    std::shared_ptr<Segment> held;

    const std::shared_ptr<Segment> &open() const {
        if (!held) {
            throw std::invalid_argument("the segment is closed");
        }
        return held;
    }
};

// Raises OSError for an errno other than 0.
void check_os(int error, const std::string &path);

void bind_segment(nanobind::module_ &module);
void bind_clock(nanobind::module_ &module);

} // namespace hierring
