// ParseExample, ParseExampleV2 and ParseSingleExample: serialized Example messages become dense,
// sparse and ragged tensors.
#include "muster/ops/input/feature_columns.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::StatusOr<std::string> KeyIn(const Tensor& tensor, absl::string_view what, int i) {
  if (tensor.num_elements() == 1) return tensor.scalar<std::string>();
  return InvalidArgument("Expected len(", what, ") == 1 for key ", i,
                         ", got shape: ", tensor.shape().ToString());
}

absl::Status TakeKeys(const Tensor& keys, absl::string_view what, size_t wanted,
                      absl::FunctionRef<std::string&(size_t)> key) {
  if (keys.rank() != 1 || static_cast<size_t>(keys.num_elements()) != wanted) {
    return InvalidArgument("Expected len(", what, ") == len(", what,
                           "_types) but got: ", keys.shape().ToString(), " vs. ", wanted);
  }
  for (size_t i = 0; i < wanted; ++i) key(i) = keys.data<std::string>()[i];
  return absl::OkStatus();
}

// All three ops: columns as the attributes give them; keys and defaults come with the inputs.
class ParseKernel : public Kernel {
 protected:
  struct Columns {
    std::vector<DenseColumn> dense;
    std::vector<ListColumn> sparse;
    std::vector<ListColumn> ragged;
  };

  absl::Status InitColumns(KernelSetup& s) {
    ASSIGN_OR_RETURN(const std::vector<DType> dense, s.Attr<std::vector<DType>>("Tdense"));
    ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes,
                     s.Attr<std::vector<PartialShape>>("dense_shapes"));
    ASSIGN_OR_RETURN(const std::vector<DType> sparse, s.Attr<std::vector<DType>>("sparse_types"));
    ASSIGN_OR_RETURN(columns_.dense, MakeDenseColumns(dense, shapes));
    ASSIGN_OR_RETURN(columns_.sparse, MakeListColumns(sparse));
    return absl::OkStatus();
  }

  absl::Status CheckSparseCount(KernelSetup& s, const char* attr) const {
    ASSIGN_OR_RETURN(const int64_t sparse, s.Attr<int64_t>(attr));
    if (sparse == static_cast<int64_t>(columns_.sparse.size())) return absl::OkStatus();
    return InvalidArgument("len(sparse_keys) != len(sparse_types)");
  }

  static absl::Status TakeFallbacks(KernelContext& c, int first, std::vector<DenseColumn>& dense) {
    for (size_t d = 0; d < dense.size(); ++d) {
      const int at = static_cast<int>(d);
      RETURN_IF_ERROR(SetFallback(dense, at, c.input(first + at)));
    }
    return absl::OkStatus();
  }

  static absl::Status Parse(KernelContext& c, const Columns& columns, const Tensor& serialized,
                            absl::Span<const std::string> names) {
    FeatureBatch batch({columns.dense, columns.sparse, columns.ragged}, serialized.rank() == 1);
    RETURN_IF_ERROR(batch.Find(c, serialized.values<std::string>(), names, ReadExample));
    const int sparse = static_cast<int>(columns.sparse.size());
    const int dense = static_cast<int>(columns.dense.size());
    const int ragged = static_cast<int>(columns.ragged.size());
    for (int i = 0; i < sparse; ++i)
      RETURN_IF_ERROR(batch.EmitSparse(c, i, i, sparse + i, 2 * sparse + i));
    for (int i = 0; i < dense; ++i) RETURN_IF_ERROR(batch.EmitDense(c, i, 3 * sparse + i));
    const int first = 3 * sparse + dense;
    for (int i = 0; i < ragged; ++i)
      RETURN_IF_ERROR(batch.EmitRagged(c, i, first + i, first + ragged + i));
    return absl::OkStatus();
  }

  Columns columns_;
};

absl::Status CheckNames(const Tensor& names, const Tensor& serialized) {
  if (names.num_elements() == 0 || names.num_elements() == serialized.num_elements())
    return absl::OkStatus();
  return InvalidArgument(
      "Expected names have the same shape as serialized: name.shape=", names.shape().ToString(),
      ", serialized.shape=", serialized.shape().ToString());
}

