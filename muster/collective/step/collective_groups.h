// The leader's registry: which devices make up a group, and what the ranks of an instance have
// asked for.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "muster/base/cancel_callback.h"
#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/runtime/collectives.h"

namespace muster {

// Thread-safe. Nothing is called with a lock held. Held by shared pointers.
class CollectiveGroups : public CollectiveResolver,
                         public std::enable_shared_from_this<CollectiveGroups> {
 public:
  // `scheduler` outlives the object.
  explicit CollectiveGroups(Scheduler& scheduler) : scheduler_(scheduler) {}

  // Answered when the group is complete. A device that leaves before (its `caller` is cancelled)
  // ends the group: the others get an error that names it. A complete group makes room for one of
  // another size, and for a member that has been restarted.
  void Join(CollectiveJoin join, std::shared_ptr<Cancellation> caller, GroupDone done);
  // While a group is not complete, ranks that wait for it get `reason`.
  void FailForming(int32_t group_key, const absl::Status& reason);
  // The group must be complete. See CollectiveResolver::ResolveInstance.
  void Complete(CollectiveInstance instance, std::shared_ptr<Cancellation> caller,
                InstanceDone done);
  // Devices of the group that have not asked for the instance, while others wait for them.
  std::vector<std::string> MissingMembers(const CollectiveInstance& instance) const;
  // Ranks that wait for the instance get `reason`.
  void FailInstance(const CollectiveInstance& instance, const absl::Status& reason);
  // Pending and later calls get `reason`.
  void Stop(const absl::Status& reason);

  void ResolveGroup(const CollectiveParams& params, std::shared_ptr<Cancellation> cancellation,
                    GroupDone done) override;
  void ResolveInstance(const CollectiveParams& params, std::shared_ptr<const CollectiveGroup> group,
                       std::shared_ptr<Cancellation> cancellation, InstanceDone done) override;
  void Forget(const CollectiveGroup& group) override;

 private:
  template <typename Callback>
  struct Waiter {
    uint64_t id = 0;
    std::string device;
    Callback done;
    std::unique_ptr<CancelCallback> on_cancel = std::make_unique<CancelCallback>();

    template <typename Result>
    void Answer(Result result) {
      on_cancel->Release();
      std::move(done)(std::move(result));
    }
  };
  using GroupWaiter = Waiter<GroupDone>;
  using InstanceWaiter = Waiter<InstanceDone>;

  struct Group {
    int32_t size = 0;
    std::string device_type;
    bool is_legacy = false;
    std::vector<DeviceAttributes> devices;  // in the order in which they came
    std::shared_ptr<const CollectiveGroup> whole;
    std::vector<GroupWaiter> waiting;
  };
  struct Instance {
    CollectiveInstance first;  // what the first rank wants
    std::set<std::string> asked;
    int source_rank = -1;
    bool is_complete = false;
    std::vector<InstanceWaiter> waiting;
  };
  using InstanceKey = std::tuple<int32_t, int64_t, int32_t>;  // group, step, instance

  absl::Status CheckJoinLocked(Group& group, const CollectiveJoin& join)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // OK and `restart` where a new round of the instance begins.
  absl::Status CheckInstance(const Instance& known, const CollectiveInstance& asked,
                             const CollectiveGroup& group, bool& restart) const;
  void LeaveGroup(int32_t key, uint64_t waiter, const absl::Status& reason);
  void LeaveInstance(InstanceKey key, uint64_t waiter, const absl::Status& reason);
  void DropInstancesLocked(int32_t group_key, std::vector<InstanceWaiter>& waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Scheduler& scheduler_;
  mutable Mutex mutex_;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int32_t, Group> groups_ ABSL_GUARDED_BY(mutex_);
  std::map<InstanceKey, Instance> instances_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
