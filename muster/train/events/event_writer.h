// Writes TensorBoard's event files. Events go through a short queue to a thread that writes them,
// so that training does not wait for the disk. All calls may come from any thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <sys/types.h>

#include "muster/base/clock.h"
#include "muster/base/mutex.h"
#include "muster/train/events/event_proto.h"

namespace muster {

class RecordWriter;

struct EventWriterOptions {
  std::string suffix;  // of the file's name; with one the file is made at once
  int max_queue = 10;  // events in the queue; adding more blocks (0: no bound)
  // What was written is in the file after this time at the latest; the first event is at once.
  absl::Duration flush_every = absl::Seconds(120);
  Clock* clock = &Clock::Real();
};

// A file that cannot be written (the disk is full, the folder was deleted) is logged once and
// returned by Flush and Close; events are then dropped until Reopen. Adding to a closed writer
// drops the event with a warning.
class EventWriter {
 public:
  using Step = std::optional<int64_t>;

  // Makes the folder. The file, events.out.tfevents.<seconds>.<host><suffix>, is made when the
  // first event comes.
  static absl::StatusOr<std::shared_ptr<EventWriter>> Open(
      const std::string& directory, EventWriterOptions options = EventWriterOptions());
  ~EventWriter();

  // A serialized Summary; InvalidArgument when it is not one. Of each tag only the first value
  // keeps its metadata.
  absl::Status AddSummary(absl::string_view summary, Step step = std::nullopt);
  absl::Status AddScalar(absl::string_view tag, float value, Step step = std::nullopt);
  absl::Status AddGraph(absl::string_view graph_def, Step step = std::nullopt);
  absl::Status AddMetaGraph(absl::string_view meta_graph_def, Step step = std::nullopt);
  absl::Status AddSessionLog(SessionStatus status, absl::string_view checkpoint_path = "",
                             absl::string_view message = "", Step step = std::nullopt);
  // InvalidArgument when the tag was used before.
  absl::Status AddRunMetadata(absl::string_view run_metadata, absl::string_view tag,
                              Step step = std::nullopt);
  // A serialized Event, written as it is.
  absl::Status AddEvent(std::string event);

  // Everything added so far is in the file, or the error that prevents it.
  absl::Status Flush();
  // Flushes and closes the file; again is fine.
  absl::Status Close();
  // Goes on in a new file of the same folder. Does nothing when the writer is open.
  absl::Status Reopen();

  bool is_closed() const;
  const std::string& directory() const { return directory_; }

  // Flushes every writer of this process, for the end of a program that has not closed them.
  static void FlushAll();

 private:
  EventWriter(std::string directory, EventWriterOptions options);
  absl::Status Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  // These run in the writing thread (the first also in Start, before there is one).
  absl::Status OpenFile();
  absl::Status WriteEvents(const std::deque<std::string>& events);
  absl::Status FlushFile();
  EventStamp Now(Step step) const;

  const std::string directory_;
  const EventWriterOptions options_;

  Mutex lifecycle_;  // held while the thread is started or ended; before mutex_
  std::thread thread_ ABSL_GUARDED_BY(lifecycle_);
  std::unique_ptr<RecordWriter> file_;  // of the thread

  mutable Mutex mutex_;
  CondVar work_;     // the thread has something to do
  CondVar changed_;  // the queue has room, or a flush is done
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t flushes_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t flushes_done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = true;
  // A fork has no writing thread: there the writer counts as closed.
  pid_t process_ ABSL_GUARDED_BY(mutex_) = 0;
  bool warned_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // of the file since it was opened
  absl::flat_hash_set<std::string> summary_tags_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> run_tags_ ABSL_GUARDED_BY(mutex_);
};

// One writer per folder, shared by the hooks of a process.
class EventWriterCache {
 public:
  static absl::StatusOr<std::shared_ptr<EventWriter>> Get(const std::string& directory);
  // Closes and forgets them all.
  static void Clear();
};

}  // namespace muster
