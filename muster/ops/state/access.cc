#include "muster/ops/state/access.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/device/gpu/gpu.h"

namespace muster {

absl::StatusOr<const ResourceHandle*> InputHandle(const KernelContext& c, int i) {
  const Tensor& tensor = c.input(i);
  if (tensor.dtype() != DType::kResource || !tensor.shape().is_scalar()) {
    return InvalidArgument("Input ", i, " must be a scalar resource handle, got ",
                           DTypeName(tensor.dtype()), " of shape ", tensor.shape().ToString());
  }
  return &tensor.scalar<ResourceHandle>();
}

std::string VariableName(absl::string_view name, absl::string_view device) {
  const size_t type = device.rfind("/device:");
  if (type == absl::string_view::npos || absl::StartsWith(device.substr(type), "/device:CPU"))
    return std::string(name);
  return absl::StrCat(name, device.substr(type));
}

std::vector<DType> GpuVariableTypes() {
  return {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt64};
}

std::vector<DType> GpuResourceVariableTypes() {
  return {DType::kHalf, DType::kBfloat16, DType::kFloat,     DType::kDouble,
          DType::kBool, DType::kInt64,    DType::kComplex64, DType::kComplex128};
}

absl::StatusOr<RefPtr<Variable>> HandleVariable(const KernelContext& c,
                                                const ResourceHandle& handle) {
  const std::string name = VariableName(handle.name, handle.device);
  if (c.device().has_own_memory() != (name != handle.name)) {
    return InvalidArgument("Trying to access resource ", handle.name, " located in device ",
                           handle.device, " from device ", c.device().name());
  }
  if (handle.resource) {
    Variable* variable = dynamic_cast<Variable*>(handle.resource.get());
    if (variable == nullptr) {
      return InvalidArgument("Resource ", handle.name, " is a ", handle.resource->Describe(),
                             ", not a variable");
    }
    return RefPtr<Variable>::Share(variable);
  }
  absl::StatusOr<RefPtr<Variable>> found = c.resources().LookupAs<Variable>(handle.container, name);
  if (absl::IsNotFound(found.status()) && absl::StartsWith(found.status().message(), "Resource ")) {
    // TensorFlow's text has the C++ type of the missing thing in it.
    return NotFound("Resource ", handle.container, "/", handle.name,
                    "/N10tensorflow3VarE does not exist.");
  }
  return found;
}

namespace {

// TensorFlow's words for reading what does not exist.
absl::Status UnreadableVariable(const ResourceHandle& handle, const absl::Status& reason) {
  return FailedPrecondition(
      "Error while reading resource variable ", handle.name, " from Container: ", handle.container,
      ". This could mean that the variable was uninitialized. Not found: ", reason.message());
}

absl::StatusOr<Tensor> ReadHandle(KernelContext& c, int i) {
  ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(c, i));
  const absl::StatusOr<RefPtr<Variable>> variable = HandleVariable(c, *handle);
  if (absl::IsNotFound(variable.status())) return UnreadableVariable(*handle, variable.status());
  RETURN_IF_ERROR(variable.status());
  Tensor value = (*variable)->Snapshot();
  if (!value.valid()) return (*variable)->Uninitialized();
  return value;
}

}  // namespace

absl::StatusOr<Tensor> ReadHandleAs(KernelContext& c, int i, DType dtype) {
  ASSIGN_OR_RETURN(Tensor value, ReadHandle(c, i));
  if (value.dtype() != dtype) {
    return InvalidArgument("Trying to read variable with wrong dtype. Expected ", DTypeName(dtype),
                           " got ", DTypeName(value.dtype()));
  }
  return value;
}

absl::StatusOr<RefPtr<Variable>> InputVariable(const KernelContext& c, int i) {
  if (c.input_is_reference(i)) return c.input_reference(i);
  ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(c, i));
  return HandleVariable(c, *handle);
}

Tensor OwnedByVariable(Tensor value) {
  const Region* region = value.buffer().region();
  return region == nullptr || region->writable() ? value : value.Clone();
}

absl::Status AssignValue(const KernelContext& c, Variable& variable, Tensor value) {
  Gpu* const gpu = c.device().gpu();
  if (gpu == nullptr || !value.is_on_device()) {
    variable.Assign(OwnedByVariable(std::move(value)));
    return absl::OkStatus();
  }
  const void* const from = value.raw();
  const size_t bytes = value.size_bytes();
  const Tensor kept = value;  // until the copy is noted
  return variable.AssignInPlace(OwnedByVariable(std::move(value)), [&](Tensor& to) {
    if (to.is_on_device()) return gpu->CopyWithin(to.raw(), from, bytes);
    to = OwnedByVariable(kept);
    return absl::OkStatus();
  });
}

PartialShape InputVariableShape(const ShapeContext& c, int i) {
  if (c.input_type(i) != DType::kResource || IsRef(c.node().input_types()[i])) return c.input(i);
  const std::vector<DTypeAndShape>& handle = c.input_handle(i);
  return handle.empty() ? PartialShape() : handle[0].shape;
}

absl::Status AssignedHandleShape(ShapeContext& c) {
  const std::vector<DTypeAndShape>& handle = c.input_handle(0);
  if (handle.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("dtype"));
  if (handle[0].dtype != DType::kInvalid && handle[0].dtype != dtype) {
    return InvalidArgument("Trying to initialize handle for variable with wrong dtype. Expected ",
                           DTypeName(handle[0].dtype), " got ", DTypeName(dtype));
  }
  return ShapeContext::Merge(handle[0].shape, c.input(1)).status();
}

namespace {

template <typename Index>
absl::StatusOr<std::vector<int64_t>> Check(const Tensor& indices, int64_t limit) {
  std::vector<int64_t> result(indices.num_elements());
  const Index* values = indices.data<Index>();
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = values[i];
    if (result[i] < 0 || result[i] >= limit) {
      return InvalidArgument("indices", PositionText(indices.shape(), static_cast<int64_t>(i)),
                             " = ", result[i], " is not in [0, ", limit, ")");
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> CheckedIndices(const Tensor& indices, int64_t limit) {
  return indices.dtype() == DType::kInt32 ? Check<int32_t>(indices, limit)
                                          : Check<int64_t>(indices, limit);
}

}  // namespace muster
