// Shapes: Shape is fully known, PartialShape may lack dimensions or the rank.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster {

using Dims = absl::InlinedVector<int64_t, 4>;

// A known shape whose number of elements fits into int64. A cheap value.
class Shape {
 public:
  static constexpr int kMaxRank = 254;

  Shape() = default;  // a scalar
  // Requires: sizes that are valid by construction (known non-negative, product fits). Input goes
  // through Make.
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(absl::Span<const int64_t> dims);
  // InvalidArgument for negative sizes, ranks over kMaxRank and products that overflow.
  static absl::StatusOr<Shape> Make(absl::Span<const int64_t> dims);

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t dim(int i) const { return dims_[i]; }
  int64_t operator[](int i) const { return dims_[i]; }
  const Dims& dims() const { return dims_; }
  int64_t num_elements() const { return num_elements_; }
  bool is_scalar() const { return dims_.empty(); }
  bool is_vector() const { return dims_.size() == 1; }
  bool is_matrix() const { return dims_.size() == 2; }

  void Append(int64_t size);
  void Insert(int at, int64_t size);
  void Remove(int at);
  void Set(int at, int64_t size);
  // Product of the dims [begin, end).
  int64_t ElementsIn(int begin, int end) const;

  std::string ToString() const;  // "[2,3]"
  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  void Count();
  Dims dims_;
  int64_t num_elements_ = 1;
};

// a * b, or nothing on overflow (both non-negative).
std::optional<int64_t> MultiplyWithoutOverflow(int64_t a, int64_t b);

// Unknown rank, or dims of which -1 is unknown.
class PartialShape {
 public:
  PartialShape() : known_rank_(false) {}  // unknown rank
  PartialShape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit PartialShape(Dims dims) : dims_(std::move(dims)) {}
  PartialShape(const Shape& shape) : dims_(shape.dims()) {}  // NOLINT(google-explicit-constructor)
  static PartialShape OfRank(int rank) { return PartialShape(Dims(rank, -1)); }
  static PartialShape Scalar() { return PartialShape(Dims()); }
  static PartialShape Vector(int64_t size) { return PartialShape({size}); }
  static PartialShape Matrix(int64_t rows, int64_t columns) {
    return PartialShape({rows, columns});
  }
  // InvalidArgument for sizes below -1, too many dims, overflowing products of the known ones.
  static absl::StatusOr<PartialShape> Make(absl::Span<const int64_t> dims);

  bool known_rank() const { return known_rank_; }
  int rank() const { return known_rank_ ? static_cast<int>(dims_.size()) : -1; }
  int64_t dim(int i) const { return dims_[i]; }
  int64_t operator[](int i) const { return dims_[i]; }
  const Dims& dims() const { return dims_; }
  void Set(int i, int64_t size) { dims_[i] = size; }
  void Append(int64_t size) { dims_.push_back(size); }
  bool fully_known() const;
  std::optional<Shape> ToShape() const;
  // -1 when not fully known.
  int64_t num_elements() const;
  bool CompatibleWith(const PartialShape& other) const;
  bool CompatibleWith(const Shape& shape) const;
  // The information of both; InvalidArgument when they contradict each other.
  absl::StatusOr<PartialShape> Merge(const PartialShape& other) const;

  std::string ToString() const;  // "[?,3]", "<unknown>"
  friend bool operator==(const PartialShape& a, const PartialShape& b) {
    return a.known_rank_ == b.known_rank_ && a.dims_ == b.dims_;
  }

 private:
  bool known_rank_ = true;
  Dims dims_;
};

}  // namespace muster
