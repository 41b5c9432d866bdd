#include "muster/train/loop/scaffold.h"

#include "muster/checkpoint/checkpoint_state.h"
#include "muster/graph/build/emit.h"
#include "muster/train/loop/notice.h"
#include "muster/train/loop/shard_queue.h"

namespace muster {
namespace {

// Besides variables sessions initialize shard queues; where there are none, the nodes are the same
// as for other resources of Python's.
absl::StatusOr<Output> ReadyOp(const Scope& scope, const std::vector<TrainVariable>& variables,
                               const Model& model) {
  ASSIGN_OR_RETURN(const Output missing, ReportUninitialized(scope, variables));
  const Scope resources = scope.NameScope("report_uninitialized_resources");
  const Output none = resources.WithDevice("/device:CPU:0").Const(Tensor::Vector<std::string>({}));
  std::vector<Output> all = {missing, none};
  for (const auto& queue : model.shard_queues) all.push_back(queue->missing());
  return EmitConcat(scope, all);
}

// With an all-reduce every worker has a model of its own, which a new session must keep and for
// which it does not wait.
absl::StatusOr<Node*> InitOp(const Scope& scope, const Model& model) {
  const bool gentle = model.all_reduce != nullptr;
  std::vector<Node*> nodes;
  if (gentle) {
    ASSIGN_OR_RETURN(Node* const init,
                     model.all_reduce->AddGentleInitializer(scope, model.variables, true));
    if (model.shard_queues.empty()) return init;
    nodes = {init};
  } else {
    ASSIGN_OR_RETURN(Node* const init, Initializer(scope, model.variables));
    nodes = {init, scope.Add("NoOp", {}, {}, "init")};
  }
  for (const auto& queue : model.shard_queues)
    nodes.push_back(gentle ? queue->gentle_initializer() : queue->initializer());
  return Group(scope, nodes);
}

absl::StatusOr<Node*> LocalInitOp(const Scope& scope, const Model& model) {
  ASSIGN_OR_RETURN(Node* const init, Initializer(scope, model.local_variables));
  ASSIGN_OR_RETURN(Node* const tables, Group(scope, model.table_initializers, "init_all_tables"));
  std::vector<Node*> nodes = {init, tables, scope.Add("NoOp", {}, {}, "init")};
  if (model.all_reduce != nullptr) {
    ASSIGN_OR_RETURN(nodes.emplace_back(),
                     model.all_reduce->AddGentleInitializer(scope, model.variables, false));
  }
  return Group(scope, nodes);
}

absl::StatusOr<std::shared_ptr<Saver>> MakeSaver(const Scope& scope, const Model& model) {
  std::vector<Saveable> saveables;
  for (const TrainVariable& variable : model.variables) {
    ASSIGN_OR_RETURN(saveables.emplace_back(), VariableSaveable(variable));
  }
  for (const auto& queue : model.shard_queues) saveables.push_back(queue->ToSaveable());
  SaverOptions options;
  options.sharded = true;
  return Saver::Build(scope, std::move(saveables), options);
}

absl::StatusOr<std::unique_ptr<SessionManager>> Manager(const Scaffold& scaffold,
                                                        Interrupted interrupted) {
  SessionManager::Options options;
  options.interrupted = std::move(interrupted);
  if (scaffold.local_init_op != nullptr) options.local_init = InitStep::Of(scaffold.local_init_op);
  if (scaffold.ready_op.node != nullptr) options.ready = InitStep::Of(scaffold.ready_op);
  if (scaffold.ready_for_local_init_op.node != nullptr)
    options.ready_for_local_init = InitStep::Of(scaffold.ready_for_local_init_op);
  options.keeps_model = scaffold.keeps_model;
  return SessionManager::Create(std::move(options));
}

}  // namespace

absl::Status Scaffold::Finalize(const Scope& outer, const Model& model) {
  const Scope scope = outer.WithFreshStatus();
  if (init_op == nullptr) {
    ASSIGN_OR_RETURN(init_op, InitOp(scope, model));
  }
  if (ready_op.node == nullptr) {
    std::vector<TrainVariable> all = model.variables;
    all.insert(all.end(), model.local_variables.begin(), model.local_variables.end());
    ASSIGN_OR_RETURN(ready_op, ReadyOp(scope, all, model));
  }
  if (ready_for_local_init_op.node == nullptr) {
    ASSIGN_OR_RETURN(ready_for_local_init_op, model.all_reduce != nullptr
                                                  ? ReadyOp(scope, {}, Model())
                                                  : ReadyOp(scope, model.variables, model));
  }
  if (local_init_op == nullptr) {
    ASSIGN_OR_RETURN(local_init_op, LocalInitOp(scope, model));
  }
  if (summary_op.node == nullptr && !model.summaries.empty())
    summary_op = scope.NameScope("Merge").Op("MergeSummary", {model.summaries});
  if (saver == nullptr) {
    ASSIGN_OR_RETURN(saver, MakeSaver(scope, model));
  }
  if (model.all_reduce != nullptr && !keeps_model)
    keeps_model = [all_reduce = model.all_reduce] { return all_reduce->has_trained(); };
  return scope.status();
}

absl::StatusOr<std::shared_ptr<ChiefSessionCreator>> ChiefSessionCreator::Create(
    std::shared_ptr<const Scaffold> scaffold, SessionFactory factory, std::string checkpoint_dir,
    std::string checkpoint_file, Interrupted interrupted) {
  std::shared_ptr<ChiefSessionCreator> creator(
      new ChiefSessionCreator(std::move(scaffold), std::move(factory)));
  const Scaffold& parts = *creator->scaffold_;
  ASSIGN_OR_RETURN(creator->manager_, Manager(parts, std::move(interrupted)));
  if (parts.init_op != nullptr) {
    InitStep init = InitStep::Of(parts.init_op);
    for (const auto& [output, tensor] : parts.init_feeds) {
      init.signature.feeds.push_back(output);
      init.feeds.push_back(tensor);
    }
    creator->init_.init = std::move(init);
  }
  creator->init_.init_fn = parts.init_fn;
  CheckpointSource& source = creator->source_;
  source.directory = std::move(checkpoint_dir);
  source.file = std::move(checkpoint_file);
  if (parts.saver == nullptr) return creator;
  const std::shared_ptr<Saver> saver = parts.saver;
  source.restore = [saver](Session& session, const std::string& prefix) {
    return saver->Restore(session, prefix);
  };
  source.recover_last_checkpoints = [saver](std::vector<std::string> prefixes) {
    saver->RecoverLastCheckpoints(prefixes);
    return absl::OkStatus();
  };
  source.read_state = [](const std::string& directory) -> absl::StatusOr<CheckpointSource::State> {
    absl::StatusOr<CheckpointState> state = ReadCheckpointState(directory);
    if (absl::IsNotFound(state.status())) return CheckpointSource::State();
    RETURN_IF_ERROR(state.status());
    return CheckpointSource::State{std::move(state->model_checkpoint_path),
                                   std::move(state->all_model_checkpoint_paths)};
  };
  return creator;
}

absl::StatusOr<std::shared_ptr<Session>> ChiefSessionCreator::CreateSession() {
  return manager_->PrepareSession(factory_, init_, source_);
}

absl::StatusOr<std::shared_ptr<WorkerSessionCreator>> WorkerSessionCreator::Create(
    const Scaffold& scaffold, SessionFactory factory, absl::Duration max_wait,
    Interrupted interrupted) {
  std::shared_ptr<WorkerSessionCreator> creator(
      new WorkerSessionCreator(std::move(factory), max_wait));
  ASSIGN_OR_RETURN(creator->manager_, Manager(scaffold, std::move(interrupted)));
  return creator;
}

absl::StatusOr<std::shared_ptr<Session>> WorkerSessionCreator::CreateSession() {
  return manager_->WaitForSession(factory_, max_wait_);
}

}  // namespace muster
