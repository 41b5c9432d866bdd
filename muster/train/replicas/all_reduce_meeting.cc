#include "muster/train/replicas/all_reduce_meeting.h"

#include <algorithm>
#include <limits>
#include <map>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"

#include "muster/base/mutex.h"
#include "muster/base/threads/thread_name.h"
#include "muster/client/connect.h"
#include "muster/train/loop/notice.h"
#include "muster/train/loop/timer.h"
#include "muster/train/model/operand.h"

namespace muster {
namespace {

// A task that is alive answers at once.
constexpr absl::Duration kAnswerTime = absl::Seconds(2);
// How long a host keeps a request waiting; the task then looks again where the others are.
constexpr absl::Duration kJoinTime = absl::Milliseconds(500);
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(500);
// How long to wait for first answers before a host is chosen.
constexpr absl::Duration kFirstLook = absl::Milliseconds(300);
constexpr absl::Duration kPause = absl::Milliseconds(50);
constexpr absl::Duration kBetweenNotices = absl::Seconds(10);

bool HasLeft(const SeenMember& member) {
  return member.leader == kLeftAllReduce;
}

// The variable of the same name in another graph: the same variable when that runs at its task.
absl::StatusOr<TrainVariable> VariableLike(const Scope& scope, const TrainVariable& variable) {
  AttrMap attrs;
  for (const auto& [name, value] : variable.node().attrs())
    if (!absl::StartsWith(name, "_")) attrs[name] = value;
  TrainVariable same;
  ASSIGN_OR_RETURN(Node* const node,
                   scope.TryAdd(variable.node().op(), {}, std::move(attrs), variable.name()));
  same.handle = node->output(0);
  same.is_resource = variable.is_resource;
  same.dtype = variable.dtype;
  same.shape = variable.shape;
  return same;
}

}  // namespace

int ChooseHost(absl::Span<const AllReduceMember> members, absl::Span<const SeenMember> seen,
               int self) {
  const int count = static_cast<int>(members.size());
  for (int i = 0; i < count; ++i)
    if (i != self && seen[i].lives && seen[i].leader == members[i].task) return i;
  for (int i = 0; i < count; ++i)
    if (i == self || (seen[i].lives && !HasLeft(seen[i]))) return i;
  return self;
}

int64_t NewestStep(absl::Span<const SeenMember> seen, int self) {
  int64_t newest = -1;
  for (int i = 0; i < static_cast<int>(seen.size()); ++i) {
    if (i == self) continue;
    if (!seen[i].asked) return std::numeric_limits<int64_t>::max();
    if (seen[i].lives && !HasLeft(seen[i])) newest = std::max(newest, seen[i].step);
  }
  return newest;
}

// Polls the other tasks, each on a thread of its own because a stopped one answers late.
class AllReduceMeeting::Survey {
 public:
  explicit Survey(AllReduceMeeting& meeting)
      : meeting_(meeting), seen_(meeting.options_.members.size()) {
    for (int i = 0; i < static_cast<int>(seen_.size()); ++i)
      if (i != meeting.options_.index)
        threads_.emplace_back([this, i] {
          NameThread("muster-meeting");
          Watch(i);
        });
  }
  ~Survey() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  std::vector<SeenMember> seen() const {
    MutexLock lock(mutex_);
    return seen_;
  }
  void WaitForAnswers(absl::Duration longest) {
    Timer& timer = Timer::Real();
    const absl::Duration end = timer.Now() + longest;
    MutexLock lock(mutex_);
    while (answers_ < threads_.size() && timer.Now() < end)
      timer.Wait(changed_, mutex_, end - timer.Now());
  }
  // A call to it has failed: it is not chosen as host until it answers again.
  void NoteLost(int member) {
    MutexLock lock(mutex_);
    seen_[member].lives = false;
  }

 private:
  absl::Status Interrupted() const {
    MutexLock lock(mutex_);
    return stopping_ ? absl::CancelledError("The tasks have met") : absl::OkStatus();
  }

  void Watch(int i) {
    std::unique_ptr<Session> session;
    while (Interrupted().ok()) {
      SeenMember seen =
          meeting_.Look(meeting_.options_.members[i], session, [this] { return Interrupted(); });
      MutexLock lock(mutex_);
      if (!seen_[i].asked) ++answers_;
      seen_[i] = std::move(seen);
      changed_.NotifyAll();
      const absl::Duration next = Timer::Real().Now() + kBetweenLooks;
      while (!stopping_ && Timer::Real().Now() < next)
        Timer::Real().Wait(changed_, mutex_, next - Timer::Real().Now());
    }
  }

