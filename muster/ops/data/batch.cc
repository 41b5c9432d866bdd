// Datasets whose elements are several elements of another, stacked; padded where they differ.
#include <algorithm>

#include "muster/ops/data/dataset.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

absl::StatusOr<Tensor> NewBatch(DType dtype, const Shape& row, size_t size) {
  Dims dims = row.dims();
  dims.insert(dims.begin(), static_cast<int64_t>(size));
  ASSIGN_OR_RETURN(Shape shape, Shape::Make(dims));
  return Tensor::Make(dtype, std::move(shape));
}

absl::StatusOr<Tensor> Stack(const std::vector<Element>& elements, size_t component) {
  const Tensor& first = elements[0][component];
  ASSIGN_OR_RETURN(Tensor batch, NewBatch(first.dtype(), first.shape(), elements.size()));
  const int64_t count = first.num_elements();
  char* to = batch.raw();
  for (const Element& element : elements) {
    const Tensor& tensor = element[component];
    if (tensor.dtype() != first.dtype()) {
      return InvalidArgument("Cannot add a tensor of type ", DTypeName(tensor.dtype()),
                             " to a batch of type ", DTypeName(first.dtype()));
    }
    if (tensor.num_elements() != count) {
      return InvalidArgument(
          "Cannot add tensor to the batch: number of elements does not match. Shapes are: "
          "[tensor]: ",
          tensor.shape().ToString(), ", [batch]: ", first.shape().ToString());
    }
    if (count > 0) CopyElements(first.dtype(), tensor.raw(), to, count);
    to += tensor.size_bytes();
  }
  return batch;
}

// How a component of several elements becomes one tensor.
using MakeBatch =
    std::function<absl::StatusOr<Tensor>(const std::vector<Element>&, size_t component)>;

absl::Status SetBatches(KernelContext& c, bool drop_remainder, MakeBatch make) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const int64_t size, ScalarInteger(c.input(1), "batch_size"));
  if (size <= 0) return InvalidArgument("Batch size must be greater than zero.");
  return SetDataset(c, [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [=, next = std::move(next),
            over = false](const DataContext& context) mutable -> MaybeElement {
      std::vector<Element> elements;
      while (!over && static_cast<int64_t>(elements.size()) < size) {
        ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
        over = !element.has_value();
        if (over) break;
        if (!elements.empty() && element->size() != elements[0].size())
          return InvalidArgument("Elements of a batch differ in their number of components");
        elements.push_back(*std::move(element));
      }
      if (elements.empty() || (drop_remainder && static_cast<int64_t>(elements.size()) < size))
        return std::nullopt;
      Element batch;
      for (size_t i = 0; i < elements[0].size(); ++i) {
        ASSIGN_OR_RETURN(Tensor component, make(elements, i));
        batch.push_back(std::move(component));
      }
      return batch;
    };
  });
}

absl::Status MakeBatches(KernelContext& c) {
  bool drop = false;
  if (c.num_inputs() > 2) {  // where there is one, it is the last
    ASSIGN_OR_RETURN(drop, ScalarBool(c.input(c.num_inputs() - 1), "drop_remainder"));
  }
  return SetBatches(c, drop, Stack);
}

// --- Batches of other sizes --------------------------------------------------------------------

// Takes batches apart and puts their rows together again, by turns to each of `sizes`.
class Rebatcher {
 public:
  Rebatcher(NextElement next, Dims sizes, bool drop_remainder)
      : next_(std::move(next)), sizes_(std::move(sizes)), drop_(drop_remainder) {}

  MaybeElement Next(const DataContext& context) {
    const auto wanted = static_cast<size_t>(sizes_[turn_]);
    std::vector<Element> rows;
    if (batch_.empty()) RETURN_IF_ERROR(HasRow(context).status());
    while (rows.size() < wanted) {
      ASSIGN_OR_RETURN(const bool more, HasRow(context));
      if (!more) break;
      Element row;
      for (const Tensor& component : batch_) {
        ASSIGN_OR_RETURN(Tensor one, CopyRow(component, at_));
        row.push_back(std::move(one));
      }
      ++at_;
      rows.push_back(std::move(row));
    }
    if (over_ && (rows.empty() || (drop_ && rows.size() < wanted))) return std::nullopt;
    turn_ = (turn_ + 1) % sizes_.size();
    Element result;
    for (size_t i = 0; i < batch_.size(); ++i) {
      absl::StatusOr<Tensor> component = rows.empty() ? None(batch_[i]) : Stack(rows, i);
      RETURN_IF_ERROR(component.status());
      result.push_back(*std::move(component));
    }
    return result;
  }

