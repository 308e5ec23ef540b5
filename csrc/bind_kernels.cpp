// The kernels and views in Python. hierring/_core.pyi is their documentation.
//
// Arguments are checked here, where a wrong one can still become an exception; addresses are
// believed.
#include "dtype.hpp"
#include "kernels.hpp"
#include "strided.hpp"

#include <array>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace hierring {
namespace {

// Returns the address as a pointer.
std::byte *pointer(std::uintptr_t address) { return reinterpret_cast<std::byte *>(address); }

// Returns the element type of a number, or throws.
DType checked_dtype(unsigned number) {
    if (number >= kDTypeCount) {
        throw std::invalid_argument("no dtype has number " + std::to_string(number));
    }
    return static_cast<DType>(number);
}

// Returns the operator of a number, or throws if there is none or the type has no such operator.
Op checked_op(unsigned number, DType type) {
    if (number >= kOpCount) {
        throw std::invalid_argument("no operator has number " + std::to_string(number));
    }
    const auto op = static_cast<Op>(number);
    if (!reducible(type, op)) {
        throw std::invalid_argument(std::string(kOpNames[number]) + " is not defined for " +
                                    kDTypeNames[static_cast<std::size_t>(type)]);
    }
    return op;
}

// Appends the integers of a tuple or another sequence.
std::vector<std::ptrdiff_t> integers(nb::handle sequence) {
    std::vector<std::ptrdiff_t> values;
    for (nb::handle item : nb::iter(sequence)) {
        values.push_back(nb::cast<std::ptrdiff_t>(item));
    }
    return values;
}

// View.__init__.
void construct_view(View *self, nb::handle pieces, std::size_t itemsize) {
    std::vector<Piece> converted;
    for (nb::handle item : nb::iter(pieces)) {
        const auto piece = nb::cast<nb::tuple>(item);
        if (piece.size() != 3) {
            throw std::invalid_argument("a piece is (address, shape, strides)");
        }
        converted.push_back(
            {pointer(nb::cast<std::uintptr_t>(piece[0])), integers(piece[1]), integers(piece[2])});
    }
    new (self) View(converted, itemsize);
}

// Throws unless [first, first + count) lies in the view.
void check_range(const View &view, std::size_t first, std::size_t count) {
    if (first > view.count() || count > view.count() - first) {
        throw std::invalid_argument("elements [" + std::to_string(first) + ", " +
                                    std::to_string(first) + " + " + std::to_string(count) +
                                    ") are not in a view of " + std::to_string(view.count()));
    }
}

void py_pack(const View &view, std::size_t first, std::size_t count, std::uintptr_t dst) {
    check_range(view, first, count);
    const nb::gil_scoped_release release;
    pack(view, first, count, pointer(dst));
}

void py_unpack(const View &view, std::size_t first, std::size_t count, std::uintptr_t src) {
    check_range(view, first, count);
    const nb::gil_scoped_release release;
    unpack(view, first, count, pointer(src));
}

void py_reduce(std::uintptr_t dst, unsigned dst_type,
               const std::vector<std::tuple<std::uintptr_t, unsigned>> &sources, std::size_t count,
               unsigned op, const std::optional<std::vector<double>> &scales, double divisor) {
    const DType type = checked_dtype(dst_type);
    const Op checked = checked_op(op, type);
    if (sources.empty() || sources.size() > kMaxSources) {
        throw std::invalid_argument("the number of sources must be 1 to " +
                                    std::to_string(kMaxSources));
    }
    if (scales && scales->size() != sources.size()) {
        throw std::invalid_argument("there must be one scale for each source");
    }
    std::vector<Source> operands;
    for (const auto &[address, number] : sources) {
        const DType source_type = checked_dtype(number);
        if (source_type != type && !(computes_in_f32(source_type) && computes_in_f32(type))) {
            throw std::invalid_argument("dtypes must be equal, or all among float32, float16 and "
                                        "bfloat16");
        }
        operands.push_back(
            {pointer(address), source_type, scales ? (*scales)[operands.size()] : 1.0});
    }
    const nb::gil_scoped_release release;
    reduce(pointer(dst), type, operands, count, checked, divisor);
}

void py_reduce2(std::uintptr_t dst, unsigned dtype, std::uintptr_t a, std::uintptr_t b,
                std::size_t count, unsigned op, double scale_a, double scale_b, double divisor) {
    const DType type = checked_dtype(dtype);
    const Op checked = checked_op(op, type);
    const std::array<Source, 2> operands{Source{pointer(a), type, scale_a},
                                         Source{pointer(b), type, scale_b}};
    const nb::gil_scoped_release release;
    reduce(pointer(dst), type, operands, count, checked, divisor);
}

} // namespace

// Adds the kernels and View to the module.
void bind_kernels(nb::module_ &module) {
    module.def("dtype_names", [] {
        return std::vector<std::string>(std::begin(kDTypeNames), std::end(kDTypeNames));
    });
    module.def("op_names",
               [] { return std::vector<std::string>(std::begin(kOpNames), std::end(kOpNames)); });
    module.def("simd_levels", &simd_levels);
    module.def("simd_level", &simd_level);
    module.def("set_simd_level", &set_simd_level, "name"_a);

    nb::class_<View>(module, "View", nb::is_final())
        .def("__init__", &construct_view, "pieces"_a, "itemsize"_a)
        .def_prop_ro("count", &View::count)
        .def_prop_ro("nbytes", &View::nbytes)
        .def_prop_ro("itemsize", &View::itemsize)
        .def_prop_ro("contiguous", &View::contiguous);
    module.def("pack", &py_pack, "view"_a, "first"_a, "count"_a, "dst_address"_a);
    module.def("unpack", &py_unpack, "view"_a, "first"_a, "count"_a, "src_address"_a);

    module.def("reduce", &py_reduce, "dst"_a, "dst_type"_a, "sources"_a, "count"_a, "op"_a,
               "scales"_a = nb::none(), "divisor"_a = 1.0);
    module.def("reduce2", &py_reduce2, "dst"_a, "dtype"_a, "a"_a, "b"_a, "count"_a, "op"_a,
               "scale_a"_a = 1.0, "scale_b"_a = 1.0, "divisor"_a = 1.0);
}

} // namespace hierring
