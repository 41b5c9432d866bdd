#include "muster/train/events/event_writer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include <sys/stat.h>
#include <unistd.h>

#include "muster/base/log.h"
#include "muster/base/status.h"
#include "muster/base/threads/thread_name.h"
#include "muster/checkpoint/file.h"
#include "muster/checkpoint/records/record_writer.h"

namespace muster {
namespace {

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "localhost";
  return name;
}

struct OpenWriters {
  Mutex mutex;
  std::vector<EventWriter*> writers ABSL_GUARDED_BY(mutex);
  static OpenWriters& Get() {
    static OpenWriters writers;
    return writers;
  }
};

struct CachedWriters {
  CachedWriters() { OpenWriters::Get(); }  // which is then destroyed after this one
  Mutex mutex;
  std::map<std::string, std::shared_ptr<EventWriter>> by_directory ABSL_GUARDED_BY(mutex);
  static CachedWriters& Get() {
    static CachedWriters writers;
    return writers;
  }
};

}  // namespace

EventWriter::EventWriter(std::string directory, EventWriterOptions options)
    : directory_(std::move(directory)), options_(std::move(options)) {
  OpenWriters& open = OpenWriters::Get();
  MutexLock lock(open.mutex);
  open.writers.push_back(this);
}

EventWriter::~EventWriter() {
  {
    OpenWriters& open = OpenWriters::Get();
    MutexLock lock(open.mutex);
    std::erase(open.writers, this);
  }
  (void)Close();
}

absl::StatusOr<std::shared_ptr<EventWriter>> EventWriter::Open(const std::string& directory,
                                                               EventWriterOptions options) {
  std::shared_ptr<EventWriter> writer(new EventWriter(directory, std::move(options)));
  RETURN_IF_ERROR(writer->Reopen());
  return writer;
}

absl::Status EventWriter::Reopen() {
  MutexLock lifecycle(lifecycle_);
  MutexLock lock(mutex_);
  if (!is_closed_) return absl::OkStatus();
  RETURN_IF_ERROR(Start());
  process_ = getpid();
  thread_ = std::thread([this] {
    NameThread("muster-events");
    Run();
  });
  return absl::OkStatus();
}

absl::Status EventWriter::Start() {
  std::error_code error;
  std::filesystem::create_directories(LocalPath(directory_), error);
  if (error) return FileError(directory_, error.value());
  if (!options_.suffix.empty()) RETURN_IF_ERROR(OpenFile());
  is_closed_ = warned_closed_ = false;
  status_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status EventWriter::Close() {
  MutexLock lifecycle(lifecycle_);
  {
    MutexLock lock(mutex_);
    if (is_closed_) return absl::OkStatus();
    is_closed_ = true;
    if (process_ != getpid()) {
      thread_.detach();
      return absl::OkStatus();
    }
    work_.NotifyAll();
    changed_.NotifyAll();
  }
  thread_.join();
  MutexLock lock(mutex_);
  return status_;
}

bool EventWriter::is_closed() const {
  MutexLock lock(mutex_);
  return is_closed_;
}

EventStamp EventWriter::Now(Step step) const {
  return EventStamp{static_cast<double>(absl::ToUnixMicros(options_.clock->Now())) / 1e6, step};
}

absl::Status EventWriter::AddEvent(std::string event) {
  MutexLock lock(mutex_);
  if (process_ != getpid()) is_closed_ = true;
  const size_t bound = static_cast<size_t>(std::max(options_.max_queue, 0));
  while (bound > 0 && queue_.size() >= bound && !is_closed_) changed_.Wait(mutex_);
  if (is_closed_) {
    if (!std::exchange(warned_closed_, true)) {
      LOG(WARNING) << "the writer of events in " << directory_
                   << " is closed; events are dropped until it is reopened";
    }
    return absl::OkStatus();
  }
  queue_.push_back(std::move(event));
  work_.NotifyOne();
  return absl::OkStatus();
}

absl::Status EventWriter::AddSummary(absl::string_view summary, Step step) {
  std::string event;
  {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(event, SummaryEvent(Now(step), summary, summary_tags_));
  }
  return AddEvent(std::move(event));
}

absl::Status EventWriter::AddScalar(absl::string_view tag, float value, Step step) {
  return AddEvent(ScalarEvent(Now(step), tag, value));
}

absl::Status EventWriter::AddGraph(absl::string_view graph_def, Step step) {
  ASSIGN_OR_RETURN(std::string event, GraphEvent(Now(step), graph_def));
  return AddEvent(std::move(event));
}

absl::Status EventWriter::AddMetaGraph(absl::string_view meta_graph_def, Step step) {
  ASSIGN_OR_RETURN(std::string event, MetaGraphEvent(Now(step), meta_graph_def));
  return AddEvent(std::move(event));
}

absl::Status EventWriter::AddSessionLog(SessionStatus status, absl::string_view checkpoint_path,
                                        absl::string_view message, Step step) {
  return AddEvent(SessionLogEvent(Now(step), status, checkpoint_path, message));
}

absl::Status EventWriter::AddRunMetadata(absl::string_view run_metadata, absl::string_view tag,
                                         Step step) {
  {
    MutexLock lock(mutex_);
    if (!run_tags_.emplace(tag).second) {
      return InvalidArgument("The provided tag was already used for this event type");
    }
  }
  ASSIGN_OR_RETURN(std::string event, RunMetadataEvent(Now(step), tag, run_metadata));
  return AddEvent(std::move(event));
}

absl::Status EventWriter::Flush() {
  MutexLock lock(mutex_);
  if (is_closed_ || process_ != getpid()) return status_;
  const int64_t flush = ++flushes_asked_;
  work_.NotifyOne();
  while (flushes_done_ < flush) changed_.Wait(mutex_);
  return status_;
}

void EventWriter::FlushAll() {
  OpenWriters& open = OpenWriters::Get();
  // Held, so that none of them goes away meanwhile.
  MutexLock lock(open.mutex);
  for (EventWriter* writer : open.writers) (void)writer->Flush();
}

void EventWriter::Run() {
  absl::Status status;
  bool is_dirty = false;
  int64_t flush_due_nanos = 0;  // the first event is flushed at once
  for (;;) {
    std::deque<std::string> events;
    int64_t flushes_asked;
    bool must_flush, is_last;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && flushes_asked_ == flushes_done_ && !is_closed_) {
        if (!is_dirty) {
          work_.Wait(mutex_);
          continue;
        }
        const int64_t left = flush_due_nanos - options_.clock->NowNanos();
        if (left <= 0) break;
        work_.WaitFor(mutex_, absl::Nanoseconds(left));
      }
      events.swap(queue_);
      flushes_asked = flushes_asked_;
      // Nothing is added to a closed writer.
      is_last = is_closed_;
      must_flush = is_last || flushes_asked_ != flushes_done_;
      changed_.NotifyAll();
    }
    if (status.ok()) status = WriteEvents(events);
    is_dirty = is_dirty || !events.empty();
    if (status.ok() &&
        (must_flush || (is_dirty && options_.clock->NowNanos() >= flush_due_nanos))) {
      status = FlushFile();
      flush_due_nanos = options_.clock->NowNanos() + absl::ToInt64Nanoseconds(options_.flush_every);
      is_dirty = false;
    }
    if (!status.ok()) is_dirty = false;
    if (is_last && file_ != nullptr) {
      const absl::Status closed = file_->Close();
      file_.reset();
      if (status.ok()) status = closed;
    }
    MutexLock lock(mutex_);
    if (!status.ok() && status_.ok()) {
      LOG(ERROR) << "events of " << directory_ << " are lost from now on: " << status;
    }
    status_ = status;
    flushes_done_ = is_last ? flushes_asked_ : flushes_asked;
    changed_.NotifyAll();
    if (is_last) return;
  }
}

