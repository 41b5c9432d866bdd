// ParseSequenceExample, ParseSequenceExampleV2: batches of SequenceExamples. Contexts become the
// columns that batches of Examples have; lists are padded to the longest one of the batch, or
// ragged.
#include <algorithm>

#include "muster/ops/input/feature_lists.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// The steps of one column in every example of the batch.
using FoundLists = std::vector<FoundSteps>;

int64_t MostSteps(const FoundLists& found) {
  int64_t most = 0;
  for (const FoundSteps& steps : found) most = std::max(most, steps.size());
  return most;
}

absl::Status EmitSparse(KernelContext& c, const FoundLists& found, int indices, int values,
                        int shape) {
  int64_t total = 0, longest = 0;
  for (const FoundSteps& steps : found) {
    total += steps.Total();
    longest = std::max(longest, steps.Longest());
  }
  ASSIGN_OR_RETURN(Tensor* const index, c.AllocateOutput(indices, Shape({total, 3})));
  ASSIGN_OR_RETURN(Tensor* const value, c.AllocateOutput(values, Shape({total})));
  int64_t* to = index->data<int64_t>();
  int64_t at = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    for (int64_t t = 0; t < found[i].size(); ++t) {
      for (int64_t k = 0; k < found[i].counts[t]; ++k) {
        *to++ = static_cast<int64_t>(i);
        *to++ = t;
        *to++ = k;
      }
    }
    ForValueType(value->dtype(), [&]<typename T>(T) { found[i].CopyTo(value->data<T>() + at); });
    at += found[i].Total();
  }
  const auto size = static_cast<int64_t>(found.size());
  c.SetOutput(shape, Tensor::Vector<int64_t>({size, MostSteps(found), longest}));
  return absl::OkStatus();
}

absl::Status EmitDense(KernelContext& c, const StepColumn& column, const FoundLists& found,
                       int output, int lengths) {
  const int64_t most = MostSteps(found);
  Dims dims = column.shape.dims();
  dims.insert(dims.begin(), {static_cast<int64_t>(found.size()), most});
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(output, shape));
  ASSIGN_OR_RETURN(Tensor* const length,
                   c.AllocateOutput(lengths, Shape({static_cast<int64_t>(found.size())})));
  const int64_t row = most * column.shape.num_elements();
  for (size_t i = 0; i < found.size(); ++i) {
    length->data<int64_t>()[i] = found[i].size();
    ForValueType(values->dtype(), [&]<typename T>(T) {
      T* const to = values->data<T>() + static_cast<int64_t>(i) * row;
      found[i].CopyTo(to);
      std::fill(to + found[i].Total(), to + row, T());
    });
  }
  return absl::OkStatus();
}

void SetSplit(Tensor& splits, int64_t at, int64_t value) {
  if (splits.dtype() == DType::kInt64) {
    splits.data<int64_t>()[at] = value;
  } else {
    splits.data<int32_t>()[at] = static_cast<int32_t>(value);
  }
}

// The steps of the examples one after the other, and the values of these.
absl::Status EmitRagged(KernelContext& c, const FoundLists& found, int values, int outer,
                        int inner) {
  int64_t total = 0, all_steps = 0;
  for (const FoundSteps& steps : found) {
    total += steps.Total();
    all_steps += steps.size();
  }
  const auto size = static_cast<int64_t>(found.size());
  ASSIGN_OR_RETURN(Tensor* const value, c.AllocateOutput(values, Shape({total})));
  ASSIGN_OR_RETURN(Tensor* const examples, c.AllocateOutput(outer, Shape({size + 1})));
  ASSIGN_OR_RETURN(Tensor* const steps, c.AllocateOutput(inner, Shape({all_steps + 1})));
  if (steps->dtype() == DType::kInt32 && std::max(total, all_steps) > INT32_MAX)
    return InvalidArgument("Ragged splits of type int32 cannot count ", total, " values");
  int64_t at = 0, step = 0;
  SetSplit(*examples, 0, 0);
  SetSplit(*steps, 0, 0);
  for (int64_t i = 0; i < size; ++i) {
    ForValueType(value->dtype(), [&]<typename T>(T) { found[i].CopyTo(value->data<T>() + at); });
    for (const int64_t count : found[i].counts) SetSplit(*steps, ++step, at += count);
    SetSplit(*examples, i + 1, step);
  }
  return absl::OkStatus();
}

