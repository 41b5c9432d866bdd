// Moving elements on a card: strided_copy.cu and fill.cu.
#pragma once

#include <array>

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/indexing/mover.h"

namespace muster {

// Tensors filled with one element. A member of the kernel that uses it.
class GpuFiller {
 public:
  explicit GpuFiller(GpuKernel& kernel) : fill_(kernel, "indexing/fill.cu", "FillBytes") {}
  // As Mover::Fill.
  absl::Status Fill(const Tensor& value, Tensor& to) const;

 private:
  const GpuFunction fill_;
};

// A member of the kernel that uses it, for elements of the size of `dtype`.
class GpuMover : public Mover {
 public:
  GpuMover(GpuKernel& kernel, DType dtype);

  using Mover::Copy;
  absl::Status Copy(const KernelContext& c, DType dtype,
                    std::vector<BoxCopy> copies) const override;
  absl::Status CopyAll(const Tensor& from, Tensor& to) const override;
  absl::Status Zero(Tensor& to) const override;
  absl::Status Fill(const KernelContext&, const Tensor& value, Tensor& to) const override {
    return filler_.Fill(value, to);
  }

 private:
  // Of elements, and of 16 bytes at once where neighbours make them up.
  using Functions = std::array<const GpuFunction, 2>;
  static absl::Status CopySmall(absl::Span<const BoxCopy> copies, const GpuFunction& function);
  absl::Status CopyTiles(const BoxCopy& copy, int row) const;

  const size_t element_bytes_;
  const Functions box_;
  const Functions boxes_;
  const GpuFunction tiles_;
  const GpuFiller filler_;
};

// For ops that embed tensors: in one go, without filling the result first.
class GpuEmbedder : public GpuMover {
 public:
  GpuEmbedder(GpuKernel& kernel, DType dtype);
  absl::Status Embed(const KernelContext& c, absl::Span<const EmbeddedAxis> axes,
                     const Tensor* value, const Tensor& from, Tensor& to) const override;

 private:
  const std::array<const GpuFunction, 2> embed_;  // of elements, and of 16 bytes at once
};

template <typename Op, typename M = GpuMover>
class GpuMoving : public GpuKernel {
 public:
  explicit GpuMoving(DType dtype) : mover_(*this, dtype) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return op_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override { return op_.Run(c, mover_); }

 private:
  Op op_;
  const M mover_;
};
template <typename Op, typename M = GpuMover>
KernelFactory MovesOnGpu(DType dtype) {
  return [dtype] { return std::make_unique<GpuMoving<Op, M>>(dtype); };
}

// The floating-point types, and more.
std::vector<DType> GpuFloatsAnd(std::initializer_list<DType> more);

}  // namespace muster
