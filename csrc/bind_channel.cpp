// Channel as Python sees it. All that is said about it is in hierring/_core.pyi.
//
// Here statuses become Python's: an errno an OSError, an interrupted wait the exception its signal
// handler raised. std::invalid_argument is ValueError and std::logic_error RuntimeError by
// nanobind. One file, because it is one table: each entry hands a method of Channel to Python.
#include "bind_channel.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <sys/syscall.h>
#include <unistd.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace hierring {

// Only the main thread can, and the others must not wait for the GIL in vain: a computing main
// thread would hold up their channel by milliseconds.
bool handle_signals() {
    if (syscall(SYS_gettid) != getpid()) {
        return false;
    }
    const nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() != 0;
}

namespace {

// Work on fewer bytes than this is over before another thread could make use of the GIL.
constexpr std::size_t kWorthReleasing = 16384;

// Gives the GIL away if the work on so many bytes is worth it.
class MaybeRelease {
  public:
    explicit MaybeRelease(std::size_t nbytes) {
        if (nbytes >= kWorthReleasing) {
            release_.emplace();
        }
    }

  private:
    std::optional<nb::gil_scoped_release> release_;
};

DType to_dtype(unsigned number) {
    if (number >= kDTypeCount) {
        throw std::invalid_argument("no such dtype");
    }
    return static_cast<DType>(number);
}

Op to_op(unsigned number) {
    if (number >= kOpCount) {
        throw std::invalid_argument("no such operator");
    }
    return static_cast<Op>(number);
}

std::span<const std::byte> to_span(const nb::bytes &bytes) {
    return {static_cast<const std::byte *>(bytes.data()), bytes.size()};
}

nb::bytes to_bytes(std::span<const std::byte> span) {
    return nb::bytes(static_cast<const void *>(span.data()), span.size());
}

// A layout of these sizes, or ValueError.
Geometry to_geometry(unsigned local_size, std::size_t cell_bytes, unsigned window_cells,
                     std::size_t small_bytes) {
    const Geometry geometry{local_size, cell_bytes, window_cells, small_bytes};
    if (!Layout::valid(geometry)) {
        throw std::invalid_argument(
            "cell_bytes and small_bytes must be multiples of 64, window_cells 2 to 4096, "
            "local_size 1 to 1024");
    }
    return geometry;
}

using Pieces = nb::ndarray<const std::int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

std::vector<Row> to_rows(const std::optional<Pieces> &pieces) {
    std::vector<Row> rows;
    for (std::size_t i = 0; pieces && i < pieces->shape(0); ++i) {
        const std::int64_t *row = pieces->data() + 3 * i;
        rows.push_back({row[0], row[1], row[2]});
    }
    return rows;
}

void begin(PyChannel &self, std::string_view kind, const View *x, const View *out, unsigned dtype,
           unsigned work_type, unsigned op, double node_divisor, double out_divisor,
           unsigned runners, bool self_verdict, std::size_t count, std::size_t cell_elems,
           const std::optional<Pieces> &pieces) {
    self.own();
    if (kind != "reduce" && kind != "copy") {
        throw std::invalid_argument("kind is \"reduce\" or \"copy\"");
    }
    self.pipeline.begin({
        .kind = kind == "reduce" ? Operation::Kind::reduce : Operation::Kind::copy,
        .x = x,
        .out = out,
        .type = to_dtype(dtype),
        .work_type = to_dtype(work_type),
        .op = to_op(op),
        .node_divisor = node_divisor,
        .out_divisor = out_divisor,
        .runners = runners,
        .self_verdict = self_verdict,
        .count = count,
        .cell_elems = cell_elems,
        .rows = to_rows(pieces),
    });
    self.x = x != nullptr ? nb::find(x) : nb::object();
    self.out = out != nullptr ? nb::find(out) : nb::object();
}

// Entering a call, its opening, and calls that need no more than that.
void bind_calls(nb::class_<PyChannel> &cls) {
    cls.def(
           "arrive",
           [](PyChannel &self, std::uint64_t seq, std::uint64_t digest, const nb::bytes &descriptor,
              double scale, const View *small) {
               self.own();
               const MaybeRelease release(small != nullptr ? small->nbytes() : 0);
               self.channel.arrive(seq, digest, to_span(descriptor), scale, small);
           },
           "seq"_a, "digest"_a, "descriptor"_a, "scale"_a = 1.0, "small"_a.none() = nb::none())
        .def(
            "arrivals",
            [](PyChannel &self, double until) {
                if (self.channel.all_arrived()) {
                    return static_cast<int>(Status::done);
                }
                return self.wait([&] { return self.channel.arrivals(to_ns(until)); });
            },
            "until"_a)
        .def("missing", [](const PyChannel &self) { return self.channel.missing(); })
        .def_prop_ro("blocker", [](const PyChannel &self) { return self.channel.blocker(); })
        .def("local_difference",
             [](const PyChannel &self) { return self.channel.local_difference(); })
        .def(
            "descriptor",
            [](const PyChannel &self, unsigned local_rank) {
                return to_bytes(self.channel.descriptor(local_rank));
            },
            "local_rank"_a)
        .def(
            "publish_verdict",
            [](PyChannel &self, std::uint64_t seq, int code, const nb::bytes &detail,
               std::uintptr_t payload, std::size_t payload_nbytes) {
                self.own();
                const MaybeRelease release(payload_nbytes);
                self.channel.publish_verdict(
                    seq, code, to_span(detail),
                    {reinterpret_cast<const std::byte *>(payload), payload_nbytes});
            },
            "seq"_a, "code"_a, "detail"_a, "payload_address"_a = 0, "payload_nbytes"_a = 0)
        .def(
            "verdict",
            [](PyChannel &self, std::uint64_t seq, double until) {
                return self.wait([&] { return self.channel.verdict(seq, to_ns(until)); });
            },
            "seq"_a, "until"_a)
        .def_prop_ro("verdict_code",
                     [](const PyChannel &self) { return self.channel.verdict_code(); })
        .def("verdict_detail",
             [](const PyChannel &self) { return to_bytes(self.channel.verdict_detail()); })
        .def(
            "reduce_small",
            [](PyChannel &self, std::uintptr_t dst, unsigned dst_type, unsigned dtype,
               std::size_t count, unsigned op, double divisor) {
                const DType type = to_dtype(dtype);
                const MaybeRelease release(count * itemsize(type) * self.channel.local_size());
                self.channel.reduce_small(reinterpret_cast<void *>(dst), to_dtype(dst_type), type,
                                          count, to_op(op), divisor);
            },
            "dst_address"_a, "dst_type"_a, "dtype"_a, "count"_a, "op"_a, "divisor"_a)
        .def(
            "reduce_small_to",
            [](PyChannel &self, const View &out, unsigned dtype, std::size_t count, unsigned op,
               double divisor) {
                const DType type = to_dtype(dtype);
                const MaybeRelease release(count * itemsize(type) * self.channel.local_size());
                self.channel.reduce_small_to(out, type, count, to_op(op), divisor);
            },
            "out"_a, "dtype"_a, "count"_a, "op"_a, "divisor"_a)
        .def(
            "finish_small",
            [](PyChannel &self, const View &out, unsigned dtype, unsigned work_type,
               std::size_t first, std::size_t count, double divisor) {
                const DType type = to_dtype(dtype);
                const MaybeRelease release(count * itemsize(type));
                self.channel.finish_small(out, type, to_dtype(work_type), first, count, divisor);
            },
            "out"_a, "dtype"_a, "work_type"_a, "first"_a, "count"_a, "divisor"_a);
}

// The pipeline of large operations.
void bind_pipeline(nb::class_<PyChannel> &cls) {
    cls.def("begin", begin, "kind"_a, "x"_a.none(), "out"_a.none(), "dtype"_a, "work_type"_a,
            "op"_a, "node_divisor"_a, "out_divisor"_a, "runners"_a, "self_verdict"_a, "count"_a,
            "cell_elems"_a, "pieces"_a.none())
        .def("open", [](PyChannel &self) { self.pipeline.open(); })
        .def("fail",
             [](PyChannel &self) {
                 self.own();
                 self.pipeline.fail();
             })
        .def("advance",
             [](PyChannel &self) {
                 self.own();
                 const nb::gil_scoped_release release;
                 return self.pipeline.advance();
             })
        .def(
            "block",
            [](PyChannel &self, double until) {
                return self.wait([&] { return self.pipeline.block(to_ns(until)); });
            },
            "until"_a)
        .def(
            "run",
            [](PyChannel &self, double until) {
                return self.wait([&] { return self.pipeline.run(to_ns(until)); });
            },
            "until"_a)
        .def_prop_ro("base", [](const PyChannel &self) { return self.pipeline.base(); })
        .def_prop_ro("pieces", [](const PyChannel &self) { return self.pipeline.pieces(); })
        .def("reduced", [](PyChannel &self) { return self.pipeline.reduced(); })
        .def(
            "gathered",
            [](PyChannel &self, std::size_t done) {
                self.own();
                self.pipeline.gathered(done);
            },
            "done"_a)
        .def(
            "window",
            [](const PyChannel &self, std::size_t piece) {
                return reinterpret_cast<std::uintptr_t>(self.pipeline.window(piece));
            },
            "piece"_a)
        .def("finish", [](PyChannel &self) { self.pipeline.finish(); })
        .def("stats", [](const PyChannel &self) {
            const Pipeline::Stats &stats = self.pipeline.stats();
            nb::dict answer;
            answer["staged_bytes"] = stats.staged_bytes;
            answer["window_bytes"] = stats.window_bytes;
            answer["copied_bytes"] = stats.copied_bytes;
            return answer;
        });
}

// Status lines and the end of things.
void bind_failure(nb::class_<PyChannel> &cls) {
    cls.def(
           "note",
           [](PyChannel &self, unsigned phase, std::uint32_t step, int waiting_for) {
               self.own();
               self.channel.note(static_cast<Phase>(phase), step, waiting_for);
           },
           "phase"_a, "step"_a, "waiting_for"_a)
        .def(
            "peer",
            [](const PyChannel &self, unsigned local_rank) {
                const Channel::Peer peer = self.channel.peer(local_rank);
                return nb::make_tuple(peer.seq, peer.phase, peer.step, peer.waiting_for, peer.age_s,
                                      peer.left, peer.pid);
            },
            "local_rank"_a)
        .def(
            "set_abort",
            [](PyChannel &self, int kind, int rank, const nb::bytes &text) {
                self.own();
                return self.channel.set_abort(kind, rank, {text.c_str(), text.size()});
            },
            "kind"_a, "rank"_a, "text"_a)
        .def("abort_cause",
             [](const PyChannel &self) -> nb::object {
                 std::optional<Channel::Cause> cause;
                 {
                     const nb::gil_scoped_release release;
                     cause = self.channel.abort_cause();
                 }
                 if (!cause) {
                     return nb::none();
                 }
                 return nb::make_tuple(cause->kind, cause->rank,
                                       nb::bytes(cause->text.data(), cause->text.size()));
             })
        .def("claim_inquiry",
             [](PyChannel &self) {
                 self.own();
                 return self.channel.claim_inquiry();
             })
        .def("leave", [](PyChannel &self) { self.channel.leave(); });
}

void bind_constants(nb::module_ &module) {
    module.attr("DONE") = static_cast<int>(Status::done);
    module.attr("PENDING") = static_cast<int>(Status::pending);
    module.attr("ABORTED") = static_cast<int>(Status::aborted);
    module.attr("DEAD") = static_cast<int>(Status::dead);
    module.attr("LEFT") = static_cast<int>(Status::left);
    module.attr("MISMATCH") = static_cast<int>(Status::mismatch);
    module.attr("IDLE") = static_cast<int>(Phase::idle);
    module.attr("ENTER") = static_cast<int>(Phase::enter);
    module.attr("STAGE") = static_cast<int>(Phase::stage);
    module.attr("OPENING") = static_cast<int>(Phase::opening);
    module.attr("REDUCE") = static_cast<int>(Phase::reduce);
    module.attr("NET") = static_cast<int>(Phase::net);
    module.attr("COPY") = static_cast<int>(Phase::copy);
    module.attr("PROGRESSED") = Pipeline::kProgressed;
    module.attr("FINISHED") = Pipeline::kFinished;
    module.attr("DIFFERED") = Pipeline::kDiffered;
}

} // namespace

