#include "muster/worker/task_collectives.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/worker/task_exchange.h"

namespace muster {
namespace {

// A leader that has never answered may still be starting.
constexpr absl::Duration kLeaderStarts = absl::Seconds(30);
constexpr absl::Duration kAskAgain = absl::Seconds(1);
constexpr absl::Duration kSilence = absl::Seconds(30);
// In larger clusters tasks do not ask each other all to all.
constexpr size_t kWatchedTasks = 64;

}  // namespace

// Asks the leader of the session's groups.
class TaskCollectives::Resolver : public CollectiveResolver,
                                  public std::enable_shared_from_this<Resolver> {
 public:
  Resolver(std::shared_ptr<TaskCollectives> task, Place place)
      : task_(std::move(task)), place_(std::move(place)) {}

  void ResolveGroup(const CollectiveParams& params, std::shared_ptr<Cancellation> cancellation,
                    GroupDone done) override {
    if (LeadsItself()) {
      return task_->Join(
          {params.group_key, params.group_size, params.device.device_type, params.device},
          place_.peers, std::move(cancellation), std::move(done));
    }
    bool has_answered = false;
    std::shared_ptr<const CollectiveGroup> known;
    {
      MutexLock lock(task_->mutex_);
      const auto found = task_->known_.find({place_.leader, params.group_key});
      if (found != task_->known_.end()) known = found->second.group;
      has_answered = !task_->known_.empty();
    }
    if (known != nullptr && known->size() == params.group_size) {
      const int rank = known->RankOf(params.device.name);
      if (rank >= 0 && known->members[rank].device.incarnation == params.device.incarnation)
        return std::move(done)(std::move(known));
    }
    CollectiveJoin join;
    join.group_key = params.group_key;
    join.group_size = params.group_size;
    join.device_type = params.device.device_type;
    join.device = params.device;
    AskForGroup(std::move(join), std::move(cancellation),
                has_answered ? absl::ZeroDuration() : kLeaderStarts, std::move(done));
  }

  void ResolveInstance(const CollectiveParams& params, std::shared_ptr<const CollectiveGroup> group,
                       std::shared_ptr<Cancellation> cancellation, InstanceDone done) override {
    task_->WatchMembers(place_, params, group, cancellation);
    if (LeadsItself()) {
      return task_->CompleteInstance(InstanceOf(params, *group), place_.peers, place_.task,
                                     std::move(cancellation), std::move(done));
    }
    std::optional<int> source_rank;
    {
      MutexLock lock(task_->mutex_);
      const auto known = task_->known_.find({place_.leader, params.group_key});
      if (known != task_->known_.end() && known->second.group == group) {
        const auto found = known->second.instances.find(params.instance_key);
        if (found != known->second.instances.end() && found->second.type == params.type &&
            found->second.dtype == params.dtype && found->second.shape == params.shape &&
            params.is_source == (group->RankOf(params.device.name) == found->second.source_rank)) {
          source_rank = found->second.source_rank;
        }
      }
    }
    if (source_rank) return std::move(done)(*source_rank);
    const std::shared_ptr<WorkerApi> leader = place_.peers->Worker(place_.leader);
    if (leader == nullptr) return std::move(done)(NoLeader());
    CallOptions options;
    options.cancellation = std::move(cancellation);
    WorkerApi& to = *leader;
    to.CompleteInstance(
        std::move(options), InstanceOf(params, *group),
        [self = shared_from_this(), leader, group, key = params.instance_key,
         known = Known::Instance{params.type, params.dtype, params.shape, -1},
         done = std::move(done)](absl::StatusOr<int> answer) mutable {
          if (answer.ok()) {
            known.source_rank = *answer;
            MutexLock lock(self->task_->mutex_);
            const auto found = self->task_->known_.find({self->place_.leader, group->key});
            if (found != self->task_->known_.end() && found->second.group == group)
              found->second.instances.insert_or_assign(key, std::move(known));
          }
          std::move(done)(std::move(answer));
        });
  }

  void Forget(const CollectiveGroup& group) override {
    if (LeadsItself()) return task_->groups_->Forget(group);
    Known dropped;
    MutexLock lock(task_->mutex_);
    const auto found = task_->known_.find({place_.leader, group.key});
    if (found == task_->known_.end() || found->second.group.get() != &group) return;
    dropped = std::move(found->second);
    task_->known_.erase(found);
  }

 private:
  bool LeadsItself() const { return place_.leader.empty() || place_.leader == place_.task; }
  absl::Status NoLeader() const {
    return InvalidArgument("collective_group_leader ", place_.leader,
                           " is not a task of the cluster");
  }

  void AskForGroup(CollectiveJoin join, std::shared_ptr<Cancellation> cancellation,
                   absl::Duration patience, GroupDone done) {
    const std::shared_ptr<WorkerApi> leader = place_.peers->Worker(place_.leader);
    if (leader == nullptr) return std::move(done)(NoLeader());
    if (cancellation->cancelled()) return std::move(done)(cancellation->reason());
    CallOptions options;
    options.cancellation = cancellation;
    WorkerApi& to = *leader;
    CollectiveJoin request = join;
    to.CompleteGroup(
        std::move(options), std::move(request),
        [self = shared_from_this(), leader, join = std::move(join), cancellation, patience,
         done = std::move(done)](absl::StatusOr<CompleteGroupReply> reply) mutable {
          if (absl::IsUnavailable(reply.status()) && patience > absl::ZeroDuration()) {
            self->AskLater(std::move(join), std::move(cancellation), patience - kAskAgain,
                           std::move(done));
          } else if (!reply.ok()) {
            std::move(done)(reply.status());
          } else if (reply->is_legacy) {
            std::move(done)(
                Unimplemented("The leader ", self->place_.leader,
                              " of collectives runs TensorFlow before 2.4, which cannot be mixed "
                              "with later versions"));
          } else {
            self->GroupTold(join, *std::move(reply), std::move(done));
          }
        });
  }

  void AskLater(CollectiveJoin join, std::shared_ptr<Cancellation> cancellation,
                absl::Duration patience, GroupDone done) {
    task_->control_.ScheduleAfter(kAskAgain, [self = shared_from_this(), join = std::move(join),
                                              cancellation = std::move(cancellation), patience,
                                              done = std::move(done)]() mutable {
      self->AskForGroup(std::move(join), std::move(cancellation), patience, std::move(done));
    });
  }

  void GroupTold(const CollectiveJoin& join, CompleteGroupReply reply, GroupDone done) {
    auto group = MakeCollectiveGroup(join.group_key, join.device_type, std::move(reply.devices));
    if (group.ok() && (*group)->size() != join.group_size) {
      group = Internal("The leader ", place_.leader, " says that group ", join.group_key, " has ",
                       (*group)->size(), " members, not ", join.group_size);
    }
    if (group.ok()) {
      MutexLock lock(task_->mutex_);
      Known& known = task_->known_[{place_.leader, join.group_key}];
      // Devices of one task share what they have been told.
      const bool is_same = known.group != nullptr && known.group->size() == (*group)->size() &&
                           std::equal(known.group->members.begin(), known.group->members.end(),
                                      (*group)->members.begin(), [](const auto& a, const auto& b) {
                                        return a.device.name == b.device.name &&
                                               a.device.incarnation == b.device.incarnation;
                                      });
      if (!is_same) known = Known{*group, {}};
      group = known.group;
    }
    std::move(done)(std::move(group));
  }

  const std::shared_ptr<TaskCollectives> task_;
  const Place place_;
};

RefPtr<StepCollectives> TaskCollectives::ForStep(Place place, int64_t step_id,
                                                 std::shared_ptr<CollectiveBuffers> buffers) {
  auto exchange = std::make_shared<TaskExchange>(place.task, place.peers, step_id,
                                                 std::move(buffers), log_, control_, compute_);
  return MakeRef<StepCollectives>(std::make_shared<Resolver>(shared_from_this(), std::move(place)),
                                  std::move(exchange), control_, direct_);
}

// Asks all tasks of the cluster whether they live, once a second while a group is formed. Tasks
// that have never answered may still be starting.
class TaskCollectives::FormingWatch : public std::enable_shared_from_this<FormingWatch> {
 public:
  FormingWatch(std::shared_ptr<TaskCollectives> task, std::shared_ptr<Peers> peers,
               const CollectiveJoin& join, std::shared_ptr<Cancellation> formed)
      : task_(std::move(task)),
        peers_(std::move(peers)),
        key_(join.group_key),
        size_(join.group_size),
        device_type_(join.device_type),
        formed_(std::move(formed)) {
    MutexLock lock(mutex_);
    for (const TaskName& name : peers_->Tasks()) asked_.emplace_back().task = name.ToString();
  }

