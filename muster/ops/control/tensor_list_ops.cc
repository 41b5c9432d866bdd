// Lists of tensors as values: TensorList*.
#include <algorithm>

#include "muster/ops/control/held_elements.h"
#include "muster/ops/control/rows.h"
#include "muster/ops/control/tensor_list.h"
#include "muster/ops/indexing/gpu_mover.h"

namespace muster {
namespace {

using List = std::shared_ptr<const TensorList>;

absl::StatusOr<List> ListOf(KernelContext& c, int i, DType dtype) {
  ASSIGN_OR_RETURN(List list, ListIn(c.input(i)));
  if (list->dtype() != dtype) {
    return InvalidArgument("Invalid data types; op elements ", DTypeName(dtype),
                           " but list elements ", DTypeName(list->dtype()));
  }
  return list;
}

// What an element that was never set is: zeros, where the shape is known.
absl::StatusOr<Tensor> ElementOrZeros(KernelContext& c, const TensorList& list, int64_t i,
                                      const PartialShape& wanted) {
  Tensor item = list.item(i);
  if (item.valid()) return item;
  ASSIGN_OR_RETURN(const PartialShape merged, MergeElementShapes(wanted, list.shape()));
  std::optional<Shape> shape = merged.ToShape();
  for (int64_t k = 0; !shape && k < list.size(); ++k) {
    const Tensor other = list.item(k);
    if (other.valid()) shape = other.shape();
  }
  if (!shape) {
    return InvalidArgument(
        "Trying to read an uninitialized tensor but element_shape is not fully "
        "defined: ",
        wanted.ToString(), " and no uninitialized element.");
  }
  return Zeros(c, list.dtype(), *shape);
}

absl::Status CheckElement(const TensorList& list, const Tensor& item, absl::string_view what) {
  if (item.dtype() != list.dtype()) {
    return InvalidArgument("Invalid data types; list elements ", DTypeName(list.dtype()),
                           " but tried to ", what, " ", DTypeName(item.dtype()));
  }
  if (!list.shape().CompatibleWith(item.shape())) {
    return InvalidArgument("Tried to ", what,
                           " a tensor with incompatible shape to a list. Op element shape: ",
                           item.shape().ToString(), " list shape: ", list.shape().ToString());
  }
  return absl::OkStatus();
}

absl::StatusOr<List> NewList(KernelContext& c, int shape_input, int64_t max_size, int64_t size) {
  ASSIGN_OR_RETURN(const DType dtype, c.node().Attr<DType>("element_dtype"));
  ASSIGN_OR_RETURN(PartialShape shape, ShapeIn(c.input(shape_input)));
  return std::make_shared<const TensorList>(dtype, std::move(shape), max_size,
                                            std::vector<Tensor>(size));
}

absl::StatusOr<int64_t> ListSize(const Tensor& tensor, absl::string_view what) {
  ASSIGN_OR_RETURN(const int64_t size, ScalarInteger(tensor, what));
  if (size < 0 && what == "size")
    return InvalidArgument("TensorListSlice expects size to be non-negative. Got: ", size);
  if (size < 0)
    return InvalidArgument("The ", what, " to reserve must be a non negative number, got ", size);
  if (size > kMostListElements)
    return absl::ResourceExhaustedError(absl::StrCat("A list of ", size, " elements is too long"));
  return size;
}

absl::Status Empty(KernelContext& c) {
  if (c.input(1).rank() != 0) {
    return InvalidArgument("max_num_elements expected to be a scalar ",
                           "but got shape: ", c.input(1).shape().ToString());
  }
  ASSIGN_OR_RETURN(const int64_t limit, ScalarInteger(c.input(1), "max_num_elements"));
  ASSIGN_OR_RETURN(List list, NewList(c, 0, limit < 0 ? -1 : limit, 0));
  c.SetOutput(0, HandleOf(std::move(list)));
  return absl::OkStatus();
}

absl::Status Reserve(KernelContext& c) {
  ASSIGN_OR_RETURN(const int64_t size, ListSize(c.input(1), "num_elements"));
  ASSIGN_OR_RETURN(List list, NewList(c, 0, -1, size));
  c.SetOutput(0, HandleOf(std::move(list)));
  return absl::OkStatus();
}

absl::Status PushBack(KernelContext& c) {
  ASSIGN_OR_RETURN(const List list, ListOf(c, 0, c.input_type(1)));
  RETURN_IF_ERROR(CheckElement(*list, c.input(1), "append"));
  if (list->max_size() >= 0 && list->size() >= list->max_size()) {
    return InvalidArgument("Tried to push item into a full list list size: ", list->size(),
                           " max_num_elements: ", list->max_size());
  }
  c.SetOutput(0, HandleOf(list->WithPushed(c.input(1))));
  return absl::OkStatus();
}

absl::Status PopBack(KernelContext& c) {
  ASSIGN_OR_RETURN(const List list, ListOf(c, 0, c.output_type(1)));
  ASSIGN_OR_RETURN(const PartialShape wanted, ShapeIn(c.input(1)));
  if (list->size() == 0) return InvalidArgument("Trying to pop from an empty list.");
  ASSIGN_OR_RETURN(Tensor item, ElementOrZeros(c, *list, list->size() - 1, wanted));
  c.SetOutput(0, HandleOf(list->WithoutLast()));
  c.SetOutput(1, std::move(item));
  return absl::OkStatus();
}

absl::Status Length(KernelContext& c) {
  ASSIGN_OR_RETURN(const List list, ListIn(c.input(0)));
  c.SetOutput(0, Tensor::Scalar(static_cast<int32_t>(list->size())));
  return absl::OkStatus();
}

template <typename T>
absl::Status ElementShape(KernelContext& c) {
  ASSIGN_OR_RETURN(const List list, ListIn(c.input(0)));
  if (!list->shape().known_rank()) {
    c.SetOutput(0, Tensor::Scalar<T>(-1));
    return absl::OkStatus();
  }
  std::vector<T> dims;
  for (int i = 0; i < list->shape().rank(); ++i)
    dims.push_back(static_cast<T>(list->shape().dim(i)));
  c.SetOutput(0, Tensor::Vector<T>(dims));
  return absl::OkStatus();
}

absl::Status Resize(KernelContext& c) {
  ASSIGN_OR_RETURN(const List list, ListIn(c.input(0)));
  ASSIGN_OR_RETURN(const int64_t size, ListSize(c.input(1), "size"));
  std::vector<Tensor> items = list->items();
  items.resize(size);
  c.SetOutput(0, HandleOf(list->WithItems(std::move(items))));
  return absl::OkStatus();
}

absl::Status GetItem(KernelContext& c) {
  ASSIGN_OR_RETURN(const List list, ListOf(c, 0, c.output_type(0)));
  ASSIGN_OR_RETURN(const int64_t index, ScalarInteger(c.input(1), "index"));
  ASSIGN_OR_RETURN(const PartialShape wanted, ShapeIn(c.input(2)));
  if (index < 0 || index >= list->size()) {
    return InvalidArgument("Trying to access element ", index, " in a list with ", list->size(),
                           " elements.");
  }
  ASSIGN_OR_RETURN(Tensor item, ElementOrZeros(c, *list, index, wanted));
  c.SetOutput(0, std::move(item));
  return absl::OkStatus();
}

absl::Status SetItem(KernelContext& c) {
  const bool may_reuse = c.input(0).exclusive();
  ASSIGN_OR_RETURN(List list, ListOf(c, 0, c.input_type(2)));
  ASSIGN_OR_RETURN(const int64_t index, ScalarInteger(c.input(1), "index"));
  ASSIGN_OR_RETURN(const bool grows, c.node().Attr<bool>("resize_if_index_out_of_bounds"));
  RETURN_IF_ERROR(CheckElement(*list, c.input(2), "set"));
  if (grows && index >= list->size() && index < kMostListElements) {
    std::vector<Tensor> items = list->items();
    items.resize(index + 1);
    list = list->WithItems(std::move(items));
  }
  if (index < 0 || index >= list->size()) {
    return InvalidArgument("Trying to modify element ", index, " in a list with ", list->size(),
                           " elements.");
  }
  c.SetOutput(0, HandleOf(list->WithItem(index, c.input(2), may_reuse)));
  return absl::OkStatus();
}

// Elements `indices` of the list as one tensor. The texts tell why no shape could be found.
absl::Status StackElements(KernelContext& c, const Mover& mover, const TensorList& list,
                           const Tensor& shape_input, absl::Span<const int64_t> indices,
                           absl::string_view empty_text, absl::string_view unset_text) {
  ASSIGN_OR_RETURN(const PartialShape wanted, ShapeIn(shape_input));
  ASSIGN_OR_RETURN(PartialShape merged, MergeElementShapes(wanted, list.shape()));
  if (indices.empty() && !merged.ToShape()) {
    return InvalidArgument(empty_text, merged.ToString());
  }
  std::vector<Tensor> items;
  for (int64_t index : indices) {
    items.push_back(list.item(index));
    if (!items.back().valid()) continue;
    ASSIGN_OR_RETURN(merged, MergeElementShapes(merged, PartialShape(items.back().shape())));
  }
  const std::optional<Shape> shape = merged.ToShape();
  if (!shape) return InvalidArgument(unset_text, merged.ToString());
  Dims dims = shape->dims();
  dims.insert(dims.begin(), static_cast<int64_t>(indices.size()));
  ASSIGN_OR_RETURN(const Shape stacked, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, stacked));
  const std::vector<int64_t> counts(items.size(), shape->num_elements());
  return JoinRows(c, mover, items, counts, *output);
}

absl::Status Stack(KernelContext& c, const Mover& mover) {
  ASSIGN_OR_RETURN(const List list, ListOf(c, 0, c.output_type(0)));
  ASSIGN_OR_RETURN(const int64_t wanted, c.node().Attr<int64_t>("num_elements"));
  if (wanted != -1 && wanted != list->size()) {
    return InvalidArgument("Operation expected a list with ", wanted,
                           " elements but got a list with ", list->size(), " elements.");
  }
  std::vector<int64_t> all(list->size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return StackElements(
      c, mover, *list, c.input(1), all,
      "Tried to stack elements of an empty list with non-fully-defined element_shape: ",
      "Tried to stack list which only contains uninitialized tensors and has a "
      "non-fully-defined element_shape: ");
}

absl::Status Gather(KernelContext& c, const Mover& mover) {
  ASSIGN_OR_RETURN(const List list, ListOf(c, 0, c.output_type(0)));
  ASSIGN_OR_RETURN(const Dims indices, IntegerVector(c.input(1), "indices"));
  for (int64_t index : indices) {
    if (index < 0 || index >= list->size()) {
      return InvalidArgument("Trying to gather element ", index, " in a list with ", list->size(),
                             " elements.");
    }
  }
  return StackElements(
      c, mover, *list, c.input(2), indices,
      "Tried to gather 0-elements from a list with non-fully-defined shape: ",
      "Tried to gather uninitialized tensors from a list with non-fully-defined element_shape: ");
}

// All rows of a tensor.
absl::StatusOr<std::vector<Tensor>> RowsOf(KernelContext& c, const Mover& mover,
                                           const Tensor& tensor) {
  const Dims dims(tensor.shape().dims().begin() + 1, tensor.shape().dims().end());
  ASSIGN_OR_RETURN(const Shape row, Shape::Make(dims));
  return CutRows(c, mover, tensor, std::vector<Shape>(tensor.dim(0), row));
}

absl::Status CheckRows(const Tensor& tensor, const PartialShape& element) {
  if (tensor.rank() < 1) {
    return InvalidArgument("Tensor must be at least a vector, but saw shape: ",
                           tensor.shape().ToString());
  }
  const Dims dims(tensor.shape().dims().begin() + 1, tensor.shape().dims().end());
  if (!PartialShape(dims).Merge(element).ok()) {
    return InvalidArgument("Specified a list with shape ", element.ToString(),
                           " from a tensor with shape ", PartialShape(dims).ToString());
  }
  return absl::OkStatus();
}

absl::Status FromTensor(KernelContext& c, const Mover& mover) {
  const Tensor tensor = c.input(0);
  ASSIGN_OR_RETURN(PartialShape element, ShapeIn(c.input(1)));
  RETURN_IF_ERROR(CheckRows(tensor, element));
  ASSIGN_OR_RETURN(std::vector<Tensor> items, RowsOf(c, mover, tensor));
  c.SetOutput(0, HandleOf(std::make_shared<const TensorList>(tensor.dtype(), std::move(element), -1,
                                                             std::move(items))));
  return absl::OkStatus();
}

absl::Status ScatterV2(KernelContext& c, const Mover& mover) {
  const Tensor tensor = c.input(0);
  ASSIGN_OR_RETURN(const Dims indices, IntegerVector(c.input(1), "indices"));
  ASSIGN_OR_RETURN(PartialShape element, ShapeIn(c.input(2)));
  ASSIGN_OR_RETURN(const int64_t given, ScalarInteger(c.input(3), "num_elements"));
  if (given < -1)
    return InvalidArgument("TensorListScatter expects num_elements >= -1, found: ", given);
  RETURN_IF_ERROR(CheckRows(tensor, element));
  if (static_cast<int64_t>(indices.size()) != tensor.dim(0)) {
    return InvalidArgument("Invalid number of rows in input tensor. Expected: ", indices.size(),
                           " Actual: ", tensor.dim(0));
  }
  int64_t size = std::max<int64_t>(given, 0);
  for (int64_t index : indices) {
    if (index < 0) return InvalidArgument("Indices in TensorListScatter must all be non-negative.");
    if (given >= 0 && index >= given) {
      return InvalidArgument("TensorListScatter: Trying to scatter at index ", index,
                             " in list with size ", given);
    }
    size = std::max(size, index + 1);
  }
  if (size > kMostListElements)
    return absl::ResourceExhaustedError(absl::StrCat("A list of ", size, " elements is too long"));
  std::vector<Tensor> items(size);
  ASSIGN_OR_RETURN(std::vector<Tensor> rows, RowsOf(c, mover, tensor));
  for (size_t i = 0; i < indices.size(); ++i) items[indices[i]] = std::move(rows[i]);
  c.SetOutput(0, HandleOf(std::make_shared<const TensorList>(tensor.dtype(), std::move(element), -1,
                                                             std::move(items))));
  return absl::OkStatus();
}

// --- Shapes ------------------------------------------------------------------------------------

// The shape that input i gives, as far as it is known while the graph is built.
PartialShape ElementShapeFrom(ShapeContext& c, int i) {
  if (!c.input(i).known_rank() || c.input(i).rank() != 1) return PartialShape();
  absl::StatusOr<PartialShape> shape = c.InputAsShape(i);
  return shape.ok() ? *std::move(shape) : PartialShape();
}

absl::Status PopShapes(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Scalar());
  c.SetOutput(1, ElementShapeFrom(c, 1));
  return absl::OkStatus();
}

absl::Status GetItemShape(ShapeContext& c) {
  c.SetOutput(0, ElementShapeFrom(c, 2));
  return absl::OkStatus();
}

absl::Status StackShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t count, c.Attr<int64_t>("num_elements"));
  const PartialShape element = ElementShapeFrom(c, 1);
  c.SetOutput(0, element.known_rank() ? c.Concatenate(PartialShape::Vector(count), element)
                                      : PartialShape());
  return absl::OkStatus();
}

