// WholeCall as Python sees it. All that is said about it is in hierring/_core.pyi.
#include "bind_channel.hpp"
#include "user_tensor.hpp"
#include "whole_call.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>

namespace nb = nanobind;
using namespace nb::literals;

namespace hierring {
namespace {

// A recipe and what it is found by, besides dtype and count.
struct Entry {
    nb::object op; // the string that users pass
    Recipe recipe;
};

class PyWholeCall {
  public:
    explicit PyWholeCall(PyChannel &channel)
        : channel_(channel), call_(channel.channel, channel.pipeline) {}

    // Answers of run() and run_large(), numbered as in hierring/_core.pyi.
    enum class Answer { unfit, done, entered, large };

    // What may be asked for without the communicator's lock: as long as nobody has claimed it, a
    // thread that keeps Python's lock is alone in here.
    Answer run(nb::handle x, nb::handle op, nb::handle out);

    // The same for large tensors. The communicator's lock is held.
    Answer run_large(nb::handle x, nb::handle op, nb::handle out);

    // The thread that is inside a collective, to the end of it.
    void claim() { owner_ = PyThread_get_thread_ident(); }
    void release() { owner_ = 0; }
    bool claimed() const { return owner_ != 0; }
    bool mine() const { return owner_ == PyThread_get_thread_ident(); }

    // Tells whether this thread was the last to ask, and was told that its call is done.
    bool done_here() const { return done_by_ == PyThread_get_thread_ident(); }

    void learn(nb::str op, unsigned dtype, unsigned code, std::size_t count, std::size_t cell_elems,
               double divisor, std::uint64_t digest, const nb::bytes &descriptor);

    TensorReader reader;

    const WholeCall &call() const { return call_; }

  private:
    // The arguments of a call, once they have been looked at.
    struct Arguments {
        UserTensor x, out;
        nb::handle result;
        const Recipe *recipe;
    };

    std::optional<Arguments> look(nb::handle x, nb::handle op, nb::handle out) const;
    Answer end(const Arguments &arguments);
    const Recipe *find(const UserTensor &tensor, nb::handle op) const;
    static std::size_t place(DType type, std::size_t count) {
        return (count * kDTypeCount + static_cast<std::size_t>(type)) * 0x9E3779B97F4A7C15u >> 56;
    }

