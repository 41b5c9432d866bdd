#include "muster/ops/input/feature_lists.h"

#include <algorithm>
#include <numeric>

namespace muster {
namespace {

const char* ListWord(DType dtype) {
  return dtype == DType::kString  ? "bytes_list"
         : dtype == DType::kFloat ? "float_list"
                                  : "int64_list";
}

}  // namespace

absl::StatusOr<std::vector<StepColumn>> MakeStepColumns(absl::Span<const DType> types,
                                                        absl::Span<const PartialShape> shapes) {
  if (types.size() != shapes.size())
    return InvalidArgument("len(feature_list_dense_keys) != len(feature_list_dense_shapes)");
  std::vector<StepColumn> columns;
  for (size_t i = 0; i < types.size(); ++i) {
    const std::optional<Shape> shape = shapes[i].ToShape();
    if (!shape) {
      return InvalidArgument("feature_list_dense_shapes[", i,
                             "] is not fully known: ", shapes[i].ToString());
    }
    columns.push_back({"", types[i], *shape});
  }
  return columns;
}

int64_t FoundSteps::Total() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t FoundSteps::Longest() const {
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

const std::vector<FeatureView>* FeatureLists::Find(const std::string& key) const {
  for (auto list = lists_.rbegin(); list != lists_.rend(); ++list) {
    if (list->name == key) return &list->steps;
  }
  return nullptr;
}

absl::StatusOr<FoundSteps> FeatureLists::Count(const StepColumn& column,
                                               const std::vector<FeatureView>& steps) const {
  FoundSteps found{steps, {}};
  for (size_t t = 0; t < steps.size(); ++t) {
    if (steps[t].type != DType::kInvalid && steps[t].type != column.type) {
      return InvalidArgument("Name: ", name_, ", Feature list: ", column.key, ", Index: ", t,
                             ".  Data types don't match. Expected type: ", DTypeName(column.type),
                             "  Feature is: ", ListWord(steps[t].type));
    }
    const std::optional<int64_t> count = CountValues(steps[t]);
    if (!count) {
      return InvalidArgument("Name: ", name_, ", Feature list: ", column.key, ", Index: ", t,
                             ".  Can't parse serialized Example.");
    }
    found.counts.push_back(*count);
  }
  return found;
}

absl::StatusOr<FoundSteps> FeatureLists::FindSparse(const StepColumn& column) const {
  const std::vector<FeatureView>* steps = Find(column.key);
  if (steps == nullptr) return FoundSteps();
  return Count(column, *steps);
}

absl::StatusOr<FoundSteps> FeatureLists::FindDense(const StepColumn& column, bool may_miss) const {
  const std::vector<FeatureView>* steps = Find(column.key);
  if (steps == nullptr) {
    if (may_miss) return FoundSteps();
    return InvalidArgument("Name: ", name_, ", Feature list '", column.key,
                           "' is required but could not be found.  Did you mean to include it in "
                           "feature_list_dense_missing_assumed_empty or "
                           "feature_list_dense_defaults?");
  }
  ASSIGN_OR_RETURN(FoundSteps found, Count(column, *steps));
  for (size_t t = 0; t < found.counts.size(); ++t) {
    if (found.counts[t] == column.shape.num_elements()) continue;
    return InvalidArgument("Name: ", name_, ", Key: ", column.key, ", Index: ", t, ".  Number of ",
                           DTypeName(column.type),
                           " values != expected.  values size: ", found.counts[t],
                           " but output shape: ", column.shape.ToString());
  }
  return found;
}

bool ReadContext(absl::string_view bytes, std::vector<NamedFeature>& features) {
  std::vector<NamedFeatureList> ignored;
  return ReadSequenceExample(bytes, features, ignored);
}

}  // namespace muster