absl::Status GatherShape(ShapeContext& c) {
  const PartialShape element = ElementShapeFrom(c, 2);
  c.SetOutput(0, element.known_rank() ? c.Concatenate(c.input(1), element) : PartialShape());
  return absl::OkStatus();
}

// --- Definitions -------------------------------------------------------------------------------

DEFINE_OP(EmptyTensorList) {
  op.Attr("element_dtype: type")
      .Attr("shape_type: {int32, int64}")
      .Input("element_shape: shape_type")
      .Input("max_num_elements: int32")
      .Output("handle: variant")
      .Doc("A list without elements.")
      .Shape(ScalarShape)
      .HostMemory({"element_shape", "max_num_elements"})
      .Cpu(Empty)
      .Gpu(Empty);
}

DEFINE_OP(TensorListReserve) {
  op.Attr("element_dtype: type")
      .Attr("shape_type: {int32, int64}")
      .Input("element_shape: shape_type")
      .Input("num_elements: int32")
      .Output("handle: variant")
      .Doc("A list of elements that are still to be set.")
      .Shape(ScalarShape)
      .HostMemory({"element_shape", "num_elements"})
      .Cpu(Reserve)
      .Gpu(Reserve);
}

DEFINE_OP(TensorListPushBack) {
  op.Attr("element_dtype: type")
      .Input("input_handle: variant")
      .Input("tensor: element_dtype")
      .Output("output_handle: variant")
      .Doc("The list with one more element at its end.")
      .Shape(ScalarShape)
      .Cpu(PushBack)
      .Gpu(PushBack);
}

