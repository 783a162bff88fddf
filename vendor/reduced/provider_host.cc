// In place of cpu_provider_shared.cc, which hands kernels of the CPU to execution providers in libraries of their own (CUDA's
// falls back on them) and so keeps Einsum, BeamSearch and many more. A build with the operators of some models only, for the
// CPU only, has none of those providers.
#include "core/common/common.h"

namespace onnxruntime {

struct ProviderHostCPU;
ProviderHostCPU& GetProviderHostCPU();

ProviderHostCPU& GetProviderHostCPU() {
  ORT_THROW("this ONNX Runtime was built with the operators of some models only, and without what execution providers in "
            "libraries of their own need of the CPU's kernels; build it with all operators, or with the provider");
}

}  // namespace onnxruntime
