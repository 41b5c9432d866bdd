#include "muster/train/all_reduce_hook.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

#include "muster/base/mutex.h"
#include "muster/client/connect.h"
#include "muster/graph/emit.h"
#include "muster/train/coordinator.h"
#include "muster/train/notice.h"
#include "muster/train/timer.h"

namespace muster {
namespace {

// A task that is there answers at once; one that waits for the others is asked again and again, so
// that it is noticed when they meet elsewhere.
constexpr absl::Duration kAnswerTime = absl::Seconds(2);
constexpr absl::Duration kJoinTime = absl::Seconds(10);
constexpr absl::Duration kPause = absl::Milliseconds(500);
// What a task notes as its leader when it has ended: nobody meets there any more.
constexpr char kLeft[] = "(left)";

}  // namespace

std::vector<AllReduceMember> AllReduceMembers(const ClusterSpec& cluster, absl::string_view job) {
  std::vector<AllReduceMember> members;
  for (const auto& [name, tasks] : cluster.jobs()) {
    if (name != job) continue;
    for (const auto& [index, address] : tasks)
      members.push_back({TaskName{name, index}.ToString(), absl::StrCat("grpc://", address)});
  }
  return members;
}

struct AllReduceHook::Place {
  std::string leader;
  int32_t key = 0;
  int32_t rank = 0;
  int32_t source = 0;
  std::vector<std::string> members;
  std::vector<std::string> endpoints;
};

// The small graph that a task runs at others to meet them.
class AllReduceHook::Meeting {
 public:
  Meeting(const std::string& name, const AllReduceHookOptions& options)
      : options_(options), scope_(graph_) {
    const auto input = [&](DType dtype, const char* what) {
      return scope_.Op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape::Scalar()}},
                       what);
    };
    member_ = input(DType::kString, "member");
    index_ = input(DType::kInt32, "index");
    host_ = input(DType::kString, "host");
    step_ = input(DType::kInt64, "step");
    endpoint_ = input(DType::kString, "endpoint");
    const auto count = static_cast<int32_t>(options.members.size());
    const int32_t least = options.least > 0 ? options.least : (count + 1) / 2;
    join_ =
        scope_.Add("MusterJoinGroup",
                   {member_, index_, host_, step_, scope_.ConstScalar<int32_t>(count, "expected"),
                    scope_.ConstScalar<int32_t>(least, "least"),
                    scope_.ConstScalar<int32_t>(
                        static_cast<int32_t>(absl::ToInt64Milliseconds(options.grace)), "grace"),
                    endpoint_},
                   {{"shared_name", name}});
    leader_ = scope_.Op("MusterGroupLeader", {}, {{"shared_name", name}});
  }

  absl::Status status() const { return scope_.status(); }

  absl::StatusOr<Place> Join(const AllReduceMember& at, int64_t step, const std::string& endpoint) {
    const AllReduceMember& self = options_.members[options_.index];
    ASSIGN_OR_RETURN(const std::vector<Tensor> got,
                     RunAt(at, kJoinTime,
                           {{member_, Tensor::Scalar(self.task)},
                            {index_, Tensor::Scalar<int32_t>(options_.index)},
                            {host_, Tensor::Scalar(at.task)},
                            {step_, Tensor::Scalar<int64_t>(step)},
                            {endpoint_, Tensor::Scalar(endpoint)}},
                           {join_->output(0), join_->output(1), join_->output(2), join_->output(3),
                            join_->output(4), join_->output(5)}));
    Place place;
    place.leader = got[0].scalar<std::string>();
    place.key = got[1].scalar<int32_t>();
    place.rank = got[2].scalar<int32_t>();
    place.source = got[3].scalar<int32_t>();
    for (const std::string& member : got[4].values<std::string>()) place.members.push_back(member);
    for (const std::string& text : got[5].values<std::string>()) place.endpoints.push_back(text);
    return place;
  }

  // Where the task is at work; "" when it is in no group.
  absl::StatusOr<std::string> LeaderOf(const AllReduceMember& at) {
    ASSIGN_OR_RETURN(const std::vector<Tensor> got, RunAt(at, kAnswerTime, {}, {leader_}));
    return got[0].scalar<std::string>();
  }

  // The leader of a group that others are in already, "" when none is known.
  std::string RunningLeader() {
    Mutex mutex;
    std::string leader;
    std::vector<std::thread> threads;
    for (int i = 0; i < static_cast<int>(options_.members.size()); ++i) {
      if (i == options_.index) continue;
      threads.emplace_back([&, i] {
        const absl::StatusOr<std::string> seen = LeaderOf(options_.members[i]);
        if (!seen.ok() || seen->empty() || *seen == kLeft) return;
        MutexLock lock(mutex);
        leader = *seen;
      });
    }
    for (std::thread& thread : threads) thread.join();
    // This task's own last life may be what the others remember.
    return leader == options_.members[options_.index].task ? std::string() : leader;
  }

 private:
  absl::StatusOr<std::vector<Tensor>> RunAt(const AllReduceMember& at, absl::Duration limit,
                                            std::vector<std::pair<Output, Tensor>> feeds,
                                            const std::vector<Output>& fetches) {
    SessionConfig config;
    config.device_filters = {at.task};
    config.operation_timeout = limit;
    ASSIGN_OR_RETURN(SessionOptions options, OptionsForTarget(at.target, std::move(config)));
    options.operation_timeout = limit;
    options.interrupted = options_.interrupted;
    ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                     Session::Create(graph_, std::move(options)));
    RunOptions run;
    run.timeout = limit;
    return session->Run(feeds, fetches, {}, run);
  }

  const AllReduceHookOptions& options_;
  Graph graph_;
  Scope scope_;
  Output member_;
  Output index_;
  Output host_;
  Output step_;
  Output endpoint_;
  Node* join_ = nullptr;
  Output leader_;
};

