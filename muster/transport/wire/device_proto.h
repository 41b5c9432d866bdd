// Devices as tasks describe them to each other.
#pragma once

#include "muster/device/device.h"

namespace tensorflow {
class DeviceAttributes;
}

namespace muster {

DeviceAttributes DeviceFromProto(const tensorflow::DeviceAttributes& proto);
void DeviceToProto(const DeviceAttributes& device, tensorflow::DeviceAttributes& proto);

}  // namespace muster
