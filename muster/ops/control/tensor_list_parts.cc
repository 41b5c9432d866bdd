// Lists made of parts of a tensor, and tensors and lists made of whole lists: TensorListConcat,
// TensorListSplit and their kin.
#include <algorithm>

#include "muster/ops/control/rows.h"
#include "muster/ops/control/tensor_list.h"
#include "muster/ops/indexing/gpu_mover.h"

namespace muster {
namespace {

using List = std::shared_ptr<const TensorList>;

Dims RowDims(const Shape& shape) {
  return Dims(shape.dims().begin() + 1, shape.dims().end());
}

// All rows of a tensor, without its first axis.
absl::StatusOr<std::vector<Tensor>> RowsOf(KernelContext& c, const Mover& mover,
                                           const Tensor& tensor) {
  ASSIGN_OR_RETURN(const Shape row, Shape::Make(RowDims(tensor.shape())));
  return CutRows(c, mover, tensor, std::vector<Shape>(tensor.dim(0), row));
}

absl::StatusOr<List> TypedList(const Tensor& handle, DType dtype) {
  ASSIGN_OR_RETURN(List list, ListIn(handle));
  if (list->dtype() != dtype) {
    return InvalidArgument("Invalid data types; op elements ", DTypeName(dtype),
                           " but list elements ", DTypeName(list->dtype()));
  }
  return list;
}

// --- One tensor out of all elements ------------------------------------------------------------

// What elements look like: how many rows each has, where that is known, and the shape of a row.
struct RowsOfElement {
  int64_t count = -1;
  PartialShape row;
};

absl::StatusOr<RowsOfElement> RowsIn(const TensorList& list, const PartialShape& wanted) {
  RowsOfElement rows;
  ASSIGN_OR_RETURN(const PartialShape merged, MergeElementShapes(wanted, list.shape()));
  if (!merged.known_rank()) return rows;
  if (merged.rank() < 1) {
    return InvalidArgument(
        "Concat requires elements to be at least vectors, found scalars instead.");
  }
  rows.count = merged.dim(0);
  rows.row = PartialShape(Dims(merged.dims().begin() + 1, merged.dims().end()));
  return rows;
}

// leading_dims[i], where it is given, is the number of rows of element i if that was never set.
absl::Status CheckLeadingDims(const std::vector<Tensor>& items, int64_t count,
                              absl::Span<const int64_t> leading_dims) {
  if (leading_dims.size() > items.size()) {
    return InvalidArgument("leading_dims has ", leading_dims.size(), " elements, but the list has ",
                           items.size());
  }
  for (size_t i = 0; i < leading_dims.size(); ++i) {
    if (items[i].valid() || count < 0 || leading_dims[i] == count) continue;
    return InvalidArgument("leading_dims[", i, "] = ", leading_dims[i],
                           " contradicts the first dimension ", count, " of element ", i);
  }
  return absl::OkStatus();
}

absl::Status Concat(KernelContext& c, const Mover& mover, const PartialShape& wanted,
                    absl::Span<const int64_t> leading_dims) {
  ASSIGN_OR_RETURN(const List list, TypedList(c.input(0), c.output_type(0)));
  ASSIGN_OR_RETURN(RowsOfElement rows, RowsIn(*list, wanted));
  if (list->size() == 0 && !rows.row.ToShape()) {
    return InvalidArgument(
        "All except the first dimension must be fully defined when concating an empty tensor "
        "list. element_shape: ",
        rows.row.ToString());
  }
  const std::vector<Tensor> items = list->items();
  RETURN_IF_ERROR(CheckLeadingDims(items, rows.count, leading_dims));
  std::vector<int64_t> lengths;
  std::optional<int64_t> common;  // rows that all set elements have; -1: they differ
  int64_t total = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const Tensor& item = items[i];
    if (!item.valid()) {
      lengths.push_back(-1);
      continue;
    }
    if (item.rank() == 0) {
      return InvalidArgument("Concat saw a scalar shape at index ", i,
                             " but requires at least vectors.");
    }
    if (rows.count >= 0 && item.dim(0) != rows.count) {
      return InvalidArgument(
          "First entry of element_shape input does not match the first dim of list element at "
          "index: ",
          i, " Expected: ", rows.count, " Actual: ", item.dim(0));
    }
    ASSIGN_OR_RETURN(rows.row, MergeElementShapes(rows.row, PartialShape(RowDims(item.shape()))));
    lengths.push_back(item.dim(0));
    if (!common) common = item.dim(0);
    if (*common != item.dim(0)) common = -1;
  }
  const std::optional<Shape> row = rows.row.ToShape();
  if (!row) {
    return InvalidArgument(
        "Trying to concat list with only uninitialized tensors but "
        "element_shape_except_first_dim is not fully defined: ",
        rows.row.ToString());
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) {
      if (rows.count >= 0) {
        lengths[i] = rows.count;
      } else if (i < leading_dims.size()) {
        lengths[i] = leading_dims[i];
      } else if (common.value_or(-1) >= 0) {
        lengths[i] = *common;
      } else {
        return InvalidArgument("List contains uninitialized tensor at index ", i,
                               " but leading_dims has only ", leading_dims.size(), " elements.");
      }
      if (lengths[i] < 0)
        return InvalidArgument("leading_dims must not be negative, got ", lengths[i]);
    }
    if (__builtin_add_overflow(total, lengths[i], &total))
      return InvalidArgument("The elements of the list have too many rows together");
  }
  Dims dims = row->dims();
  dims.insert(dims.begin(), total);
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  std::vector<int64_t> counts;
  for (const int64_t length : lengths) counts.push_back(length * row->num_elements());
  RETURN_IF_ERROR(JoinRows(c, mover, items, counts, *output));
  c.SetOutput(1, Tensor::Vector<int64_t>(lengths));
  return absl::OkStatus();
}

