#include "muster/base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace muster {
namespace {
std::atomic<int> lowest_shown_level{0};
}

void SetLogLevel(LogLevel lowest_shown) {
  lowest_shown_level = static_cast<int>(lowest_shown);
}

bool LogShown(LogLevel level) {
  return static_cast<int>(level) >= lowest_shown_level.load(std::memory_order_relaxed);
}

namespace internal {

LogLine::LogLine(LogLevel level, const char* file, int line) : level_(level) {
  const char* slash = std::strrchr(file, '/');
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() %
      1000000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char prefix[64];
  std::snprintf(prefix, sizeof(prefix), "%04d-%02d-%02d %02d:%02d:%02d.%06d: %c ",
                parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                parts.tm_sec, static_cast<int>(micros), "IWE"[static_cast<int>(level_)]);
  stream_ << prefix << (slash != nullptr ? slash + 1 : file) << ":" << line << "] ";
}

LogLine::~LogLine() {
  stream_ << "\n";
  const std::string line = stream_.str();
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace internal
}  // namespace muster