 private:
  // Whether there is another row, which batch_ and at_ then say. The last batch is kept at the end.
  absl::StatusOr<bool> HasRow(const DataContext& context) {
    while (!over_ && (batch_.empty() || at_ >= batch_[0].dim(0))) {
      ASSIGN_OR_RETURN(std::optional<Element> element, next_(context));
      over_ = !element.has_value();
      if (over_) break;
      for (const Tensor& component : *element) {
        if (component.rank() == 0 || component.dim(0) != (*element)[0].dim(0)) {
          return InvalidArgument(
              "Input element must have the same batch size in each component. Component shape: ",
              component.shape().ToString());
        }
      }
      batch_ = *std::move(element);
      at_ = 0;
    }
    return !over_;
  }

  static absl::StatusOr<Tensor> None(const Tensor& like) {
    Shape row = like.shape();
    row.Remove(0);
    return NewBatch(like.dtype(), row, 0);
  }

  NextElement next_;
  const Dims sizes_;
  const bool drop_;
  Element batch_;
  int64_t at_ = 0;
  size_t turn_ = 0;
  bool over_ = false;
};

absl::Status MakeRebatched(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  if (c.input(1).rank() > 1) {
    return InvalidArgument("`batch_sizes` must be a scalar or a vector, got shape ",
                           c.input(1).shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(c.input(1)));
  if (std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size == 0; }))
    return InvalidArgument("`batch_sizes` must hold a size above zero");
  for (const int64_t size : sizes) {
    if (size < 0) return InvalidArgument("`batch_sizes` must not be negative, got ", size);
  }
  ASSIGN_OR_RETURN(const bool drop, ScalarBool(c.input(2), "drop_remainder"));
  return SetDataset(c, [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [rebatcher = std::make_unique<Rebatcher>(std::move(next), sizes, drop)](
               const DataContext& context) { return rebatcher->Next(context); };
  });
}

// --- Padding -----------------------------------------------------------------------------------

struct Padding {
  std::vector<Dims> shapes;  // -1: as the largest of the batch
  std::vector<Tensor> values;
};

absl::StatusOr<Shape> PaddedShape(const std::vector<Element>& elements, size_t component,
                                  const Dims& wanted) {
  Dims dims(wanted.size(), 0);
  for (const Element& element : elements) {
    const Shape& shape = element[component].shape();
    if (shape.rank() != static_cast<int>(wanted.size())) {
      return InvalidArgument(
          "All elements in a batch must have the same rank as the padded shape for component",
          component, ": expected rank ", wanted.size(), " but got element with rank ",
          shape.rank());
    }
    for (int i = 0; i < shape.rank(); ++i) {
      if (wanted[i] >= 0 && shape.dim(i) > wanted[i]) {
        return absl::DataLossError(
            absl::StrCat("Attempted to pad to a smaller size than the input element."));
      }
      dims[i] = wanted[i] >= 0 ? wanted[i] : std::max(dims[i], shape.dim(i));
    }
  }
  return Shape::Make(dims);
}

// Copies a block into the corner of a larger one.
void CopyCorner(const Tensor& from, const Shape& padded, char* to) {
  const int rank = from.rank();
  if (from.num_elements() == 0) return;
  const auto size = static_cast<int64_t>(DTypeSize(from.dtype()));
  const int64_t row = rank == 0 ? 1 : from.dim(rank - 1);
  const int64_t rows = from.num_elements() / row;
  Dims index(rank, 0);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t offset = 0;
    for (int i = 0; i < rank; ++i) offset = offset * padded.dim(i) + index[i];
    CopyElements(from.dtype(), from.raw() + r * row * size, to + offset * size, row);
    for (int i = rank - 2; i >= 0 && ++index[i] == from.dim(i); --i) index[i] = 0;
  }
}

absl::StatusOr<Tensor> StackPadded(const std::vector<Element>& elements, size_t component,
                                   const Padding& padding) {
  const Tensor& value = padding.values[component];
  ASSIGN_OR_RETURN(const Shape row, PaddedShape(elements, component, padding.shapes[component]));
  ASSIGN_OR_RETURN(Tensor batch, NewBatch(value.dtype(), row, elements.size()));
  const auto size = static_cast<int64_t>(DTypeSize(value.dtype()));
  const int64_t count = row.num_elements();
  for (int64_t i = 0; i < batch.num_elements(); ++i)
    CopyElements(value.dtype(), value.raw(), batch.raw() + i * size, 1);
  for (size_t i = 0; i < elements.size(); ++i) {
    const Tensor& tensor = elements[i][component];
    if (tensor.dtype() != value.dtype()) {
      return InvalidArgument("Mismatched type between padding value ", component, " (",
                             DTypeName(value.dtype()), ") and the element (",
                             DTypeName(tensor.dtype()), ")");
    }
    CopyCorner(tensor, row, batch.raw() + static_cast<int64_t>(i) * count * size);
  }
  return batch;
}

