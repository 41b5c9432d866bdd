#include "muster/ops/collective/membership.h"

#include <algorithm>
#include <limits>

#include "muster/base/random.h"
#include "muster/ops/resource_kernel.h"
#include "muster/runtime/direct_groups.h"

namespace muster {

// Successive leaders must not give out the same key: each starts at a random one.
Membership::Membership() : next_key_(static_cast<int32_t>(EntropySeed() % (1 << 30)) + 1) {}

void Membership::Join(JoinRequest request, Scheduler& scheduler, Accept accept, Joined joined) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    if (!leader_.empty() && leader_ != request.host) {
      GroupPlace elsewhere;
      elsewhere.leader = leader_;
      answers.push_back({std::move(joined), std::move(elsewhere)});
    } else if (const uint64_t ticket = next_ticket_++; !accept(ticket)) {
      answers.push_back({std::move(joined), absl::CancelledError("Join was cancelled")});
    } else {
      for (auto old = waiting_.begin(); old != waiting_.end(); ++old) {
        if (old->request.member != request.member) continue;
        answers.push_back(
            {std::move(old->joined), absl::AbortedError(request.member + " has joined again")});
        waiting_.erase(old);
        break;
      }
      waiting_.push_back({ticket, std::move(request), std::move(joined)});
      const JoinRequest& newest = waiting_.back().request;
      if (FindHostLocked() != nullptr && static_cast<int>(waiting_.size()) >= newest.expected) {
        std::vector<Answer> formed = FormLocked();
        std::move(formed.begin(), formed.end(), std::back_inserter(answers));
      } else {
        WaitForOthersLocked(newest, scheduler);
        if (newest.wait < absl::InfiniteDuration()) {
          scheduler.ScheduleAfter(newest.wait, [self = RefPtr<Membership>::Share(this), ticket] {
            self->AnswerThatNotEnoughCame(ticket);
          });
        }
      }
    }
  }
  Give(std::move(answers));
}

void Membership::WaitForOthersLocked(const JoinRequest& newest, Scheduler& scheduler) {
  const absl::Time now = scheduler.clock().Now();
  absl::Time& waits_until = seen_.try_emplace(newest.member, absl::InfinitePast()).first->second;
  if (now - waits_until > newest.grace) closes_ = now + newest.grace;
  waits_until = now + newest.wait;
  scheduler.ScheduleAfter(std::max(closes_ - now, absl::ZeroDuration()),
                          [self = RefPtr<Membership>::Share(this), round = round_, due = closes_] {
                            self->Expire(round, due);
                          });
}

void Membership::Expire(uint64_t round, absl::Time due) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    const JoinRequest* const host = FindHostLocked();
    if (round != round_ || due != closes_ || host == nullptr) return;
    if (static_cast<int>(waiting_.size()) < host->least || !FurthestIsHereLocked(*host)) return;
    answers = FormLocked();
  }
  Give(std::move(answers));
}

void Membership::AnswerThatNotEnoughCame(uint64_t ticket) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    const auto waiter = std::find_if(waiting_.begin(), waiting_.end(),
                                     [&](const Waiter& w) { return w.ticket == ticket; });
    if (waiter == waiting_.end()) return;
    answers.push_back({std::move(waiter->joined), GroupPlace()});
    waiting_.erase(waiter);
  }
  Give(std::move(answers));
}

const JoinRequest* Membership::FindHostLocked() const {
  for (const Waiter& waiter : waiting_)
    if (waiter.request.member == waiter.request.host) return &waiter.request;
  return nullptr;
}

bool Membership::FurthestIsHereLocked(const JoinRequest& host) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiter& waiter) { return waiter.request.step >= host.newest; });
}

