// The lists of features of one SequenceExample: columns whose first dimension is time.
#pragma once

#include <string>
#include <vector>

#include "muster/ops/input/feature_columns.h"

namespace muster {

struct StepColumn {
  std::string key;
  DType type = DType::kInvalid;
  Shape shape;  // of one step; dense columns only
};

// InvalidArgument for shapes that are not fully known and for unequal list lengths.
absl::StatusOr<std::vector<StepColumn>> MakeStepColumns(absl::Span<const DType> types,
                                                        absl::Span<const PartialShape> shapes);

// The steps of one wanted list, found, checked and counted.
struct FoundSteps {
  std::vector<FeatureView> steps;
  std::vector<int64_t> counts;  // values per step; steps that hold nothing have none

  int64_t size() const { return static_cast<int64_t>(steps.size()); }
  int64_t Total() const;
  int64_t Longest() const;
  // Writes all values one after another. Requires: room for Total() values of the column's type.
  template <typename T>
  void CopyTo(T* to) const {
    for (size_t t = 0; t < steps.size(); ++t) {
      if (counts[t] > 0) CopyValues(steps[t], to);
      to += counts[t];
    }
  }
};

class FeatureLists {
 public:
  // `name` serves error texts. The bytes behind `lists` must outlive this.
  FeatureLists(std::string name, std::vector<NamedFeatureList> lists)
      : name_(std::move(name)), lists_(std::move(lists)) {}

  // No steps when the message has no such list.
  absl::StatusOr<FoundSteps> FindSparse(const StepColumn& column) const;
  // Every step has the column's shape; a list that is not there is an error unless it `may_miss`.
  absl::StatusOr<FoundSteps> FindDense(const StepColumn& column, bool may_miss) const;

 private:
  const std::vector<FeatureView>* Find(const std::string& key) const;
  absl::StatusOr<FoundSteps> Count(const StepColumn& column,
                                   const std::vector<FeatureView>& steps) const;

  const std::string name_;
  const std::vector<NamedFeatureList> lists_;
};

// Reads the context of a serialized SequenceExample.
bool ReadContext(absl::string_view bytes, std::vector<NamedFeature>& features);

}  // namespace muster
