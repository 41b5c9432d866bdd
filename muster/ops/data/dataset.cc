#include "muster/ops/data/dataset.h"

#include "muster/device/device_copies.h"
#include "muster/runtime/lack_of_memory.h"

namespace muster {

MaybeElement ReadNext(NextElement& next, const DataContext& context) {
  MaybeElement element = std::nullopt;
  const absl::Status status = EndedByLackOfMemory([&] {
    element = next(context);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return element;
}

absl::StatusOr<DatasetPtr> DatasetIn(const Tensor& tensor) {
  if (tensor.dtype() != DType::kVariant || tensor.num_elements() != 1 || tensor.rank() != 0)
    return InvalidArgument("Dataset tensor must be a scalar of dtype DT_VARIANT.");
  const Dataset* const dataset = tensor.scalar<Variant>().get<Dataset>();
  if (dataset == nullptr) return InvalidArgument("Tensor must be a Dataset object.");
  return dataset->shared_from_this();
}

absl::StatusOr<ElementSpec> SpecOf(const Node& node) {
  ElementSpec spec;
  absl::StatusOr<std::vector<DType>> types = node.Attr<std::vector<DType>>("output_types");
  if (!types.ok()) types = node.Attr<std::vector<DType>>("Toutput_types");
  RETURN_IF_ERROR(types.status());
  spec.types = *std::move(types);
  ASSIGN_OR_RETURN(spec.shapes, node.Attr<std::vector<PartialShape>>("output_shapes"));
  if (spec.shapes.size() != spec.types.size()) {
    return InvalidArgument("`output_shapes` must be the same length as `output_types` (",
                           spec.shapes.size(), " vs. ", spec.types.size(), ").");
  }
  return spec;
}

absl::Status SetDataset(KernelContext& c, Dataset::Begin begin,
                        Dataset::BeginRepeated begin_repeated) {
  ASSIGN_OR_RETURN(ElementSpec spec, SpecOf(c.node()));
  DatasetPtr dataset = std::make_shared<const Dataset>(std::move(spec), std::move(begin),
                                                       std::move(begin_repeated), CardinalityOf(c));
  c.SetOutput(0, Tensor::Scalar(Variant(std::move(dataset))));
  return absl::OkStatus();
}

absl::Status SetDataset(KernelContext& c, ElementSpec spec, Dataset::Begin begin) {
  DatasetPtr dataset =
      std::make_shared<const Dataset>(std::move(spec), std::move(begin), nullptr, CardinalityOf(c));
  c.SetOutput(0, Tensor::Scalar(Variant(std::move(dataset))));
  return absl::OkStatus();
}

absl::Status InUserFunction(absl::Status status, absl::string_view transformation) {
  if (status.ok() || absl::IsOutOfRange(status) || absl::IsCancelled(status)) return status;
  return Prefixed(status, absl::StrCat("Error in user-defined function passed to ", transformation,
                                       "Dataset transformation with iterator: Iterator::Root::",
                                       transformation, ": "));
}

absl::StatusOr<Element> InMemoryOf(Device& device, Element element) {
  for (Tensor& component : element) {
    if (device.has_own_memory()) {
      if (IsInDeviceMemory(component)) continue;
      ASSIGN_OR_RETURN(component, CopyFromHost(device, component));
    } else if (IsInDeviceMemory(component)) {
      return FailedPrecondition("The iterator is on ", device.name(),
                                ", but its dataset gives elements in the memory of a GPU");
    }
  }
  return element;
}

absl::StatusOr<bool> ScalarBool(const Tensor& tensor, absl::string_view what) {
  if (tensor.dtype() != DType::kBool || tensor.rank() != 0)
    return InvalidArgument(what, " must be a scalar");
  return tensor.scalar<bool>();
}

absl::StatusOr<std::string> ScalarString(const Tensor& tensor, absl::string_view what) {
  if (tensor.dtype() != DType::kString || tensor.rank() != 0)
    return InvalidArgument(what, " must be a scalar");
  return tensor.scalar<std::string>();
}

absl::StatusOr<Tensor> CopyRow(const Tensor& tensor, int64_t index) {
  Shape shape = tensor.shape();
  shape.Remove(0);
  ASSIGN_OR_RETURN(Tensor row, Tensor::Make(tensor.dtype(), shape));
  const int64_t count = row.num_elements();
  const size_t offset = static_cast<size_t>(index * count) * DTypeSize(tensor.dtype());
  if (count > 0) CopyElements(tensor.dtype(), tensor.raw() + offset, row.raw(), count);
  return row;
}

OpBuilder& ElementAttrs(OpBuilder& op) {
  return op.Attr("output_types: list(type) >= 1").Attr("output_shapes: list(shape) >= 1");
}

void DefineDataset(OpBuilder& op, const char* doc, KernelFunction make) {
  op.Output("handle: variant")
      .Doc(doc)
      .Shape(ScalarShape)
      .NoGradient("a dataset is not a number")
      .Cpu(make);
}

}  // namespace muster