absl::Status ConcatV1(KernelContext& c, const Mover& mover) {
  ASSIGN_OR_RETURN(const PartialShape wanted, c.node().Attr<PartialShape>("element_shape"));
  if (wanted.known_rank() && wanted.rank() == 0)
    return InvalidArgument("element_shape must not be empty");
  return Concat(c, mover, wanted, {});
}

absl::Status ConcatV2(KernelContext& c, const Mover& mover) {
  ASSIGN_OR_RETURN(const PartialShape wanted, ShapeIn(c.input(1)));
  ASSIGN_OR_RETURN(const Dims leading, IntegerVector(c.input(2), "leading_dims"));
  return Concat(c, mover, wanted, leading);
}

// --- Lists out of tensors ----------------------------------------------------------------------

absl::Status Split(KernelContext& c, const Mover& mover) {
  const Tensor tensor = c.input(0);
  ASSIGN_OR_RETURN(PartialShape element, ShapeIn(c.input(1)));
  if (element.known_rank() && element.rank() < 1) {
    return InvalidArgument("TensorListSplit requires element_shape to be at least of rank 1, ",
                           "but saw: ", element.ToString());
  }
  if (tensor.rank() < 1) {
    return InvalidArgument("Tensor must be at least a vector, but saw shape: ",
                           tensor.shape().ToString());
  }
  Dims any_rows = tensor.shape().dims();
  any_rows[0] = -1;
  if (!element.Merge(PartialShape(any_rows)).ok()) {
    return InvalidArgument("tensor shape ", tensor.shape().ToString(),
                           " is not compatible with element_shape ", element.ToString());
  }
  if (c.input(2).rank() != 1) {
    return InvalidArgument("Expected lengths to be a vector, received shape: ",
                           c.input(2).shape().ToString());
  }
  std::vector<Shape> shapes;
  int64_t at = 0;
  for (int64_t length : c.input(2).values<int64_t>()) {
    if (length < 0) return InvalidArgument("Invalid value in lengths: ", length);
    if (length > tensor.dim(0) - at) {
      return InvalidArgument("Attempting to slice [", at, ", ", static_cast<uint64_t>(at) + length,
                             "] from tensor with length ", tensor.dim(0));
    }
    shapes.push_back(tensor.shape());
    shapes.back().Set(0, length);
    at += length;
  }
  if (at != tensor.dim(0)) {
    return InvalidArgument("Unused values in tensor. Length of tensor: ", tensor.dim(0),
                           " Values used: ", at);
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> items, CutRows(c, mover, tensor, shapes));
  c.SetOutput(0, HandleOf(std::make_shared<const TensorList>(tensor.dtype(), std::move(element), -1,
                                                             std::move(items))));
  return absl::OkStatus();
}

