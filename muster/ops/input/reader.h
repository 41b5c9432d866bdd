// Readers: they take work units (names of files, mostly) from a queue and give their records one by
// one. A user of records enters the reader, which may wait without blocking a thread, and leaves
// it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/status.h"
#include "muster/tensor/handles.h"

namespace muster {

struct Record {
  std::string key;
  std::string value;
};

// What a kind of reader knows: how to take records out of a work unit. One thread at a time.
class RecordSource {
 public:
  struct Next {
    bool has_record = false;
    bool at_end = false;  // the work unit holds no more
    Record record;
  };
  virtual ~RecordSource() = default;
  virtual absl::Status Start(const std::string& work) = 0;
  virtual absl::StatusOr<Next> Read() = 0;
  // The next record if it is in memory already; nothing where Read has to look into the file, which
  // may take for ever.
  virtual std::optional<Next> ReadAhead() { return std::nullopt; }
  // Drops what is open.
  virtual void Stop() {}
  // Whether Start and Read use files.
  virtual bool may_block() const { return true; }
  // Only sources without a state of their own can be saved.
  virtual bool can_save() const { return false; }
};

// Thread-safe.
class Reader : public Resource {
 public:
  static constexpr const char* kTypeName = "N10tensorflow15ReaderInterfaceE";

  Reader(std::string name, std::unique_ptr<RecordSource> source)
      : name_(std::move(name)), source_(std::move(source)) {}
  std::string Describe() const override { return "Reader"; }
  const std::string& name() const { return name_; }

  // Calls `turn` when no other user is inside: at once, or on `scheduler` when the current one
  // leaves.
  using Turn = absl::AnyInvocable<void() &&>;
  void Enter(Scheduler& scheduler, Turn turn);
  void Leave();

  // Requires for these: the caller is inside.
  bool working() const;
  bool may_block() const { return source_->may_block(); }
  absl::Status StartWork(const std::string& work);
  // A record, or none where the work unit held no more (then `working` is false). A failure
  // leaves the work unit in progress.
  absl::StatusOr<RecordSource::Next> ReadRecord();
  // A record that is in memory already, if there is one. Never blocks.
  std::optional<RecordSource::Next> ReadAhead();
  // Records that were read but not delivered: the next read gets them first.
  void PutBack(std::vector<Record> records);
  void Reset();
  absl::StatusOr<std::string> SaveState() const;
  absl::Status RestoreState(const std::string& state);

  // At any time.
  int64_t records_produced() const;
  int64_t work_units_completed() const;

 private:
  struct Waiting {
    Scheduler* scheduler;
    Turn turn;
  };
  struct Progress {
    int64_t started = 0;
    int64_t finished = 0;
    int64_t records = 0;
    std::string work;
  };

  const std::string name_;
  const std::unique_ptr<RecordSource> source_;
  mutable Mutex mutex_;
  bool occupied_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<Record> put_back_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
