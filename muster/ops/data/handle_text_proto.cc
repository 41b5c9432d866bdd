#include "muster/ops/data/handle_text_proto.h"

#include "tensorflow/core/framework/resource_handle.pb.h"

#include "muster/tensor/tensor_proto.h"

namespace muster {

std::string HandleToString(const ResourceHandle& handle) {
  tensorflow::ResourceHandleProto proto;
  ResourceHandleToProto(handle, proto);
  return proto.SerializeAsString();
}

absl::StatusOr<ResourceHandle> HandleFromString(const std::string& text) {
  tensorflow::ResourceHandleProto proto;
  if (!proto.ParseFromString(text))
    return InvalidArgument("Could not parse string_handle as a valid ResourceHandle");
  return ResourceHandleFromProto(proto);
}

}  // namespace muster
