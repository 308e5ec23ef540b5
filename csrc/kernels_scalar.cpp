// The loops for any CPU of the target architecture: 128-bit vectors where its baseline has them.
#include "kernels_impl.hpp"

namespace hierring {

constinit const KernelTable kScalarKernels = make_table<GenericIsa<16>>("scalar");

} // namespace hierring