class ParseExampleKernel : public ParseKernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(InitColumns(s));
    RETURN_IF_ERROR(CheckSparseCount(s, "Nsparse"));
    ASSIGN_OR_RETURN(const int64_t dense, s.Attr<int64_t>("Ndense"));
    if (dense != static_cast<int64_t>(columns_.dense.size()))
      return InvalidArgument("len(dense_keys) != len(dense_types)");
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& serialized = c.input(0);
    const Tensor& names = c.input(1);
    if (serialized.rank() != 1) {
      return InvalidArgument("Expected serialized to be a vector, got shape: ",
                             serialized.shape().ToString());
    }
    if (names.rank() != 1) {
      return InvalidArgument("Expected names to be a vector, got shape: ",
                             names.shape().ToString());
    }
    RETURN_IF_ERROR(CheckNames(names, serialized));
    Columns columns = columns_;
    const int sparse = static_cast<int>(columns.sparse.size());
    const int dense = static_cast<int>(columns.dense.size());
    for (int i = 0; i < sparse; ++i) {
      ASSIGN_OR_RETURN(columns.sparse[i].key, KeyIn(c.input(2 + i), "sparse_keys", i));
    }
    for (int i = 0; i < dense; ++i) {
      ASSIGN_OR_RETURN(columns.dense[i].key, KeyIn(c.input(2 + sparse + i), "dense_keys", i));
    }
    RETURN_IF_ERROR(TakeFallbacks(c, 2 + sparse + dense, columns.dense));
    return Parse(c, columns, serialized, names.values<std::string>());
  }
};

class ParseExampleV2Kernel : public ParseKernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(InitColumns(s));
    RETURN_IF_ERROR(CheckSparseCount(s, "num_sparse"));
    ASSIGN_OR_RETURN(const std::vector<DType> ragged,
                     s.Attr<std::vector<DType>>("ragged_value_types"));
    ASSIGN_OR_RETURN(const std::vector<DType> splits,
                     s.Attr<std::vector<DType>>("ragged_split_types"));
    if (ragged.size() != splits.size())
      return InvalidArgument("len(ragged_value_types) != len(ragged_split_types)");
    ASSIGN_OR_RETURN(columns_.ragged, MakeListColumns(ragged));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& serialized = c.input(0);
    const Tensor& names = c.input(1);
    if (serialized.rank() > 1) {
      return InvalidArgument("Expected serialized to be a scalar or vector, got shape: ",
                             serialized.shape().ToString());
    }
    RETURN_IF_ERROR(CheckNames(names, serialized));
    Columns columns = columns_;
    RETURN_IF_ERROR(TakeKeys(c.input(2), "sparse_keys", columns.sparse.size(),
                             [&](size_t i) -> std::string& { return columns.sparse[i].key; }));
    RETURN_IF_ERROR(TakeKeys(c.input(3), "dense_keys", columns.dense.size(),
                             [&](size_t i) -> std::string& { return columns.dense[i].key; }));
    RETURN_IF_ERROR(TakeKeys(c.input(4), "ragged_keys", columns.ragged.size(),
                             [&](size_t i) -> std::string& { return columns.ragged[i].key; }));
    RETURN_IF_ERROR(TakeFallbacks(c, 5, columns.dense));
    return Parse(c, columns, serialized, names.values<std::string>());
  }
};

class ParseSingleExampleKernel : public ParseKernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(InitColumns(s));
    RETURN_IF_ERROR(CheckSparseCount(s, "num_sparse"));
    ASSIGN_OR_RETURN(const std::vector<std::string> sparse,
                     s.Attr<std::vector<std::string>>("sparse_keys"));
    ASSIGN_OR_RETURN(const std::vector<std::string> dense,
                     s.Attr<std::vector<std::string>>("dense_keys"));
    if (sparse.size() != columns_.sparse.size())
      return InvalidArgument("len(sparse_keys) != len(sparse_types)");
    if (dense.size() != columns_.dense.size())
      return InvalidArgument("len(dense_keys) != len(dense_types)");
    for (size_t i = 0; i < sparse.size(); ++i) columns_.sparse[i].key = sparse[i];
    for (size_t i = 0; i < dense.size(); ++i) columns_.dense[i].key = dense[i];
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& serialized = c.input(0);
    if (serialized.rank() != 0) {
      return InvalidArgument("Expected serialized to be a scalar, got shape: ",
                             serialized.shape().ToString());
    }
    Columns columns = columns_;
    RETURN_IF_ERROR(TakeFallbacks(c, 1, columns.dense));
    return Parse(c, columns, serialized, {});
  }
};