std::vector<Membership::Answer> Membership::FormLocked() {
  std::sort(waiting_.begin(), waiting_.end(),
            [](const Waiter& a, const Waiter& b) { return a.request.index < b.request.index; });
  GroupPlace place;
  place.leader = waiting_[0].request.host;
  place.key = next_key_;
  next_key_ = next_key_ == std::numeric_limits<int32_t>::max() ? 1 : next_key_ + 1;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    place.members.push_back(waiting_[i].request.member);
    place.endpoints.push_back(waiting_[i].request.endpoint);
    if (waiting_[i].request.step > waiting_[place.source].request.step)
      place.source = static_cast<int>(i);
  }
  std::vector<Answer> answers;
  for (Waiter& waiter : waiting_) {
    place.rank = static_cast<int>(answers.size());
    answers.push_back({std::move(waiter.joined), place});
  }
  waiting_.clear();
  seen_.clear();
  ++round_;
  return answers;
}

void Membership::Give(std::vector<Answer> answers) {
  for (Answer& answer : answers) std::move(answer.joined)(std::move(answer.place));
}

bool Membership::Cancel(uint64_t ticket) {
  MutexLock lock(mutex_);
  for (auto waiter = waiting_.begin(); waiter != waiting_.end(); ++waiter) {
    if (waiter->ticket != ticket) continue;
    withdrawn_.push_back(std::move(waiter->joined));
    waiting_.erase(waiter);
    return true;
  }
  return false;
}

void Membership::Flush() {
  std::vector<Joined> withdrawn;
  {
    MutexLock lock(mutex_);
    withdrawn.swap(withdrawn_);
  }
  for (Joined& joined : withdrawn) std::move(joined)(absl::CancelledError("Join was cancelled"));
}

void Membership::NoteLeader(const std::string& host, std::string leader) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    leader_ = std::move(leader);
    if (leader_.empty() || leader_ == host) return;
    GroupPlace elsewhere;
    elsewhere.leader = leader_;
    for (Waiter& waiter : waiting_) answers.push_back({std::move(waiter.joined), elsewhere});
    waiting_.clear();
  }
  Give(std::move(answers));
}

std::string Membership::leader() const {
  MutexLock lock(mutex_);
  return leader_;
}

bool Membership::is_awaited() const {
  MutexLock lock(mutex_);
  return !waiting_.empty();
}

namespace {

absl::StatusOr<RefPtr<Membership>> MembershipOf(const KernelContext& c) {
  ASSIGN_OR_RETURN(const std::string name, c.node().Attr<std::string>("shared_name"));
  const std::string key = ResourceKey(name, Membership::kTypeName);
  RETURN_IF_ERROR(c.resources()
                      .LookupOrCreate("", key,
                                      []() -> absl::StatusOr<RefPtr<Resource>> {
                                        return RefPtr<Resource>(MakeRef<Membership>());
                                      })
                      .status());
  return c.resources().LookupAs<Membership>("", key);
}

absl::StatusOr<std::string> ScalarText(const Tensor& tensor, absl::string_view what) {
  if (tensor.rank() != 0) return InvalidArgument(what, " must be a scalar");
  return tensor.scalar<std::string>();
}

absl::StatusOr<int> SmallInteger(const Tensor& tensor, absl::string_view what, int64_t least) {
  ASSIGN_OR_RETURN(const int64_t value, ScalarInteger(tensor, what));
  if (value < least || value > std::numeric_limits<int32_t>::max())
    return InvalidArgument(what, " must be at least ", least, " and fit 32 bits: ", value);
  return static_cast<int>(value);
}

absl::StatusOr<std::vector<std::string>> TextVector(const Tensor& tensor, absl::string_view what) {
  if (tensor.rank() != 1) return InvalidArgument(what, " must be a vector");
  const absl::Span<const std::string> values = tensor.values<std::string>();
  return std::vector<std::string>(values.begin(), values.end());
}

// Lives as long as the step.
absl::StatusOr<DirectGroups*> GroupsOf(const KernelContext& c) {
  const auto executor =
      c.step().step_resources->LookupAs<CollectiveExecutor>("", CollectiveExecutor::kStepName);
  DirectGroups* const groups = executor.ok() ? (*executor)->direct() : nullptr;
  if (groups == nullptr) {
    return Unimplemented("Groups of tasks need a server of Muster");
  }
  return groups;
}

class JoinKernel : public Kernel {
 public:
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("Joins run asynchronously"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<JoinRequest> request = RequestOf(c);
    if (!request.ok()) return std::move(done)(request.status());
    const absl::StatusOr<RefPtr<Membership>> membership = MembershipOf(c);
    if (!membership.ok()) return std::move(done)(membership.status());
    const StepWait wait(c, *membership);
    (*membership)
        ->Join(*std::move(request), *c.step().scheduler, wait.OnWait(),
               wait.Then([&c, done = std::move(done)](absl::StatusOr<GroupPlace> place) mutable {
                 if (place.ok()) SetOutputs(c, *place);
                 std::move(done)(place.status());
               }));
  }

