#include "muster/ops/conv/cudnn.h"

#include <algorithm>
#include <utility>

namespace muster::cudnn {
namespace {

absl::StatusOr<const Api*> FindApi() {
  ASSIGN_OR_RETURN(void* const library, cuda::OpenLibrary("libcudnn.so", {9}, "cudnnCreate"));
  static Api api;
  const auto find = [&](const char* name, auto* function) {
    return cuda::FindFunction(library, name, reinterpret_cast<void**>(function));
  };
  RETURN_IF_ERROR(find("cudnnGetErrorString", &api.GetErrorString));
  RETURN_IF_ERROR(find("cudnnCreate", &api.Create));
  RETURN_IF_ERROR(find("cudnnSetStream", &api.SetStream));
  RETURN_IF_ERROR(find("cudnnBackendCreateDescriptor", &api.CreateDescriptor));
  RETURN_IF_ERROR(find("cudnnBackendDestroyDescriptor", &api.DestroyDescriptor));
  RETURN_IF_ERROR(find("cudnnBackendFinalize", &api.Finalize));
  RETURN_IF_ERROR(find("cudnnBackendSetAttribute", &api.SetAttribute));
  RETURN_IF_ERROR(find("cudnnBackendGetAttribute", &api.GetAttribute));
  RETURN_IF_ERROR(find("cudnnBackendExecute", &api.Execute));
  return &api;
}

}  // namespace

absl::StatusOr<const Api*> Load() {
  static const auto* const api = new absl::StatusOr<const Api*>(FindApi());
  return *api;
}

absl::Status Check(const Api& api, int status, const char* what) {
  if (status == 0) return absl::OkStatus();
  return Internal(what, " failed: ", api.GetErrorString(status), " (", status, ")");
}

Descriptor::Descriptor(const Api& api, Kind kind)
    : api_(&api),
      status_(Check(api, api.CreateDescriptor(static_cast<int>(kind), &descriptor_),
                    "cudnnBackendCreateDescriptor")) {}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : api_(other.api_),
      descriptor_(std::exchange(other.descriptor_, nullptr)),
      status_(std::move(other.status_)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(status_, other.status_);
  return *this;
}

Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) api_->DestroyDescriptor(descriptor_);
}

Descriptor& Descriptor::Set(Attribute attribute, Type type, int64_t count, const void* values) {
  if (!status_.ok()) return *this;
  const int status = api_->SetAttribute(descriptor_, static_cast<int>(attribute),
                                        static_cast<int>(type), count, values);
  if (status == 0) return *this;
  status_ = Suffixed(Check(*api_, status, "cudnnBackendSetAttribute"),
                     absl::StrCat(" for the attribute ", static_cast<int>(attribute)));
  return *this;
}

Descriptor& Descriptor::SetInts(Attribute attribute, absl::Span<const int64_t> values) {
  return Set(attribute, Type::kInt64, static_cast<int64_t>(values.size()), values.data());
}

absl::Status Descriptor::Finalize() {
  RETURN_IF_ERROR(status_);
  return Check(*api_, api_->Finalize(descriptor_), "cudnnBackendFinalize");
}

absl::StatusOr<int64_t> Descriptor::GetInt(Attribute attribute) const {
  int64_t value = 0, count = 0;
  RETURN_IF_ERROR(Check(*api_,
                        api_->GetAttribute(descriptor_, static_cast<int>(attribute),
                                           static_cast<int>(Type::kInt64), 1, &count, &value),
                        "cudnnBackendGetAttribute"));
  return value;
}

absl::StatusOr<std::vector<int>> Descriptor::GetEnums(Attribute attribute, Type type,
                                                      int64_t most) const {
  std::vector<int> values(static_cast<size_t>(most));
  int64_t count = 0;
  RETURN_IF_ERROR(Check(*api_,
                        api_->GetAttribute(descriptor_, static_cast<int>(attribute),
                                           static_cast<int>(type), most, &count, values.data()),
                        "cudnnBackendGetAttribute"));
  values.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, most)));
  return values;
}

absl::StatusOr<std::vector<Descriptor>> Descriptor::GetParts(Attribute attribute, Kind kind) const {
  std::vector<Descriptor> parts;
  std::vector<RawDescriptor> raw;
  int64_t count = 0;
  const auto get = [&](int64_t asked) {
    return Check(*api_,
                 api_->GetAttribute(descriptor_, static_cast<int>(attribute),
                                    static_cast<int>(Type::kDescriptor), asked, &count,
                                    asked == 0 ? nullptr : raw.data()),
                 "cudnnBackendGetAttribute");
  };
  RETURN_IF_ERROR(get(0));
  for (int64_t i = 0; i < count; ++i) {
    raw.push_back(parts.emplace_back(*api_, kind).get());
    RETURN_IF_ERROR(parts.back().status_);
  }
  if (!parts.empty()) RETURN_IF_ERROR(get(count));
  while (static_cast<int64_t>(parts.size()) > count) parts.pop_back();
  return parts;
}

}  // namespace muster::cudnn
