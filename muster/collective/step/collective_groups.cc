#include "muster/collective/step/collective_groups.h"

#include <algorithm>

#include "absl/strings/str_join.h"

#include "muster/base/status.h"

namespace muster {
namespace {

// Peers may ask for anything.
constexpr size_t kMaxGroups = 10'000;
constexpr size_t kMaxInstances = 100'000;
constexpr int kMaxGroupSize = 100'000;

}  // namespace

absl::Status CollectiveGroups::CheckJoinLocked(Group& group, const CollectiveJoin& join) {
  if (join.device_type != group.device_type) {
    return Internal("Device ", join.device.name,
                    " is joining a group with incompatible device type", group.device_type,
                    " (group_key=", join.group_key, ")");
  }
  if (join.group_size != group.size) {
    return Internal("Device ", join.device.name, " is joining a group with size", join.group_size,
                    ", but that group has size ", group.size, " (group_key=", join.group_key, ")");
  }
  for (const DeviceAttributes& device : group.devices) {
    if (device.name != join.device.name) continue;
    if (device.incarnation == join.device.incarnation) return absl::OkStatus();
    return FailedPrecondition(
        "Device ", join.device.name,
        " current incarnation doesn't match with one in the group. This usually means this worker "
        "has restarted but the collective leader hasn't, or this worker connects to a wrong "
        "cluster.");
  }
  if (group.whole != nullptr) {
    return Internal("Device ", join.device.name,
                    " is joining a group that is already full (group_key=", join.group_key, ")");
  }
  group.devices.push_back(join.device);
  return absl::OkStatus();
}

void CollectiveGroups::Join(CollectiveJoin join, std::shared_ptr<Cancellation> caller,
                            GroupDone done) {
  if (join.group_size <= 0 || join.group_size > kMaxGroupSize) {
    return std::move(done)(
        InvalidArgument("group_size must be positive integer but got ", join.group_size));
  }
  std::vector<GroupWaiter> answered;
  std::vector<InstanceWaiter> dropped;
  absl::StatusOr<std::shared_ptr<const CollectiveGroup>> result = nullptr;
  bool waits = false;
  GroupWaiter own;
  own.done = std::move(done);
  own.device = join.device.name;
  {
    MutexLock lock(mutex_);
    own.id = ++last_id_;
    auto found = groups_.find(join.group_key);
    if (found != groups_.end() && found->second.whole != nullptr) {
      const Group& old = found->second;
      const bool restarted =
          std::any_of(old.devices.begin(), old.devices.end(), [&](const DeviceAttributes& device) {
            return device.name == join.device.name && device.incarnation != join.device.incarnation;
          });
      if (old.size != join.group_size || restarted) {
        groups_.erase(found);
        DropInstancesLocked(join.group_key, dropped);
        found = groups_.end();
      }
    }
    if (!stopped_.ok()) {
      result = stopped_;
    } else if (found == groups_.end() && groups_.size() >= kMaxGroups) {
      result = absl::ResourceExhaustedError(
          absl::StrCat("More than ", kMaxGroups, " groups of collectives on this task"));
    } else {
      if (found == groups_.end()) {
        found = groups_.emplace(join.group_key, Group()).first;
        found->second.size = join.group_size;
        found->second.device_type = join.device_type;
      }
      Group& group = found->second;
      const absl::Status status = CheckJoinLocked(group, join);
      group.is_legacy |= join.is_legacy;
      if (!status.ok()) {
        result = status;
        // A group whose ranks do not agree is never formed: waiting ranks are released.
        if (group.whole == nullptr) {
          answered = std::move(group.waiting);
          groups_.erase(found);
        }
      } else if (group.whole != nullptr) {
        result = group.whole;
      } else if (static_cast<int>(group.devices.size()) == group.size) {
        result = MakeCollectiveGroup(join.group_key, group.device_type, group.devices);
        answered = std::move(group.waiting);
        group.waiting.clear();
        if (!result.ok()) {
          groups_.erase(found);
        } else {
          auto whole = std::make_shared<CollectiveGroup>(**result);
          whole->is_legacy = group.is_legacy;
          result = group.whole = std::move(whole);
        }
      } else {
        own.on_cancel->StartScheduled(std::move(caller), scheduler_, weak_from_this(),
                                      [key = join.group_key, id = own.id](
                                          CollectiveGroups& self, const absl::Status& reason) {
                                        self.LeaveGroup(key, id, reason);
                                      });
        group.waiting.push_back(std::move(own));
        waits = true;
      }
    }
  }
  for (InstanceWaiter& waiter : dropped) {
    waiter.Answer(absl::StatusOr<int>(absl::AbortedError(
        absl::StrCat("Group ", join.group_key, " of collectives is being formed again"))));
  }
  if (waits) return;
  for (GroupWaiter& waiter : answered) waiter.Answer(result);
  std::move(own.done)(std::move(result));
}

void CollectiveGroups::LeaveGroup(int32_t key, uint64_t waiter, const absl::Status& reason) {
  std::vector<GroupWaiter> waiting;
  {
    MutexLock lock(mutex_);
    const auto found = groups_.find(key);
    if (found == groups_.end()) return;
    const auto& list = found->second.waiting;
    if (std::none_of(list.begin(), list.end(),
                     [waiter](const GroupWaiter& w) { return w.id == waiter; })) {
      return;
    }
    waiting = std::move(found->second.waiting);
    groups_.erase(found);
  }
  std::string device;
  for (const GroupWaiter& w : waiting)
    if (w.id == waiter) device = w.device;
  const absl::Status left = absl::AbortedError(
      absl::StrCat("Device ", device, " has left group ", key,
                   " of collectives before it was complete: ", reason.message()));
  for (GroupWaiter& w : waiting) {
    w.Answer(
        absl::StatusOr<std::shared_ptr<const CollectiveGroup>>(w.id == waiter ? reason : left));
  }
}

void CollectiveGroups::FailForming(int32_t group_key, const absl::Status& reason) {
  std::vector<GroupWaiter> waiting;
  {
    MutexLock lock(mutex_);
    const auto found = groups_.find(group_key);
    if (found == groups_.end() || found->second.whole != nullptr) return;
    waiting = std::move(found->second.waiting);
    groups_.erase(found);
  }
  for (GroupWaiter& waiter : waiting)
    waiter.Answer(absl::StatusOr<std::shared_ptr<const CollectiveGroup>>(reason));
}

absl::Status CollectiveGroups::CheckInstance(const Instance& known, const CollectiveInstance& asked,
                                             const CollectiveGroup& group, bool& restart) const {
  const CollectiveInstance& first = known.first;
  const int rank = group.RankOf(asked.device);
  const bool is_same = first.type == asked.type && first.dtype == asked.dtype &&
                       first.shape == asked.shape &&
                       (!known.is_complete || asked.is_source == (rank == known.source_rank));
  restart = !is_same && known.waiting.empty() && known.asked.contains(asked.device);
  if (is_same || restart) return absl::OkStatus();
  if (first.type != asked.type || first.dtype != asked.dtype) {
    return Internal("Collective instance ", asked.instance_key, " expected type ",
                    static_cast<int>(first.type), " and data_type ", static_cast<int>(first.dtype),
                    " but got type ", static_cast<int>(asked.type), " and data_type ",
                    static_cast<int>(asked.dtype));
  }
  if (first.shape != asked.shape) {
    return InvalidArgument(
        "Shape mismatch in the collective instance ", asked.instance_key, ". Op at device ",
        asked.device, " expected shape ", asked.shape.ToString(),
        " but another member in the group expected shape ", first.shape.ToString(),
        ". This is likely due to different input shapes at different members of the collective "
        "op.");
  }
  return absl::OkStatus();
}

void CollectiveGroups::Complete(CollectiveInstance instance, std::shared_ptr<Cancellation> caller,
                                InstanceDone done) {
  const InstanceKey key{instance.group_key, instance.step_id, instance.instance_key};
  std::vector<InstanceWaiter> answered;
  absl::StatusOr<int> result = -1;
  InstanceWaiter own;
  own.done = std::move(done);
  own.device = instance.device;
  {
    MutexLock lock(mutex_);
    own.id = ++last_id_;
    const auto group = groups_.find(instance.group_key);
    const CollectiveGroup* const whole =
        group == groups_.end() ? nullptr : group->second.whole.get();
    const int rank = whole == nullptr ? -1 : whole->RankOf(instance.device);
    if (!stopped_.ok()) {
      result = stopped_;
    } else if (whole == nullptr) {
      result = FailedPrecondition("group ", instance.group_key,
                                  " not found. This normally means the server has restarted");
    } else if (rank < 0) {
      result = FailedPrecondition("Device ", instance.device, " is not a member of group ",
                                  instance.group_key);
    } else if (instances_.size() >= kMaxInstances && !instances_.contains(key)) {
      result = absl::ResourceExhaustedError(
          absl::StrCat("More than ", kMaxInstances, " instances of collectives on this task"));
    } else {
      const auto [found, is_new] = instances_.try_emplace(key);
      Instance& known = found->second;
      if (is_new) known.first = instance;
      bool restart = false;
      absl::Status status = CheckInstance(known, instance, *whole, restart);
      if (restart) {
        known = Instance();
        known.first = instance;
      }
      if (status.ok() && known.asked.insert(instance.device).second && instance.is_source) {
        if (known.source_rank >= 0) {
          status = Internal("Instance ", instance.instance_key, " already has source ",
                            known.source_rank, ", received second claim from ", rank);
        } else {
          known.source_rank = rank;
        }
      }
      const bool all_asked = static_cast<int>(known.asked.size()) == whole->size();
      const bool is_broadcast = instance.type == CollectiveType::kBroadcast;
      if (status.ok() && is_broadcast && all_asked && known.source_rank < 0) {
        status = Internal("Instance ", instance.instance_key,
                          " found no source for broadcast. This could mean that there were "
                          "group_size=",
                          whole->size(), " BcastRecvs but no BcastSend.");
      }
      if (!status.ok()) {
        result = status;
        answered = std::move(known.waiting);
        instances_.erase(found);
      } else if (all_asked || !is_broadcast) {
        known.is_complete = is_broadcast;
        result = known.source_rank;
        answered = std::move(known.waiting);
        known.waiting.clear();
        if (all_asked && instance.step_id != 0) instances_.erase(found);
      } else {
        own.on_cancel->StartScheduled(
            std::move(caller), scheduler_, weak_from_this(),
            [key, id = own.id](CollectiveGroups& self, const absl::Status& reason) {
              self.LeaveInstance(key, id, reason);
            });
        known.waiting.push_back(std::move(own));
        return;
      }
    }
  }
  for (InstanceWaiter& waiter : answered) waiter.Answer(result);
  std::move(own.done)(std::move(result));
}

void CollectiveGroups::LeaveInstance(InstanceKey key, uint64_t waiter, const absl::Status& reason) {
  std::vector<InstanceWaiter> waiting;
  {
    MutexLock lock(mutex_);
    const auto found = instances_.find(key);
    if (found == instances_.end()) return;
    const auto& list = found->second.waiting;
    if (std::none_of(list.begin(), list.end(),
                     [waiter](const InstanceWaiter& w) { return w.id == waiter; })) {
      return;
    }
    waiting = std::move(found->second.waiting);
    instances_.erase(found);
  }
  std::string device;
  for (const InstanceWaiter& w : waiting)
    if (w.id == waiter) device = w.device;
  const absl::Status left = absl::AbortedError(
      absl::StrCat("Device ", device, " has left the broadcast ", std::get<2>(key), " of group ",
                   std::get<0>(key), " before all ranks were there: ", reason.message()));
  for (InstanceWaiter& w : waiting) {
    w.Answer(absl::StatusOr<int>(w.id == waiter ? reason : left));
  }
}

std::vector<std::string> CollectiveGroups::MissingMembers(
    const CollectiveInstance& instance) const {
  std::vector<std::string> missing;
  MutexLock lock(mutex_);
  const auto group = groups_.find(instance.group_key);
  const auto found = instances_.find({instance.group_key, instance.step_id, instance.instance_key});
  if (group == groups_.end() || group->second.whole == nullptr || found == instances_.end() ||
      found->second.waiting.empty()) {
    return missing;
  }
  for (const CollectiveGroup::Member& member : group->second.whole->members) {
    if (!found->second.asked.contains(member.device.name)) missing.push_back(member.device.name);
  }
  return missing;
}

void CollectiveGroups::FailInstance(const CollectiveInstance& instance,
                                    const absl::Status& reason) {
  std::vector<InstanceWaiter> waiting;
  {
    MutexLock lock(mutex_);
    const auto found =
        instances_.find({instance.group_key, instance.step_id, instance.instance_key});
    if (found == instances_.end() || found->second.waiting.empty()) return;
    waiting = std::move(found->second.waiting);
    instances_.erase(found);
  }
  for (InstanceWaiter& waiter : waiting) waiter.Answer(absl::StatusOr<int>(reason));
}

void CollectiveGroups::DropInstancesLocked(int32_t group_key,
                                           std::vector<InstanceWaiter>& waiting) {
  for (auto at = instances_.begin(); at != instances_.end();) {
    const auto instance = at++;
    if (std::get<0>(instance->first) != group_key) continue;
    for (InstanceWaiter& waiter : instance->second.waiting) waiting.push_back(std::move(waiter));
    instances_.erase(instance);
  }
}

void CollectiveGroups::ResolveGroup(const CollectiveParams& params,
                                    std::shared_ptr<Cancellation> cancellation, GroupDone done) {
  Join({params.group_key, params.group_size, params.device.device_type, params.device},
       std::move(cancellation), std::move(done));
}

void CollectiveGroups::ResolveInstance(const CollectiveParams& params,
                                       std::shared_ptr<const CollectiveGroup> group,
                                       std::shared_ptr<Cancellation> cancellation,
                                       InstanceDone done) {
  Complete(InstanceOf(params, *group), std::move(cancellation), std::move(done));
}

// The leader keeps what it knows: ranks that have not failed still count on it. A member that comes
// back after a restart, or a group of another size, makes room by itself.
void CollectiveGroups::Forget(const CollectiveGroup&) {}

void CollectiveGroups::Stop(const absl::Status& reason) {
  std::vector<GroupWaiter> groups;
  std::vector<InstanceWaiter> instances;
  {
    MutexLock lock(mutex_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    for (auto& [key, group] : groups_) {
      for (GroupWaiter& waiter : group.waiting) groups.push_back(std::move(waiter));
    }
    for (auto& [key, instance] : instances_) {
      for (InstanceWaiter& waiter : instance.waiting) instances.push_back(std::move(waiter));
    }
    groups_.clear();
    instances_.clear();
  }
  for (GroupWaiter& waiter : groups)
    waiter.Answer(absl::StatusOr<std::shared_ptr<const CollectiveGroup>>(reason));
  for (InstanceWaiter& waiter : instances) waiter.Answer(absl::StatusOr<int>(reason));
}

}  // namespace muster