// Shapes of the sparse and dense outputs; `prefix` is the batch, if any.
absl::Status ColumnShapes(ShapeContext& c, const PartialShape& prefix, int64_t sparse) {
  ASSIGN_OR_RETURN(const std::vector<PartialShape> dense,
                   c.Attr<std::vector<PartialShape>>("dense_shapes"));
  ASSIGN_OR_RETURN(const std::vector<DType> types, c.Attr<std::vector<DType>>("Tdense"));
  ASSIGN_OR_RETURN(const std::vector<DType> sparse_types,
                   c.Attr<std::vector<DType>>("sparse_types"));
  if (dense.size() != types.size()) return InvalidArgument("len(Tdense) != len(dense_shapes)");
  RETURN_IF_ERROR(MakeDenseColumns(types, dense).status());
  if (static_cast<int64_t>(sparse_types.size()) != sparse)
    return InvalidArgument("len(sparse_keys) != len(sparse_types)");
  const int64_t rank = prefix.known_rank() ? prefix.rank() + 1 : -1;
  int next = 0;
  for (int i = 0; i < sparse; ++i) c.SetOutput(next++, PartialShape::Matrix(-1, rank));
  for (int i = 0; i < sparse; ++i) c.SetOutput(next++, PartialShape::Vector(-1));
  for (int i = 0; i < sparse; ++i) c.SetOutput(next++, PartialShape::Vector(rank));
  for (const PartialShape& shape : dense)
    c.SetOutput(next++, ShapeContext::Concatenate(prefix, shape));
  for (; next < c.num_outputs(); ++next) c.SetOutput(next, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status ParseExampleShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRank(c.input(0), 1));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  ASSIGN_OR_RETURN(const int64_t sparse, c.Attr<int64_t>("Nsparse"));
  return ColumnShapes(c, serialized, sparse);
}

absl::Status ParseExampleV2Shape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRankAtMost(c.input(0), 1));
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(1), 1).status());
  for (int i = 2; i < 5; ++i) RETURN_IF_ERROR(c.WithRank(c.input(i), 1).status());
  ASSIGN_OR_RETURN(const int64_t sparse, c.Attr<int64_t>("num_sparse"));
  return ColumnShapes(c, serialized, sparse);
}

absl::Status ParseSingleExampleShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  ASSIGN_OR_RETURN(const int64_t sparse, c.Attr<int64_t>("num_sparse"));
  return ColumnShapes(c, PartialShape::Scalar(), sparse);
}

}  // namespace

DEFINE_OP(ParseExample) {
  op.Attr("Nsparse: int >= 0")
      .Attr("Ndense: int >= 0")
      .Attr("sparse_types: list({float, int64, string}) >= 0")
      .Attr("Tdense: list({float, int64, string}) >= 0")
      .Attr("dense_shapes: list(shape) >= 0")
      .Input("serialized: string")
      .Input("names: string")
      .Input("sparse_keys: Nsparse * string")
      .Input("dense_keys: Ndense * string")
      .Input("dense_defaults: Tdense")
      .Output("sparse_indices: Nsparse * int64")
      .Output("sparse_values: sparse_types")
      .Output("sparse_shapes: Nsparse * int64")
      .Output("dense_values: Tdense")
      .Doc("The wanted features of a batch of serialized Examples.")
      .Shape(ParseExampleShape)
      .Cpu(New<ParseExampleKernel>());
}

DEFINE_OP(ParseExampleV2) {
  op.Attr("Tdense: list({float, int64, string}) >= 0")
      .Attr("num_sparse: int >= 0")
      .Attr("sparse_types: list({float, int64, string}) >= 0")
      .Attr("ragged_value_types: list({float, int64, string}) >= 0")
      .Attr("ragged_split_types: list({int32, int64}) >= 0")
      .Attr("dense_shapes: list(shape) >= 0")
      .Input("serialized: string")
      .Input("names: string")
      .Input("sparse_keys: string")
      .Input("dense_keys: string")
      .Input("ragged_keys: string")
      .Input("dense_defaults: Tdense")
      .Output("sparse_indices: num_sparse * int64")
      .Output("sparse_values: sparse_types")
      .Output("sparse_shapes: num_sparse * int64")
      .Output("dense_values: Tdense")
      .Output("ragged_values: ragged_value_types")
      .Output("ragged_row_splits: ragged_split_types")
      .Doc("The wanted features of one serialized Example or of a batch of them.")
      .Shape(ParseExampleV2Shape)
      .Cpu(New<ParseExampleV2Kernel>());
}

DEFINE_OP(ParseSingleExample) {
  op.Attr("num_sparse: int >= 0")
      .Attr("sparse_keys: list(string) >= 0")
      .Attr("dense_keys: list(string) >= 0")
      .Attr("sparse_types: list({float, int64, string}) >= 0")
      .Attr("Tdense: list({float, int64, string}) >= 0")
      .Attr("dense_shapes: list(shape) >= 0")
      .Input("serialized: string")
      .Input("dense_defaults: Tdense")
      .Output("sparse_indices: num_sparse * int64")
      .Output("sparse_values: sparse_types")
      .Output("sparse_shapes: num_sparse * int64")
      .Output("dense_values: Tdense")
      .Doc("The wanted features of one serialized Example.")
      .Shape(ParseSingleExampleShape)
      .Cpu(New<ParseSingleExampleKernel>());
}

}  // namespace muster
