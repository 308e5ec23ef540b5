// PhaseClock as Python sees it; see hierring/_core.pyi.
#include "bind.hpp"
#include "phase_clock.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

namespace nb = nanobind;
using namespace nb::literals;

namespace hierring {

void bind_clock(nb::module_ &module) {
    module.attr("SPENT_STAGE") = static_cast<int>(Spent::stage);
    module.attr("SPENT_REDUCE_SCATTER") = static_cast<int>(Spent::reduce_scatter);
    module.attr("SPENT_INTER_NODE") = static_cast<int>(Spent::inter_node);
    module.attr("SPENT_ALLGATHER") = static_cast<int>(Spent::allgather);
    module.attr("SPENT_WAIT_ARRIVAL") = static_cast<int>(Spent::wait_arrival);
    module.attr("SPENT_WAIT_VERDICT") = static_cast<int>(Spent::wait_verdict);
    module.attr("SPENT_WAIT_PEER") = static_cast<int>(Spent::wait_peer);
    module.attr("SPENT_OTHER") = static_cast<int>(Spent::other);
    nb::class_<PhaseClock>(module, "PhaseClock", nb::is_final())
        .def(nb::init<unsigned>(), "local_size"_a = 0)
        .def("start", [](PhaseClock &self) { return static_cast<double>(self.start()) * 1e-9; })
        .def("stop", &PhaseClock::stop)
        .def(
            "turn",
            [](PhaseClock &self, unsigned account) {
                if (account >= kSpentCount) {
                    throw std::invalid_argument("no such account");
                }
                return static_cast<unsigned>(self.turn(static_cast<Spent>(account)));
            },
            "account"_a)
        .def("read", [](const PhaseClock &self) {
            const PhaseClock::Reading reading = self.read();
            nb::list accounts;
            for (const std::int64_t nanoseconds : reading.accounts) {
                accounts.append(nanoseconds);
            }
            return nb::make_tuple(accounts, reading.total, reading.waited);
        });
}

} // namespace hierring
