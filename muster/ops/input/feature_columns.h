// What parsing Examples is asked for, column by column, and how columns become tensors. Parsing
// goes twice over a batch: first every wanted feature is found, checked and counted; then its
// values are copied to where they belong.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

#include "muster/ops/input/example_wire.h"
#include "muster/ops/op.h"

namespace muster {

// A column of equal shape in every example. A first dimension of -1 varies and is padded.
struct DenseColumn {
  std::string key;
  DType type = DType::kInvalid;
  PartialShape shape;
  bool varies = false;
  int64_t stride = 1;  // elements, or elements per step where the length varies
  Tensor fallback;     // no elements: the feature is required
};
// A column of any number of values: sparse or ragged.
struct ListColumn {
  std::string key;
  DType type = DType::kInvalid;
};

// InvalidArgument for shapes whose inner dimensions are unknown and for unequal list lengths.
absl::StatusOr<std::vector<DenseColumn>> MakeDenseColumns(absl::Span<const DType> types,
                                                          absl::Span<const PartialShape> shapes);
absl::StatusOr<std::vector<ListColumn>> MakeListColumns(absl::Span<const DType> types);
// Checks the default value of column `d` and takes it.
absl::Status SetFallback(std::vector<DenseColumn>& columns, int d, const Tensor& fallback);

// A wanted feature of one example.
struct FoundFeature {
  FeatureView feature;
  int64_t count = 0;
  bool present = false;
};

// The examples of one batch, or a single one: where every wanted feature is.
class FeatureBatch {
 public:
  struct Columns {
    absl::Span<const DenseColumn> dense;
    absl::Span<const ListColumn> sparse;
    absl::Span<const ListColumn> ragged;
    int size() const { return static_cast<int>(dense.size() + sparse.size() + ragged.size()); }
  };
  // Reads one serialized message into its features; false where it cannot.
  using ReadMessage = bool (*)(absl::string_view bytes, std::vector<NamedFeature>& features);

  // `names` may be empty; it only serves error texts. A batch that is not `batched` is one example
  // whose outputs lack the first dimension.
  FeatureBatch(Columns columns, bool batched) : columns_(columns), batched_(batched) {}
  absl::Status Find(KernelContext& c, absl::Span<const std::string> serialized,
                    absl::Span<const std::string> names, ReadMessage read);

  absl::Status EmitDense(KernelContext& c, int column, int output) const;
  absl::Status EmitSparse(KernelContext& c, int column, int indices, int values, int shape) const;
  absl::Status EmitRagged(KernelContext& c, int column, int values, int splits) const;

 private:
  absl::Status FindIn(absl::string_view serialized, const std::string& name, int64_t example,
                      ReadMessage read);
  absl::Status Accept(const NamedFeature& named, int column, const std::string& example) const;
  absl::Status CheckCount(const DenseColumn& column, int64_t count,
                          const std::string& example) const;
  absl::Span<const FoundFeature> Column(int column) const {
    return absl::Span<const FoundFeature>(found_).subspan(column * num_examples_, num_examples_);
  }
  int sparse_column(int i) const { return static_cast<int>(columns_.dense.size()) + i; }
  int ragged_column(int i) const {
    return static_cast<int>(columns_.dense.size() + columns_.sparse.size()) + i;
  }

  const Columns columns_;
  const bool batched_;
  int64_t num_examples_ = 0;
  absl::flat_hash_map<absl::string_view, std::vector<int>> by_key_;
  std::vector<FoundFeature> found_;  // column by column
};

// Calls `body` with a T of the C++ type behind string, float or int64.
template <typename Body>
void ForValueType(DType dtype, Body body) {
  if (dtype == DType::kString) body(std::string());
  if (dtype == DType::kFloat) body(float());
  if (dtype == DType::kInt64) body(int64_t());
}

}  // namespace muster
