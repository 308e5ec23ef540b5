#include "user_tensor.hpp"

#include <algorithm>

namespace nb = nanobind;

namespace hierring {
namespace {

// The begin of NumPy's PyArrayObject. It is part of NumPy's binary interface, equal in all releases
// of 1.x and 2.x; know_numpy() makes sure of it nevertheless.
struct ArrayHead {
    PyObject base;
    char *data;
    int dimensions;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    PyObject *owner;
    PyObject *dtype;
    int flags;
};
constexpr int kContiguous = 0x1; // in C order
constexpr int kWritable = 0x400;

// Names of attributes, made once.
struct Names {
    PyObject *is_cpu = PyUnicode_InternFromString("is_cpu");
    PyObject *is_nested = PyUnicode_InternFromString("is_nested");
    PyObject *requires_grad = PyUnicode_InternFromString("requires_grad");
    PyObject *dtype = PyUnicode_InternFromString("dtype");
    PyObject *is_neg = PyUnicode_InternFromString("is_neg");
    PyObject *is_conj = PyUnicode_InternFromString("is_conj");
    PyObject *is_contiguous = PyUnicode_InternFromString("is_contiguous");
    PyObject *data_ptr = PyUnicode_InternFromString("data_ptr");
    PyObject *numel = PyUnicode_InternFromString("numel");
};

const Names &names() {
    static const Names made;
    return made;
}

bool find(const TensorReader::DTypes &dtypes, PyObject *dtype, DType &found) {
    for (const auto &[object, type] : dtypes) {
        if (object.ptr() == dtype) {
            found = type;
            return true;
        }
    }
    return false;
}

// An attribute, or what a method without arguments returns; null with no error set if that fails.
nb::object attribute(PyObject *x, PyObject *name) {
    PyObject *const value = PyObject_GetAttr(x, name);
    if (value == nullptr) {
        PyErr_Clear();
    }
    return nb::steal(value);
}
nb::object call(PyObject *x, PyObject *name) {
    PyObject *const value = PyObject_CallMethodNoArgs(x, name);
    if (value == nullptr) {
        PyErr_Clear();
    }
    return nb::steal(value);
}

} // namespace

bool TensorReader::know_numpy(nb::object array_type, DTypes dtypes, nb::handle probe,
                              const void *address) {
    array_type_ = std::move(array_type);
    array_dtypes_ = std::move(dtypes);
    const auto *array = reinterpret_cast<const ArrayHead *>(probe.ptr());
    UserTensor found{};
    const bool as_expected =
        Py_TYPE(probe.ptr())->tp_basicsize >= static_cast<Py_ssize_t>(sizeof(ArrayHead)) &&
        array->data == address && array->dimensions == 2 && read_array(probe.ptr(), true, found) &&
        found.count == 6 && found.type == DType::f64 && array->strides[0] == 24;
    if (!as_expected) {
        array_type_ = nb::object();
    }
    return as_expected;
}

void TensorReader::know_torch(std::vector<nb::object> tensor_types, DTypes dtypes,
                              nb::object increment) {
    tensor_types_ = std::move(tensor_types);
    tensor_dtypes_ = std::move(dtypes);
    increment_ = std::move(increment);
}

bool TensorReader::read(PyObject *x, bool write, UserTensor &found) const {
    auto *const type = reinterpret_cast<PyObject *>(Py_TYPE(x));
    if (type == array_type_.ptr()) {
        return read_array(x, write, found);
    }
    return std::any_of(tensor_types_.begin(), tensor_types_.end(),
                       [type](const nb::object &known) { return known.ptr() == type; }) &&
           read_tensor(x, found);
}

bool TensorReader::read_array(PyObject *x, bool write, UserTensor &found) const {
    const auto *array = reinterpret_cast<const ArrayHead *>(x);
    const int needed = kContiguous | (write ? kWritable : 0);
    if ((array->flags & needed) != needed || !find(array_dtypes_, array->dtype, found.type)) {
        return false;
    }
    std::size_t count = 1;
    for (int i = 0; i < array->dimensions; ++i) {
        count *= static_cast<std::size_t>(array->shape[i]);
    }
    found.data = reinterpret_cast<std::byte *>(array->data);
    found.count = count;
    found.torch = false;
    return true;
}

// Each attribute costs some 50 ns. What has no plain memory (sparse tensors, those of a transform)
// has no address, or none but 0.
bool TensorReader::read_tensor(PyObject *x, UserTensor &found) const {
    if (attribute(x, names().is_cpu).ptr() != Py_True ||
        attribute(x, names().requires_grad).ptr() != Py_False ||
        attribute(x, names().is_nested).ptr() != Py_False ||
        !find(tensor_dtypes_, attribute(x, names().dtype).ptr(), found.type) ||
        call(x, names().is_neg).ptr() != Py_False ||
        call(x, names().is_contiguous).ptr() != Py_True) {
        return false;
    }
    const bool complex = found.type == DType::c64 || found.type == DType::c128;
    if (complex && call(x, names().is_conj).ptr() != Py_False) {
        return false;
    }
    const nb::object address = call(x, names().data_ptr), count = call(x, names().numel);
    if (!address.is_valid() || !count.is_valid()) {
        return false;
    }
    found.data = static_cast<std::byte *>(PyLong_AsVoidPtr(address.ptr()));
    found.count = PyLong_AsSize_t(count.ptr());
    found.torch = true;
    if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        return false;
    }
    return found.data != nullptr;
}

void TensorReader::written(PyObject *x) const {
    const nb::object tensors = nb::steal(PyTuple_Pack(1, x));
    const nb::object none = nb::steal(PyObject_CallOneArg(increment_.ptr(), tensors.ptr()));
    if (!none.is_valid()) {
        throw nb::python_error();
    }
}

} // namespace hierring