  void Start() {
    size_t count;
    {
      MutexLock lock(mutex_);
      count = asked_.size();
    }
    for (size_t i = 0; i < count; ++i) Ask(i);
  }

 private:
  struct Asked {
    std::string task;
    int devices = -1;   // not heard of yet
    int refusals = 0;   // in a row
    absl::Status lost;  // why
  };
  // One that is just being started anew may refuse once.
  static constexpr int kRefusals = 2;

  void AskLater(size_t i) {
    task_->control_.ScheduleAfter(kAskAgain, [self = shared_from_this(), i] { self->Ask(i); });
  }
  void Ask(size_t i) {
    if (formed_->cancelled()) return;
    std::string name;
    {
      MutexLock lock(mutex_);
      name = asked_[i].task;
    }
    std::shared_ptr<WorkerApi> worker = peers_->Worker(name);
    if (worker == nullptr) return;
    CallOptions options;
    options.timeout = kSilence;
    WorkerApi& to = *worker;
    to.GetStatus(std::move(options),
                 [self = shared_from_this(), i, worker = std::move(worker)](
                     const absl::StatusOr<std::vector<DeviceAttributes>>& devices) {
                   if (!self->formed_->cancelled()) self->Heard(i, devices);
                 });
  }
  void Heard(size_t i, const absl::StatusOr<std::vector<DeviceAttributes>>& devices) {
    std::optional<absl::Status> hopeless;
    {
      MutexLock lock(mutex_);
      Asked& asked = asked_[i];
      if (devices.ok()) {
        asked.devices = static_cast<int>(std::count_if(
            devices->begin(), devices->end(),
            [&](const DeviceAttributes& device) { return device.device_type == device_type_; }));
        asked.refusals = 0;
        asked.lost = absl::OkStatus();
      } else if (asked.devices >= 0 &&
                 (++asked.refusals >= kRefusals || !absl::IsUnavailable(devices.status()))) {
        asked.lost = devices.status();
      }
      hopeless = HopelessLocked();
    }
    if (hopeless.has_value()) return task_->groups_->FailForming(key_, *hopeless);
    AskLater(i);
  }
  // Why the group can never be complete; nothing while it can.
  std::optional<absl::Status> HopelessLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int64_t devices = 0;
    std::string lost;
    for (const Asked& asked : asked_) {
      if (asked.devices < 0) return std::nullopt;
      if (asked.lost.ok()) {
        devices += asked.devices;
      } else {
        absl::StrAppend(&lost, lost.empty() ? "" : "; ", asked.task,
                        " does not answer: ", asked.lost.message());
      }
    }
    if (lost.empty() || devices >= size_) return std::nullopt;
    // Not UNAVAILABLE: followers would take that for a leader that is still starting.
    return absl::AbortedError(absl::StrCat("Group ", key_, " of ", size_,
                                           " devices cannot be complete any more: ", lost));
  }

