// The plainest of what users pass to a collective, looked at without running Python code: NumPy
// arrays and torch tensors that are contiguous CPU memory. Everything else is the business of
// hierring.buffers, which also knows how to refuse it.
#pragma once

#include "dtype.hpp"

#include <cstddef>
#include <nanobind/nanobind.h>
#include <utility>
#include <vector>

namespace hierring {

// Contiguous memory of a user's.
struct UserTensor {
    std::byte *data;
    std::size_t count;
    DType type;
    bool torch; // whether writing to it must be told to autograd
};

class TensorReader {
  public:
    // Element types by the objects that stand for them, which are compared by identity.
    using DTypes = std::vector<std::pair<nanobind::object, DType>>;

    // Learns how to look at NumPy arrays. `probe` is an array of the shape (2, 3) of float64 at
    // this address: false, and nothing learned, if it does not look like that here.
    bool know_numpy(nanobind::object array_type, DTypes dtypes, nanobind::handle probe,
                    const void *address);

    // Learns how to look at tensors of exactly these types. `increment` tells autograd that the
    // tensors in a tuple have been written to.
    void know_torch(std::vector<nanobind::object> tensor_types, DTypes dtypes,
                    nanobind::object increment);

    bool knows_torch() const { return !tensor_types_.empty(); }

    // Looks at an object; false if it is none of these, or must be refused.
    bool read(PyObject *x, bool write, UserTensor &found) const;

    // Tells autograd of a result. Throws nb::python_error.
    void written(PyObject *x) const;

  private:
    bool read_array(PyObject *x, bool write, UserTensor &found) const;
    bool read_tensor(PyObject *x, UserTensor &found) const;

    nanobind::object array_type_, increment_;
    std::vector<nanobind::object> tensor_types_;
    DTypes array_dtypes_, tensor_dtypes_;
};

} // namespace hierring
