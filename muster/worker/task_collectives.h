// The collectives of one task: the groups that it leads, those that others lead, and the way of
// bytes between tasks.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "muster/base/mutex.h"
#include "muster/collective/step/collective_buffers.h"
#include "muster/collective/step/collective_groups.h"
#include "muster/collective/step/step_collectives.h"
#include "muster/transport/api/peers.h"
#include "muster/worker/transfer_log.h"

namespace muster {

// Thread-safe.
class TaskCollectives : public std::enable_shared_from_this<TaskCollectives> {
 public:
  // Schedulers outlive what is running: `control` for timers and answers, `compute` for merging.
  // `direct` may be null.
  TaskCollectives(Scheduler& control, Scheduler& compute, std::shared_ptr<TransferLog> log,
                  std::shared_ptr<DirectGroups> direct)
      : control_(control),
        compute_(compute),
        log_(std::move(log)),
        direct_(std::move(direct)),
        groups_(std::make_shared<CollectiveGroups>(control)) {}

  // The task's name in a session, and the leader of its groups: empty for the task itself.
  struct Place {
    std::string task;
    std::string leader;
    std::shared_ptr<Peers> peers;
  };
  // The executor of one step, whose buffers peers may ask for already.
  RefPtr<StepCollectives> ForStep(Place place, int64_t step_id,
                                  std::shared_ptr<CollectiveBuffers> buffers);

  // What the leader serves. Members that are waited for are watched through `peers`.
  void CompleteGroup(CollectiveJoin join, std::shared_ptr<Peers> peers,
                     std::shared_ptr<Cancellation> caller, CallDone<CompleteGroupReply> done);
  void CompleteInstance(CollectiveInstance instance, std::shared_ptr<Peers> peers,
                        const std::string& self, std::shared_ptr<Cancellation> caller,
                        CallDone<int> done);
  void Stop(const absl::Status& reason) { groups_->Stop(reason); }

 private:
  class Resolver;
  class FormingWatch;

  // CollectiveGroups::Join; fails when tasks are lost without which the group cannot be formed.
  void Join(CollectiveJoin join, std::shared_ptr<Peers> peers, std::shared_ptr<Cancellation> caller,
            CollectiveResolver::GroupDone done);
  // A rank that waits for bytes of another one would not notice that the other waits for a third
  // that is lost: `wait` is cancelled when any task of the group is lost.
  void WatchMembers(const Place& place, const CollectiveParams& params,
                    const std::shared_ptr<const CollectiveGroup>& group,
                    const std::shared_ptr<Cancellation>& wait);

  // What a leader has told.
  struct Known {
    std::shared_ptr<const CollectiveGroup> group;
    struct Instance {
      CollectiveType type;
      DType dtype;
      Shape shape;
      int source_rank;
    };
    std::map<int32_t, Instance> instances;
  };

  Scheduler& control_;
  Scheduler& compute_;
  const std::shared_ptr<TransferLog> log_;
  const std::shared_ptr<DirectGroups> direct_;
  const std::shared_ptr<CollectiveGroups> groups_;
  Mutex mutex_;
  std::set<int32_t> forming_ ABSL_GUARDED_BY(mutex_);  // groups whose tasks are watched
  std::map<std::pair<std::string, int32_t>, Known> known_ ABSL_GUARDED_BY(mutex_);  // leader, key
};

}  // namespace muster