  const std::shared_ptr<TaskCollectives> task_;
  const std::shared_ptr<Peers> peers_;
  const int32_t key_;
  const int32_t size_;
  const std::string device_type_;
  const std::shared_ptr<Cancellation> formed_;
  Mutex mutex_;
  std::vector<Asked> asked_ ABSL_GUARDED_BY(mutex_);
};

void TaskCollectives::Join(CollectiveJoin join, std::shared_ptr<Peers> peers,
                           std::shared_ptr<Cancellation> caller,
                           CollectiveResolver::GroupDone done) {
  const auto formed = std::make_shared<Cancellation>();
  const CollectiveJoin asked = join;
  groups_->Join(std::move(join), std::move(caller),
                [weak = weak_from_this(), formed, key = asked.group_key, done = std::move(done)](
                    absl::StatusOr<std::shared_ptr<const CollectiveGroup>> group) mutable {
                  formed->Cancel(absl::CancelledError("answered"));
                  if (const auto self = weak.lock()) {
                    MutexLock lock(self->mutex_);
                    self->forming_.erase(key);
                  }
                  std::move(done)(std::move(group));
                });
  if (formed->cancelled() || peers == nullptr || peers->Tasks().size() > kWatchedTasks) return;
  {
    // All waiting ranks are answered together, so one watch is enough.
    MutexLock lock(mutex_);
    if (formed->cancelled() || !forming_.insert(asked.group_key).second) return;
  }
  std::make_shared<FormingWatch>(shared_from_this(), std::move(peers), asked, formed)->Start();
}