DEFINE_OP(TensorListPopBack) {
  op.Attr("element_dtype: type")
      .Input("input_handle: variant")
      .Input("element_shape: int32")
      .Output("output_handle: variant")
      .Output("tensor: element_dtype")
      .Doc("The list without its last element, and that element.")
      .Shape(PopShapes)
      .HostMemory({"element_shape"})
      .Cpu(PopBack)
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool, DType::kVariant}),
                [](DType) { return Stateless(PopBack); });
}

DEFINE_OP(TensorListLength) {
  op.Input("input_handle: variant")
      .Output("length: int32")
      .Doc("The number of elements.")
      .Shape(ScalarShape)
      .HostMemory({"length"})
      .Cpu(Length)
      .Gpu(Length);
}

DEFINE_OP(TensorListElementShape) {
  op.Attr("shape_type: {int32, int64}")
      .Input("input_handle: variant")
      .Output("element_shape: shape_type")
      .Doc("The shape that all elements have, -1 where it is not known.")
      .Shape(UnknownShape)
      .HostMemory({"element_shape"})
      .CpuTypes<Indices>("shape_type", []<typename T>() { return Stateless(ElementShape<T>); })
      .Gpu(ElementShape<int32_t>, {{"shape_type", DType::kInt32}})
      .Gpu(ElementShape<int64_t>, {{"shape_type", DType::kInt64}});
}

