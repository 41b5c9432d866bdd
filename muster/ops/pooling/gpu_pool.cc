#include "muster/ops/pooling/gpu_pool.h"

#include <algorithm>

#include "muster/ops/pooling/max_pool.h"

namespace muster {

constexpr int64_t kWideChannels = 4;  // kWide of pool.cu

void GpuPooling::Widen(std::initializer_list<const Tensor*> tensors) {
  const bool is_aligned = std::all_of(tensors.begin(), tensors.end(), [](const Tensor* tensor) {
    return reinterpret_cast<uintptr_t>(tensor->raw()) % 16 == 0;
  });
  if (channels_first == 0 && channels % kWideChannels == 0 && is_aligned) is_wide = 1;
}
int64_t GpuPooling::ThreadsFor(int64_t elements) const {
  return is_wide != 0 ? elements / kWideChannels : elements;
}

namespace {

constexpr char kFile[] = "pooling/pool.cu";

GpuPoolAxis AxisOf(int64_t size, int64_t window, int64_t stride, int64_t pad, int64_t out) {
  return {static_cast<int32_t>(size), static_cast<int32_t>(window), static_cast<int32_t>(stride),
          static_cast<int32_t>(pad), static_cast<int32_t>(out)};
}

GpuPooling PoolingOf(const PoolWindow& w, bool channels_first) {
  GpuPooling pooling{};
  pooling.channels = w.channels;
  pooling.depth = {1, 1, 1, 0, 1};
  pooling.height = AxisOf(w.height, w.window_height, w.stride_height, w.pad_top, w.out_height);
  pooling.width = AxisOf(w.width, w.window_width, w.stride_width, w.pad_left, w.out_width);
  pooling.channels_first = channels_first ? 1 : 0;
  return pooling;
}

class GpuPool : public GpuKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadPoolAttrs(setup.node()));
    attrs_ = InChannelsLast(std::move(attrs_));
    return GpuKernel::Init(setup);
  }

 protected:
  std::string Function(const char* name, DType dtype, const char* more = "") const {
    return absl::StrCat(name, "<", GpuTypeName(dtype), more, ">");
  }
  GpuPooling PoolingFor(const PoolWindow& w) const {
    return PoolingOf(w, attrs_.of_channels_first);
  }
  PoolAttrs attrs_;
};

class GpuMaxPool : public GpuPool {
 public:
  explicit GpuMaxPool(DType dtype)
      : run_(*this, kFile, Function("MaxPool", dtype, ", false")),
        over_channels_(*this, kFile, Function("MaxOfChannels", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(const PoolAttrs attrs, CheckedMaxPool(c, attrs_));
    ASSIGN_OR_RETURN(const PoolWindow w, MakePoolWindow(attrs, attrs.ToLast(x.shape())));
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, attrs.FromLast(w.output_shape())));
    const int64_t count = y->num_elements();
    if (w.window_channels != 1) {
      if (attrs.of_channels_first)
        return Unimplemented("pooling over the channels of NCHW is not supported on GPUs");
      return over_channels_.LaunchForEach(count, GpuIn(x), GpuOut(*y), count, w.window_channels);
    }
    GpuPooling pooling = PoolingFor(w);
    pooling.Widen({&x, y});
    return run_.LaunchForEach(pooling.ThreadsFor(count), GpuIn(x), GpuOut(*y), count, pooling);
  }

 private:
  GpuFunction run_;
  GpuFunction over_channels_;
};

class GpuMaxPoolGrad : public GpuPool {
 public:
  explicit GpuMaxPoolGrad(DType dtype)
      : overlapping_(*this, kFile, Function("MaxPoolGrad", dtype)),
        find_(*this, kFile, Function("FindMaxima", dtype)),
        gather_(*this, kFile, Function("GatherMaxima", dtype)),
        apart_(*this, kFile, Function("MaxPoolGradApart", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedMaxPoolGradient(c, attrs_, true));
    const Tensor& x = c.input(0);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, x.shape()));
    GpuPooling pooling = PoolingFor(w);
    pooling.Widen({&x, &dy, dx});
    if (w.window_height > w.stride_height || w.window_width > w.stride_width) {
      const int64_t count = x.num_elements();
      if (w.window_height * w.window_width <= kMostCells) return GatherFound(c, pooling, *dx);
      return overlapping_.LaunchForEach(pooling.ThreadsFor(count), GpuIn(x), GpuIn(dy), GpuOut(*dx),
                                        count, pooling);
    }
    if (!Covers(pooling.height) || !Covers(pooling.width)) {
      RETURN_IF_ERROR(gpu().Fill(dx->raw(), 0,
                                 static_cast<size_t>(dx->num_elements()) * DTypeSize(dx->dtype())));
    }
    const int64_t count = dy.num_elements();
    return apart_.LaunchForEach(pooling.ThreadsFor(count), GpuIn(x), GpuIn(dy), GpuOut(*dx), count,
                                pooling);
  }

 private:
  // They are counted in bytes, of which the largest is that of no cell.
  static constexpr int64_t kMostCells = 255;

  absl::Status GatherFound(KernelContext& c, const GpuPooling& pooling, Tensor& dx) const {
    const Tensor& x = c.input(0);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(Tensor cells, c.AllocateTemporary(DType::kUint8, dy.shape()));
    const int64_t windows = dy.num_elements(), count = x.num_elements();
    RETURN_IF_ERROR(find_.LaunchForEach(pooling.ThreadsFor(windows), GpuIn(x), GpuOut(cells),
                                        windows, pooling));
    return gather_.LaunchForEach(pooling.ThreadsFor(count), GpuIn(cells), GpuIn(dy), GpuOut(dx),
                                 count, pooling);
  }
  // Whether each cell is in a window, where they do not overlap.
  static bool Covers(const GpuPoolAxis& axis) {
    return axis.window == axis.stride &&
           int64_t{axis.out} * axis.stride - axis.pad >= int64_t{axis.size};
  }
  GpuFunction overlapping_;
  GpuFunction find_;
  GpuFunction gather_;
  GpuFunction apart_;
};

