#include "muster/train/replicas/all_reduce_hook.h"

#include "muster/graph/build/emit.h"
#include "muster/train/loop/coordinator.h"
#include "muster/train/loop/notice.h"

namespace muster {

std::vector<AllReduceMember> AllReduceMembers(const ClusterSpec& cluster, absl::string_view job) {
  std::vector<AllReduceMember> members;
  for (const auto& [name, tasks] : cluster.jobs()) {
    if (name != job) continue;
    for (const auto& [index, address] : tasks)
      members.push_back({TaskName{name, index}.ToString(), absl::StrCat("grpc://", address)});
  }
  return members;
}

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
  std::optional<TrainVariable> own_step;
  if (all_reduce_->IsReplicated(all_reduce_->global_step())) own_step = all_reduce_->global_step();
  meeting_ = std::make_unique<AllReduceMeeting>(name, options_, own_step);
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
  return Note(session, kLeftAllReduce);
}

absl::Status AllReduceHook::Note(Session& session, const std::string& leader) {
  return session.Run({{leader_, Tensor::Scalar(leader)}}, {}, {note_}).status();
}

absl::Status AllReduceHook::Form(Session& session) {
  RETURN_IF_ERROR(Note(session, ""));
  ASSIGN_OR_RETURN(const std::vector<Tensor> got, session.Run({}, {step_, endpoint_}));
  ASSIGN_OR_RETURN(const AllReducePlace place,
                   meeting_->Meet(got[0].scalar<int64_t>(), got[1].scalar<std::string>()));
  RETURN_IF_ERROR(Note(session, place.leader));
  RETURN_IF_ERROR(Enter(session, place));
  all_reduce_->NoteTrained();
  NoticeInfo("All-reduce over ", place.members.size(), " of ", options_.members.size(),
             " tasks: rank ", place.rank, ", model of ", place.members[place.source], ".");
  return absl::OkStatus();
}

absl::Status AllReduceHook::Enter(Session& session, const AllReducePlace& place) {
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

// Gradients of a step that was not completed.
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
