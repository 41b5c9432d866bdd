// Sparse tensors as three serialized tensors (indices, values, shape), for queues, map_fn and
// tf.data: SerializeSparse, SerializeManySparse, DeserializeSparse, DeserializeManySparse.
#include <algorithm>

#include "tensorflow/core/framework/tensor.pb.h"

#include "muster/ops/sparse/sparse_input.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

struct Parts {
  Tensor indices;
  Tensor values;
  Tensor shape;
};

// Element `at` of a string tensor becomes a message, of a variant tensor the tensor itself.
absl::Status Store(const Tensor& tensor, Tensor& to, int64_t at) {
  if (to.dtype() == DType::kVariant) {
    to.data<Variant>()[at] = Variant(std::make_shared<const Tensor>(tensor));
    return absl::OkStatus();
  }
  tensorflow::TensorProto proto;
  RETURN_IF_ERROR(TensorToProto(tensor, TensorEncoding::kContent, proto));
  if (!proto.SerializeToString(&to.data<std::string>()[at])) {
    return InvalidArgument("A tensor of shape ", tensor.shape().ToString(),
                           " is too large for one message");
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Load(const Tensor& from, int64_t at) {
  if (from.dtype() == DType::kVariant) {
    const auto* const tensor = from.data<Variant>()[at].get<Tensor>();
    if (tensor == nullptr) return InvalidArgument("Could not get a tensor from a variant");
    return *tensor;
  }
  tensorflow::TensorProto proto;
  if (!proto.ParseFromString(from.data<std::string>()[at]))
    return InvalidArgument("Could not parse serialized proto");
  const absl::StatusOr<Tensor> tensor = TensorFromProto(proto);
  if (!tensor.ok()) return InvalidArgument("Could not construct tensor from proto");
  return *tensor;
}

absl::Status StoreParts(const Parts& parts, Tensor& to, int64_t row) {
  RETURN_IF_ERROR(Store(parts.indices, to, row * 3));
  RETURN_IF_ERROR(Store(parts.values, to, row * 3 + 1));
  return Store(parts.shape, to, row * 3 + 2);
}

absl::Status Serialize(KernelContext& c) {
  RETURN_IF_ERROR(CheckSparse(c.input(0), c.input(1), c.input(2)));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({3})));
  // Kept tensors outlive the step's memory.
  return StoreParts({c.input(0).Clone(), c.input(1).Clone(), c.input(2).Clone()}, *output, 0);
}

// One row of the output for every row of the first dimension.
absl::Status SerializeMany(KernelContext& c) {
  const Tensor& indices = c.input(0);
  const Tensor& values = c.input(1);
  RETURN_IF_ERROR(CheckSparse(indices, values, c.input(2)));
  const absl::Span<const int64_t> dims = c.input(2).values<int64_t>();
  const auto rank = static_cast<int64_t>(dims.size());
  if (rank <= 1)
    return InvalidArgument("Rank of input SparseTensor should be > 1, but saw rank: ", rank);
  RETURN_IF_ERROR(CheckIndices(indices, dims));
  RETURN_IF_ERROR(CheckOrder(indices));
  const int64_t count = dims[0];
  constexpr int64_t kMost = int64_t{1} << 20;
  if (count > kMost) {
    return absl::ResourceExhaustedError(
        absl::StrCat("A batch of ", count, " sparse tensors is larger than ", kMost));
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make({count, 3}));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(count));
  const int64_t* const places = indices.data<int64_t>();
  for (int64_t i = 0; i < values.num_elements(); ++i) rows[places[i * rank]].push_back(i);
  const auto size = static_cast<int64_t>(DTypeSize(values.dtype()));
  for (int64_t row = 0; row < count; ++row) {
    const std::vector<int64_t>& entries = rows[row];
    const auto n = static_cast<int64_t>(entries.size());
    Parts parts{Tensor(DType::kInt64, Shape({n, rank - 1})), Tensor(values.dtype(), Shape({n})),
                Tensor::Vector<int64_t>(dims.subspan(1))};
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(places + entries[i] * rank + 1, rank - 1,
                  parts.indices.data<int64_t>() + i * (rank - 1));
      CopyElements(values.dtype(), values.raw() + entries[i] * size, parts.values.raw() + i * size,
                   1);
    }
    RETURN_IF_ERROR(StoreParts(parts, *output, row));
  }
  return absl::OkStatus();
}

