// Distinct elements in the order of their first occurrence: Unique*, and ListDiff.
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

// What is hashed and compared: == of the element, so that -0 equals 0 and NaN equals nothing.
template <typename T>
auto Key(const T& value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return static_cast<float>(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return absl::string_view(value);
  } else {
    return value;
  }
}
// A NaN equals nothing, not even itself, which a hash table cannot handle.
template <typename T>
bool EqualsNothing(const T& value) {
  return !(Key(value) == Key(value));
}
template <typename T>
using KeyType = decltype(Key(std::declval<const T&>()));

// For every one of `count` items the number of its group, and the first item of every group.
struct Groups {
  std::vector<int64_t> of_item;
  std::vector<int64_t> first;
};

template <typename T>
Groups GroupElements(const T* values, int64_t count) {
  Groups groups;
  groups.of_item.resize(count);
  absl::flat_hash_map<KeyType<T>, int64_t> seen;
  seen.reserve(static_cast<size_t>(std::min<int64_t>(count, 1 << 20)));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t next = static_cast<int64_t>(groups.first.size());
    groups.of_item[i] =
        EqualsNothing(values[i]) ? next : seen.try_emplace(Key(values[i]), next).first->second;
    if (groups.of_item[i] == next) groups.first.push_back(i);
  }
  return groups;
}

// Items are the slices [:, i, :] of [outer, count, inner].
template <typename T>
Groups GroupSlices(const T* values, int64_t outer, int64_t count, int64_t inner) {
  const auto hash = [=](int64_t i) {
    size_t h = 0;
    for (int64_t o = 0; o < outer; ++o) {
      const T* row = values + (o * count + i) * inner;
      for (int64_t j = 0; j < inner; ++j) h = absl::HashOf(h, Key(row[j]));
    }
    return h;
  };
  const auto equal = [=](int64_t a, int64_t b) {
    for (int64_t o = 0; o < outer; ++o) {
      const T* x = values + (o * count + a) * inner;
      const T* y = values + (o * count + b) * inner;
      for (int64_t j = 0; j < inner; ++j) {
        if (!(Key(x[j]) == Key(y[j]))) return false;
      }
    }
    return true;
  };
  Groups groups;
  groups.of_item.resize(count);
  absl::flat_hash_map<int64_t, int64_t, decltype(hash), decltype(equal)> seen(0, hash, equal);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t next = static_cast<int64_t>(groups.first.size());
    groups.of_item[i] = equal(i, i) ? seen.try_emplace(i, next).first->second : next;
    if (groups.of_item[i] == next) groups.first.push_back(i);
  }
  return groups;
}

// `values` as an int32 or int64 output.
absl::Status WriteIndices(KernelContext& c, int output, absl::Span<const int64_t> values) {
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make({static_cast<int64_t>(values.size())}));
  ASSIGN_OR_RETURN(Tensor * tensor, c.AllocateOutput(output, shape));
  if (tensor->dtype() == DType::kInt64) {
    std::copy(values.begin(), values.end(), tensor->data<int64_t>());
  } else {
    int32_t* to = tensor->data<int32_t>();
    for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<int32_t>(values[i]);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status RunUnique(KernelContext& c) {
  const Tensor& input = c.input(0);
  const bool small = c.output_type(1) == DType::kInt32;
  if (small && input.num_elements() > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("unique does not support input tensors larger than ",
                           std::numeric_limits<int32_t>::max(), " elements");
  }
  int64_t axis = 0;
  if (c.num_inputs() == 1) {
    if (!input.shape().is_vector()) return InvalidArgument("unique expects a 1D vector.");
  } else {
    const Tensor& axes = c.input(1);
    if (!axes.shape().is_vector()) return InvalidArgument("axis expects a 1D vector.");
    if (axes.num_elements() > 1) {
      return InvalidArgument("axis does not support input tensors larger than 1 elements");
    }
    if (axes.num_elements() == 0) {
      if (!input.shape().is_vector()) return InvalidArgument("unique expects a 1D vector.");
    } else {
      ASSIGN_OR_RETURN(const Dims values, IntegerVector(axes, "axis"));
      axis = values[0] < 0 ? values[0] + input.rank() : values[0];
      if (axis < 0 || axis >= input.rank()) {
        return InvalidArgument("axis has to be between [0, ", input.rank(), ")");
      }
    }
  }
  const int at = static_cast<int>(axis);
  const int64_t outer = input.shape().ElementsIn(0, at);
  const int64_t count = input.dim(at);
  const int64_t inner = input.shape().ElementsIn(at + 1, input.rank());
  const T* values = input.data<T>();
  const Groups groups = outer == 1 && inner == 1 ? GroupElements(values, count)
                                                 : GroupSlices(values, outer, count, inner);
  const int64_t distinct = static_cast<int64_t>(groups.first.size());

  Shape shape = input.shape();
  shape.Set(at, distinct);
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  T* to = output->data<T>();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < distinct; ++i) {
      const T* row = values + (o * count + groups.first[i]) * inner;
      std::copy(row, row + inner, to + (o * distinct + i) * inner);
    }
  }
  RETURN_IF_ERROR(WriteIndices(c, 1, groups.of_item));
  if (c.num_outputs() < 3) return absl::OkStatus();
  std::vector<int64_t> counts(distinct, 0);
  for (int64_t group : groups.of_item) ++counts[group];
  return WriteIndices(c, 2, counts);
}

