// Lists of tensors as values, held by variant tensors: what loops of TensorFlow 2 collect their
// results and intermediate values in.
#pragma once

#include <memory>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/ops/op.h"

namespace muster {

// Immutable for its holders, and cheap to copy: lists derived from each other share their items.
// Thread-safe.
class TensorList : public std::enable_shared_from_this<TensorList> {
 public:
  TensorList(DType dtype, PartialShape shape, int64_t max_size, std::vector<Tensor> items);

  DType dtype() const { return dtype_; }
  const PartialShape& shape() const { return shape_; }  // of an element
  int64_t max_size() const { return max_size_; }        // -1: no limit
  int64_t size() const { return size_; }
  // A tensor that is not valid stands for zeros. Requires: 0 <= i < size().
  Tensor item(int64_t i) const;
  std::vector<Tensor> items() const;

  std::shared_ptr<const TensorList> WithPushed(Tensor item) const;
  std::shared_ptr<const TensorList> WithoutLast() const;
  // `may_reuse`: the variant that held the list has no other owner.
  std::shared_ptr<const TensorList> WithItem(int64_t i, Tensor item, bool may_reuse) const;
  std::shared_ptr<const TensorList> WithItems(std::vector<Tensor> items) const;

 private:
  // Items of several lists, of which each sees the first few.
  struct Shared {
    Mutex mutex;
    std::vector<Tensor> items ABSL_GUARDED_BY(mutex);
  };
  TensorList(const TensorList& like, std::shared_ptr<Shared> shared, int64_t size);

  DType dtype_;
  PartialShape shape_;
  int64_t max_size_;
  std::shared_ptr<Shared> shared_;
  int64_t size_;
};

// The list in a scalar variant; InvalidArgument otherwise.
absl::StatusOr<std::shared_ptr<const TensorList>> ListIn(const Tensor& handle);
Tensor HandleOf(std::shared_ptr<const TensorList> list);

// A shape given as a tensor: a vector with -1 for unknown sizes, or the scalar -1.
absl::StatusOr<PartialShape> ShapeIn(const Tensor& tensor);

// The shape that both allow, for elements; InvalidArgument with both otherwise.
absl::StatusOr<PartialShape> MergeElementShapes(const PartialShape& a, const PartialShape& b);

// Types of elements that GPUs have, in the card's memory (int32 too), with `more`.
std::vector<DType> GpuListTypes(std::initializer_list<DType> more);

// No list is made longer than this before its elements are there.
inline constexpr int64_t kMostListElements = int64_t{1} << 22;

}  // namespace muster
