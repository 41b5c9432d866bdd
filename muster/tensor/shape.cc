#include "muster/tensor/shape.h"

#include "absl/strings/str_join.h"

#include "muster/base/check.h"
#include "muster/base/status.h"

namespace muster {

std::optional<int64_t> MultiplyWithoutOverflow(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

Shape::Shape(std::initializer_list<int64_t> dims) : dims_(dims) {
  Count();
}
Shape::Shape(absl::Span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {
  Count();
}

absl::StatusOr<Shape> Shape::Make(absl::Span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    return InvalidArgument("Shape has ", dims.size(), " dimensions; at most ", kMaxRank,
                           " are possible");
  }
  int64_t count = 1;
  bool has_zero = false;
  for (int64_t size : dims) {
    if (size < 0) return InvalidArgument("Dimension ", size, " must be >= 0");
    if (size == 0) {
      has_zero = true;
      continue;
    }
    const std::optional<int64_t> product = MultiplyWithoutOverflow(count, size);
    if (!product)
      return InvalidArgument("Encountered overflow when multiplying ", count, " with ", size,
                             ": shape [", absl::StrJoin(dims, ","),
                             "] would have more than 2**63 - 1 elements");
    count = *product;
  }
  Shape shape;
  shape.dims_.assign(dims.begin(), dims.end());
  shape.num_elements_ = has_zero ? 0 : count;
  return shape;
}

void Shape::Count() {
  num_elements_ = 1;
  for (int64_t size : dims_) num_elements_ *= size;
  DCHECK(num_elements_ >= 0);
}

void Shape::Append(int64_t size) {
  dims_.push_back(size);
  num_elements_ *= size;
}
void Shape::Insert(int at, int64_t size) {
  dims_.insert(dims_.begin() + at, size);
  Count();
}
void Shape::Remove(int at) {
  dims_.erase(dims_.begin() + at);
  Count();
}
void Shape::Set(int at, int64_t size) {
  dims_[at] = size;
  Count();
}

int64_t Shape::ElementsIn(int begin, int end) const {
  int64_t count = 1;
  for (int i = begin; i < end; ++i) count *= dims_[i];
  return count;
}

std::string Shape::ToString() const {
  return absl::StrCat("[", absl::StrJoin(dims_, ","), "]");
}

absl::StatusOr<PartialShape> PartialShape::Make(absl::Span<const int64_t> dims) {
  if (dims.size() > Shape::kMaxRank) {
    return InvalidArgument("Shape has ", dims.size(), " dimensions; at most ", Shape::kMaxRank,
                           " are possible");
  }
  int64_t count = 1;
  for (int64_t size : dims) {
    if (size < -1) return InvalidArgument("Dimension ", size, " must be >= 0, or -1 for unknown");
    if (size <= 0) continue;
    const std::optional<int64_t> product = MultiplyWithoutOverflow(count, size);
    if (!product)
      return InvalidArgument("Encountered overflow when multiplying ", count, " with ", size,
                             ": shape [", absl::StrJoin(dims, ","),
                             "] would have more than 2**63 - 1 elements");
    count = *product;
  }
  return PartialShape(Dims(dims.begin(), dims.end()));
}

bool PartialShape::fully_known() const {
  if (!known_rank_) return false;
  for (int64_t size : dims_) {
    if (size < 0) return false;
  }
  return true;
}

std::optional<Shape> PartialShape::ToShape() const {
  if (!fully_known()) return std::nullopt;
  absl::StatusOr<Shape> shape = Shape::Make(dims_);
  if (!shape.ok()) return std::nullopt;
  return *std::move(shape);
}

int64_t PartialShape::num_elements() const {
  const std::optional<Shape> shape = ToShape();
  return shape ? shape->num_elements() : -1;
}

bool PartialShape::CompatibleWith(const Shape& shape) const {
  if (!known_rank_) return true;
  if (rank() != shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (dims_[i] >= 0 && dims_[i] != shape[i]) return false;
  }
  return true;
}

bool PartialShape::CompatibleWith(const PartialShape& other) const {
  if (!known_rank_ || !other.known_rank_) return true;
  if (dims_.size() != other.dims_.size()) return false;
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i] >= 0 && other.dims_[i] >= 0 && dims_[i] != other.dims_[i]) return false;
  }
  return true;
}

absl::StatusOr<PartialShape> PartialShape::Merge(const PartialShape& other) const {
  if (!known_rank_) return other;
  if (!other.known_rank_) return *this;
  if (rank() != other.rank()) {
    return InvalidArgument("Shapes must be equal rank, but are ", rank(), " and ", other.rank());
  }
  Dims merged = dims_;
  for (size_t i = 0; i < merged.size(); ++i) {
    if (merged[i] < 0) {
      merged[i] = other.dims_[i];
    } else if (other.dims_[i] >= 0 && other.dims_[i] != merged[i]) {
      return InvalidArgument("Dimension ", i, " in both shapes must be equal, but are ", merged[i],
                             " and ", other.dims_[i], ". Shapes are ", ToString(), " and ",
                             other.ToString(), ".");
    }
  }
  return PartialShape(std::move(merged));
}

std::string PartialShape::ToString() const {
  if (!known_rank_) return "<unknown>";
  return absl::StrCat("[",
                      absl::StrJoin(dims_, ",",
                                    [](std::string* out, int64_t size) {
                                      size < 0 ? absl::StrAppend(out, "?")
                                               : absl::StrAppend(out, size);
                                    }),
                      "]");
}

}  // namespace muster
