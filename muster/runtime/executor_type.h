// The names that programs give executors: all of them mean the one that there is.
#pragma once

#include "absl/strings/string_view.h"

#include "muster/base/status.h"

namespace muster {

// NotFound for a name that TensorFlow does not have either.
inline absl::Status CheckExecutorType(absl::string_view name) {
  if (name.empty() || name == "DEFAULT" || name == "SINGLE_THREADED_EXECUTOR")
    return absl::OkStatus();
  return NotFound("No executor factory registered for the given executor type: ", name,
                  " Registered factories are {DEFAULT, , SINGLE_THREADED_EXECUTOR}.");
}

}  // namespace muster