void bind_channel(nb::module_ &module) {
    bind_constants(module);
    bind_segment(module);
    bind_clock(module);
    nb::class_<PyChannel> cls(module, "Channel", nb::is_final());
    cls.def(
           "__init__",
           [](PyChannel *self, const PySegment &segment, unsigned local_rank, unsigned local_size,
              std::size_t cell_bytes, unsigned window_cells, std::size_t small_bytes,
              bool ring_schedule) {
               new (self) PyChannel(segment, local_rank,
                                    to_geometry(local_size, cell_bytes, window_cells, small_bytes),
                                    ring_schedule);
           },
           "segment"_a, "local_rank"_a, "local_size"_a, "cell_bytes"_a, "window_cells"_a,
           "small_bytes"_a, "ring_schedule"_a = false)
        .def_static(
            "layout_nbytes",
            [](unsigned local_size, std::size_t cell_bytes, unsigned window_cells,
               std::size_t small_bytes) {
                return Layout(to_geometry(local_size, cell_bytes, window_cells, small_bytes))
                    .nbytes();
            },
            "local_size"_a, "cell_bytes"_a, "window_cells"_a, "small_bytes"_a)
        .def_prop_ro("slot_nbytes",
                     [](const PyChannel &self) { return self.channel.layout().slot_nbytes(); })
        .def_prop_ro("seq", [](const PyChannel &self) { return self.channel.seq(); })
        .def_prop_ro("local_rank", [](const PyChannel &self) { return self.channel.local_rank(); })
        .def_prop_ro("local_size", [](const PyChannel &self) { return self.channel.local_size(); })
        .def("reserve",
             [](PyChannel &self) {
                 self.own();
                 int error;
                 {
                     const nb::gil_scoped_release release;
                     error = self.channel.reserve();
                 }
                 check_os(error, self.segment->path());
             })
        .def(
            "set_wait",
            [](PyChannel &self, unsigned pauses, unsigned yields) {
                self.channel.set_patience(pauses, yields);
            },
            "pauses"_a, "yields"_a)
        .def(
            "set_clock", [](PyChannel &self, PhaseClock &clock) { self.channel.set_clock(clock); },
            "clock"_a, nb::keep_alive<1, 2>())
        .def(
            "start_at",
            [](PyChannel &self, std::uint64_t seq, std::uint64_t base) {
                self.own();
                self.channel.start_at(seq);
                self.pipeline.start_at(base);
            },
            "seq"_a, "base"_a);
    bind_calls(cls);
    bind_pipeline(cls);
    bind_failure(cls);
    bind_whole_call(module);
}

} // namespace hierring
