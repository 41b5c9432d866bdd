// Kernels of the activations for GPUs: one launch of activations.cu.
#pragma once

#include "muster/ops/nn/elementwise.h"
#include "muster/ops/nn/packs.h"

namespace muster {

// `function` is a struct of activations.cu.
class GpuActivation : public GpuKernel {
 public:
  GpuActivation(const char* function, DType dtype)
      : run_(*this, "nn/activations.cu",
             absl::StrCat("Activate<", function, ", ", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    if (setup.node().FindAttr("alpha") == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(alpha_, setup.Attr<float>("alpha"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, x.shape()));
    return run_.LaunchForEach(PacksIn(x), GpuIn(x), GpuOut(*y), x.num_elements(), alpha_);
  }

 private:
  GpuFunction run_;
  float alpha_ = 0;
};

class GpuActivationGrad : public GpuKernel {
 public:
  GpuActivationGrad(const char* function, DType dtype)
      : run_(*this, "nn/activations.cu",
             absl::StrCat("ActivateGrad<", function, ", ", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    if (setup.node().FindAttr("alpha") == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(alpha_, setup.Attr<float>("alpha"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckSameShapes(c));
    const Tensor& dy = c.input(0);
    const Tensor& x = c.input(1);
    ASSIGN_OR_RETURN(Tensor* const dx, c.ForwardOrAllocate({0, 1}, 0, x.shape()));
    return run_.LaunchForEach(PacksIn(x), GpuIn(dy), GpuIn(x), GpuOut(*dx), x.num_elements(),
                              alpha_);
  }

 private:
  GpuFunction run_;
  float alpha_ = 0;
};

// For OpBuilder::GpuTypes.
inline std::function<KernelFactory(DType)> MakeGpuActivation(const char* function) {
  return [function](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuActivation>(function, dtype); };
  };
}
inline std::function<KernelFactory(DType)> MakeGpuActivationGrad(const char* function) {
  return [function](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuActivationGrad>(function, dtype); };
  };
}

}  // namespace muster