void TaskCollectives::WatchMembers(const Place& place, const CollectiveParams& params,
                                   const std::shared_ptr<const CollectiveGroup>& group,
                                   const std::shared_ptr<Cancellation>& wait) {
  if (place.peers == nullptr || wait == nullptr || group->devices_per_task.size() < 3 ||
      group->devices_per_task.size() > kWatchedTasks) {
    return;
  }
  // Most are over long before.
  control_.ScheduleAfter(kAskAgain, [&control = control_, place, what = params.ToString(), group,
                                     weak = std::weak_ptr<Cancellation>(wait)] {
    const std::shared_ptr<Cancellation> over = weak.lock();
    if (over == nullptr || over->cancelled()) return;
    std::set<std::string> tasks;
    for (const CollectiveGroup::Member& member : group->members) tasks.insert(member.task);
    tasks.erase(place.task);
    for (const std::string& task : tasks) {
      WatchTask(place.peers, task, control, over, [over, what](const absl::Status& reason) {
        over->Cancel(absl::Status(reason.code(), absl::StrCat(what, ": ", reason.message())));
      });
    }
  });
}

void TaskCollectives::CompleteGroup(CollectiveJoin join, std::shared_ptr<Peers> peers,
                                    std::shared_ptr<Cancellation> caller,
                                    CallDone<CompleteGroupReply> done) {
  const bool is_legacy = join.is_legacy;
  Join(std::move(join), std::move(peers), std::move(caller),
       [is_legacy, done = std::move(done)](
           absl::StatusOr<std::shared_ptr<const CollectiveGroup>> group) mutable {
         if (!group.ok()) return std::move(done)(group.status());
         CompleteGroupReply reply;
         reply.group_key = (*group)->key;
         reply.device_type = (*group)->device_type;
         reply.is_legacy = is_legacy;
         for (const auto& member : (*group)->members) reply.devices.push_back(member.device);
         std::move(done)(std::move(reply));
       });
}

void TaskCollectives::CompleteInstance(CollectiveInstance instance, std::shared_ptr<Peers> peers,
                                       const std::string& self,
                                       std::shared_ptr<Cancellation> caller, CallDone<int> done) {
  const auto answered = std::make_shared<Cancellation>();
  const CollectiveInstance asked = instance;
  groups_->Complete(std::move(instance), std::move(caller),
                    [answered, done = std::move(done)](absl::StatusOr<int> source_rank) mutable {
                      answered->Cancel(absl::CancelledError("answered"));
                      std::move(done)(std::move(source_rank));
                    });
  if (answered->cancelled()) return;
  // Whoever has not asked yet may never do so.
  std::set<std::string> tasks;
  for (const std::string& device : groups_->MissingMembers(asked)) tasks.emplace(TaskOf(device));
  tasks.erase(self);
  for (const std::string& task : tasks) {
    WatchTask(peers, task, control_, answered,
              [groups = groups_, asked, task](const absl::Status& reason) {
                groups->FailInstance(asked, reason);
              });
  }
}

}  // namespace muster
