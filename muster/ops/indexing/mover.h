// How ops that only move elements reach them. The code of such an op is one class for all devices:
//
//   class Pack {
//    public:
//     absl::Status Init(KernelSetup& setup);                           // reads attributes
//     absl::Status Run(KernelContext& c, const Mover& mover) const;  // checks, allocates, moves
//   };
//
// or one function, MoveBy<Concat>. It is registered with .CpuDTypes(..., MovesOnHost<Pack>()) and
// .GpuTypes(..., MovesOnGpu<Pack>) of gpu_mover.h.
#pragma once

#include <memory>
#include <vector>

#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/op.h"

namespace muster {

struct BoxCopy {
  StridedBox box;
  const char* from;
  char* to;
};

// A dimension of a tensor in which another one is embedded: element i of the inner one is at
// first + i * step, for `count` of them, where `step` may be negative.
struct EmbeddedAxis {
  int64_t size, first, step, count;
};

// Where `Embed` puts the inner tensor.
StridedBox EmbeddedBox(absl::Span<const EmbeddedAxis> axes);

// In the memory of the kernel's device; on a GPU all that it does is done later.
class Mover {
 public:
  virtual ~Mover() = default;
  // Each as CopyBox does it; no two of them write to the same place.
  virtual absl::Status Copy(const KernelContext& c, DType dtype,
                            std::vector<BoxCopy> copies) const = 0;
  // All elements. Requires: same type and size.
  virtual absl::Status CopyAll(const Tensor& from, Tensor& to) const = 0;
  virtual absl::Status Zero(Tensor& to) const = 0;
  // Copies of the one element of `value`, which may also be in host memory.
  virtual absl::Status Fill(const KernelContext& c, const Tensor& value, Tensor& to) const = 0;

  // All of `to`: `from`, which is dense, embedded along `axes`, and around it copies of the one
  // element of `value`, or zeros where that is null.
  virtual absl::Status Embed(const KernelContext& c, absl::Span<const EmbeddedAxis> axes,
                             const Tensor* value, const Tensor& from, Tensor& to) const {
    RETURN_IF_ERROR(value != nullptr ? Fill(c, *value, to) : Zero(to));
    return Copy(c, EmbeddedBox(axes), from, to);
  }

  absl::Status Copy(const KernelContext& c, StridedBox box, const Tensor& from, Tensor& to) const {
    std::vector<BoxCopy> copies;
    copies.push_back({std::move(box), from.raw(), to.raw()});
    return Copy(c, from.dtype(), std::move(copies));
  }
};

class HostMover : public Mover {
 public:
  using Mover::Copy;
  absl::Status Copy(const KernelContext& c, DType dtype,
                    std::vector<BoxCopy> copies) const override {
    for (BoxCopy& copy : copies) CopyBox(c, dtype, std::move(copy.box), copy.from, copy.to);
    return absl::OkStatus();
  }
  absl::Status CopyAll(const Tensor& from, Tensor& to) const override {
    if (from.num_elements() > 0)
      CopyElements(from.dtype(), from.raw(), to.raw(), from.num_elements());
    return absl::OkStatus();
  }
  absl::Status Zero(Tensor& to) const override {
    ZeroElements(to.dtype(), to.raw(), to.num_elements());
    return absl::OkStatus();
  }
  absl::Status Fill(const KernelContext& c, const Tensor& value, Tensor& to) const override {
    FillElements(c, to.dtype(), value.raw(), to.raw(), to.num_elements());
    return absl::OkStatus();
  }
};

template <absl::Status (*kRun)(KernelContext&, const Mover&)>
struct MoveBy {
  static absl::Status Init(KernelSetup&) { return absl::OkStatus(); }
  static absl::Status Run(KernelContext& c, const Mover& mover) { return kRun(c, mover); }
};

template <typename Op>
class HostMoving : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return op_.Init(setup); }
  absl::Status Compute(KernelContext& c) override { return op_.Run(c, HostMover()); }

 private:
  Op op_;
};
template <typename Op>
KernelFactory MovesOnHost() {
  return New<HostMoving<Op>>();
}

}  // namespace muster