absl::StatusOr<Parts> LoadParts(const KernelContext& c, int64_t row) {
  const Tensor& from = c.input(0);
  Parts parts;
  ASSIGN_OR_RETURN(parts.indices, Load(from, row * 3));
  ASSIGN_OR_RETURN(parts.values, Load(from, row * 3 + 1));
  ASSIGN_OR_RETURN(parts.shape, Load(from, row * 3 + 2));
  if (parts.indices.dtype() != DType::kInt64 || parts.indices.rank() != 2) {
    return InvalidArgument("Expected serialized_sparse[", row,
                           ", 0] to represent an index matrix but received shape ",
                           parts.indices.shape().ToString());
  }
  if (parts.values.rank() != 1) {
    return InvalidArgument("Expected serialized_sparse[", row,
                           ", 1] to represent a values vector but received shape ",
                           parts.values.shape().ToString());
  }
  if (parts.shape.dtype() != DType::kInt64 || parts.shape.rank() != 1) {
    return InvalidArgument("Expected serialized_sparse[", row,
                           ", 2] to represent a shape vector but received shape ",
                           parts.shape.shape().ToString());
  }
  if (parts.values.dtype() != c.output_type(1)) {
    return InvalidArgument("Requested SparseTensor of type ", DTypeName(c.output_type(1)),
                           " but SparseTensor[", row,
                           "].values.dtype() == ", DTypeName(parts.values.dtype()));
  }
  if (parts.values.num_elements() != parts.indices.dim(0)) {
    return InvalidArgument("Expected row counts of SparseTensor[", row,
                           "].indices and SparseTensor[", row,
                           "].values to match but they do not: ", parts.indices.dim(0), " vs. ",
                           parts.values.num_elements());
  }
  if (parts.shape.num_elements() != parts.indices.dim(1)) {
    return InvalidArgument("Expected column counts of SparseTensor[", row,
                           "].indices to match size of SparseTensor[", row,
                           "].shape but they do not: ", parts.indices.dim(1), " vs. ",
                           parts.shape.num_elements());
  }
  return parts;
}

// The tensors of all rows under a common shape, after the axes of `batch`.
absl::Status Join(KernelContext& c, const Dims& batch) {
  ASSIGN_OR_RETURN(const Shape batch_shape, Shape::Make(batch));
  const int64_t count = batch_shape.num_elements();
  if (count == 0) {
    return InvalidArgument(
        "Must have at least 1 serialized SparseTensor, but input matrix has 0 rows");
  }
  const auto extra = static_cast<int64_t>(batch.size());
  std::vector<Parts> all;
  int64_t total = 0, rank = -1;
  std::vector<int64_t> shape(batch.begin(), batch.end());
  for (int64_t row = 0; row < count; ++row) {
    ASSIGN_OR_RETURN(Parts parts, LoadParts(c, row));
    const int64_t own = parts.shape.num_elements();
    if (rank < 0) {
      rank = own;
      shape.resize(static_cast<size_t>(extra + rank), 0);
    }
    if (own != rank) {
      return InvalidArgument("Inconsistent shape across SparseTensors: rank prior to SparseTensor[",
                             row, "] was: ", rank, " but rank of SparseTensor[", row,
                             "] is: ", own);
    }
    for (int64_t d = 0; d < rank; ++d)
      shape[extra + d] = std::max(shape[extra + d], parts.shape.values<int64_t>()[d]);
    total += parts.values.num_elements();
    all.push_back(std::move(parts));
  }
  ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(0, Shape({total, extra + rank})));
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, Shape({total})));
  int64_t* place = indices->data<int64_t>();
  char* value = values->raw();
  for (int64_t row = 0; row < count; ++row) {
    const Parts& parts = all[row];
    const int64_t n = parts.values.num_elements();
    for (int64_t i = 0; i < n; ++i, place += extra + rank) {
      int64_t rest = row;
      for (int64_t d = extra - 1; d >= 0; --d) {
        place[d] = rest % batch[d];
        rest /= batch[d];
      }
      std::copy_n(parts.indices.data<int64_t>() + i * rank, rank, place + extra);
    }
    CopyElements(values->dtype(), parts.values.raw(), value, n);
    value += n * static_cast<int64_t>(DTypeSize(values->dtype()));
  }
  c.SetOutput(2, Tensor::Vector<int64_t>(shape));
  return absl::OkStatus();
}

