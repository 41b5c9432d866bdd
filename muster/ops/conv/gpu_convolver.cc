#include "muster/ops/conv/gpu_convolver.h"

#include <algorithm>

namespace muster {
namespace {

int64_t Product(const GpuConvSizes::Space& sizes, int space) {
  int64_t product = 1;
  for (int i = 0; i < space; ++i) product *= sizes[i];
  return product;
}

CudnnConvolution Describe(const GpuConvSizes& s, CudnnConvolution::Kind kind, DType dtype,
                          const GpuConvSizes::Space& size, const GpuConvSizes::Space& pad) {
  CudnnConvolution c;
  c.kind = kind;
  c.dtype = static_cast<int64_t>(dtype);
  c.space = s.space;
  c.channels_last = s.channels_last ? 1 : 0;
  c.batch = s.batch;
  c.channels = s.channels;
  c.filter_channels = s.filter_channels;
  c.out_channels = s.out_channels;
  c.size = size;
  c.window = s.window;
  c.out = s.out;
  c.stride = s.stride;
  c.dilation = s.dilation;
  c.pad = pad;
  return c;
}

}  // namespace

// cuDNN pads by the same on both sides; what is left is padded by us.
struct GpuConvolver::Padding {
  GpuConvSizes::Space common{}, before{}, size{};
  bool is_needed = false;
  int64_t outer = 0, inner = 0;  // of the dims around the axes of space
  int space = 0;

