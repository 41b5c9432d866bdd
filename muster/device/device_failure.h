// A device that has failed in a way that only another process can mend.
#pragma once

#include <functional>

#include "muster/base/status.h"

namespace muster {

// What the process does then; null: nothing. A later one takes the place of an earlier one.
void SetDeviceFailureAction(std::function<void(const absl::Status& failure)> action);

// Calls it, on the calling thread, which may hold locks of the device.
void ReportDeviceFailure(const absl::Status& failure);

}  // namespace muster
