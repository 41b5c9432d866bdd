// ParseSingleSequenceExample: the context of a SequenceExample as an Example is parsed, and lists
// of features whose first dimension is time.
#include "absl/container/flat_hash_set.h"

#include "muster/ops/input/feature_lists.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status EmitSparse(KernelContext& c, const FoundSteps& found, int indices, int values,
                        int shape) {
  const int64_t total = found.Total();
  ASSIGN_OR_RETURN(Tensor* const index, c.AllocateOutput(indices, Shape({total, 2})));
  ASSIGN_OR_RETURN(Tensor* const value, c.AllocateOutput(values, Shape({total})));
  int64_t* to = index->data<int64_t>();
  for (int64_t t = 0; t < found.size(); ++t) {
    for (int64_t k = 0; k < found.counts[t]; ++k) {
      *to++ = t;
      *to++ = k;
    }
  }
  ForValueType(value->dtype(), [&]<typename T>(T) { found.CopyTo(value->data<T>()); });
  c.SetOutput(shape, Tensor::Vector<int64_t>({found.size(), found.Longest()}));
  return absl::OkStatus();
}

absl::Status EmitDense(KernelContext& c, const StepColumn& column, const FoundSteps& found,
                       int output) {
  Dims dims = column.shape.dims();
  dims.insert(dims.begin(), found.size());
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(output, shape));
  ForValueType(values->dtype(), [&]<typename T>(T) { found.CopyTo(values->data<T>()); });
  return absl::OkStatus();
}

absl::StatusOr<std::string> KeyIn(const Tensor& tensor, absl::string_view what) {
  if (tensor.num_elements() == 1) return tensor.scalar<std::string>();
  return InvalidArgument("Expected ", what,
                         " to be a scalar, got shape: ", tensor.shape().ToString());
}

class ParseSequenceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const std::vector<DType> sparse,
                     s.Attr<std::vector<DType>>("context_sparse_types"));
    ASSIGN_OR_RETURN(const std::vector<DType> dense, s.Attr<std::vector<DType>>("Tcontext_dense"));
    ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes,
                     s.Attr<std::vector<PartialShape>>("context_dense_shapes"));
    ASSIGN_OR_RETURN(context_sparse_, MakeListColumns(sparse));
    ASSIGN_OR_RETURN(context_dense_, MakeDenseColumns(dense, shapes));
    ASSIGN_OR_RETURN(const std::vector<DType> step_sparse,
                     s.Attr<std::vector<DType>>("feature_list_sparse_types"));
    ASSIGN_OR_RETURN(const std::vector<DType> step_dense,
                     s.Attr<std::vector<DType>>("feature_list_dense_types"));
    ASSIGN_OR_RETURN(const std::vector<PartialShape> step_shapes,
                     s.Attr<std::vector<PartialShape>>("feature_list_dense_shapes"));
    for (const DType type : step_sparse) step_sparse_.push_back({"", type, Shape()});
    ASSIGN_OR_RETURN(step_dense_, MakeStepColumns(step_dense, step_shapes));
    return CheckCounts(s);
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& serialized = c.input(0);
    if (serialized.rank() != 0) {
      return InvalidArgument("Expected serialized to be a scalar, got shape: ",
                             serialized.shape().ToString());
    }
    const std::string& bytes = serialized.scalar<std::string>();
    std::vector<ListColumn> context_sparse = context_sparse_;
    std::vector<DenseColumn> context_dense = context_dense_;
    std::vector<StepColumn> step_sparse = step_sparse_, step_dense = step_dense_;
    int next = 2;
    for (auto& column : context_sparse) {
      ASSIGN_OR_RETURN(column.key, KeyIn(c.input(next++), "context_sparse_keys"));
    }
    for (auto& column : context_dense) {
      ASSIGN_OR_RETURN(column.key, KeyIn(c.input(next++), "context_dense_keys"));
    }
    for (auto& column : step_sparse) {
      ASSIGN_OR_RETURN(column.key, KeyIn(c.input(next++), "feature_list_sparse_keys"));
    }
    for (auto& column : step_dense) {
      ASSIGN_OR_RETURN(column.key, KeyIn(c.input(next++), "feature_list_dense_keys"));
    }
    for (size_t d = 0; d < context_dense.size(); ++d) {
      RETURN_IF_ERROR(SetFallback(context_dense, static_cast<int>(d), c.input(next++)));
    }
    ASSIGN_OR_RETURN(const std::string name, KeyIn(c.input(next), "debug_name"));
    absl::flat_hash_set<std::string> may_miss;
    for (const std::string& key : c.input(1).values<std::string>()) may_miss.insert(key);

    std::vector<NamedFeature> context;
    std::vector<NamedFeatureList> lists;
    if (!ReadSequenceExample(bytes, context, lists)) {
      return InvalidArgument("Could not parse example input, value: '", bytes, "'");
    }
    FeatureBatch batch({context_dense, context_sparse, {}}, false);
    RETURN_IF_ERROR(batch.Find(c, serialized.values<std::string>(), {}, ReadContext));
    const int sparse = static_cast<int>(context_sparse.size());
    for (int i = 0; i < sparse; ++i)
      RETURN_IF_ERROR(batch.EmitSparse(c, i, i, sparse + i, 2 * sparse + i));
    int out = 3 * sparse;
    for (size_t i = 0; i < context_dense.size(); ++i)
      RETURN_IF_ERROR(batch.EmitDense(c, static_cast<int>(i), out++));
    const FeatureLists parsed(name, std::move(lists));
    const int steps = static_cast<int>(step_sparse.size());
    for (int i = 0; i < steps; ++i) {
      ASSIGN_OR_RETURN(const FoundSteps found, parsed.FindSparse(step_sparse[i]));
      RETURN_IF_ERROR(EmitSparse(c, found, out + i, out + steps + i, out + 2 * steps + i));
    }
    out += 3 * steps;
    for (const StepColumn& column : step_dense) {
      ASSIGN_OR_RETURN(const FoundSteps found,
                       parsed.FindDense(column, may_miss.contains(column.key)));
      RETURN_IF_ERROR(EmitDense(c, column, found, out++));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckCounts(KernelSetup& s) const {
    const std::pair<const char*, size_t> counts[] = {{"Ncontext_sparse", context_sparse_.size()},
                                                     {"Ncontext_dense", context_dense_.size()},
                                                     {"Nfeature_list_sparse", step_sparse_.size()},
                                                     {"Nfeature_list_dense", step_dense_.size()}};
    for (const auto& [attr, size] : counts) {
      ASSIGN_OR_RETURN(const int64_t given, s.Attr<int64_t>(attr));
      if (given != static_cast<int64_t>(size))
        return InvalidArgument(attr, " is ", given, " where there are ", size, " types");
    }
    return absl::OkStatus();
  }

  std::vector<ListColumn> context_sparse_;
  std::vector<DenseColumn> context_dense_;
  std::vector<StepColumn> step_sparse_;
  std::vector<StepColumn> step_dense_;
};

