#include "muster/ops/op.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace muster {

OpBuilder::OpBuilder(const char* name) {
  registration_.def.name = name;
}

// A definition that does not parse is a bug in the op file: it is found by any run of any test.
void OpBuilder::Fail(const absl::Status& status) {
  std::fprintf(stderr, "definition of op %s: %s\n", registration_.def.name.c_str(),
               status.ToString().c_str());
  std::abort();
}

OpBuilder& OpBuilder::Attr(absl::string_view text) {
  absl::StatusOr<AttrDef> attr = ParseAttrDef(text);
  if (!attr.ok()) Fail(attr.status());
  registration_.def.attrs.push_back(*std::move(attr));
  return *this;
}
OpBuilder& OpBuilder::Attr2x(absl::string_view text) {
  Attr(text);
  registration_.def.attrs.back().since_2x = true;
  return *this;
}
OpBuilder& OpBuilder::Input(absl::string_view text) {
  absl::StatusOr<ArgDef> arg = ParseArgDef(text, registration_.def.attrs);
  if (!arg.ok()) Fail(arg.status());
  registration_.def.inputs.push_back(*std::move(arg));
  return *this;
}
OpBuilder& OpBuilder::Output(absl::string_view text) {
  absl::StatusOr<ArgDef> arg = ParseArgDef(text, registration_.def.attrs);
  if (!arg.ok()) Fail(arg.status());
  registration_.def.outputs.push_back(*std::move(arg));
  return *this;
}
OpBuilder& OpBuilder::Doc(absl::string_view text) {
  registration_.doc = std::string(text);
  return *this;
}
OpBuilder& OpBuilder::Stateful() {
  registration_.def.is_stateful = true;
  return *this;
}
OpBuilder& OpBuilder::Commutative() {
  registration_.def.is_commutative = true;
  return *this;
}
OpBuilder& OpBuilder::Aggregate() {
  registration_.def.is_aggregate = true;
  return *this;
}
OpBuilder& OpBuilder::AllowsUninitializedInput() {
  registration_.def.allows_uninitialized_input = true;
  return *this;
}
OpBuilder& OpBuilder::DistributedCommunication() {
  registration_.def.is_distributed_communication = true;
  return *this;
}
OpBuilder& OpBuilder::Deprecated(int version, absl::string_view text) {
  registration_.def.deprecated_at_version = version;
  registration_.def.deprecation_text = std::string(text);
  return *this;
}
OpBuilder& OpBuilder::Shape(ShapeFunction shape) {
  registration_.shape = shape;
  return *this;
}
OpBuilder& OpBuilder::Gradient(GradientFunction gradient) {
  registration_.gradient = std::move(gradient);
  return *this;
}
OpBuilder& OpBuilder::NoGradient(absl::string_view reason) {
  registration_.no_gradient_reason = std::string(reason);
  return *this;
}
OpBuilder& OpBuilder::HostMemory(std::initializer_list<const char*> args) {
  host_memory_.assign(args.begin(), args.end());
  return *this;
}
OpBuilder& OpBuilder::Cpu(KernelFactory factory, std::vector<std::pair<std::string, DType>> types) {
  kernels_.push_back({registration_.def.name, "CPU", std::move(types), {}, std::move(factory)});
  return *this;
}
OpBuilder& OpBuilder::Gpu(KernelFactory factory, std::vector<std::pair<std::string, DType>> types,
                          std::vector<std::string> host_memory) {
  kernels_.push_back({registration_.def.name, "GPU", std::move(types), std::move(host_memory),
                      std::move(factory)});
  return *this;
}
OpBuilder& OpBuilder::GpuDTypes(const char* attr, const std::vector<DType>& dtypes,
                                const KernelFactory& factory,
                                const std::vector<std::string>& host_memory) {
  for (const DType dtype : dtypes) Gpu(factory, {{attr, dtype}}, host_memory);
  return *this;
}
OpBuilder& OpBuilder::GpuTypes(const char* attr, const std::vector<DType>& dtypes,
                               const std::function<KernelFactory(DType)>& make,
                               const std::vector<std::string>& host_memory,
                               const std::vector<std::pair<std::string, DType>>& more) {
  for (const DType dtype : dtypes) {
    std::vector<std::pair<std::string, DType>> types{{attr, dtype}};
    types.insert(types.end(), more.begin(), more.end());
    Gpu(make(dtype), std::move(types), host_memory);
    kernels_.back().needs_card = true;
  }
  return *this;
}
OpBuilder& OpBuilder::GpuUntyped(KernelFactory factory, std::vector<std::string> host_memory) {
  Gpu(std::move(factory), {}, std::move(host_memory));
  kernels_.back().needs_card = true;
  return *this;
}
OpBuilder& OpBuilder::GpuIfAsked() {
  for (KernelRegistration& kernel : kernels_) kernel.is_last_choice = kernel.device_type == "GPU";
  return *this;
}
OpBuilder& OpBuilder::GpuCalls(KernelFactory factory, std::vector<std::string> host_memory) {
  Gpu(std::move(factory), {}, std::move(host_memory));
  kernels_.back().counts_on_host = true;
  return *this;
}
OpBuilder& OpBuilder::GpuOnHost(const char* attr, const std::vector<DType>& dtypes) {
  std::vector<std::string> all;
  for (const ArgDef& arg : registration_.def.inputs) all.push_back(arg.name);
  for (const ArgDef& arg : registration_.def.outputs) all.push_back(arg.name);
  std::vector<KernelRegistration> added;
  for (const KernelRegistration& kernel : kernels_) {
    if (kernel.device_type != "CPU") continue;
    for (const auto& [name, dtype] : kernel.types) {
      if (name != attr || std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) continue;
      added.push_back(kernel);
      added.back().device_type = "GPU";
      added.back().host_memory_args = all;
    }
  }
  if (added.empty()) Fail(Internal("no kernel for the CPU has such a type of ", attr));
  kernels_.insert(kernels_.end(), added.begin(), added.end());
  return *this;
}
// Of kernels that fit, the first is taken.
OpBuilder& OpBuilder::GpuForwards(KernelFactory factory, const char* attr,
                                  const std::vector<std::string>& args,
                                  const std::vector<DType>& host_types) {
  for (DType dtype : host_types) Gpu(factory, {{attr, dtype}}, args);
  return Gpu(std::move(factory));
}
OpBuilder& OpBuilder::CpuDTypes(const char* attr, std::vector<DType> dtypes,
                                KernelFactory factory) {
  for (DType dtype : dtypes) Cpu(factory, {{attr, dtype}});
  return *this;
}
void OpBuilder::AddTyped(const char* attr, DType dtype, KernelFactory factory,
                         std::vector<std::pair<std::string, DType>> more) {
  more.insert(more.begin(), {attr, dtype});
  Cpu(std::move(factory), std::move(more));
}

