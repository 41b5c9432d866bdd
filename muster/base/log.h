// One line per event a person acts on. LOG(INFO) << "..."; the level comes from SetLogLevel (TF's
// numbers: 0 info, 1 warning, 2 error).
#pragma once

#include <sstream>

namespace muster {

enum class LogLevel { kInfo = 0, kWarning = 1, kError = 2 };

void SetLogLevel(LogLevel lowest_shown);
bool LogShown(LogLevel level);

namespace internal {
class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line);
  ~LogLine();
  std::ostream& stream() { return stream_; }

 private:
  LogLevel level_;
  std::ostringstream stream_;
};
struct LogVoid {
  void operator&(std::ostream&) {}
};
inline constexpr LogLevel kINFO = LogLevel::kInfo;
inline constexpr LogLevel kWARNING = LogLevel::kWarning;
inline constexpr LogLevel kERROR = LogLevel::kError;
}  // namespace internal
}  // namespace muster

#define LOG(level)                                  \
  !::muster::LogShown(::muster::internal::k##level) \
      ? (void)0                                     \
      : ::muster::internal::LogVoid() &             \
            ::muster::internal::LogLine(::muster::internal::k##level, __FILE__, __LINE__).stream()