DEFINE_OP(TensorListResize) {
  op.Input("input_handle: variant")
      .Input("size: int32")
      .Output("output_handle: variant")
      .Doc("The list cut, or grown by elements that are still to be set.")
      .Shape(ScalarShape)
      .HostMemory({"size"})
      .Cpu(Resize)
      .Gpu(Resize);
}

DEFINE_OP(TensorListGetItem) {
  op.Attr("element_dtype: type")
      .Attr("Tshape: {int32, int64} = DT_INT32")
      .Input("input_handle: variant")
      .Input("index: int32")
      .Input("element_shape: Tshape")
      .Output("item: element_dtype")
      .Doc("One element of the list.")
      .Shape(GetItemShape)
      .HostMemory({"index", "element_shape"})
      .Cpu(GetItem)
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}),
                [](DType) { return Stateless(GetItem); });
}

DEFINE_OP(TensorListSetItem) {
  op.Attr("element_dtype: type")
      .Attr("resize_if_index_out_of_bounds: bool = false")
      .Input("input_handle: variant")
      .Input("index: int32")
      .Input("item: element_dtype")
      .Output("output_handle: variant")
      .Doc("The list with another element in one place.")
      .Shape(ScalarShape)
      .HostMemory({"index"})
      .Cpu(SetItem)
      .GpuDTypes("element_dtype", GpuListTypes({}), Stateless(SetItem));
}

