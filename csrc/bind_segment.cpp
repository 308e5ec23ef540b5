// Segment as Python sees it. All that is said about it is in hierring/_core.pyi.
#include "bind.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cerrno>

namespace nb = nanobind;
using namespace nb::literals;

namespace hierring {

void check_os(int error, const std::string &path) {
    if (error == 0) {
        return;
    }
    errno = error;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.empty() ? nullptr : path.c_str());
    throw nb::python_error();
}

namespace {

PySegment create_segment(std::size_t nbytes, const std::string &directory, bool named) {
    PySegment made;
    check_os(Segment::create(nbytes, directory, named, made.held), directory);
    return made;
}

PySegment attach_segment(const std::string &path, std::size_t nbytes) {
    PySegment made;
    check_os(Segment::attach(path, nbytes, made.held), path);
    return made;
}

PySegment private_segment(std::size_t nbytes) {
    PySegment made;
    check_os(Segment::make_private(nbytes, made.held), {});
    return made;
}

// The buffer protocol: each view has its own hold on the mapping.
int get_buffer(PyObject *exporter, Py_buffer *view, int flags) {
    const auto *self = nb::inst_ptr<PySegment>(exporter);
    view->obj = nullptr;
    if (!self->held) {
        PyErr_SetString(PyExc_ValueError, "the segment is closed");
        return -1;
    }
    if (PyBuffer_FillInfo(view, exporter, self->held->data(),
                          static_cast<Py_ssize_t>(self->held->nbytes()), 0, flags) != 0) {
        return -1;
    }
    view->internal = new std::shared_ptr<Segment>(self->held);
    return 0;
}

void release_buffer(PyObject *, Py_buffer *view) {
    delete static_cast<std::shared_ptr<Segment> *>(view->internal);
}

PyType_Slot segment_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer)},
    {0, nullptr},
};

} // namespace

void bind_segment(nb::module_ &module) {
    nb::class_<PySegment>(module, "Segment", nb::is_final(), nb::type_slots(segment_slots))
        .def_static("create", create_segment, "nbytes"_a, "directory"_a = "/dev/shm",
                    "named"_a = false)
        .def_static("attach", attach_segment, "path"_a, "nbytes"_a)
        .def_static("private", private_segment, "nbytes"_a)
        .def_prop_ro("path", [](const PySegment &self) { return self.open()->path(); })
        .def_prop_ro("nbytes", [](const PySegment &self) { return self.open()->nbytes(); })
        .def_prop_ro("address",
                     [](const PySegment &self) {
                         return reinterpret_cast<std::uintptr_t>(self.open()->data());
                     })
        .def("unlink",
             [](const PySegment &self) { check_os(self.open()->unlink(), self.open()->path()); })
        .def(
            "reserve",
            [](const PySegment &self, std::size_t offset, std::size_t nbytes) {
                const auto segment = self.open();
                int error;
                {
                    const nb::gil_scoped_release release;
                    error = segment->reserve(offset, nbytes);
                }
                check_os(error, segment->path());
            },
            "offset"_a, "nbytes"_a)
        .def(
            "lock",
            [](const PySegment &self, unsigned local_rank) {
                check_os(self.open()->lock(local_rank), self.open()->path());
            },
            "local_rank"_a)
        .def(
            "alive",
            [](const PySegment &self, unsigned local_rank) {
                return self.open()->alive(local_rank);
            },
            "local_rank"_a)
        .def("buffer",
             [](nb::handle self) { return nb::steal(PyMemoryView_FromObject(self.ptr())); })
        .def("close", [](PySegment &self) { self.held.reset(); });
    module.def(
        "sweep",
        [](const std::string &directory) {
            int count;
            {
                const nb::gil_scoped_release release;
                count = sweep(directory);
            }
            check_os(count < 0 ? -count : 0, directory);
            return count;
        },
        "directory"_a = "/dev/shm");
}

} // namespace hierring