absl::Status ScatterInto(KernelContext& c, const Mover& mover) {
  ASSIGN_OR_RETURN(const List list, ListIn(c.input(0)));
  const Tensor tensor = c.input(1);
  if (list->dtype() != tensor.dtype()) {
    return InvalidArgument("Invalid data types; input tensor type: ", DTypeName(tensor.dtype()),
                           " list element_type: ", DTypeName(list->dtype()));
  }
  if (tensor.rank() < 1) {
    return InvalidArgument("Tensor must be at least a vector, but saw shape: ",
                           tensor.shape().ToString());
  }
  if (c.input(2).rank() != 1) {
    return InvalidArgument("Expected indices to be a vector, but received shape: ",
                           c.input(2).shape().ToString());
  }
  const absl::Span<const int32_t> indices = c.input(2).values<int32_t>();
  if (static_cast<int64_t>(indices.size()) != tensor.dim(0)) {
    return InvalidArgument("Expected len(indices) == tensor.shape[0], but saw: ", indices.size(),
                           " vs. ", tensor.dim(0));
  }
  const PartialShape row(RowDims(tensor.shape()));
  if (!row.Merge(list->shape()).ok()) {
    return InvalidArgument("Tried to set a tensor with incompatible shape to a list. ",
                           "Op element shape: ", row.ToString(),
                           " list shape: ", list->shape().ToString());
  }
  std::vector<Tensor> items = list->items();
  ASSIGN_OR_RETURN(std::vector<Tensor> rows, RowsOf(c, mover, tensor));
  for (size_t i = 0; i < indices.size(); ++i) {
    const int32_t index = indices[i];
    if (index < 0) {
      return InvalidArgument(
          "Indices in TensorListScatterIntoExistingList must all be non-negative; got ", index);
    }
    if (index >= kMostListElements)
      return absl::ResourceExhaustedError(
          absl::StrCat("A list of ", int64_t{index} + 1, " elements is too long"));
    if (index >= static_cast<int64_t>(items.size())) items.resize(int64_t{index} + 1);
    items[index] = std::move(rows[i]);
  }
  c.SetOutput(0, HandleOf(list->WithItems(std::move(items))));
  return absl::OkStatus();
}

// --- Lists in tensors of lists -----------------------------------------------------------------

absl::Status PushBackBatch(KernelContext& c, const Mover& mover) {
  const Tensor handles = c.input(0);
  const Tensor tensor = c.input(1);
  if (tensor.rank() < 1) {
    return InvalidArgument("Expected tensor to be at least a vector, but saw shape: ",
                           tensor.shape().ToString());
  }
  if (handles.rank() != 1) {
    return InvalidArgument("Expected input_handles to be a vector, but saw shape: ",
                           handles.shape().ToString());
  }
  if (tensor.dim(0) != handles.dim(0)) {
    return InvalidArgument("Expected tensor.shape[0] == input_handles.size, but saw ",
                           tensor.dim(0), " vs. ", handles.dim(0));
  }
  const PartialShape row(RowDims(tensor.shape()));
  ASSIGN_OR_RETURN(Tensor result, c.AllocateTemporary(DType::kVariant, handles.shape()));
  ASSIGN_OR_RETURN(std::vector<Tensor> rows, RowsOf(c, mover, tensor));
  for (int64_t i = 0; i < handles.dim(0); ++i) {
    const TensorList* const list = handles.data<Variant>()[i].get<TensorList>();
    if (list == nullptr) return InvalidArgument("Input handle at index ", i, " is not a list.");
    if (!list->shape().Merge(row).ok()) {
      return InvalidArgument("Tried to append a tensor with incompatible shape to a list at index ",
                             i, ". Op element shape: ", row.ToString(),
                             " list shape: ", list->shape().ToString());
    }
    if (list->dtype() != tensor.dtype()) {
      return InvalidArgument("Invalid data type at index ", i, "; op elements ",
                             DTypeName(tensor.dtype()), " but list elements ",
                             DTypeName(list->dtype()));
    }
    result.data<Variant>()[i] = Variant(list->WithPushed(std::move(rows[i])));
  }
  c.SetOutput(0, std::move(result));
  return absl::OkStatus();
}

absl::Status ConcatLists(KernelContext& c) {
  ASSIGN_OR_RETURN(const DType dtype, c.node().Attr<DType>("element_dtype"));
  const Tensor a = c.input(0);
  const Tensor b = c.input(1);
  if (!(a.shape() == b.shape())) {
    return InvalidArgument("Incompatible input TensorList tensor shapes: ", a.shape().ToString(),
                           " vs. ", b.shape().ToString());
  }
  ASSIGN_OR_RETURN(Tensor result, c.AllocateTemporary(DType::kVariant, a.shape()));
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const TensorList* const first = a.data<Variant>()[i].get<TensorList>();
    const TensorList* const second = b.data<Variant>()[i].get<TensorList>();
    if (first == nullptr || second == nullptr) {
      return InvalidArgument("input_", first == nullptr ? "a" : "b",
                             " is not a TensorList at index ", i);
    }
    if (first->dtype() != dtype || second->dtype() != dtype) {
      return InvalidArgument("input_", first->dtype() != dtype ? "a" : "b", "[", i,
                             "].dtype != element_dtype.  Saw: ",
                             DTypeName(first->dtype() != dtype ? first->dtype() : second->dtype()),
                             " vs. ", DTypeName(dtype));
    }
    if (!first->shape().Merge(second->shape()).ok()) {
      return InvalidArgument("input_a and input_b TensorList element shapes are not identical at ",
                             "index ", i, ".  Saw ", first->shape().ToString(), " vs. ",
                             second->shape().ToString());
    }
    std::vector<Tensor> items = first->items();
    for (Tensor& item : second->items()) items.push_back(std::move(item));
    result.data<Variant>()[i] = Variant(first->WithItems(std::move(items)));
  }
  c.SetOutput(0, std::move(result));
  return absl::OkStatus();
}

