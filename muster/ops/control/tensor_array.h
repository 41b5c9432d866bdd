// An array of tensors that lives for one step. Its gradient is another such array, in which writes
// to one index add.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/runtime/kernel.h"

namespace muster {

// Thread-safe.
class TensorArray : public Resource {
 public:
  struct Options {
    std::string name;
    DType dtype = DType::kInvalid;
    PartialShape element_shape;
    bool identical_shapes = false;
    bool dynamic_size = false;
    bool clear_after_read = true;
    bool is_gradient = false;  // writes to the same index add up
  };
  TensorArray(Options options, int64_t size)
      : options_(std::move(options)), element_shape_(options_.element_shape) {
    elements_.resize(size);
  }

  // Sizes and indices come from input, and an array grows to the largest index that is written.
  static constexpr int64_t kMaxSize = int64_t{1} << 22;
  static constexpr const char* kContainer = "_tensor_arrays";
  static constexpr const char* kGradientContainer = "_tensor_array_grads";

  const std::string& name() const { return options_.name; }
  DType dtype() const { return options_.dtype; }
  bool dynamic_size() const { return options_.dynamic_size; }
  bool is_gradient() const { return options_.is_gradient; }
  std::string Describe() const override { return "TensorArray"; }

  // Of these, `c` is the kernel that does it; elements are in the memory of its device.
  absl::Status Write(KernelContext& c, int64_t index, Tensor value);
  // Element i of `indices` gets element i of `values`.
  absl::Status WriteMany(KernelContext& c, absl::Span<const int64_t> indices,
                         std::vector<Tensor> values);
  absl::StatusOr<Tensor> Read(KernelContext& c, int64_t index);
  absl::StatusOr<std::vector<Tensor>> ReadMany(KernelContext& c, absl::Span<const int64_t> indices);

  absl::StatusOr<int64_t> Size() const;
  // How many elements Concat joins: all, or in a gradient those that the forward array was split
  // into.
  absl::StatusOr<int64_t> ConcatSize() const;
  void SetMarkedSize(int64_t size);
  void Close();

  // A new array for the gradient, with zeros of the right shapes for elements that are not written.
  absl::StatusOr<RefPtr<TensorArray>> MakeGradient(
      std::string name, absl::Span<const int64_t> shape_to_prepend) const;

 private:
  struct Element {
    Tensor value;
    std::optional<Shape> shape;  // known although nothing was written: reads as zeros
    bool written = false;
    bool read = false;
    bool cleared = false;
    bool own = false;  // value is a sum without another owner
  };

  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteLocked(KernelContext& c, int64_t index, Tensor value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddLocked(KernelContext& c, Element& element, const Tensor& value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Tensor> ReadLocked(KernelContext& c, int64_t index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  PartialShape element_shape_ ABSL_GUARDED_BY(mutex_);
  std::vector<Element> elements_ ABSL_GUARDED_BY(mutex_);
  int64_t marked_size_ ABSL_GUARDED_BY(mutex_) = -1;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster
