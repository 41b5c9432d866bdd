#include "muster/ops/pooling/gpu_pool.h"
#include "muster/ops/pooling/pool3d_attrs.h"

namespace muster {
namespace {

constexpr char kPoolFile[] = "pooling/pool.cu";

class GpuPool3D : public GpuKernel {
 public:
  GpuPool3D(const char* function, DType dtype, const char* more = "")
      : run_(*this, kPoolFile, absl::StrCat(function, "<", GpuTypeName(dtype), more, ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, Pool3DAttrs::Make(setup.node(), true));
    return GpuKernel::Init(setup);
  }

 protected:
  GpuPooling PoolingFor(const VolumeWindows& w) const {
    const auto axis = [&w](int i) -> GpuPoolAxis {
      const VolumeAxis& a = w.axes[i];
      return {static_cast<int32_t>(a.size), static_cast<int32_t>(a.window),
              static_cast<int32_t>(a.stride), static_cast<int32_t>(a.pad),
              static_cast<int32_t>(a.out)};
    };
    return {w.channels, axis(0), axis(1), axis(2), attrs_.channels_first() ? 1 : 0, 0};
  }

  Pool3DAttrs attrs_;
  GpuFunction run_;
};

template <bool kMaximum>
class GpuForwardPool3D : public GpuPool3D {
 public:
  explicit GpuForwardPool3D(DType dtype)
      : GpuPool3D(kMaximum ? "MaxPool" : "AvgPool", dtype, kMaximum ? ", true" : "") {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(const VolumeWindows w, attrs_.ForForward(x.shape()));
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, attrs_.OutputShape(w)));
    GpuPooling pooling = PoolingFor(w);
    pooling.Widen({&x, y});
    const int64_t count = y->num_elements();
    return run_.LaunchForEach(pooling.ThreadsFor(count), GpuIn(x), GpuOut(*y), count, pooling);
  }
};

template <bool kSecond>
class GpuMaxPool3DGrad : public GpuPool3D {
 public:
  explicit GpuMaxPool3DGrad(DType dtype)
      : GpuPool3D(kSecond ? "MaxPool3DGradGrad" : "MaxPool3DGrad", dtype) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const VolumeWindows w, attrs_.ForMaxGrad(c, kSecond));
    ASSIGN_OR_RETURN(Tensor* const out,
                     c.AllocateOutput(0, kSecond ? attrs_.OutputShape(w) : attrs_.InputShape(w)));
    return run_.LaunchForEach(out->num_elements(), GpuIn(c.input(0)), GpuIn(c.input(1)),
                              GpuIn(c.input(2)), GpuOut(*out), out->num_elements(), PoolingFor(w));
  }
};

class GpuAvgPool3DGrad : public GpuPool3D {
 public:
  explicit GpuAvgPool3DGrad(DType dtype) : GpuPool3D("AvgPoolGrad", dtype) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const VolumeWindows w, attrs_.ForAvgGrad(c));
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, attrs_.InputShape(w)));
    const Tensor& dy = c.input(1);
    GpuPooling pooling = PoolingFor(w);
    pooling.Widen({&dy, dx});
    const int64_t count = dx->num_elements();
    return run_.LaunchForEach(pooling.ThreadsFor(count), GpuIn(dy), GpuOut(*dx), count, pooling);
  }
};

}  // namespace

KernelFactory MakeGpuMaxPool3D(DType dtype) {
  return MakeGpu<GpuForwardPool3D<true>>(dtype);
}
KernelFactory MakeGpuMaxPool3DGrad(DType dtype) {
  return MakeGpu<GpuMaxPool3DGrad<false>>(dtype);
}
KernelFactory MakeGpuMaxPool3DGradGrad(DType dtype) {
  return MakeGpu<GpuMaxPool3DGrad<true>>(dtype);
}
KernelFactory MakeGpuAvgPool3D(DType dtype) {
  return MakeGpu<GpuForwardPool3D<false>>(dtype);
}
KernelFactory MakeGpuAvgPool3DGrad(DType dtype) {
  return MakeGpu<GpuAvgPool3DGrad>(dtype);
}

}  // namespace muster
