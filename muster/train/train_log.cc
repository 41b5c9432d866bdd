#include "muster/train/train_log.h"

#include <memory>
#include <utility>

#include "muster/base/mutex.h"

namespace muster {
namespace {

Mutex& SinkMutex() {
  static Mutex mutex;
  return mutex;
}

// Never destroyed: threads may log while the process ends.
std::shared_ptr<TrainLogSink>& CurrentSink() {
  static auto& sink = *std::make_unique<std::shared_ptr<TrainLogSink>>().release();
  return sink;
}

}  // namespace

void SetTrainLogSink(TrainLogSink sink) {
  MutexLock lock(SinkMutex());
  CurrentSink() = sink ? std::make_shared<TrainLogSink>(std::move(sink)) : nullptr;
}

void WriteTrainLog(LogLevel level, absl::string_view line) {
  std::shared_ptr<TrainLogSink> sink;
  {
    MutexLock lock(SinkMutex());
    sink = CurrentSink();
  }
  if (sink != nullptr) {
    (*sink)(level, line);
    return;
  }
  switch (level) {
    case LogLevel::kInfo:
      LOG(INFO) << line;
      break;
    case LogLevel::kWarning:
      LOG(WARNING) << line;
      break;
    case LogLevel::kError:
      LOG(ERROR) << line;
      break;
  }
}

}  // namespace muster
