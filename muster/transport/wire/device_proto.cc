#include "muster/transport/wire/device_proto.h"

#include "tensorflow/core/framework/device_attributes.pb.h"

namespace muster {

DeviceAttributes DeviceFromProto(const tensorflow::DeviceAttributes& proto) {
  DeviceAttributes device;
  device.name = proto.name();
  device.device_type = proto.device_type();
  device.memory_limit_bytes = proto.memory_limit();
  device.incarnation = proto.incarnation();
  device.physical_device_desc = proto.physical_device_desc();
  return device;
}

void DeviceToProto(const DeviceAttributes& device, tensorflow::DeviceAttributes& proto) {
  proto.Clear();
  proto.set_name(device.name);
  proto.set_device_type(device.device_type);
  proto.set_memory_limit(device.memory_limit_bytes);
  proto.mutable_locality();
  proto.set_incarnation(device.incarnation);
  proto.set_physical_device_desc(device.physical_device_desc);
  proto.set_xla_global_id(-1);
}

}  // namespace muster