  AllReduceMeeting& meeting_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<SeenMember> seen_ ABSL_GUARDED_BY(mutex_);
  size_t answers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

AllReduceMeeting::AllReduceMeeting(const std::string& name, const AllReduceHookOptions& options,
                                   const std::optional<TrainVariable>& step)
    : options_(options), scope_(graph_) {
  // Before all others, whose names give way to the variable's.
  if (step.has_value()) {
    const absl::StatusOr<TrainVariable> same = VariableLike(scope_, *step);
    if (same.ok()) step_ = CastToOutput(scope_, ReadValue(scope_, *same), DType::kInt64);
  }
  const auto input = [&](DType dtype, const char* what) {
    return scope_.Op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape::Scalar()}},
                     what);
  };
  member_ = input(DType::kString, "member");
  index_ = input(DType::kInt32, "index");
  host_ = input(DType::kString, "host");
  own_step_ = input(DType::kInt64, "step");
  endpoint_ = input(DType::kString, "endpoint");
  newest_ = input(DType::kInt64, "newest");
  const auto number = [&](int64_t value, const char* what) {
    return scope_.ConstScalar<int32_t>(static_cast<int32_t>(value), what);
  };
  join_ = scope_.Add("MusterJoinGroup",
                     {member_, index_, host_, own_step_,
                      number(static_cast<int64_t>(options.members.size()), "expected"),
                      number(options.LeastOrHalf(), "least"),
                      number(absl::ToInt64Milliseconds(options.grace), "grace"), endpoint_, newest_,
                      number(absl::ToInt64Milliseconds(kJoinTime), "wait")},
                     {{"shared_name", name}});
  leader_ = scope_.Op("MusterGroupLeader", {}, {{"shared_name", name}});
}

AllReduceMeeting::~AllReduceMeeting() = default;

absl::StatusOr<std::unique_ptr<Session>> AllReduceMeeting::Open(
    const AllReduceMember& at, absl::Duration limit, std::function<absl::Status()> interrupted) {
  SessionConfig config;
  config.device_filters = {at.task};
  config.operation_timeout = limit;
  ASSIGN_OR_RETURN(SessionOptions options, OptionsForTarget(at.target, std::move(config)));
  options.operation_timeout = limit;
  options.interrupted = std::move(interrupted);
  return Session::Create(graph_, std::move(options));
}

SeenMember AllReduceMeeting::Look(const AllReduceMember& at, std::unique_ptr<Session>& session,
                                  const std::function<absl::Status()>& interrupted) {
  SeenMember seen;
  seen.asked = true;
  RunOptions run;
  run.timeout = kAnswerTime;
  // An old session may belong to an earlier process of the task.
  for (bool is_new = false; !is_new && interrupted().ok();) {
    is_new = session == nullptr;
    if (is_new) {
      absl::StatusOr<std::unique_ptr<Session>> opened = Open(at, kAnswerTime, interrupted);
      if (!opened.ok()) return seen;
      session = *std::move(opened);
    }
    std::vector<Output> fetches = {leader_};
    if (step_) fetches.push_back(step_);
    absl::StatusOr<std::vector<Tensor>> got = session->Run({}, fetches, {}, run);
    // It has no model yet.
    if (absl::IsFailedPrecondition(got.status()) || absl::IsInvalidArgument(got.status()) ||
        absl::IsNotFound(got.status()))
      got = session->Run({}, {leader_}, {}, run);
    if (got.ok()) {
      seen.lives = true;
      seen.leader = (*got)[0].scalar<std::string>();
      if (got->size() > 1) seen.step = (*got)[1].scalar<int64_t>();
      return seen;
    }
    session = nullptr;
  }
  return seen;
}