AllReduceHook::AllReduceHook(std::shared_ptr<AllReduce> all_reduce, Scope scope,
                             AllReduceHookOptions options,
                             std::function<absl::StatusOr<std::vector<TrainVariable>>()> variables)
    : all_reduce_(std::move(all_reduce)),
      scope_(std::move(scope)),
      options_(std::move(options)),
      variables_(std::move(variables)) {}

AllReduceHook::~AllReduceHook() = default;

absl::Status AllReduceHook::Begin() {
  if (all_reduce_->train() == nullptr)
    return ValueError("AllReduceOptimizer.apply_gradients must be called before its hook is used.");
  const auto count = static_cast<int>(options_.members.size());
  if (options_.index < 0 || options_.index >= count || options_.least > count) {
    return ValueError("An all-reduce of ", count, " members has no member ", options_.index,
                      " or not the ", options_.least, " that it needs at least");
  }
  const std::string& name = all_reduce_->options().name;
  meeting_ = std::make_unique<Meeting>(name, options_);
  RETURN_IF_ERROR(meeting_->status());

  ASSIGN_OR_RETURN(const std::vector<TrainVariable> variables, variables_());
  ASSIGN_OR_RETURN(broadcast_, all_reduce_->AddBroadcast(scope_, variables));
  ASSIGN_OR_RETURN(const Scope own, scope_.TryNameScope(name + "/place"));
  const Scope at = own.WithDevice(all_reduce_->group_key().node().device());
  step_ = CastToOutput(at, ReadValue(at, all_reduce_->global_step()), DType::kInt64);
  const auto input = [&](DType dtype, const PartialShape& shape, const char* what) {
    return at.Op("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, what);
  };
  new_values_ = input(DType::kInt32, PartialShape({3}), "key_size_rank");
  leader_ = input(DType::kString, PartialShape::Scalar(), "leader");
  source_ = input(DType::kInt32, PartialShape::Scalar(), "source");
  members_ = input(DType::kString, PartialShape({-1}), "members");
  endpoints_ = input(DType::kString, PartialShape({-1}), "endpoints");
  std::vector<Node*> assigns;
  int32_t place = 0;
  for (const TrainVariable& variable : all_reduce_->local_variables())
    assigns.push_back(Assign(at, variable, EmitElement(at, new_values_, place++)).node);
  endpoint_ = at.Op("MusterEndpoint", {});
  enter_ = at.Add("MusterEnterGroup",
                  {EmitElement(at, new_values_, 0), EmitElement(at, new_values_, 2), source_,
                   members_, endpoints_},
                  {{"shared_name", name}});
  note_ = at.Add("MusterNoteLeader", {at.Const(Tensor::Scalar(self().task), "host"), leader_},
                 {{"shared_name", name}});
  RETURN_IF_ERROR(own.status());
  ASSIGN_OR_RETURN(assign_, Group(own, assigns, "set"));
  return absl::OkStatus();
}

absl::Status AllReduceHook::AfterCreateSession(const std::shared_ptr<Session>& session,
                                               const std::shared_ptr<Coordinator>&) {
  return Form(*session);
}

absl::StatusOr<std::optional<RunArgs>> AllReduceHook::BeforeRun(RunContext& context) {
  if (!trains_(AskedNodes(context.original_args()), all_reduce_->train())) return std::nullopt;
  RunArgs args;
  args.fetches = {all_reduce_->awaited()};
  return args;
}

// All ranks see the same value after the same step, so all come here together.
absl::Status AllReduceHook::AfterRun(RunContext& context, const RunValues& values) {
  if (values.results.empty() || values.results[0].scalar<float>() <= 0) return absl::OkStatus();
  NoticeInfo("A task waits to take part in the all-reduce.");
  return Form(context.session());
}

absl::Status AllReduceHook::End(Session& session) {
  return Note(session, kLeft);
}

absl::Status AllReduceHook::Note(Session& session, const std::string& leader) {
  return session.Run({{leader_, Tensor::Scalar(leader)}}, {}, {note_}).status();
}

absl::Status AllReduceHook::Form(Session& session) {
  RETURN_IF_ERROR(Note(session, ""));
  ASSIGN_OR_RETURN(const std::vector<Tensor> got, session.Run({}, {step_, endpoint_}));
  ASSIGN_OR_RETURN(const Place place, Meet(got[0].scalar<int64_t>(), got[1].scalar<std::string>()));
  last_group_ = {place.leader};
  for (const std::string& member : place.members)
    if (member != place.leader) last_group_.push_back(member);
  RETURN_IF_ERROR(Note(session, place.leader));
  RETURN_IF_ERROR(Enter(session, place));
  NoticeInfo("All-reduce over ", place.members.size(), " of ", options_.members.size(),
             " tasks: rank ", place.rank, ", model of ", place.members[place.source], ".");
  return absl::OkStatus();
}

absl::StatusOr<AllReduceHook::Place> AllReduceHook::Meet(int64_t step,
                                                         const std::string& endpoint) {
  const absl::Duration end = Timer::Real().Now() + options_.patience;
  absl::Status last = absl::OkStatus();
  while (Timer::Real().Now() < end) {
    if (options_.interrupted) RETURN_IF_ERROR(options_.interrupted());
    // Those who were together meet where they met before; others at a group that is at work, or at
    // the first of all.
    std::vector<std::string> where = last_group_;
    if (where.empty()) {
      const std::string running = meeting_->RunningLeader();
      where = {running.empty() ? options_.members[0].task : running};
    }
    for (size_t i = 0; i < where.size(); ++i) {
      const auto at = std::find_if(options_.members.begin(), options_.members.end(),
                                   [&](const AllReduceMember& m) { return m.task == where[i]; });
      if (at == options_.members.end()) continue;
      // Once lost, a task is given no more time than it takes to say that it is there.
      if (!last_group_.empty() && !meeting_->LeaderOf(*at).ok()) continue;
      const absl::StatusOr<Place> place = meeting_->Join(*at, step, endpoint);
      if (!place.ok()) {
        if (absl::IsInvalidArgument(place.status()) || absl::IsUnimplemented(place.status()))
          return place.status();
        last = place.status();
      } else if (place->leader == at->task) {
        return *place;
      } else if (std::find(where.begin(), where.end(), place->leader) == where.end()) {
        where.push_back(place->leader);
      }
    }
    NoticeInfo("Waiting for the other tasks of the all-reduce at ", absl::StrJoin(where, ", "),
               ": ", last.ok() ? "nobody answers there" : last.message());
    absl::SleepFor(kPause);
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "No group of at least ",
      options_.least > 0 ? options_.least : static_cast<int>(options_.members.size() + 1) / 2,
      " tasks has met for the all-reduce within ", absl::FormatDuration(options_.patience),
      ". Last: ", last.message()));
}