 private:
  static absl::StatusOr<JoinRequest> RequestOf(const KernelContext& c) {
    JoinRequest request;
    ASSIGN_OR_RETURN(request.member, ScalarText(c.input(0), "member"));
    ASSIGN_OR_RETURN(request.index, SmallInteger(c.input(1), "index", 0));
    ASSIGN_OR_RETURN(request.host, ScalarText(c.input(2), "host"));
    ASSIGN_OR_RETURN(request.step, ScalarInteger(c.input(3), "step"));
    ASSIGN_OR_RETURN(request.expected, SmallInteger(c.input(4), "expected", 1));
    ASSIGN_OR_RETURN(request.least, SmallInteger(c.input(5), "least", 1));
    ASSIGN_OR_RETURN(const int grace, SmallInteger(c.input(6), "grace", 0));
    request.grace = absl::Milliseconds(grace);
    ASSIGN_OR_RETURN(request.endpoint, ScalarText(c.input(7), "endpoint"));
    ASSIGN_OR_RETURN(request.newest, ScalarInteger(c.input(8), "newest"));
    ASSIGN_OR_RETURN(const int wait, SmallInteger(c.input(9), "wait", 0));
    request.wait = absl::Milliseconds(wait);
    return request;
  }

  static void SetOutputs(KernelContext& c, const GroupPlace& place) {
    c.SetOutput(0, Tensor::Scalar(place.leader));
    c.SetOutput(1, Tensor::Scalar<int32_t>(place.key));
    c.SetOutput(2, Tensor::Scalar<int32_t>(place.rank));
    c.SetOutput(3, Tensor::Scalar<int32_t>(place.source));
    c.SetOutput(4, Tensor::Vector<std::string>(place.members));
    c.SetOutput(5, Tensor::Vector<std::string>(place.endpoints));
  }
};

absl::Status NoteLeader(KernelContext& c) {
  ASSIGN_OR_RETURN(const std::string host, ScalarText(c.input(0), "host"));
  ASSIGN_OR_RETURN(std::string leader, ScalarText(c.input(1), "leader"));
  ASSIGN_OR_RETURN(const RefPtr<Membership> membership, MembershipOf(c));
  ASSIGN_OR_RETURN(const std::string name, c.node().Attr<std::string>("shared_name"));
  // A task in no group keeps no other waiting.
  const absl::StatusOr<DirectGroups*> groups = GroupsOf(c);
  if (groups.ok() && leader.empty()) (*groups)->Leave(name);
  membership->NoteLeader(host, std::move(leader));
  return absl::OkStatus();
}

absl::Status GetEndpoint(KernelContext& c) {
  ASSIGN_OR_RETURN(DirectGroups* const groups, GroupsOf(c));
  ASSIGN_OR_RETURN(const std::string endpoint, groups->Endpoint());
  c.SetOutput(0, Tensor::Scalar(endpoint));
  return absl::OkStatus();
}

absl::Status EnterGroup(KernelContext& c) {
  ASSIGN_OR_RETURN(DirectGroups* const groups, GroupsOf(c));
  DirectGroup group;
  ASSIGN_OR_RETURN(group.name, c.node().Attr<std::string>("shared_name"));
  ASSIGN_OR_RETURN(group.key, SmallInteger(c.input(0), "group_key", 1));
  ASSIGN_OR_RETURN(group.rank, SmallInteger(c.input(1), "rank", 0));
  ASSIGN_OR_RETURN(group.source, SmallInteger(c.input(2), "source", 0));
  ASSIGN_OR_RETURN(group.tasks, TextVector(c.input(3), "tasks"));
  ASSIGN_OR_RETURN(group.endpoints, TextVector(c.input(4), "endpoints"));
  return groups->Enter(std::move(group));
}

absl::Status GetLeader(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Membership> membership, MembershipOf(c));
  c.SetOutput(0, Tensor::Scalar(membership->leader()));
  return absl::OkStatus();
}