absl::Status InferShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  ASSIGN_OR_RETURN(const int64_t context_sparse, c.Attr<int64_t>("Ncontext_sparse"));
  ASSIGN_OR_RETURN(const int64_t step_sparse, c.Attr<int64_t>("Nfeature_list_sparse"));
  ASSIGN_OR_RETURN(const std::vector<PartialShape> context_dense,
                   c.Attr<std::vector<PartialShape>>("context_dense_shapes"));
  ASSIGN_OR_RETURN(const std::vector<PartialShape> step_dense,
                   c.Attr<std::vector<PartialShape>>("feature_list_dense_shapes"));
  int next = 0;
  const auto sparse = [&](int64_t count, int64_t rank) {
    for (int64_t i = 0; i < count; ++i) c.SetOutput(next++, PartialShape::Matrix(-1, rank));
    for (int64_t i = 0; i < count; ++i) c.SetOutput(next++, PartialShape::Vector(-1));
    for (int64_t i = 0; i < count; ++i) c.SetOutput(next++, PartialShape::Vector(rank));
  };
  const auto total = 3 * (context_sparse + step_sparse) +
                     static_cast<int64_t>(context_dense.size() + step_dense.size());
  if (total != c.num_outputs())
    return InvalidArgument("lists of types and shapes differ in length");
  sparse(context_sparse, 1);
  for (const PartialShape& shape : context_dense) c.SetOutput(next++, shape);
  sparse(step_sparse, 2);
  for (const PartialShape& shape : step_dense)
    c.SetOutput(next++, ShapeContext::Concatenate(PartialShape::Vector(-1), shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(ParseSingleSequenceExample) {
  op.Attr("Ncontext_sparse: int >= 0 = 0")
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
      .Input("feature_list_dense_missing_assumed_empty: string")
      .Input("context_sparse_keys: Ncontext_sparse * string")
      .Input("context_dense_keys: Ncontext_dense * string")
      .Input("feature_list_sparse_keys: Nfeature_list_sparse * string")
      .Input("feature_list_dense_keys: Nfeature_list_dense * string")
      .Input("context_dense_defaults: Tcontext_dense")
      .Input("debug_name: string")
      .Output("context_sparse_indices: Ncontext_sparse * int64")
      .Output("context_sparse_values: context_sparse_types")
      .Output("context_sparse_shapes: Ncontext_sparse * int64")
      .Output("context_dense_values: Tcontext_dense")
      .Output("feature_list_sparse_indices: Nfeature_list_sparse * int64")
      .Output("feature_list_sparse_values: feature_list_sparse_types")
      .Output("feature_list_sparse_shapes: Nfeature_list_sparse * int64")
      .Output("feature_list_dense_values: feature_list_dense_types")
      .Doc("The wanted features of one serialized SequenceExample.")
      .Shape(InferShape)
      .Cpu(New<ParseSequenceKernel>());
}

}  // namespace muster