absl::Status EventWriter::OpenFile() {
  file_.reset();
  const int64_t now = absl::ToUnixSeconds(options_.clock->Now());
  RecordWriterOptions options;
  options.must_be_new = true;
  // A file of the same second, from a writer before this one, is left alone.
  for (int64_t seconds = now; file_ == nullptr; ++seconds) {
    const std::string path = absl::StrFormat("%s/events.out.tfevents.%010d.%s%s", directory_,
                                             seconds, HostName(), options_.suffix);
    auto file = RecordWriter::Open(path, options);
    if (file.ok()) {
      file_ = *std::move(file);
    } else if (!absl::IsAlreadyExists(file.status())) {
      return file.status();
    }
  }
  RETURN_IF_ERROR(file_->Write(VersionEvent(static_cast<double>(now))));
  return file_->Flush();
}

absl::Status EventWriter::WriteEvents(const std::deque<std::string>& events) {
  if (events.empty()) return absl::OkStatus();
  if (file_ == nullptr) RETURN_IF_ERROR(OpenFile());
  for (const std::string& event : events) RETURN_IF_ERROR(file_->Write(event));
  return absl::OkStatus();
}

absl::Status EventWriter::FlushFile() {
  if (file_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(file_->Flush());
  // Writing to a deleted file succeeds.
  if (access(file_->path().c_str(), F_OK) != 0) {
    return absl::UnknownError(absl::StrCat("The events file ", file_->path(), " has disappeared."));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<EventWriter>> EventWriterCache::Get(const std::string& directory) {
  CachedWriters& cached = CachedWriters::Get();
  MutexLock lock(cached.mutex);
  std::shared_ptr<EventWriter>& writer = cached.by_directory[directory];
  if (writer == nullptr) {
    auto opened = EventWriter::Open(directory);
    if (!opened.ok()) {
      cached.by_directory.erase(directory);
      return opened.status();
    }
    writer = *std::move(opened);
  }
  return writer;
}

void EventWriterCache::Clear() {
  CachedWriters& cached = CachedWriters::Get();
  MutexLock lock(cached.mutex);
  for (auto& [directory, writer] : cached.by_directory) (void)writer->Close();
  cached.by_directory.clear();
}

}  // namespace muster
