// Kernels that read or write files: they may wait for a disk, so they run on threads of their own
// and leave the step's to others.
#pragma once

#include "muster/ops/op.h"

namespace muster {

class FileKernel : public Kernel {
 public:
  bool is_async() const final { return true; }
  void ComputeAsync(KernelContext& c, Done done) final {
    Threads().Schedule(
        [this, &c, done = std::move(done)]() mutable { std::move(done)(Compute(c)); });
  }

 private:
  static Scheduler& Threads();
};

template <absl::Status (*function)(KernelContext&)>
class FileFunction : public FileKernel {
 public:
  absl::Status Compute(KernelContext& c) override { return function(c); }
};

// Ranks of file names and of lists of names, as TensorFlow's shape rules ask for them.
absl::Status CheckSavedNames(ShapeContext& c, int lists, int tensors);
// Output 0 from a constant shape_and_slice, unknown otherwise.
absl::StatusOr<PartialShape> ShapeOfSlice(const std::string& shape_and_slice);

}  // namespace muster