absl::Status Deserialize(KernelContext& c) {
  const Shape& shape = c.input(0).shape();
  if (shape.rank() == 0)
    return InvalidArgument("Serialized sparse should have non-zero rank but received shape ",
                           shape.ToString());
  if (shape.dim(shape.rank() - 1) != 3) {
    return InvalidArgument(
        "Serialized sparse should have 3 as the last dimension but received shape ",
        shape.ToString());
  }
  const Dims dims = shape.dims();
  return Join(c, Dims(dims.begin(), dims.end() - 1));
}

absl::Status DeserializeMany(KernelContext& c) {
  const Shape& shape = c.input(0).shape();
  if (shape.rank() != 2)
    return InvalidArgument("Serialized sparse should be a matrix but received shape ",
                           shape.ToString());
  if (shape.dim(1) != 3)
    return InvalidArgument("Serialized sparse should have 3 columns but received shape ",
                           shape.ToString());
  return Join(c, {shape.dim(0)});
}

// --- Shapes and definitions --------------------------------------------------------------------

absl::Status SerializeShape(ShapeContext& c) {
  RETURN_IF_ERROR(InferSparse(c).status());
  c.SetOutput(0, PartialShape::Vector(3));
  return absl::OkStatus();
}
absl::Status SerializeManyShape(ShapeContext& c) {
  RETURN_IF_ERROR(InferSparse(c).status());
  c.SetOutput(0, PartialShape::Matrix(-1, 3));
  return absl::OkStatus();
}
absl::Status SetSparse(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Matrix(-1, -1));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(-1));
  return absl::OkStatus();
}
absl::Status DeserializeShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRankAtLeast(c.input(0), 1));
  if (serialized.known_rank())
    RETURN_IF_ERROR(ShapeContext::MergeDims(serialized.dim(serialized.rank() - 1), 3).status());
  return SetSparse(c);
}
absl::Status DeserializeManyShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRank(c.input(0), 2));
  if (serialized.known_rank())
    RETURN_IF_ERROR(ShapeContext::MergeDims(serialized.dim(1), 3).status());
  return SetSparse(c);
}

OpBuilder& DefineSerialize(OpBuilder& op) {
  return op.Attr("T: type")
      .Attr("out_type: {string, variant} = DT_STRING")
      .Input("sparse_indices: int64")
      .Input("sparse_values: T")
      .Input("sparse_shape: int64")
      .Output("serialized_sparse: out_type")
      .NoGradient("strings");
}
OpBuilder& DefineDeserialized(OpBuilder& op) {
  return op.Output("sparse_indices: int64")
      .Output("sparse_values: dtype")
      .Output("sparse_shape: int64")
      .NoGradient("strings");
}

}  // namespace

DEFINE_OP(SerializeSparse) {
  DefineSerialize(op)
      .Doc("A sparse tensor as three serialized tensors.")
      .Shape(SerializeShape)
      .Cpu(Serialize);
}

DEFINE_OP(SerializeManySparse) {
  DefineSerialize(op)
      .Doc("Each row of a sparse tensor as three serialized tensors.")
      .Shape(SerializeManyShape)
      .CpuDTypes("T", AllDTypes(), Stateless(SerializeMany));
}

DEFINE_OP(DeserializeSparse) {
  op.Attr("dtype: type")
      .Attr("Tserialized: {string, variant} = DT_STRING")
      .Input("serialized_sparse: Tserialized");
  DefineDeserialized(op)
      .Doc("Serialized sparse tensors as one, under the axes of the input.")
      .Shape(DeserializeShapes)
      .Cpu(Deserialize);
}

DEFINE_OP(DeserializeManySparse) {
  op.Attr("dtype: type").Input("serialized_sparse: string");
  DefineDeserialized(op)
      .Doc("Rows of serialized sparse tensors as one sparse tensor.")
      .Shape(DeserializeManyShapes)
      .Cpu(DeserializeMany);
}

}  // namespace muster