absl::Status MakePaddedBatches(KernelContext& c) {
  ASSIGN_OR_RETURN(const int64_t n, c.node().Attr<int64_t>("N"));
  ASSIGN_OR_RETURN(const ElementSpec spec, SpecOf(c.node()));
  if (static_cast<size_t>(n) != spec.types.size()) {
    return InvalidArgument("Number of padded shapes (", n,
                           ") must match the number of components (", spec.types.size(), ").");
  }
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  if (input->spec().types != spec.types) {
    return InvalidArgument("Elements of types ", DTypeList(input->spec().types),
                           " cannot be padded to batches of types ", DTypeList(spec.types));
  }
  Padding padding;
  for (int i = 0; i < n; ++i) {
    const Tensor& shape = c.input(2 + i);
    if (shape.rank() != 1) return InvalidArgument("All padded shapes must be vectors");
    ASSIGN_OR_RETURN(Dims dims, IntegerVector(shape, "padded_shapes"));
    for (const int64_t dim : dims) {
      if (dim < -1) return InvalidArgument("padded_shapes must be >= -1, got ", dim);
    }
    padding.shapes.push_back(std::move(dims));
    const Tensor& value = c.input(2 + static_cast<int>(n) + i);
    if (value.rank() != 0) return InvalidArgument("All padding values must be scalars");
    padding.values.push_back(KeptTensor(value));
  }
  bool drop = false;
  if (c.num_inputs() > 2 + 2 * n) {
    ASSIGN_OR_RETURN(drop, ScalarBool(c.input(c.num_inputs() - 1), "drop_remainder"));
  }
  return SetBatches(
      c, drop,
      [padding](const std::vector<Element>& elements, size_t component) -> absl::StatusOr<Tensor> {
        if (component >= padding.values.size())
          return InvalidArgument("An element has more components than padded shapes");
        return StackPadded(elements, component, padding);
      });
}

}  // namespace

DEFINE_OP(BatchDataset) {
  ElementAttrs(op)
      .Attr("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("batch_size: int64");
  DefineDataset(op, "Several elements stacked to one; the last may be smaller.", MakeBatches);
}

DEFINE_OP(BatchDatasetV2) {
  op.Attr("parallel_copy: bool = false");
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("batch_size: int64")
      .Input("drop_remainder: bool");
  DefineDataset(op, "Several elements stacked to one; a smaller last one may be left out.",
                MakeBatches);
}

DEFINE_OP(ParallelBatchDataset) {
  op.Attr("parallel_copy: bool = false");
  ElementAttrs(op)
      .Attr("deterministic: string = 'default'")
      .Attr("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("batch_size: int64")
      .Input("num_parallel_calls: int64")
      .Input("drop_remainder: bool");
  DefineDataset(op, "BatchDatasetV2, with a hint how many batches may be made at once.",
                MakeBatches);
}

DEFINE_OP(PaddedBatchDataset) {
  op.Attr("Toutput_types: list(type) >= 1")
      .Attr("output_shapes: list(shape) >= 1")
      .Attr("N: int >= 1")
      .Attr("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("batch_size: int64")
      .Input("padded_shapes: N * int64")
      .Input("padding_values: Toutput_types");
  DefineDataset(op, "Several elements padded to one shape and stacked.", MakePaddedBatches);
}

DEFINE_OP(PaddedBatchDatasetV2) {
  op.Attr("parallel_copy: bool = false")
      .Attr("Toutput_types: list(type) >= 1")
      .Attr("output_shapes: list(shape) >= 1")
      .Attr("N: int >= 1")
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("batch_size: int64")
      .Input("padded_shapes: N * int64")
      .Input("padding_values: Toutput_types")
      .Input("drop_remainder: bool");
  DefineDataset(op, "Several elements padded to one shape and stacked.", MakePaddedBatches);
}

DEFINE_OP(RebatchDatasetV2) {
  ElementAttrs(op)
      .Input("input_dataset: variant")
      .Input("batch_sizes: int64")
      .Input("drop_remainder: bool");
  DefineDataset(op, "Batches of other sizes, by turns.", MakeRebatched);
}

}  // namespace muster
