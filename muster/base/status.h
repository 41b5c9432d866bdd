// Errors are absl::Status values; these macros are the only control-flow macros of the project.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define RETURN_IF_ERROR(expression)                                                              \
  do {                                                                                           \
    if (absl::Status muster_status_ = (expression); !muster_status_.ok()) return muster_status_; \
  } while (false)

#define MUSTER_CONCAT_INNER(a, b) a##b
#define MUSTER_CONCAT(a, b) MUSTER_CONCAT_INNER(a, b)
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(MUSTER_CONCAT(muster_value_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_INNER(value, target, expression) \
  auto value = (expression);                              \
  if (!value.ok()) return std::move(value).status();      \
  target = *std::move(value)

namespace muster {

template <typename... Args>
absl::Status InvalidArgument(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}
template <typename... Args>
absl::Status Unimplemented(const Args&... args) {
  return absl::UnimplementedError(absl::StrCat(args...));
}
template <typename... Args>
absl::Status FailedPrecondition(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}
template <typename... Args>
absl::Status NotFound(const Args&... args) {
  return absl::NotFoundError(absl::StrCat(args...));
}
template <typename... Args>
absl::Status Internal(const Args&... args) {
  return absl::InternalError(absl::StrCat(args...));
}
template <typename... Args>
absl::Status OutOfRange(const Args&... args) {
  return absl::OutOfRangeError(absl::StrCat(args...));
}

// The same status with `context` put before (or after) its message; code and payloads stay.
absl::Status Prefixed(const absl::Status& status, absl::string_view context);
absl::Status Suffixed(const absl::Status& status, absl::string_view context);

}  // namespace muster