absl::Status IsAwaited(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Membership> membership, MembershipOf(c));
  c.SetOutput(0, Tensor::Scalar<bool>(membership->is_awaited()));
  return absl::OkStatus();
}

absl::Status JoinShapes(ShapeContext& c) {
  for (int i = 0; i < 4; ++i) c.SetOutput(i, PartialShape::Scalar());
  c.SetOutput(4, PartialShape({-1}));
  c.SetOutput(5, PartialShape({-1}));
  return absl::OkStatus();
}

constexpr const char* kNoNumber = "the members of a group are not a number";

}  // namespace

DEFINE_OP(MusterJoinGroup) {
  op.Attr("shared_name: string")
      .Input("member: string")
      .Input("index: int32")
      .Input("host: string")
      .Input("step: int64")
      .Input("expected: int32")
      .Input("least: int32")
      .Input("grace_millis: int32")
      .Input("endpoint: string")
      .Input("newest: int64")
      .Input("wait_millis: int32")
      .Output("leader: string")
      .Output("group_key: int32")
      .Output("rank: int32")
      .Output("source: int32")
      .Output("members: string")
      .Output("endpoints: string")
      .Stateful()
      .Doc(
          "Waits until the tasks that take part in an all-reduce have gathered here, or for some "
          "time.")
      .Shape(JoinShapes)
      .NoGradient(kNoNumber)
      .Cpu(New<JoinKernel>());
}

DEFINE_OP(MusterNoteLeader) {
  op.Attr("shared_name: string")
      .Input("host: string")
      .Input("leader: string")
      .Stateful()
      .Doc("Notes the leader of this task's group; an empty text: it is in none.")
      .Shape(NoOutputs)
      .NoGradient(kNoNumber)
      .Cpu(NoteLeader);
}

DEFINE_OP(MusterEndpoint) {
  op.Output("endpoint: string")
      .Stateful()
      .DistributedCommunication()
      .Doc("How other tasks reach this one in a group.")
      .Shape(ScalarShape)
      .NoGradient(kNoNumber)
      .Cpu(GetEndpoint);
}

DEFINE_OP(MusterEnterGroup) {
  op.Attr("shared_name: string")
      .Input("group_key: int32")
      .Input("rank: int32")
      .Input("source: int32")
      .Input("tasks: string")
      .Input("endpoints: string")
      .Stateful()
      .DistributedCommunication()
      .Doc("Connects this task with the others of a group that has met.")
      .Shape(NoOutputs)
      .NoGradient(kNoNumber)
      .Cpu(EnterGroup);
}

DEFINE_OP(MusterGroupLeader) {
  op.Attr("shared_name: string")
      .Output("leader: string")
      .Stateful()
      .Doc("What MusterNoteLeader has noted.")
      .Shape(ScalarShape)
      .NoGradient(kNoNumber)
      .Cpu(GetLeader);
}

DEFINE_OP(MusterGroupAwaited) {
  op.Attr("shared_name: string")
      .Output("awaited: bool")
      .Stateful()
      .Doc("Whether a task waits here to take part.")
      .Shape(ScalarShape)
      .NoGradient(kNoNumber)
      .Cpu(IsAwaited);
}

}  // namespace muster