absl::Status AllReduceHook::Enter(Session& session, const Place& place) {
  const auto size = static_cast<int32_t>(place.members.size());
  RETURN_IF_ERROR(session
                      .Run({{new_values_, Tensor::Vector<int32_t>({place.key, size, place.rank})},
                            {source_, Tensor::Scalar<int32_t>(place.source)},
                            {members_, Tensor::Vector<std::string>(place.members)},
                            {endpoints_, Tensor::Vector<std::string>(place.endpoints)}},
                           {}, {assign_, enter_})
                      .status());
  if (place.rank == 0) RETURN_IF_ERROR(EmptyAccumulators(session));
  if (size == 1) return absl::OkStatus();
  Node* const part = place.rank == place.source ? broadcast_.send : broadcast_.receive;
  RETURN_IF_ERROR(session.Run({}, {}, {part}).status());
  // No gradient of the new group may come before the old ones are gone.
  if (all_reduce_->accumulators().empty()) return absl::OkStatus();
  return session.Run({}, {}, {broadcast_.meet}).status();
}

// Gradients of a step that never came to its end.
absl::Status AllReduceHook::EmptyAccumulators(Session& session) {
  for (const AllReduce::Accumulator& accumulator : all_reduce_->accumulators()) {
    while (true) {
      ASSIGN_OR_RETURN(const std::vector<Tensor> count, session.Run({}, {accumulator.count}));
      if (count[0].scalar<int32_t>() == 0) break;
      RETURN_IF_ERROR(session.Run({}, {}, {accumulator.drop}).status());
    }
    RETURN_IF_ERROR(session.Run({}, {}, {accumulator.set_step}).status());
  }
  return absl::OkStatus();
}

}  // namespace muster
