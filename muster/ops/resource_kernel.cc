#include "muster/ops/resource_kernel.h"

#include <atomic>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"

namespace muster {
namespace {

// The pair of strings behind a Ref(string) handle, with the thing itself.
class HandleVariable : public Variable {
 public:
  HandleVariable(const ResourceName& name, RefPtr<Resource> resource)
      : Variable(name.name, DType::kString, PartialShape::Vector(2)),
        resource_(std::move(resource)) {
    Assign(Tensor::Vector<std::string>({name.container, name.name}));
  }
  const RefPtr<Resource>& resource() const { return resource_; }

 private:
  const RefPtr<Resource> resource_;
};

bool IsContainerName(absl::string_view name) {
  if (!absl::ascii_isalnum(static_cast<unsigned char>(name[0])) && name[0] != '.') return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.' && c != '-' &&
        c != '/') {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<ResourceName> NameResource(const KernelSetup& setup, bool use_node_name) {
  static std::atomic<int64_t> next{0};
  ResourceName result;
  ASSIGN_OR_RETURN(result.container, setup.Attr<std::string>("container"));
  if (result.container.empty()) {
    result.container = setup.resources().default_container();
  } else if (!IsContainerName(result.container)) {
    return InvalidArgument("container contains invalid characters: ", result.container);
  }
  ASSIGN_OR_RETURN(result.name, setup.Attr<std::string>("shared_name"));
  if (absl::StartsWith(result.name, "_")) {
    return InvalidArgument("shared_name cannot start with '_':", result.name);
  }
  if (!result.name.empty()) return result;
  if (use_node_name) {
    result.name = setup.node().name();
    return result;
  }
  result.is_private = true;
  result.name = absl::StrCat("_", next.fetch_add(1), "_", setup.node().name());
  return result;
}

void NameForDevice(ResourceName& name, Device& device) {
  if (device.has_own_memory()) absl::StrAppend(&name.name, "@", device.name());
}

std::string ResourceKey(absl::string_view name, absl::string_view type_name) {
  return absl::StrCat(name, "/", type_name);
}

absl::StatusOr<RefPtr<Resource>> InputResource(const KernelContext& c, int i,
                                               absl::string_view type_name) {
  if (c.input_is_reference(i)) {
    if (auto* handle = dynamic_cast<HandleVariable*>(c.input_reference(i).get()))
      return handle->resource();
  }
  const Tensor& tensor = c.input(i);
  if (tensor.dtype() == DType::kResource) {
    if (tensor.num_elements() != 1) {
      return InvalidArgument("Input ", i, " must be a scalar resource handle, got shape ",
                             tensor.shape().ToString());
    }
    const ResourceHandle& handle = tensor.scalar<ResourceHandle>();
    if (handle.resource) return handle.resource;
    return c.resources().Lookup(handle.container, ResourceKey(handle.name, type_name));
  }
  if (tensor.dtype() != DType::kString || tensor.num_elements() != 2) {
    return InvalidArgument(
        "Resource handle must have 2 elements, but had shape: ",
        tensor.valid() ? tensor.shape().ToString() : std::string("<uninitialized>"));
  }
  return c.resources().Lookup(tensor.data<std::string>()[0],
                              ResourceKey(tensor.data<std::string>()[1], type_name));
}

absl::Status WrongResource(const KernelContext& c, const Resource& resource,
                           absl::string_view wanted) {
  return InvalidArgument(
      "Trying to access a handle's resource using the wrong type. The handle given to '",
      c.node().name(), "' points to a ", resource.Describe(),
      ", but you are trying to access it as type ", wanted);
}

absl::Status ResourceKernel::Init(KernelSetup& setup) {
  ASSIGN_OR_RETURN(name_, NameResource(setup, use_node_name()));
  node_name_ = setup.node().name();
  device_ = setup.device().name();
  is_reference_ = setup.output_type(0) == DType::kString;
  return absl::OkStatus();
}

absl::Status ResourceKernel::Compute(KernelContext& c) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(GetLocked(c.resources()).status());
  if (is_reference_) {
    c.SetOutputReference(0, reference_);
  } else {
    c.SetOutput(0, handle_);
  }
  return absl::OkStatus();
}

absl::StatusOr<RefPtr<Resource>> ResourceKernel::Get(ResourceManager& resources) {
  MutexLock lock(mutex_);
  return GetLocked(resources);
}

absl::StatusOr<RefPtr<Resource>> ResourceKernel::GetLocked(ResourceManager& resources) {
  if (resource_) return resource_;
  if (name_.is_private) {
    ASSIGN_OR_RETURN(resource_, Make(name_.name));
    if (auto* const state = dynamic_cast<State*>(resource_.get()))
      listed_ = resources.List(name_.container, node_name_, RefPtr<State>::Share(state));
  } else {
    ASSIGN_OR_RETURN(const RefPtr<Resource> found,
                     resources.LookupOrCreate(name_.container, ResourceKey(name_.name, type_name()),
                                              [this] { return Make(name_.name); }));
    RETURN_IF_ERROR(Verify(*found));
    resource_ = found;
  }
  MakeHandleLocked();
  return resource_;
}

void ResourceKernel::MakeHandleLocked() {
  if (is_reference_) {
    reference_ = MakeRef<HandleVariable>(name_, resource_);
    return;
  }
  ResourceHandle handle;
  handle.device = device_;
  handle.container = name_.container;
  handle.name = name_.name;
  handle.type_name = type_name();
  handle.resource = resource_;
  handle_ = Tensor::Scalar<ResourceHandle>(std::move(handle));
}

absl::Status HandleOutputShape(ShapeContext& c) {
  c.SetOutput(
      0, c.output_type(0) == DType::kString ? PartialShape::Vector(2) : PartialShape::Scalar());
  return absl::OkStatus();
}

std::string DTypeList(absl::Span<const DType> dtypes) {
  return absl::StrJoin(
      dtypes, ", ", [](std::string* out, DType dtype) { absl::StrAppend(out, DTypeName(dtype)); });
}

}  // namespace muster
