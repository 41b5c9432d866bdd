// Values that may be absent, held by variant tensors: Optional*.
#include "muster/ops/control/optional.h"

#include "muster/ops/op.h"
#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

absl::StatusOr<const OptionalValue*> ValueIn(const Tensor& handle) {
  if (handle.rank() != 0) return InvalidArgument("Input to OptionalGetValue must be a scalar");
  const OptionalValue* const value = handle.scalar<Variant>().get<OptionalValue>();
  if (value == nullptr) return InvalidArgument("The input is not an optional value");
  return value;
}

Tensor HandleOf(OptionalValue value) {
  return Tensor::Scalar(Variant(std::make_shared<const OptionalValue>(std::move(value))));
}

absl::Status FromValue(KernelContext& c) {
  OptionalValue value;
  for (int i = 0; i < c.num_inputs(); ++i) value.components.push_back(c.input(i));
  c.SetOutput(0, HandleOf(std::move(value)));
  return absl::OkStatus();
}

absl::Status None(KernelContext& c) {
  c.SetOutput(0, HandleOf({}));
  return absl::OkStatus();
}

absl::Status HasValue(KernelContext& c) {
  ASSIGN_OR_RETURN(const OptionalValue* const value, ValueIn(c.input(0)));
  c.SetOutput(0, Tensor::Scalar(!value->components.empty()));
  return absl::OkStatus();
}

absl::Status GetValue(KernelContext& c) {
  ASSIGN_OR_RETURN(const OptionalValue* const value, ValueIn(c.input(0)));
  if (value->components.empty())
    return InvalidArgument("The given optional does not have a value.");
  if (static_cast<int>(value->components.size()) != c.num_outputs()) {
    return InvalidArgument("The given optional has ", value->components.size(),
                           " components, expected ", c.num_outputs());
  }
  ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes,
                   c.node().Attr<std::vector<PartialShape>>("output_shapes"));
  for (int i = 0; i < c.num_outputs(); ++i) {
    const Tensor& component = value->components[i];
    if (component.dtype() != c.output_type(i)) {
      return InvalidArgument("The given optional does not match the expected type for component ",
                             i, ". Expected: ", DTypeName(c.output_type(i)),
                             ". Actual: ", DTypeName(component.dtype()), ".");
    }
    if (i < static_cast<int>(shapes.size()) && !shapes[i].CompatibleWith(component.shape())) {
      return InvalidArgument("The given optional does not match the expected shape for component ",
                             i, ". Expected: ", shapes[i].ToString(),
                             ". Actual: ", component.shape().ToString(), ".");
    }
    c.SetOutput(i, component);
  }
  return absl::OkStatus();
}

absl::Status GetValueShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes,
                   c.Attr<std::vector<PartialShape>>("output_shapes"));
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return InvalidArgument("`output_shapes` must be the same length as `output_types` (",
                           shapes.size(), " vs. ", c.num_outputs(), ").");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, shapes[i]);
  return absl::OkStatus();
}

// As TensorFlow writes it: whether there is a value, and its components.
std::optional<VariantParts> Encode(const Variant& value) {
  const auto* const optional = value.get<OptionalValue>();
  if (optional == nullptr) return std::nullopt;
  return VariantParts{std::string(1, optional->components.empty() ? '\0' : '\1'),
                      optional->components};
}

absl::StatusOr<Variant> Decode(VariantParts parts) {
  if (parts.metadata.size() != 1 || (parts.metadata[0] != 0) == parts.tensors.empty())
    return InvalidArgument("An optional value in a message contradicts itself");
  return Variant(std::make_shared<const OptionalValue>(OptionalValue{std::move(parts.tensors)}));
}

[[maybe_unused]] const bool registered =
    RegisterVariantCodec({"tensorflow::data::OptionalVariant", &Encode, &Decode});

DEFINE_OP(OptionalFromValue) {
  op.Attr("Toutput_types: list(type) >= 1")
      .Input("components: Toutput_types")
      .Output("optional: variant")
      .Doc("An optional value that is there.")
      .Shape(ScalarShape)
      .Cpu(FromValue)
      .Gpu(FromValue)
      .GpuIfAsked();
}

DEFINE_OP(OptionalNone) {
  op.Output("optional: variant")
      .Doc("An optional value that is not there.")
      .Shape(ScalarShape)
      .Cpu(None)
      .Gpu(None)
      .GpuIfAsked();
}

DEFINE_OP(OptionalHasValue) {
  op.Input("optional: variant")
      .Output("has_value: bool")
      .Doc("Whether an optional value is there.")
      .Shape(ScalarShape)
      .Cpu(HasValue)
      .Gpu(HasValue, {}, {"has_value"})
      .GpuIfAsked();
}

DEFINE_OP(OptionalGetValue) {
  op.Attr("output_types: list(type) >= 1")
      .Attr("output_shapes: list(shape) >= 1")
      .Input("optional: variant")
      .Output("components: output_types")
      .Doc("The components of an optional value; InvalidArgument when it is not there.")
      .Shape(GetValueShapes)
      .Cpu(GetValue)
      .Gpu(GetValue)
      .GpuIfAsked();
}

}  // namespace
}  // namespace muster