class GpuMaxPoolGradGrad : public GpuPool {
 public:
  explicit GpuMaxPoolGradGrad(DType dtype)
      : run_(*this, kFile, Function("MaxPoolGradGrad", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedMaxPoolGradient(c, attrs_, false));
    ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(0, c.input(1).shape()));
    return run_.LaunchForEach(out->num_elements(), GpuIn(c.input(0)), GpuIn(c.input(2)),
                              GpuOut(*out), out->num_elements(), PoolingFor(w));
  }

 private:
  GpuFunction run_;
};

class GpuMaxPoolWithArgmax : public GpuPool {
 public:
  explicit GpuMaxPoolWithArgmax(DType dtype)
      : run_(*this, kFile, Function("MaxPoolWithArgmax", dtype, ", int64")) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(batch_in_index_, setup.Attr<bool>("include_batch_in_index"));
    return GpuPool::Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedMaxPoolWithArgmax(c, attrs_));
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, w.output_shape()));
    ASSIGN_OR_RETURN(Tensor* const argmax, c.AllocateOutput(1, w.output_shape()));
    const int64_t image_size = batch_in_index_ ? 0 : w.height * w.width * w.channels;
    return run_.LaunchForEach(y->num_elements(), GpuIn(x), GpuOut(*y), GpuOut(*argmax),
                              y->num_elements(), image_size, PoolingFor(w));
  }

 private:
  GpuFunction run_;
  bool batch_in_index_ = false;
};

class GpuMaxPoolGradWithArgmax : public GpuPool {
 public:
  explicit GpuMaxPoolGradWithArgmax(DType dtype)
      : run_(*this, kFile, Function("MaxPoolGradWithArgmax", dtype, ", int64")) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(batch_in_index_, setup.Attr<bool>("include_batch_in_index"));
    return GpuPool::Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(1);
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedMaxPoolGradWithArgmax(c, attrs_));
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, c.input(0).shape()));
    RETURN_IF_ERROR(
        gpu().Fill(dx->raw(), 0, static_cast<size_t>(dx->num_elements()) * DTypeSize(dx->dtype())));
    const int64_t pooled_size = w.out_height * w.out_width * w.out_channels;
    const int64_t image_size = w.height * w.width * w.channels;
    return run_.LaunchForEach(dy.num_elements(), GpuIn(dy), GpuIn(c.input(2)), GpuOut(*dx),
                              dy.num_elements(), pooled_size, image_size, batch_in_index_);
  }

 private:
  GpuFunction run_;
  bool batch_in_index_ = false;
};

class GpuAvgPool : public GpuPool {
 public:
  explicit GpuAvgPool(DType dtype) : run_(*this, kFile, Function("AvgPool", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedAvgPool(attrs_, x.shape()));
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, attrs_.FromLast(w.output_shape())));
    GpuPooling pooling = PoolingFor(w);
    pooling.Widen({&x, y});
    const int64_t count = y->num_elements();
    return run_.LaunchForEach(pooling.ThreadsFor(count), GpuIn(x), GpuOut(*y), count, pooling);
  }

 private:
  GpuFunction run_;
};

class GpuAvgPoolGrad : public GpuPool {
 public:
  explicit GpuAvgPoolGrad(DType dtype) : run_(*this, kFile, Function("AvgPoolGrad", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(1);
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedAvgPoolGrad(attrs_, c.input(0), dy.shape()));
    const Shape shape({w.batch, w.height, w.width, w.channels});
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, attrs_.FromLast(shape)));
    GpuPooling pooling = PoolingFor(w);
    pooling.Widen({&dy, dx});
    const int64_t count = dx->num_elements();
    return run_.LaunchForEach(pooling.ThreadsFor(count), GpuIn(dy), GpuOut(*dx), count, pooling);
  }

 private:
  GpuFunction run_;
};

}  // namespace

KernelFactory MakeGpuMaxPool(DType dtype) {
  return MakeGpu<GpuMaxPool>(dtype);
}
KernelFactory MakeGpuMaxPoolGrad(DType dtype) {
  return MakeGpu<GpuMaxPoolGrad>(dtype);
}
KernelFactory MakeGpuMaxPoolGradGrad(DType dtype) {
  return MakeGpu<GpuMaxPoolGradGrad>(dtype);
}
KernelFactory MakeGpuMaxPoolWithArgmax(DType dtype) {
  return MakeGpu<GpuMaxPoolWithArgmax>(dtype);
}
KernelFactory MakeGpuMaxPoolGradWithArgmax(DType dtype) {
  return MakeGpu<GpuMaxPoolGradWithArgmax>(dtype);
}
KernelFactory MakeGpuAvgPool(DType dtype) {
  return MakeGpu<GpuAvgPool>(dtype);
}
KernelFactory MakeGpuAvgPoolGrad(DType dtype) {
  return MakeGpu<GpuAvgPoolGrad>(dtype);
}

}  // namespace muster
