#include "muster/runtime/kernel.h"

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

class StatelessKernel : public Kernel {
 public:
  explicit StatelessKernel(KernelFunction function) : function_(function) {}
  absl::Status Compute(KernelContext& c) override { return function_(c); }

 private:
  KernelFunction function_;
};

}  // namespace

KernelFactory Stateless(KernelFunction function) {
  return [function] { return std::make_unique<StatelessKernel>(function); };
}

absl::StatusOr<Tensor*> KernelContext::AllocateOutput(int i, const Shape& shape) {
  const bool on_host = IsHostOutput(i) || !IsPlainData(output_type(i));
  Allocator& allocator = on_host ? device_.host_allocator() : device_.allocator();
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(output_type(i), shape, allocator));
  outputs_[i].tensor = std::move(tensor);
  outputs_[i].state = Entry::State::kValue;
  return &outputs_[i].tensor;
}

absl::StatusOr<Tensor*> KernelContext::ForwardOrAllocate(std::initializer_list<int> inputs, int i,
                                                         const Shape& shape) {
  for (int input : inputs) {
    Entry& entry = inputs_[input];
    if (entry.tensor.dtype() == output_type(i) &&
        entry.tensor.num_elements() == shape.num_elements() && !entry.reference &&
        entry.tensor.exclusive() &&
        (host_outputs_ == nullptr || IsInDeviceMemory(entry.tensor) != IsHostOutput(i))) {
      // The input stays readable (same memory) until the kernel returns.
      outputs_[i].tensor =
          entry.tensor.shape() == shape ? entry.tensor : entry.tensor.Reshaped(shape);
      outputs_[i].state = Entry::State::kValue;
      return &outputs_[i].tensor;
    }
  }
  return AllocateOutput(i, shape);
}

absl::StatusOr<Tensor> KernelContext::AllocateTemporary(DType dtype, const Shape& shape) {
  return Tensor::Make(dtype, shape,
                      IsPlainData(dtype) ? device_.allocator() : device_.host_allocator());
}

void KernelContext::SetOutput(int i, Tensor tensor) {
  outputs_[i].tensor = std::move(tensor);
  outputs_[i].state = Entry::State::kValue;
}

void KernelContext::SetOutputReference(int i, RefPtr<Variable> variable) {
  outputs_[i].reference = std::move(variable);
  outputs_[i].state = Entry::State::kReference;
}

std::string KernelContext::frame_and_iteration() const {
  return absl::StrCat(frame_id_, ":", iteration_);
}

}  // namespace muster