  explicit Padding(const GpuConvSizes& s) : space(s.space) {
    for (int i = 0; i < s.space; ++i) {
      common[i] = std::min(s.pad_before[i], s.pad_after[i]);
      before[i] = s.pad_before[i] - common[i];
      size[i] = s.size[i] + before[i] + s.pad_after[i] - common[i];
      is_needed = is_needed || size[i] != s.size[i];
    }
    outer = s.channels_last ? s.batch : s.batch * s.channels;
    inner = s.channels_last ? s.channels : 1;
  }
  // The images as they are among the padded ones.
  std::vector<EmbeddedAxis> Axes(const GpuConvSizes& s) const {
    std::vector<EmbeddedAxis> axes = {{outer, 0, 1, outer}};
    for (int i = 0; i < space; ++i) axes.push_back({size[i], before[i], 1, s.size[i]});
    axes.push_back({inner, 0, 1, inner});
    return axes;
  }
};

absl::Status GpuConvolver::Init(Gpu& gpu) {
  ASSIGN_OR_RETURN(plans_, ConvPlans::Of(gpu));
  return absl::OkStatus();
}

// Slices of tensors may begin anywhere; cuDNN's fast kernels read 16 bytes at once.
absl::StatusOr<Tensor> GpuConvolver::Aligned(KernelContext& c, const Tensor& tensor) const {
  if (reinterpret_cast<uintptr_t>(tensor.raw()) % kCudnnAlignment == 0) return tensor;
  ASSIGN_OR_RETURN(Tensor aligned, c.AllocateTemporary(dtype_, tensor.shape()));
  RETURN_IF_ERROR(mover_.CopyAll(tensor, aligned));
  return aligned;
}

absl::StatusOr<Tensor> GpuConvolver::AllocatePadded(KernelContext& c,
                                                    const Padding& padding) const {
  Dims dims = {padding.outer};
  dims.insert(dims.end(), padding.size.begin(), padding.size.begin() + padding.space);
  dims.push_back(padding.inner);
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  return c.AllocateTemporary(dtype_, shape);
}

// Between [window..., channels, outputs] and cuDNN's [outputs, window..., channels] or
// [outputs, channels, window...].
absl::Status GpuConvolver::MoveFilter(KernelContext& c, const GpuConvSizes& s, const Tensor& from,
                                      Tensor& to, bool to_cudnn) const {
  const int64_t window = Product(s.window, s.space);
  const int64_t in = s.filter_channels, out = s.out_channels;
  StridedBox box;
  const auto add = [&](int64_t size, int64_t ours, int64_t cudnns) {
    box.Add(size, to_cudnn ? ours : cudnns, to_cudnn ? cudnns : ours);
  };
  add(window, in * out, s.channels_last ? in : 1);
  add(in, out, s.channels_last ? 1 : window);
  add(out, 1, window * in);
  return mover_.Copy(c, std::move(box), from, to);
}

absl::StatusOr<bool> GpuConvolver::RunPlan(KernelContext& c, const CudnnConvolution& convolution,
                                           const CudnnTensors& tensors,
                                           absl::FunctionRef<absl::Status()> before) const {
  ASSIGN_OR_RETURN(const ConvChoice choice, plans_->Find(convolution, tensors));
  if (choice.fastest == nullptr) return false;
  std::shared_ptr<const ConvPlan> plan = choice.fastest;
  absl::StatusOr<Tensor> workspace = Tensor();
  const auto allocate = [&] {
    if (plan->workspace_bytes() == 0) return;
    workspace = c.AllocateTemporary(DType::kUint8, Shape({plan->workspace_bytes()}));
  };
  allocate();
  if (!workspace.ok() && choice.smallest->workspace_bytes() < plan->workspace_bytes()) {
    plan = choice.smallest;
    workspace = Tensor();
    allocate();
  }
  RETURN_IF_ERROR(workspace.status());
  RETURN_IF_ERROR(before());
  RETURN_IF_ERROR(
      plans_->Run(std::move(plan), tensors, workspace->valid() ? workspace->raw() : nullptr));
  return true;
}

absl::StatusOr<bool> GpuConvolver::Forward(KernelContext& c, const GpuConvSizes& s,
                                           const Tensor& images, const Tensor& filter,
                                           Tensor& output) const {
  const Padding padding(s);
  ASSIGN_OR_RETURN(Tensor padded,
                   padding.is_needed ? AllocatePadded(c, padding) : Aligned(c, images));
  ASSIGN_OR_RETURN(Tensor moved, c.AllocateTemporary(dtype_, filter.shape()));
  return RunPlan(c, Describe(s, CudnnConvolution::kForward, dtype_, padding.size, padding.common),
                 {padded.raw(), moved.raw(), output.raw()}, [&]() -> absl::Status {
                   if (padding.is_needed)
                     RETURN_IF_ERROR(mover_.Embed(c, padding.Axes(s), nullptr, images, padded));
                   return MoveFilter(c, s, filter, moved, /*to_cudnn=*/true);
                 });
}

absl::StatusOr<bool> GpuConvolver::BackwardInput(KernelContext& c, const GpuConvSizes& s,
                                                 const Tensor& filter, const Tensor& dy,
                                                 Tensor& dx) const {
  const Padding padding(s);
  Tensor padded = dx;
  if (padding.is_needed) {
    ASSIGN_OR_RETURN(padded, AllocatePadded(c, padding));
  }
  ASSIGN_OR_RETURN(const Tensor gradient, Aligned(c, dy));
  ASSIGN_OR_RETURN(Tensor moved, c.AllocateTemporary(dtype_, filter.shape()));
  const CudnnTensors tensors = {padded.raw(), moved.raw(), gradient.raw()};
  ASSIGN_OR_RETURN(
      const bool is_done,
      RunPlan(c,
              Describe(s, CudnnConvolution::kBackwardInput, dtype_, padding.size, padding.common),
              tensors, [&] { return MoveFilter(c, s, filter, moved, /*to_cudnn=*/true); }));
  if (!is_done || !padding.is_needed) return is_done;
  StridedBox box = EmbeddedBox(padding.Axes(s));
  std::swap(box.from_strides, box.to_strides);
  std::swap(box.from_offset, box.to_offset);
  RETURN_IF_ERROR(mover_.Copy(c, std::move(box), padded, dx));
  return true;
}

absl::StatusOr<bool> GpuConvolver::BackwardFilter(
    KernelContext& c, const GpuConvSizes& s, const Tensor& images, const Tensor& dy, Tensor& dw,
    const std::function<absl::Status()>& otherwise) const {
  const Padding padding(s);
  const CudnnConvolution convolution =
      Describe(s, CudnnConvolution::kBackwardFilter, dtype_, padding.size, padding.common);
  if (otherwise) {
    ASSIGN_OR_RETURN(const bool is_faster, plans_->IsFasterOtherwise(convolution, otherwise));
    if (is_faster) return false;
  }
  ASSIGN_OR_RETURN(Tensor padded,
                   padding.is_needed ? AllocatePadded(c, padding) : Aligned(c, images));
  ASSIGN_OR_RETURN(const Tensor gradient, Aligned(c, dy));
  ASSIGN_OR_RETURN(Tensor moved, c.AllocateTemporary(dtype_, dw.shape()));
  const CudnnTensors tensors = {padded.raw(), moved.raw(), gradient.raw()};
  ASSIGN_OR_RETURN(const bool is_done, RunPlan(c, convolution, tensors, [&]() -> absl::Status {
                     if (!padding.is_needed) return absl::OkStatus();
                     return mover_.Embed(c, padding.Axes(s), nullptr, images, padded);
                   }));
  if (is_done) RETURN_IF_ERROR(MoveFilter(c, s, moved, dw, /*to_cudnn=*/false));
  return is_done;
}

}  // namespace muster
