// Collective operations: the ranks of a group, one device each, bring their tensors together.
// Kernels use the executor among their step's resources; how it runs and how bytes travel is hidden
// from them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "muster/base/cancellation.h"
#include "muster/device/device.h"
#include "muster/tensor/handles.h"
#include "muster/tensor/tensor.h"

namespace muster {

class DirectGroups;

// Numbers as on the wire.
enum class CollectiveType : uint8_t {
  kReduce = 0,
  kBroadcast = 1,
  kGather = 2,
  kAllToAll = 4,
  kReduceScatter = 5,
};
absl::string_view CollectiveTypeName(CollectiveType type);

enum class MergeOp : uint8_t { kAdd, kMul, kMin, kMax };
enum class FinalOp : uint8_t { kId, kDiv };

// What one rank wants of one collective.
struct CollectiveParams {
  CollectiveType type = CollectiveType::kReduce;
  int32_t group_key = 0;
  int32_t group_size = 1;
  int32_t instance_key = 0;
  DType dtype = DType::kInvalid;
  Shape shape;  // of the result; all ranks must agree
  MergeOp merge = MergeOp::kAdd;
  FinalOp final = FinalOp::kId;
  // How the ring is cut, see wire-protocol §5.4: by these offsets, or where there are none, into as
  // many parts as the size asks for, at most `max_subdivs_per_device` (zero: TensorFlow's limit;
  // -1: one part).
  std::vector<int> subdiv_offsets;
  int max_subdivs_per_device = -1;
  bool is_source = false;                         // of a broadcast
  absl::Duration timeout = absl::ZeroDuration();  // zero: none
  std::string node;                               // for messages
  DeviceAttributes device;                        // of this rank
  std::string frame_and_iteration;                // "frame:iteration" of this execution
  int64_t step_id = 0;

  // "CollectiveReduce of node 'x' (group 1 of 2, instance 3)", for messages.
  std::string ToString() const;
};

// One execution: `output` has the shape of the result and no other user until the end.
// A reduction starts with this rank's elements in `output`; the others read them from `input`.
struct CollectiveCall {
  CollectiveParams params;
  Tensor input;
  Tensor output;
  Cancellation* cancellation = nullptr;  // of the step; ends the call. May be null.
};

// Thread-safe. A resource of the step, under kStepName, where the step can have collectives.
class CollectiveExecutor : public Resource {
 public:
  static constexpr char kStepName[] = "collective_executor";
  std::string Describe() const override { return "CollectiveExecutor"; }
  // `done` is called once, from any thread, when this rank has its result and no other rank waits
  // for its data.
  virtual void Run(CollectiveCall call, Done done) = 0;
  // The quick way, where there is one.
  virtual DirectGroups* direct() { return nullptr; }
};

// The devices of a group in the order of their ranks.
struct CollectiveGroup {
  struct Member {
    DeviceAttributes device;
    std::string task;  // "/job:worker/replica:0/task:0"
  };
  int32_t key = 0;
  std::string device_type;
  std::vector<Member> members;
  std::vector<int> devices_per_task;  // tasks in their order
  bool is_legacy = false;             // formed with TensorFlow before 2.4

  int size() const { return static_cast<int>(members.size()); }
  // -1: not a member.
  int RankOf(absl::string_view device) const;
};

// Sorts members as TensorFlow 2.13 and later do: tasks by their text, devices of a task by number.
absl::StatusOr<std::shared_ptr<const CollectiveGroup>> MakeCollectiveGroup(
    int32_t key, std::string device_type, std::vector<DeviceAttributes> devices);

// The request of one device to the leader of a group to join it.
struct CollectiveJoin {
  int32_t group_key = 0;
  int32_t group_size = 0;
  std::string device_type;
  DeviceAttributes device;
  bool is_legacy = false;  // asked by TensorFlow before 2.4
};

// What one rank tells the leader about a collective; all ranks must agree.
struct CollectiveInstance {
  std::string node;
  int32_t group_key = 0;
  int32_t group_size = 0;
  int32_t instance_key = 0;
  CollectiveType type = CollectiveType::kReduce;
  DType dtype = DType::kInvalid;
  Shape shape;
  std::string device_type;
  std::string device;
  bool is_source = false;
  int64_t step_id = 0;
  std::vector<int> subdiv_offsets;
};

// What the rank of `params` asks the leader for.
CollectiveInstance InstanceOf(const CollectiveParams& params, const CollectiveGroup& group);

// How the ranks of a collective find each other. Thread-safe. Calls end with the reason of
// `cancellation` when that is cancelled.
class CollectiveResolver {
 public:
  virtual ~CollectiveResolver() = default;
  using GroupDone =
      absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<const CollectiveGroup>>) &&>;
  // When as many devices as the group has ranks have asked.
  virtual void ResolveGroup(const CollectiveParams& params,
                            std::shared_ptr<Cancellation> cancellation, GroupDone done) = 0;
  // The source of a broadcast, once all ranks are known; -1 for others.
  using InstanceDone = absl::AnyInvocable<void(absl::StatusOr<int>) &&>;
  virtual void ResolveInstance(const CollectiveParams& params,
                               std::shared_ptr<const CollectiveGroup> group,
                               std::shared_ptr<Cancellation> cancellation, InstanceDone done) = 0;
  // A collective of the group has failed: its members are resolved again next time.
  virtual void Forget(const CollectiveGroup& group) = 0;
};

// How bytes get from rank to rank in one step. Thread-safe.
class CollectiveExchange {
 public:
  virtual ~CollectiveExchange() = default;
  // Offers bytes, which do not change before `consumed` is called: when another rank has taken
  // them, or when the step is over.
  virtual void Provide(std::string key, Buffer bytes, Done consumed) = 0;
  // Takes what `from` offers, or will offer, under `key`.
  using Fetched = absl::AnyInvocable<void(absl::StatusOr<Buffer>) &&>;
  virtual void Fetch(const CollectiveGroup::Member& from, const DeviceAttributes& to,
                     std::string key, size_t num_bytes, std::shared_ptr<Cancellation> cancellation,
                     Fetched done) = 0;
  // Called when this rank only waits for `to` to take what it offers: `lost` is called with the
  // reason, at most once, if that will not happen. Ends when `cancellation` is cancelled.
  virtual void WatchConsumer(const CollectiveGroup::Member& to,
                             std::shared_ptr<Cancellation> cancellation, Done lost) = 0;
  // The step has failed here: what it offers is withdrawn, and ranks that wait for it get `reason`.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace muster
