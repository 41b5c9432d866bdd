// A group whose ranks talk through channels: sockets between processes, memory within one.
//
// One thread at a time moves the bytes: the mesh's own, or one that waits in HelpUntil, which saves
// two changes of thread per collective. State is guarded by one lock that is never held while
// waiting; starting a collective while another thread has it leaves a note in the inbox.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

#include "muster/base/mutex.h"
#include "muster/base/threads/pace.h"
#include "muster/collective/mesh/channel.h"
#include "muster/collective/mesh/group.h"
#include "muster/collective/mesh/rank_link.h"

namespace muster::collective {

// What the meshes of a task have sent and received, with what it takes to cut bytes into packets.
struct MovedBytes {
  std::atomic<int64_t> sent{0};
  std::atomic<int64_t> received{0};
};

struct MeshOptions {
  // The same at all ranks, and never used for another group.
  uint64_t group = 0;
  int rank = 0;
  // Of all ranks, in order: the tasks, as errors name them.
  std::vector<std::string> names = {};
  // A rank that sends not even a sign of life for this long while a collective is under way is
  // lost; so is one with which no channel has come about in this time, because a rank that is in
  // its group takes part in making them whatever else it does.
  absl::Duration silence = absl::Seconds(30);
  // A rank that lives but does not come to a collective, or does not go on with it, for this long
  // fails it.
  absl::Duration lateness = absl::Seconds(60);
  // How long to spin before waiting for the operating system; adapts downwards when spinning did
  // not pay recently.
  absl::Duration spin = absl::Microseconds(50);
  // How long closing waits until the last packet, the reason of a failure, has been sent.
  absl::Duration linger = absl::Seconds(1);
  // Added to, if there is one.
  std::shared_ptr<MovedBytes> moved = nullptr;
};

class Mesh : public Group, private RankLinkOwner {
 public:
  // Channels are made when a collective first needs them. InvalidArgument for a rank or names that
  // do not fit.
  static absl::StatusOr<std::unique_ptr<Mesh>> Create(MeshOptions options,
                                                      std::unique_ptr<Connector> connector);
  // Collectives under way end with CANCELLED, here and elsewhere.
  ~Mesh() override;

  int rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(options_.names.size()); }
  std::string Name(int rank) const override;

  void AllReduce(uint64_t tag, const Reduction& reduction, void* data, size_t count,
                 Done done) override;
  // AllReduce by an algorithm of the caller's choice, the same at all ranks.
  void AllReduceBy(Algorithm algorithm, uint64_t tag, const Reduction& reduction, void* data,
                   size_t count, Done done);
  void ReduceScatter(uint64_t tag, const Reduction& reduction, void* data, size_t count,
                     Done done) override;
  void AllGather(uint64_t tag, void* data, size_t block_bytes, Done done) override;
  void Broadcast(uint64_t tag, int root, void* data, size_t bytes, Done done) override;

  void Abort(absl::Status reason) override;
  absl::Status status() const override;
  void HelpUntil(absl::FunctionRef<bool()> done) override;
  void ComeToHelp() override { helpers_.fetch_add(1); }
  void EndHelp() override;

 private:
  struct Event {
    std::unique_ptr<Operation> operation = nullptr;  // to begin
    int peer = -1;                                   // whose channel is there, or is not to be had
    std::unique_ptr<Channel> channel = nullptr;
    absl::Status status = {};  // of the channel, or a reason to abort
  };
  using Finished = std::vector<std::pair<Done, absl::Status>>;
  class Bytes;

  Mesh(MeshOptions options, std::unique_ptr<Connector> connector, int epoll, int wake);

  void Start(std::unique_ptr<Operation> operation);
  void Reduce(uint64_t kind, uint64_t tag, const Reduction& reduction, void* data, size_t count,
              Done done, absl::FunctionRef<Schedule(size_t element_bytes)> make_schedule);
  void Post(Event event);
  // There is work and no thread drives: wakes the mesh's own thread.
  void NotifyThread() ABSL_LOCKS_EXCLUDED(driver_mutex_);
  // Handles the inbox, unless another thread has the lock and will do it.
  void Kick();
  // Gives up the lock, runs what has finished, and looks at the inbox again.
  void Release(bool is_driver) ABSL_UNLOCK_FUNCTION(mutex_);
  void DrainInbox() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake();

  // Tries the links whose bytes are awaited and those that could not write. True when bytes moved.
  bool Spin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells channels in shared memory that a thread is about to wait; reads what is there already,
  // and is true if there was any.
  bool ArmLinks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandlePolled(int peer, bool hung_up) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits in epoll_wait, unless `done`, and handles the events.
  void WaitAndWork(bool is_driver, absl::FunctionRef<bool()> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drive(absl::FunctionRef<bool()> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunThread();

  void Begin(std::unique_ptr<Operation> operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the connector for the channel, once.
  void RequestLink(RankLink& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AttachLink(int peer, std::unique_ptr<Channel> channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendGrants(Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushLink(RankLink& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReadLink(RankLink& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleTouched() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishIfDone(Operation* operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells epoll what is of interest about the link.
  void Watch(RankLink& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LinkBroke(RankLink& link, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tick(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckConnections(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckLateness(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Closes links that have nothing left to say. True when all are closed.
  bool CloseWrittenLinks(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Milliseconds until Tick may have something to do.
  int PollTimeout() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Operation* FindOperation(uint64_t tag) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Touched(Operation* operation) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Moved(size_t sent, size_t received) override {
    if (options_.moved == nullptr) return;
    if (sent > 0)
      options_.moved->sent.fetch_add(static_cast<int64_t>(sent), std::memory_order_relaxed);
    if (received > 0)
      options_.moved->received.fetch_add(static_cast<int64_t>(received), std::memory_order_relaxed);
  }

  const MeshOptions options_;
  std::unique_ptr<Connector> connector_;  // null at the end of the destructor
  const int epoll_;
  const int wake_;  // an eventfd

  mutable Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  int64_t failed_nanos_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::unique_ptr<Operation>> operations_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RankLink>> links_ ABSL_GUARDED_BY(mutex_);  // by rank; own is null
  std::vector<int64_t> watched_ ABSL_GUARDED_BY(mutex_);  // what epoll knows, by rank; -1: nothing
  bool has_memory_links_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Operation*> touched_ ABSL_GUARDED_BY(mutex_);
  Finished finished_ ABSL_GUARDED_BY(mutex_);
  int64_t busy_since_ ABSL_GUARDED_BY(mutex_) = 0;  // when operations_ became non-empty
  int64_t ticked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> busy_{false};  // operations_ is not empty, or links are to be closed

  Mutex inbox_mutex_;
  std::vector<Event> inbox_ ABSL_GUARDED_BY(inbox_mutex_);
  std::atomic<int> inbox_size_{0};

  // The driver: the thread that moves the bytes.
  Mutex driver_mutex_;
  CondVar driver_changed_;
  bool driven_ ABSL_GUARDED_BY(driver_mutex_) = false;
  int64_t driven_until_ ABSL_GUARDED_BY(driver_mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(driver_mutex_) = false;
  std::atomic<bool> has_driver_{false};
  std::atomic<int> helpers_{0};   // between ComeToHelp and EndHelp
  std::atomic<int> waiters_{0};   // threads in HelpUntil that do not drive
  std::atomic<int> sleeping_{0};  // threads in epoll_wait
  Pace pace_;                     // of bytes that the driver waits for

  std::thread thread_;
};

}  // namespace muster::collective