template <typename T>
absl::Status RunListDiff(KernelContext& c) {
  const Tensor& x = c.input(0);
  const Tensor& y = c.input(1);
  if (!x.shape().is_vector()) return InvalidArgument("x should be a 1D vector.");
  if (!y.shape().is_vector()) return InvalidArgument("y should be a 1D vector.");
  absl::flat_hash_set<KeyType<T>> excluded;
  excluded.reserve(y.num_elements());
  for (const T& value : y.values<T>()) {
    if (!EqualsNothing(value)) excluded.insert(Key(value));
  }
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const T& value = x.data<T>()[i];
    if (EqualsNothing(value) || !excluded.contains(Key(value))) kept.push_back(i);
  }
  if (c.output_type(1) == DType::kInt32 && x.num_elements() > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("x has ", x.num_elements(), " elements, too many for int32 indices");
  }
  ASSIGN_OR_RETURN(Tensor * output,
                   c.AllocateOutput(0, Shape({static_cast<int64_t>(kept.size())})));
  for (size_t i = 0; i < kept.size(); ++i) output->data<T>()[i] = x.data<T>()[kept[i]];
  return WriteIndices(c, 1, kept);
}

absl::Status UniqueShape(ShapeContext& c) {
  // As in TensorFlow, where UniqueWithCounts leaves it to the kernel.
  const bool has_counts = c.num_outputs() == 3;
  if (!has_counts) RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
  c.SetOutput(0, PartialShape::Vector(-1));
  c.SetOutput(1, c.input(0));
  if (has_counts) c.SetOutput(2, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status UniqueV2Shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  c.SetOutput(0, x.known_rank() ? PartialShape::OfRank(x.rank()) : PartialShape());
  c.SetOutput(1, PartialShape::Vector(-1));
  if (c.num_outputs() == 3) c.SetOutput(2, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status ListDiffShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  c.SetOutput(0, PartialShape::Vector(-1));
  c.SetOutput(1, PartialShape::Vector(-1));
  return absl::OkStatus();
}

using UniqueTypes = Join<Reals, Types<bool, std::string>>;

}  // namespace

DEFINE_OP(Unique) {
  op.Attr("T: type")
      .Attr("out_idx: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Output("y: T")
      .Output("idx: out_idx")
      .Doc(
          "The distinct elements of a vector, and for every element the place of its equal among "
          "them.")
      .Shape(UniqueShape)
      .CpuTypes<UniqueTypes>("T", []<typename T>() { return Stateless(RunUnique<T>); })
      .GpuOnHost("T", {DType::kInt32, DType::kInt64});
}

DEFINE_OP(UniqueWithCounts) {
  op.Attr("T: type")
      .Attr("out_idx: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Output("y: T")
      .Output("idx: out_idx")
      .Output("count: out_idx")
      .Doc("Unique, and how often each distinct element occurs.")
      .Shape(UniqueShape)
      .CpuTypes<UniqueTypes>("T", []<typename T>() { return Stateless(RunUnique<T>); });
}

DEFINE_OP(UniqueV2) {
  op.Attr("T: type")
      .Attr("Taxis: {int32, int64} = DT_INT64")
      .Attr("out_idx: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Input("axis: Taxis")
      .Output("y: T")
      .Output("idx: out_idx")
      .Doc(
          "The distinct slices along an axis, and for every slice the place of its equal among "
          "them.")
      .Shape(UniqueV2Shape)
      .CpuTypes<UniqueTypes>("T", []<typename T>() { return Stateless(RunUnique<T>); });
}

DEFINE_OP(UniqueWithCountsV2) {
  op.Attr("T: type")
      .Attr("Taxis: {int32, int64} = DT_INT64")
      .Attr("out_idx: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Input("axis: Taxis")
      .Output("y: T")
      .Output("idx: out_idx")
      .Output("count: out_idx")
      .Doc("UniqueV2, and how often each distinct slice occurs.")
      .Shape(UniqueV2Shape)
      .CpuTypes<UniqueTypes>("T", []<typename T>() { return Stateless(RunUnique<T>); });
}

DEFINE_OP(ListDiff) {
  op.Attr("T: type")
      .Attr("out_idx: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Input("y: T")
      .Output("out: T")
      .Output("idx: out_idx")
      .Doc("The elements of x that are not in y, in their order, and where they stood.")
      .Shape(ListDiffShape)
      .CpuTypes<Join<Reals, Types<std::string>>>(
          "T", []<typename T>() { return Stateless(RunListDiff<T>); });
}

}  // namespace muster
