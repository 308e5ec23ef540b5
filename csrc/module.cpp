// hierring._core: the compiled part. hierring/_core.pyi is its documentation.
#include <nanobind/nanobind.h>

namespace hierring {
void bind_kernels(nanobind::module_ &module);
void bind_channel(nanobind::module_ &module);
} // namespace hierring

NB_MODULE(_core, module) {
    module.doc() = "SIMD kernels, the shared-memory segment of a node, and its channel.";
    // At exit some objects are alive on purpose: the default communicator, and memory that MPI may
    // still use. A user's stderr is no place to list them.
    nanobind::set_leak_warnings(false);
    hierring::bind_kernels(module);
    hierring::bind_channel(module);
}