DEFINE_OP(TensorListStack) {
  op.Attr("element_dtype: type")
      .Attr("num_elements: int = -1")
      .Input("input_handle: variant")
      .Input("element_shape: int32")
      .Output("tensor: element_dtype")
      .Doc("All elements as one tensor.")
      .Shape(StackShape)
      .HostMemory({"element_shape"})
      .Cpu(MovesOnHost<MoveBy<Stack>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<Stack>>);
}

DEFINE_OP(TensorListGather) {
  op.Attr("element_dtype: type")
      .Input("input_handle: variant")
      .Input("indices: int32")
      .Input("element_shape: int32")
      .Output("values: element_dtype")
      .Doc("Some elements as one tensor.")
      .Shape(GatherShape)
      .HostMemory({"indices", "element_shape"})
      .Cpu(MovesOnHost<MoveBy<Gather>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<Gather>>);
}

DEFINE_OP(TensorListFromTensor) {
  op.Attr("element_dtype: type")
      .Attr("shape_type: {int32, int64}")
      .Input("tensor: element_dtype")
      .Input("element_shape: shape_type")
      .Output("output_handle: variant")
      .Doc("The rows of a tensor as a list.")
      .Shape(ScalarShape)
      .HostMemory({"element_shape"})
      .Cpu(MovesOnHost<MoveBy<FromTensor>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<FromTensor>>);
}

DEFINE_OP(TensorListScatterV2) {
  op.Attr("element_dtype: type")
      .Attr("shape_type: {int32, int64}")
      .Input("tensor: element_dtype")
      .Input("indices: int32")
      .Input("element_shape: shape_type")
      .Input("num_elements: int32")
      .Output("output_handle: variant")
      .Doc("A list with the rows of a tensor in the given places.")
      .Shape(ScalarShape)
      .HostMemory({"indices", "element_shape", "num_elements"})
      .Cpu(MovesOnHost<MoveBy<ScatterV2>>())
      .GpuTypes("element_dtype", GpuListTypes({DType::kBool}), MovesOnGpu<MoveBy<ScatterV2>>);
}

}  // namespace
}  // namespace muster