    PyChannel &channel_;
    WholeCall call_;
    unsigned long owner_ = 0, done_by_ = 0;
    // A training loop makes the same few calls again and again: one place for each hash is enough.
    std::array<std::unique_ptr<Entry>, 256> recipes_;
};

void PyWholeCall::learn(nb::str op, unsigned dtype, unsigned code, std::size_t count,
                        std::size_t cell_elems, double divisor, std::uint64_t digest,
                        const nb::bytes &descriptor) {
    if (dtype >= kDTypeCount || code >= kOpCount || descriptor.size() > kDescriptorBytes ||
        count == 0 || !reducible(static_cast<DType>(dtype), static_cast<Op>(code))) {
        throw std::invalid_argument("no such call");
    }
    auto entry = std::make_unique<Entry>();
    entry->op = std::move(op);
    Recipe &recipe = entry->recipe;
    recipe.type = static_cast<DType>(dtype);
    recipe.op = static_cast<Op>(code);
    recipe.count = count;
    recipe.cell_elems = cell_elems;
    recipe.divisor = divisor;
    recipe.digest = digest;
    recipe.descriptor_nbytes = descriptor.size();
    std::copy_n(static_cast<const std::byte *>(descriptor.data()), descriptor.size(),
                recipe.descriptor);
    recipes_[place(recipe.type, count)] = std::move(entry);
}

const Recipe *PyWholeCall::find(const UserTensor &tensor, nb::handle op) const {
    const Entry *entry = recipes_[place(tensor.type, tensor.count)].get();
    if (entry == nullptr || entry->recipe.count != tensor.count ||
        entry->recipe.type != tensor.type) {
        return nullptr;
    }
    const bool same =
        entry->op.ptr() == op.ptr() ||
        (PyUnicode_CheckExact(op.ptr()) && PyUnicode_Compare(entry->op.ptr(), op.ptr()) == 0);
    return same ? &entry->recipe : nullptr;
}

// Tells whether a result can go there: to x itself, or to memory apart from it.
bool fits(const UserTensor &x, const UserTensor &out) {
    const std::size_t nbytes = x.count * itemsize(x.type);
    return out.type == x.type && out.count == x.count &&
           (out.data == x.data || out.data + nbytes <= x.data || x.data + nbytes <= out.data);
}

// Looks at what the caller passes; nothing if the engine must.
std::optional<PyWholeCall::Arguments> PyWholeCall::look(nb::handle x, nb::handle op,
                                                        nb::handle out) const {
    Arguments found{};
    const bool in_place = out.is_none();
    found.result = in_place ? x : out;
    if (!call_.ready() || !reader.read(x.ptr(), in_place, found.x)) {
        return std::nullopt;
    }
    found.out = found.x;
    if (!in_place && (!reader.read(out.ptr(), true, found.out) || !fits(found.x, found.out))) {
        return std::nullopt;
    }
    found.recipe = find(found.x, op);
    return found.recipe != nullptr ? std::optional(found) : std::nullopt;
}

PyWholeCall::Answer PyWholeCall::end(const Arguments &arguments) {
    channel_.channel.clock().stop();
    done_by_ = PyThread_get_thread_ident();
    if (arguments.out.torch) {
        reader.written(arguments.result.ptr());
    }
    return Answer::done;
}

PyWholeCall::Answer PyWholeCall::run(nb::handle x, nb::handle op, nb::handle out) {
    done_by_ = 0;
    if (claimed()) {
        return Answer::unfit;
    }
    const auto arguments = look(x, op, out);
    if (!arguments || claimed()) { // looking at a tensor may have run Python code
        return Answer::unfit;
    }
    if (!call_.small(*arguments->recipe)) {
        return Answer::large;
    }
    channel_.channel.clock().start();
    if (!call_.run_small(*arguments->recipe, arguments->x.data, arguments->out.data)) {
        claim();
        return Answer::entered;
    }
    return end(*arguments);
}

PyWholeCall::Answer PyWholeCall::run_large(nb::handle x, nb::handle op, nb::handle out) {
    const auto arguments = look(x, op, out);
    if (!arguments || claimed()) {
        return Answer::unfit;
    }
    channel_.channel.clock().start();
    claim();
    const int status = channel_.wait([&] {
        return call_.run_large(*arguments->recipe, arguments->x.data, arguments->out.data);
    });
    if (status != static_cast<int>(Status::done)) {
        return Answer::entered;
    }
    release();
    return end(*arguments);
}

TensorReader::DTypes to_dtypes(const nb::dict &numbers) {
    TensorReader::DTypes dtypes;
    for (const auto &[dtype, number] : numbers) {
        dtypes.emplace_back(nb::borrow(dtype),
                            static_cast<DType>(nb::cast<unsigned>(number) % kDTypeCount));
    }
    return dtypes;
}

} // namespace

void bind_whole_call(nb::module_ &module) {
    nb::class_<PyWholeCall>(module, "WholeCall", nb::is_final())
        .def(nb::init<PyChannel &>(), "channel"_a, nb::keep_alive<1, 2>())
        .def(
            "know_numpy",
            [](PyWholeCall &self, nb::object array_type, const nb::dict &dtypes, nb::handle probe,
               std::uintptr_t address) {
                return self.reader.know_numpy(std::move(array_type), to_dtypes(dtypes), probe,
                                              reinterpret_cast<const void *>(address));
            },
            "array_type"_a, "dtypes"_a, "probe"_a, "address"_a)
        .def(
            "know_torch",
            [](PyWholeCall &self, std::vector<nb::object> types, const nb::dict &dtypes,
               nb::object increment) {
                self.reader.know_torch(std::move(types), to_dtypes(dtypes), std::move(increment));
            },
            "types"_a, "dtypes"_a, "increment"_a)
        .def_prop_ro("knows_torch",
                     [](const PyWholeCall &self) { return self.reader.knows_torch(); })
        .def("learn", &PyWholeCall::learn, "op"_a, "dtype"_a, "code"_a, "count"_a, "cell_elems"_a,
             "divisor"_a, "digest"_a, "descriptor"_a)
        .def(
            "run",
            [](PyWholeCall &self, nb::handle x, nb::handle op, nb::handle out) {
                return static_cast<int>(self.run(x, op, out));
            },
            "x"_a.none(), "op"_a.none(), "out"_a.none())
        .def(
            "run_large",
            [](PyWholeCall &self, nb::handle x, nb::handle op, nb::handle out) {
                return static_cast<int>(self.run_large(x, op, out));
            },
            "x"_a.none(), "op"_a.none(), "out"_a.none())
        .def("claim", &PyWholeCall::claim)
        .def("release", &PyWholeCall::release)
        .def_prop_ro("claimed", &PyWholeCall::claimed)
        .def_prop_ro("mine", &PyWholeCall::mine)
        .def_prop_ro("done_here", &PyWholeCall::done_here)
        .def_prop_ro("settled", [](const PyWholeCall &self) { return self.call().settled(); })
        .def_prop_ro("completed", [](const PyWholeCall &self) {
            return nb::make_tuple(self.call().completed_small(), self.call().completed_large());
        });
}

} // namespace hierring