absl::StatusOr<AllReducePlace> AllReduceMeeting::Join(const AllReduceMember& at,
                                                      std::unique_ptr<Session>& session,
                                                      int64_t step, const std::string& endpoint,
                                                      int64_t newest) {
  if (session == nullptr) {
    ASSIGN_OR_RETURN(session, Open(at, kAnswerTime, [this]() -> absl::Status {
                       // A task that does not answer is not asked to close a session either.
                       if (is_closing_) return absl::CancelledError("The session is being closed");
                       return options_.interrupted ? options_.interrupted() : absl::OkStatus();
                     }));
  }
  RunOptions run;
  run.timeout = kJoinTime + kAnswerTime;
  const absl::StatusOr<std::vector<Tensor>> joined =
      session->Run({{member_, Tensor::Scalar(options_.members[options_.index].task)},
                    {index_, Tensor::Scalar<int32_t>(options_.index)},
                    {host_, Tensor::Scalar(at.task)},
                    {own_step_, Tensor::Scalar<int64_t>(step)},
                    {endpoint_, Tensor::Scalar(endpoint)},
                    {newest_, Tensor::Scalar<int64_t>(newest)}},
                   {join_->output(0), join_->output(1), join_->output(2), join_->output(3),
                    join_->output(4), join_->output(5)},
                   {}, run);
  if (!joined.ok()) {
    is_closing_ = true;
    session = nullptr;
    is_closing_ = false;
  }
  RETURN_IF_ERROR(joined.status());
  const std::vector<Tensor>& got = *joined;
  AllReducePlace place;
  place.leader = got[0].scalar<std::string>();
  place.key = got[1].scalar<int32_t>();
  place.rank = got[2].scalar<int32_t>();
  place.source = got[3].scalar<int32_t>();
  for (const std::string& member : got[4].values<std::string>()) place.members.push_back(member);
  for (const std::string& text : got[5].values<std::string>()) place.endpoints.push_back(text);
  return place;
}

int AllReduceMeeting::FindMember(const std::string& task) const {
  const auto found = std::find_if(options_.members.begin(), options_.members.end(),
                                  [&](const AllReduceMember& m) { return m.task == task; });
  return found == options_.members.end() ? -1 : static_cast<int>(found - options_.members.begin());
}

absl::StatusOr<AllReducePlace> AllReduceMeeting::Meet(int64_t step, const std::string& endpoint) {
  Timer& timer = Timer::Real();
  const absl::Duration end = timer.Now() + options_.patience;
  Survey survey(*this);
  survey.WaitForAnswers(kFirstLook);
  std::map<int, std::unique_ptr<Session>> sessions;
  const absl::Cleanup close = [&] {
    is_closing_ = true;
    sessions.clear();
    is_closing_ = false;
  };
  absl::Status last = absl::OkStatus();
  std::string said;
  absl::Duration said_at = timer.Now();
  int sent_to = -1;  // by a task that follows this host
  while (timer.Now() < end) {
    if (options_.interrupted) RETURN_IF_ERROR(options_.interrupted());
    const std::vector<SeenMember> seen = survey.seen();
    const int host = sent_to >= 0 ? sent_to : ChooseHost(options_.members, seen, options_.index);
    const AllReduceMember& at = options_.members[host];
    const int64_t newest = NewestStep(seen, options_.index);
    std::unique_ptr<Session>& session = sessions[host];
    const absl::StatusOr<AllReducePlace> place = Join(at, session, step, endpoint, newest);
    sent_to = -1;
    std::string waits_for;
    if (!place.ok()) {
      if (absl::IsInvalidArgument(place.status()) || absl::IsUnimplemented(place.status()))
        return place.status();
      last = place.status();
      survey.NoteLost(host);
      waits_for = std::string(last.message());
    } else if (place->leader == at.task) {
      return place;
    } else if (!place->leader.empty()) {
      sent_to = FindMember(place->leader);
    } else {
      waits_for = "not enough have come";
      for (size_t i = 0; newest > step && i < seen.size(); ++i) {
        if (static_cast<int>(i) != options_.index && seen[i].lives && seen[i].step == newest)
          waits_for = absl::StrCat(options_.members[i].task, " has the model of step ", newest);
      }
    }
    if (!waits_for.empty() && (waits_for != said || timer.Now() - said_at >= kBetweenNotices)) {
      NoticeInfo("Waiting for the other tasks of the all-reduce at ", at.task, ": ", waits_for);
      said = waits_for;
      said_at = timer.Now();
    }
    // An answer that came at once would repeat in a tight loop.
    if (!place.ok() || !place->leader.empty())
      RETURN_IF_ERROR(SleepFor(timer, kPause, options_.interrupted));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "No group of at least ", options_.LeastOrHalf(), " tasks has met for the all-reduce within ",
      absl::FormatDuration(options_.patience), ". Last: ", last.message()));
}

}  // namespace muster
