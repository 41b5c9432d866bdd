#include "muster/train/loop/notice.h"

#include <memory>
#include <utility>

#include "muster/base/mutex.h"

namespace muster {
namespace {

using Sink = std::function<void(LogLevel, const std::string&)>;

struct Sinks {
  Mutex mutex;
  std::shared_ptr<const Sink> sink ABSL_GUARDED_BY(mutex);
};
Sinks& TheSinks() {
  static auto* sinks = new Sinks;  // notices may come while the process ends
  return *sinks;
}

}  // namespace

void Notice(LogLevel level, const std::string& line) {
  std::shared_ptr<const Sink> sink;
  {
    MutexLock lock(TheSinks().mutex);
    sink = TheSinks().sink;
  }
  if (sink != nullptr) return (*sink)(level, line);
  if (LogShown(level)) internal::LogLine(level, __FILE__, __LINE__).stream() << line;
}

void SetNotices(Sink sink) {
  auto shared = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  MutexLock lock(TheSinks().mutex);
  TheSinks().sink.swap(shared);
}

}  // namespace muster
