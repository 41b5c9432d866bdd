// One rank's part in one collective, by TensorFlow's algorithms: rings for reductions and gathers,
// a tree for broadcasts. See wire-protocol §5.4 and §5.5.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/runtime/collectives.h"

namespace muster {

// Thread-safe. Base of the algorithms: counts what is left to do, and ends once.
class CollectiveRun : public std::enable_shared_from_this<CollectiveRun> {
 public:
  struct Options {
    CollectiveParams params;
    Tensor input;
    Tensor output;
    std::shared_ptr<const CollectiveGroup> group;
    int rank = 0;
    int source_rank = -1;
    std::shared_ptr<CollectiveExchange> exchange;
    // Ends what the run waits for at others. Not the step's: the run ends it.
    std::shared_ptr<Cancellation> cancellation;
    Done done;
  };
  // Unimplemented for a kind that there is no algorithm for.
  static absl::StatusOr<std::shared_ptr<CollectiveRun>> Create(Options options);
  virtual ~CollectiveRun() = default;

  void Start();
  // Ends the run with an error, unless it has ended.
  void Fail(absl::Status status);

 protected:
  explicit CollectiveRun(Options options);
  virtual absl::Status Plan() = 0;  // calls Expect
  virtual void Begin() = 0;

  const CollectiveParams& params() const { return options_.params; }
  const CollectiveGroup& group() const { return *options_.group; }
  int rank() const { return options_.rank; }
  int source_rank() const { return options_.source_rank; }
  const Tensor& input() const { return options_.input; }
  Tensor& output() { return options_.output; }
  const std::string& exec_key() const { return exec_key_; }
  bool ended() const { return ended_.load(std::memory_order_acquire); }

  void Expect(int receives, int sends) {
    receives_left_ += receives;
    sends_left_ += sends;
  }
  // Counted when it has been taken.
  void Send(int member, std::string key, Buffer bytes);
  // `then` is called with the bytes, which are of the size that was asked for; the receive counts
  // as done when it returns.
  void Receive(int member, std::string key, size_t num_bytes,
               absl::AnyInvocable<void(const Buffer&) &&> then);

 private:
  void OneDone(bool was_receive);
  void WatchConsumers();
  absl::Status Named(const absl::Status& status, int member) const;
  void End(absl::Status status);

  Options options_;
  std::string exec_key_;
  std::atomic<int64_t> receives_left_{0};
  std::atomic<int64_t> sends_left_{0};
  std::atomic<bool> ended_{false};
  Mutex mutex_;
  std::vector<int> unconsumed_ ABSL_GUARDED_BY(mutex_);  // offers that were not taken, by member
};

// How a ring is cut: one order of the members per subdivision.
struct RingPlan {
  std::vector<std::vector<int>> orders;
  std::vector<int> ranks;  // of this rank in each order

  static absl::StatusOr<RingPlan> Make(const CollectiveParams& params, const CollectiveGroup& group,
                                       int rank);
};

// Elements per section of a tensor that is cut into `sections`, aligned as TensorFlow aligns them.
int64_t AlignedSectionElements(size_t element_bytes, int64_t elements, int64_t sections);

// The tree of a broadcast among `size` ranks: the parent of `rank` (-1: none) and its children.
struct TreePlace {
  int from = -1;
  std::vector<int> to;
  static TreePlace Of(int size, int source, int rank);
};

}  // namespace muster
