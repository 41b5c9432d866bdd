#include "muster/ops/control/tensor_list.h"

#include <utility>

namespace muster {

TensorList::TensorList(DType dtype, PartialShape shape, int64_t max_size, std::vector<Tensor> items)
    : dtype_(dtype),
      shape_(std::move(shape)),
      max_size_(max_size),
      shared_(std::make_shared<Shared>()),
      size_(static_cast<int64_t>(items.size())) {
  MutexLock lock(shared_->mutex);
  shared_->items = std::move(items);
}

TensorList::TensorList(const TensorList& like, std::shared_ptr<Shared> shared, int64_t size)
    : dtype_(like.dtype_),
      shape_(like.shape_),
      max_size_(like.max_size_),
      shared_(std::move(shared)),
      size_(size) {}

Tensor TensorList::item(int64_t i) const {
  MutexLock lock(shared_->mutex);
  return shared_->items[i];
}

std::vector<Tensor> TensorList::items() const {
  MutexLock lock(shared_->mutex);
  return {shared_->items.begin(), shared_->items.begin() + size_};
}

std::shared_ptr<const TensorList> TensorList::WithItems(std::vector<Tensor> items) const {
  return std::make_shared<TensorList>(dtype_, shape_, max_size_, std::move(items));
}

std::shared_ptr<const TensorList> TensorList::WithPushed(Tensor item) const {
  {
    MutexLock lock(shared_->mutex);
    // The first list that grows does so in place.
    if (static_cast<int64_t>(shared_->items.size()) == size_) {
      shared_->items.push_back(std::move(item));
      return std::shared_ptr<const TensorList>(new TensorList(*this, shared_, size_ + 1));
    }
  }
  std::vector<Tensor> copy = items();
  copy.push_back(std::move(item));
  return WithItems(std::move(copy));
}

std::shared_ptr<const TensorList> TensorList::WithoutLast() const {
  return std::shared_ptr<const TensorList>(new TensorList(*this, shared_, size_ - 1));
}

std::shared_ptr<const TensorList> TensorList::WithItem(int64_t i, Tensor item,
                                                       bool may_reuse) const {
  // The caller holds one reference to the list, the variant another.
  if (may_reuse && weak_from_this().use_count() <= 2 && shared_.use_count() == 1) {
    MutexLock lock(shared_->mutex);
    shared_->items[i] = std::move(item);
    return shared_from_this();
  }
  std::vector<Tensor> copy = items();
  copy[i] = std::move(item);
  return WithItems(std::move(copy));
}

absl::StatusOr<std::shared_ptr<const TensorList>> ListIn(const Tensor& handle) {
  if (handle.rank() != 0) {
    return InvalidArgument("Input list must be a scalar. Found: ", handle.shape().ToString());
  }
  const TensorList* const list = handle.scalar<Variant>().get<TensorList>();
  if (list == nullptr) return InvalidArgument("Input handle is not a list.");
  return list->shared_from_this();
}

Tensor HandleOf(std::shared_ptr<const TensorList> list) {
  return Tensor::Scalar(Variant(std::move(list)));
}

absl::StatusOr<PartialShape> ShapeIn(const Tensor& tensor) {
  ASSIGN_OR_RETURN(const Dims dims, IntegerValues(tensor));
  if (tensor.rank() == 0) {
    if (dims[0] == -1) return PartialShape();
    return InvalidArgument(
        "The only valid scalar shape tensor is the fully unknown shape specified as -1.");
  }
  if (tensor.rank() != 1)
    return InvalidArgument("Shape must be at most rank 1 but is rank ", tensor.rank());
  if (dims.size() > Shape::kMaxRank)
    return InvalidArgument("A shape has at most ", Shape::kMaxRank, " sizes, got ", dims.size());
  for (int64_t dim : dims) {
    if (dim < -1) return InvalidArgument("Dimension ", dim, " must be >= -1");
  }
  return PartialShape(dims);
}

absl::StatusOr<PartialShape> MergeElementShapes(const PartialShape& a, const PartialShape& b) {
  if (a.known_rank() && b.known_rank() && a.rank() != b.rank()) {
    return InvalidArgument("Incompatible ranks during merge: ", a.rank(), " vs. ", b.rank());
  }
  absl::StatusOr<PartialShape> merged = a.Merge(b);
  if (!merged.ok()) {
    return InvalidArgument("Incompatible shapes during merge: ", a.ToString(), " vs. ",
                           b.ToString());
  }
  return merged;
}

std::vector<DType> GpuListTypes(std::initializer_list<DType> more) {
  std::vector<DType> dtypes = {DType::kHalf,      DType::kBfloat16,  DType::kFloat,
                               DType::kDouble,    DType::kInt32,     DType::kInt64,
                               DType::kComplex64, DType::kComplex128};
  dtypes.insert(dtypes.end(), more);
  return dtypes;
}

}  // namespace muster
