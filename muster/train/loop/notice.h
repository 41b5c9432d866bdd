// What the training library tells its user while it runs, and how it says what is wrong.
#pragma once

#include <functional>
#include <string>

#include "muster/base/log.h"
#include "muster/base/status.h"
#include "muster/graph/gradients/gradients.h"

namespace muster {

// One line for the user, as TensorFlow words it. The line goes to the log, or to the function given
// to SetNotices: Python's front end passes it to tf.logging.
void Notice(LogLevel level, const std::string& line);
template <typename... Args>
void NoticeInfo(const Args&... args) {
  Notice(LogLevel::kInfo, absl::StrCat(args...));
}
template <typename... Args>
void NoticeWarning(const Args&... args) {
  Notice(LogLevel::kWarning, absl::StrCat(args...));
}
// An empty function: the log again. Thread-safe.
void SetNotices(std::function<void(LogLevel, const std::string&)> sink);

// Errors of wrong use, which Python raises as RuntimeError and ValueError.
inline constexpr char kRuntimeError[] = "RuntimeError";
inline constexpr char kValueError[] = "ValueError";
template <typename... Args>
absl::Status RuntimeError(const Args&... args) {
  return WithErrorKind(FailedPrecondition(args...), kRuntimeError);
}
template <typename... Args>
absl::Status ValueError(const Args&... args) {
  return WithErrorKind(InvalidArgument(args...), kValueError);
}

}  // namespace muster