// --- Shapes and definitions --------------------------------------------------------------------

absl::Status ConcatShapes(ShapeContext& c, const PartialShape& element) {
  PartialShape result;
  if (element.known_rank() && element.rank() > 0) {
    Dims dims = element.dims();
    dims[0] = -1;
    result = PartialShape(std::move(dims));
  }
  c.SetOutput(0, std::move(result));
  c.SetOutput(1, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status ConcatV1Shapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape element, c.Attr<PartialShape>("element_shape"));
  return ConcatShapes(c, element);
}

absl::Status ConcatV2Shapes(ShapeContext& c) {
  if (c.input(1).rank() != 1) return ConcatShapes(c, PartialShape());
  absl::StatusOr<PartialShape> element = c.InputAsShape(1);
  return ConcatShapes(c, element.ok() ? *element : PartialShape());
}

absl::Status ConcatListsShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape merged, c.input(0).Merge(c.input(1)));
  c.SetOutput(0, std::move(merged));
  return absl::OkStatus();
}

DEFINE_OP(TensorListConcat) {
  op.Attr("element_dtype: type")
      .Attr("element_shape: shape = { unknown_rank: true }")
      .Input("input_handle: variant")
      .Output("tensor: element_dtype")
      .Output("lengths: int64")
      .Doc("The rows of all elements as one tensor, and how many each element had.")
      .Shape(ConcatV1Shapes)
      .HostMemory({"lengths"})
      .Cpu(MovesOnHost<MoveBy<ConcatV1>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<ConcatV1>>);
}

DEFINE_OP(TensorListConcatV2) {
  op.Attr("element_dtype: type")
      .Attr("shape_type: {int32, int64}")
      .Input("input_handle: variant")
      .Input("element_shape: shape_type")
      .Input("leading_dims: int64")
      .Output("tensor: element_dtype")
      .Output("lengths: int64")
      .Doc("The rows of all elements as one tensor, and how many each element had.")
      .Shape(ConcatV2Shapes)
      .HostMemory({"element_shape", "leading_dims", "lengths"})
      .Cpu(MovesOnHost<MoveBy<ConcatV2>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<ConcatV2>>);
}

DEFINE_OP(TensorListSplit) {
  op.Attr("element_dtype: type")
      .Attr("shape_type: {int32, int64}")
      .Input("tensor: element_dtype")
      .Input("element_shape: shape_type")
      .Input("lengths: int64")
      .Output("output_handle: variant")
      .Doc("A list of parts of a tensor, each with its own number of rows.")
      .Shape(ScalarShape)
      .HostMemory({"element_shape", "lengths"})
      .Cpu(MovesOnHost<MoveBy<Split>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<Split>>);
}

DEFINE_OP(TensorListScatterIntoExistingList) {
  op.Attr("element_dtype: type")
      .Input("input_handle: variant")
      .Input("tensor: element_dtype")
      .Input("indices: int32")
      .Output("output_handle: variant")
      .Doc("The list with the rows of a tensor in the given places.")
      .Shape(ScalarShape)
      .HostMemory({"indices"})
      .Cpu(MovesOnHost<MoveBy<ScatterInto>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<ScatterInto>>);
}

DEFINE_OP(TensorListPushBackBatch) {
  op.Attr("element_dtype: type")
      .Input("input_handles: variant")
      .Input("tensor: element_dtype")
      .Output("output_handles: variant")
      .Doc("Many lists, each with one more element: a row of the tensor.")
      .Shape(UnchangedShape)
      .Cpu(MovesOnHost<MoveBy<PushBackBatch>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<PushBackBatch>>);
}

DEFINE_OP(TensorListConcatLists) {
  op.Attr("element_dtype: type")
      .Input("input_a: variant")
      .Input("input_b: variant")
      .Output("output: variant")
      .Doc("Lists that go on with the elements of others.")
      .Shape(ConcatListsShape)
      .Cpu(ConcatLists)
      .Gpu(ConcatLists);
}

}  // namespace
}  // namespace muster
