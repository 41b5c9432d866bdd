// Lines that tell people how training goes. They go to LOG unless a front end shows them its own
// way: Python gives them to tf.logging.
#pragma once

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "muster/base/log.h"

namespace muster {

using TrainLogSink = std::function<void(LogLevel, absl::string_view)>;
// Null: LOG again. Thread-safe; the sink may be called from any thread.
void SetTrainLogSink(TrainLogSink sink);
void WriteTrainLog(LogLevel level, absl::string_view line);

template <typename... Args>
void TrainInfo(const Args&... args) {
  WriteTrainLog(LogLevel::kInfo, absl::StrCat(args...));
}
template <typename... Args>
void TrainWarning(const Args&... args) {
  WriteTrainLog(LogLevel::kWarning, absl::StrCat(args...));
}
template <typename... Args>
void TrainError(const Args&... args) {
  WriteTrainLog(LogLevel::kError, absl::StrCat(args...));
}

}  // namespace muster