void OpBuilder::Register() {
  for (KernelRegistration& kernel : kernels_) {
    kernel.host_memory_args.insert(kernel.host_memory_args.end(), host_memory_.begin(),
                                   host_memory_.end());
    KernelRegistry::Global().Add(std::move(kernel));
  }
  OpRegistry::building()->Add(std::move(registration_));
}

absl::StatusOr<int64_t> ScalarInteger(const Tensor& tensor, absl::string_view what) {
  if (tensor.rank() != 0)
    return InvalidArgument(what, " must be a scalar, got shape ", tensor.shape().ToString());
  ASSIGN_OR_RETURN(Dims values, IntegerValues(tensor));
  return values[0];
}

absl::StatusOr<Dims> IntegerVector(const Tensor& tensor, absl::string_view what) {
  if (tensor.rank() != 1)
    return InvalidArgument(what, " must be a vector, got shape ", tensor.shape().ToString());
  return IntegerValues(tensor);
}

absl::StatusOr<int> CanonicalAxis(int64_t axis, int rank, absl::string_view what) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument(what, " must be in the range [", -rank, ", ", rank, "), but got ", axis);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<DType> PlainDTypes() {
  std::vector<DType> types;
  for (int i = 1; i < kDTypeCount; ++i) {
    if (IsPlainData(static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  return types;
}

std::vector<DType> AllDTypes() {
  std::vector<DType> types = PlainDTypes();
  types.insert(types.end(), {DType::kString, DType::kResource, DType::kVariant});
  return types;
}

}  // namespace muster