struct WantedColumns {
  std::vector<ListColumn> context_sparse;
  std::vector<DenseColumn> context_dense;
  std::vector<StepColumn> step_sparse;
  std::vector<StepColumn> step_dense;
  std::vector<ListColumn> context_ragged;
  std::vector<StepColumn> step_ragged;
  std::vector<bool> may_miss;  // by dense column of steps
};

template <typename Column>
absl::Status SetKeys(absl::string_view what, absl::Span<const std::string> keys,
                     std::vector<Column>& columns) {
  if (keys.size() != columns.size()) {
    return InvalidArgument("len(", what, ") is ", keys.size(), " where there are ", columns.size(),
                           " types");
  }
  for (size_t i = 0; i < keys.size(); ++i) columns[i].key = keys[i];
  return absl::OkStatus();
}

class ParseSequencesKernel : public Kernel {
 public:
  explicit ParseSequencesKernel(bool keys_are_inputs) : keys_are_inputs_(keys_are_inputs) {}

  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const std::vector<DType> sparse,
                     s.Attr<std::vector<DType>>("context_sparse_types"));
    ASSIGN_OR_RETURN(const std::vector<DType> dense, s.Attr<std::vector<DType>>("Tcontext_dense"));
    ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes,
                     s.Attr<std::vector<PartialShape>>("context_dense_shapes"));
    ASSIGN_OR_RETURN(wanted_.context_sparse, MakeListColumns(sparse));
    ASSIGN_OR_RETURN(wanted_.context_dense, MakeDenseColumns(dense, shapes));
    ASSIGN_OR_RETURN(const std::vector<DType> step_sparse,
                     s.Attr<std::vector<DType>>("feature_list_sparse_types"));
    ASSIGN_OR_RETURN(const std::vector<DType> step_dense,
                     s.Attr<std::vector<DType>>("feature_list_dense_types"));
    ASSIGN_OR_RETURN(const std::vector<PartialShape> step_shapes,
                     s.Attr<std::vector<PartialShape>>("feature_list_dense_shapes"));
    for (const DType type : step_sparse) wanted_.step_sparse.push_back({"", type, Shape()});
    ASSIGN_OR_RETURN(wanted_.step_dense, MakeStepColumns(step_dense, step_shapes));
    RETURN_IF_ERROR(CheckCounts(s));
    return keys_are_inputs_ ? ReadRagged(s) : ReadKeys(s);
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& serialized = c.input(0);
    if (serialized.rank() == 0 && keys_are_inputs_)
      return Unimplemented("ParseSequenceExampleV2 of a single example: pass a vector of one");
    if (serialized.rank() != 1) {
      return InvalidArgument("Expected serialized to be a vector, got shape: ",
                             serialized.shape().ToString());
    }
    const Tensor& names = c.input(1);
    if (names.num_elements() > 0 && !(names.shape() == serialized.shape())) {
      return InvalidArgument("Expected len(debug_name) == len(serialized), but got: ",
                             names.num_elements(), " vs. ", serialized.num_elements());
    }
    WantedColumns wanted = wanted_;
    int next = 2;
    if (keys_are_inputs_) {
      RETURN_IF_ERROR(TakeKeys(c, wanted));
      next = 9;
    }
    for (size_t d = 0; d < wanted.context_dense.size(); ++d)
      RETURN_IF_ERROR(SetFallback(wanted.context_dense, static_cast<int>(d), c.input(next++)));
    int out = 0;
    RETURN_IF_ERROR(EmitContexts(c, wanted, out));
    return EmitLists(c, wanted, out);
  }

 private:
  absl::Status CheckCounts(KernelSetup& s) const {
    std::vector<std::pair<const char*, size_t>> counts = {
        {"Ncontext_sparse", wanted_.context_sparse.size()},
        {"Nfeature_list_sparse", wanted_.step_sparse.size()},
        {"Nfeature_list_dense", wanted_.step_dense.size()}};
    if (!keys_are_inputs_) counts.emplace_back("Ncontext_dense", wanted_.context_dense.size());
    for (const auto& [attr, size] : counts) {
      ASSIGN_OR_RETURN(const int64_t given, s.Attr<int64_t>(attr));
      if (given != static_cast<int64_t>(size))
        return InvalidArgument(attr, " is ", given, " where there are ", size, " types");
    }
    return absl::OkStatus();
  }

  absl::Status ReadRagged(KernelSetup& s) {
    using Types = std::vector<DType>;
    for (const char* part : {"context", "feature_list"}) {
      ASSIGN_OR_RETURN(const Types values,
                       s.Attr<Types>(absl::StrCat(part, "_ragged_value_types")));
      ASSIGN_OR_RETURN(const Types splits,
                       s.Attr<Types>(absl::StrCat(part, "_ragged_split_types")));
      if (values.size() != splits.size()) {
        return InvalidArgument("len(", part, "_ragged_value_types) is ", values.size(),
                               " where there are ", splits.size(), " types of splits");
      }
      if (absl::string_view(part) == "context") {
        ASSIGN_OR_RETURN(wanted_.context_ragged, MakeListColumns(values));
      } else {
        for (const DType type : values) wanted_.step_ragged.push_back({"", type, Shape()});
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadKeys(KernelSetup& s) {
    using Strings = std::vector<std::string>;
    ASSIGN_OR_RETURN(const Strings context_sparse, s.Attr<Strings>("context_sparse_keys"));
    ASSIGN_OR_RETURN(const Strings context_dense, s.Attr<Strings>("context_dense_keys"));
    ASSIGN_OR_RETURN(const Strings step_sparse, s.Attr<Strings>("feature_list_sparse_keys"));
    ASSIGN_OR_RETURN(const Strings step_dense, s.Attr<Strings>("feature_list_dense_keys"));
    ASSIGN_OR_RETURN(const Strings may_miss,
                     s.Attr<Strings>("feature_list_dense_missing_assumed_empty"));
    RETURN_IF_ERROR(SetKeys("context_sparse_keys", context_sparse, wanted_.context_sparse));
    RETURN_IF_ERROR(SetKeys("context_dense_keys", context_dense, wanted_.context_dense));
    RETURN_IF_ERROR(SetKeys("feature_list_sparse_keys", step_sparse, wanted_.step_sparse));
    RETURN_IF_ERROR(SetKeys("feature_list_dense_keys", step_dense, wanted_.step_dense));
    for (const std::string& key : step_dense) {
      wanted_.may_miss.push_back(std::find(may_miss.begin(), may_miss.end(), key) !=
                                 may_miss.end());
    }
    return absl::OkStatus();
  }

  static absl::Status TakeKeys(KernelContext& c, WantedColumns& wanted) {
    const auto keys = [&c](int i) { return c.input(i).values<std::string>(); };
    RETURN_IF_ERROR(SetKeys("context_sparse_keys", keys(2), wanted.context_sparse));
    RETURN_IF_ERROR(SetKeys("context_dense_keys", keys(3), wanted.context_dense));
    RETURN_IF_ERROR(SetKeys("context_ragged_keys", keys(4), wanted.context_ragged));
    RETURN_IF_ERROR(SetKeys("feature_list_ragged_keys", keys(7), wanted.step_ragged));
    RETURN_IF_ERROR(SetKeys("feature_list_sparse_keys", keys(5), wanted.step_sparse));
    RETURN_IF_ERROR(SetKeys("feature_list_dense_keys", keys(6), wanted.step_dense));
    const auto may_miss = c.input(8).values<bool>();
    if (may_miss.size() != wanted.step_dense.size()) {
      return InvalidArgument("len(feature_list_dense_missing_assumed_empty) is ", may_miss.size(),
                             " where there are ", wanted.step_dense.size(), " keys");
    }
    wanted.may_miss.assign(may_miss.begin(), may_miss.end());
    return absl::OkStatus();
  }

  static absl::Status EmitContexts(KernelContext& c, const WantedColumns& wanted, int& out) {
    FeatureBatch batch({wanted.context_dense, wanted.context_sparse, wanted.context_ragged}, true);
    RETURN_IF_ERROR(batch.Find(c, c.input(0).values<std::string>(),
                               c.input(1).values<std::string>(), ReadContext));
    const int sparse = static_cast<int>(wanted.context_sparse.size());
    for (int i = 0; i < sparse; ++i)
      RETURN_IF_ERROR(batch.EmitSparse(c, i, i, sparse + i, 2 * sparse + i));
    out = 3 * sparse;
    for (size_t i = 0; i < wanted.context_dense.size(); ++i)
      RETURN_IF_ERROR(batch.EmitDense(c, static_cast<int>(i), out++));
    const int ragged = static_cast<int>(wanted.context_ragged.size());
    for (int i = 0; i < ragged; ++i)
      RETURN_IF_ERROR(batch.EmitRagged(c, i, out + i, out + ragged + i));
    out += 2 * ragged;
    return absl::OkStatus();
  }

  static absl::Status EmitLists(KernelContext& c, const WantedColumns& wanted, int out) {
    const auto serialized = c.input(0).values<std::string>();
    const auto names = c.input(1).values<std::string>();
    const int num_sparse = static_cast<int>(wanted.step_sparse.size());
    const int num_dense = static_cast<int>(wanted.step_dense.size());
    const int num_ragged = static_cast<int>(wanted.step_ragged.size());
    std::vector<FoundLists> sparse(num_sparse), dense(num_dense), ragged(num_ragged);
    for (size_t i = 0; i < serialized.size(); ++i) {
      std::vector<NamedFeature> context;
      std::vector<NamedFeatureList> lists;
      if (!ReadSequenceExample(serialized[i], context, lists))
        return InvalidArgument("Could not parse example input, value: '", serialized[i], "'");
      const FeatureLists parsed(names.empty() ? "<unknown>" : names[i], std::move(lists));
      for (int k = 0; k < num_sparse; ++k) {
        ASSIGN_OR_RETURN(sparse[k].emplace_back(), parsed.FindSparse(wanted.step_sparse[k]));
      }
      for (int k = 0; k < num_ragged; ++k) {
        ASSIGN_OR_RETURN(ragged[k].emplace_back(), parsed.FindSparse(wanted.step_ragged[k]));
      }
      for (int k = 0; k < num_dense; ++k) {
        ASSIGN_OR_RETURN(dense[k].emplace_back(),
                         parsed.FindDense(wanted.step_dense[k], wanted.may_miss[k]));
      }
    }
    for (int k = 0; k < num_sparse; ++k)
      RETURN_IF_ERROR(
          EmitSparse(c, sparse[k], out + k, out + num_sparse + k, out + 2 * num_sparse + k));
    out += 3 * num_sparse;
    for (int k = 0; k < num_dense; ++k)
      RETURN_IF_ERROR(EmitDense(c, wanted.step_dense[k], dense[k], out + k, out + num_dense + k));
    out += 2 * num_dense;
    for (int k = 0; k < num_ragged; ++k)
      RETURN_IF_ERROR(
          EmitRagged(c, ragged[k], out + k, out + num_ragged + k, out + 2 * num_ragged + k));
    return absl::OkStatus();
  }

  const bool keys_are_inputs_;
  WantedColumns wanted_;
};

template <bool kKeysAreInputs>
KernelFactory Parser() {
  return [] { return std::make_unique<ParseSequencesKernel>(kKeysAreInputs); };
}

absl::Status InferShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRankAtMost(c.input(0), 1));
  ASSIGN_OR_RETURN(const int64_t context_sparse, c.Attr<int64_t>("Ncontext_sparse"));
  ASSIGN_OR_RETURN(const int64_t step_sparse, c.Attr<int64_t>("Nfeature_list_sparse"));
  ASSIGN_OR_RETURN(const std::vector<PartialShape> context_dense,
                   c.Attr<std::vector<PartialShape>>("context_dense_shapes"));
  ASSIGN_OR_RETURN(const std::vector<PartialShape> step_dense,
                   c.Attr<std::vector<PartialShape>>("feature_list_dense_shapes"));
  const auto total = 3 * (context_sparse + step_sparse) +
                     static_cast<int64_t>(context_dense.size() + 2 * step_dense.size());
  if (total > c.num_outputs()) return InvalidArgument("lists of types and shapes differ in length");
  // One example alone, or ragged columns: their shapes are known when they are parsed.
  if (total != c.num_outputs() || !serialized.known_rank() || serialized.rank() != 1)
    return absl::OkStatus();
  int next = 0;
  const auto sparse = [&](int64_t count, int64_t rank) {
    for (int64_t i = 0; i < count; ++i) c.SetOutput(next++, PartialShape::Matrix(-1, rank));
    for (int64_t i = 0; i < count; ++i) c.SetOutput(next++, PartialShape::Vector(-1));
    for (int64_t i = 0; i < count; ++i) c.SetOutput(next++, PartialShape::Vector(rank));
  };
  sparse(context_sparse, 2);
  for (const PartialShape& shape : context_dense)
    c.SetOutput(next++, ShapeContext::Concatenate(serialized, shape));
  sparse(step_sparse, 3);
  const PartialShape steps({serialized.dim(0), -1});
  for (const PartialShape& shape : step_dense)
    c.SetOutput(next++, ShapeContext::Concatenate(steps, shape));
  for (size_t i = 0; i < step_dense.size(); ++i) c.SetOutput(next++, serialized);
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(ParseSequenceExample) {
  op.Attr("feature_list_dense_missing_assumed_empty: list(string) >= 0")
      .Attr("context_sparse_keys: list(string) >= 0")
      .Attr("context_dense_keys: list(string) >= 0")
      .Attr("feature_list_sparse_keys: list(string) >= 0")
      .Attr("feature_list_dense_keys: list(string) >= 0")
      .Attr("Ncontext_sparse: int >= 0 = 0")
      .Attr("Ncontext_dense: int >= 0 = 0")
      .Attr("Nfeature_list_sparse: int >= 0 = 0")
      .Attr("Nfeature_list_dense: int >= 0 = 0")
      .Attr("context_sparse_types: list({float, int64, string}) >= 0 = []")
      .Attr("Tcontext_dense: list({float, int64, string}) >= 0 = []")
      .Attr("feature_list_dense_types: list({float, int64, string}) >= 0 = []")
      .Attr("context_dense_shapes: list(shape) >= 0 = []")
      .Attr("feature_list_sparse_types: list({float, int64, string}) >= 0 = []")
      .Attr("feature_list_dense_shapes: list(shape) >= 0 = []")
      .Input("serialized: string")
      .Input("debug_name: string")
      .Input("context_dense_defaults: Tcontext_dense")
      .Output("context_sparse_indices: Ncontext_sparse * int64")
      .Output("context_sparse_values: context_sparse_types")
      .Output("context_sparse_shapes: Ncontext_sparse * int64")
      .Output("context_dense_values: Tcontext_dense")
      .Output("feature_list_sparse_indices: Nfeature_list_sparse * int64")
      .Output("feature_list_sparse_values: feature_list_sparse_types")
      .Output("feature_list_sparse_shapes: Nfeature_list_sparse * int64")
      .Output("feature_list_dense_values: feature_list_dense_types")
      .Output("feature_list_dense_lengths: Nfeature_list_dense * int64")
      .Doc("The wanted features of a batch of serialized SequenceExamples.")
      .Shape(InferShape)
      .Cpu(Parser<false>());
}

DEFINE_OP(ParseSequenceExampleV2) {
  op.Attr("Ncontext_sparse: int >= 0 = 0")
      .Attr("Tcontext_dense: list({float, int64, string}) >= 0 = []")
      .Attr("context_sparse_types: list({float, int64, string}) >= 0 = []")
      .Attr("context_ragged_value_types: list({float, int64, string}) >= 0 = []")
      .Attr("context_ragged_split_types: list({int32, int64}) >= 0 = []")
      .Attr("context_dense_shapes: list(shape) >= 0 = []")
      .Attr("Nfeature_list_sparse: int >= 0 = 0")
      .Attr("Nfeature_list_dense: int >= 0 = 0")
      .Attr("feature_list_dense_types: list({float, int64, string}) >= 0 = []")
      .Attr("feature_list_sparse_types: list({float, int64, string}) >= 0 = []")
      .Attr("feature_list_ragged_value_types: list({float, int64, string}) >= 0 = []")
      .Attr("feature_list_ragged_split_types: list({int32, int64}) >= 0 = []")
      .Attr("feature_list_dense_shapes: list(shape) >= 0 = []")
      .Input("serialized: string")
      .Input("debug_name: string")
      .Input("context_sparse_keys: string")
      .Input("context_dense_keys: string")
      .Input("context_ragged_keys: string")
      .Input("feature_list_sparse_keys: string")
      .Input("feature_list_dense_keys: string")
      .Input("feature_list_ragged_keys: string")
      .Input("feature_list_dense_missing_assumed_empty: bool")
      .Input("context_dense_defaults: Tcontext_dense")
      .Output("context_sparse_indices: Ncontext_sparse * int64")
      .Output("context_sparse_values: context_sparse_types")
      .Output("context_sparse_shapes: Ncontext_sparse * int64")
      .Output("context_dense_values: Tcontext_dense")
      .Output("context_ragged_values: context_ragged_value_types")
      .Output("context_ragged_row_splits: context_ragged_split_types")
      .Output("feature_list_sparse_indices: Nfeature_list_sparse * int64")
      .Output("feature_list_sparse_values: feature_list_sparse_types")
      .Output("feature_list_sparse_shapes: Nfeature_list_sparse * int64")
      .Output("feature_list_dense_values: feature_list_dense_types")
      .Output("feature_list_dense_lengths: Nfeature_list_dense * int64")
      .Output("feature_list_ragged_values: feature_list_ragged_value_types")
      .Output("feature_list_ragged_outer_splits: feature_list_ragged_split_types")
      .Output("feature_list_ragged_inner_splits: feature_list_ragged_split_types")
      .Doc("ParseSequenceExample whose keys are tensors, and whose columns may be ragged.")
      .Shape(InferShape)
      .Cpu(Parser<true>());
}

}  // namespace muster
