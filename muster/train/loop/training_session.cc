#include "muster/train/loop/training_session.h"

#include "muster/checkpoint/file.h"
#include "muster/train/events/event_writer.h"
#include "muster/train/events/graph_text_proto.h"
#include "muster/train/loop/notice.h"
#include "muster/train/loop/queue_runner.h"
#include "muster/train/loop/shard_queue.h"
#include "muster/train/replicas/sync_replicas_hook.h"

namespace muster {
namespace {

using Hooks = std::vector<std::shared_ptr<SessionRunHook>>;

void Append(Hooks& hooks, const Hooks& more) {
  hooks.insert(hooks.end(), more.begin(), more.end());
}

bool IsSet(const Interval& every) {
  return (every.steps.has_value() && *every.steps > 0) ||
         (every.time.has_value() && *every.time > absl::ZeroDuration());
}

// The scaffold is made final between the hooks' Begin, which may add nodes, and the first session.
class FinalizingCreator : public SessionCreator {
 public:
  explicit FinalizingCreator(std::function<absl::StatusOr<std::shared_ptr<SessionCreator>>()> make)
      : make_(std::move(make)) {}
  absl::StatusOr<std::shared_ptr<Session>> CreateSession() override {
    if (creator_ == nullptr) {
      ASSIGN_OR_RETURN(creator_, make_());
    }
    return creator_->CreateSession();
  }

 private:
  const std::function<absl::StatusOr<std::shared_ptr<SessionCreator>>()> make_;
  std::shared_ptr<SessionCreator> creator_;
};

// Ends the loop when the program is interrupted: steps in this process do not ask by themselves.
class InterruptionHook : public SessionRunHook {
 public:
  explicit InterruptionHook(muster::Interrupted interrupted)
      : interrupted_(std::move(interrupted)) {}
  absl::Status Begin() override { return interrupted_(); }
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext&) override {
    RETURN_IF_ERROR(interrupted_());
    return std::nullopt;
  }

 private:
  const muster::Interrupted interrupted_;
};

// What the chief has besides the hooks of all workers.
Hooks ChiefHooks(const MonitoredTrainingSessionOptions& options,
                 const std::shared_ptr<Scaffold>& scaffold, const GlobalStepSource& step) {
  Hooks hooks = options.chief_only_hooks;
  const std::string& summary_dir =
      options.summary_dir.empty() ? options.checkpoint_dir : options.summary_dir;
  if (!summary_dir.empty() && options.log_step_count_steps > 0) {
    StepCounterOptions counter;
    counter.global_step = step;
    counter.sink = EventsOf(summary_dir);
    counter.every = Interval::Steps(options.log_step_count_steps);
    hooks.push_back(std::make_shared<StepCounterHook>(std::move(counter)));
  }
  if (!summary_dir.empty() && IsSet(options.save_summaries)) {
    SummarySaverOptions summaries;
    summaries.global_step = step;
    summaries.sink = EventsOf(summary_dir);
    summaries.every = options.save_summaries;
    summaries.summaries = [scaffold]() -> absl::StatusOr<std::vector<Output>> {
      if (scaffold->summary_op.node == nullptr) return std::vector<Output>();
      return std::vector<Output>{scaffold->summary_op};
    };
    hooks.push_back(std::make_shared<SummarySaverHook>(std::move(summaries)));
  }
  if (!options.checkpoint_dir.empty() && IsSet(options.save_checkpoint)) {
    CheckpointSaverOptions saver;
    saver.global_step = step;
    saver.checkpoint_dir = options.checkpoint_dir;
    saver.every = options.save_checkpoint;
    // The scaffold's saver is there once a session is.
    saver.save = [scaffold](Session& session, const std::string& path, int64_t at) {
      return SaveWith(scaffold->saver)(session, path, at);
    };
    saver.describe = [scaffold, folder = options.checkpoint_dir](Session& session,
                                                                 EventWriter& writer) {
      return DescribeWith(folder, scaffold->saver)(session, writer);
    };
    hooks.push_back(std::make_shared<CheckpointSaverHook>(std::move(saver)));
  }
  return hooks;
}

}  // namespace

GlobalStepSource SharedGlobalStep(const Scope& scope, const TrainVariable& variable) {
  auto made = std::make_shared<std::optional<GlobalStep>>();
  return [=]() -> absl::StatusOr<GlobalStep> {
    if (!made->has_value()) {
      ASSIGN_OR_RETURN(*made, ReadGlobalStep(scope, variable));
    }
    return **made;
  };
}

SessionFactory SessionsOn(const Graph& graph, SessionOptions options) {
  return [&graph, options = std::move(options)]() -> absl::StatusOr<std::shared_ptr<Session>> {
    return Session::Create(graph, options);
  };
}

std::function<absl::Status(Session&, const std::string&, int64_t)> SaveWith(
    std::shared_ptr<Saver> saver) {
  return [saver = std::move(saver)](Session& session, const std::string& path, int64_t step) {
    SaveOptions options;
    options.meta_graph = [&] { return SerializeMetaGraph(session.graph(), saver->def()); };
    return saver->Save(session, path, step, options).status();
  };
}

std::function<absl::Status(Session&, EventWriter&)> DescribeWith(std::string folder,
                                                                 std::shared_ptr<Saver> saver) {
  return [folder = std::move(folder), saver = std::move(saver)](
             Session& session, EventWriter& writer) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string text, GraphText(session.graph()));
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder, "/graph.pbtxt"), text));
    ASSIGN_OR_RETURN(const std::string graph, SerializeGraphWithShapes(session.graph()));
    RETURN_IF_ERROR(writer.AddGraph(graph));
    ASSIGN_OR_RETURN(const std::string meta, SerializeMetaGraph(session.graph(), saver->def()));
    return writer.AddMetaGraph(meta);
  };
}

absl::StatusOr<std::unique_ptr<MonitoredSession>> MonitoredTrainingSession(
    MonitoredTrainingSessionOptions options) {
  if (options.graph == nullptr) return InvalidArgument("A training session needs a graph");
  const Scope scope(*options.graph);
  const std::shared_ptr<Scaffold> scaffold =
      options.scaffold != nullptr ? options.scaffold : std::make_shared<Scaffold>();
  GlobalStepSource step;
  if (options.model.global_step.has_value())
    step = SharedGlobalStep(scope, *options.model.global_step);

  MonitoredSessionOptions monitored;
  monitored.stop_grace_period = options.stop_grace_period;
  monitored.interrupted = options.session.interrupted;
  if (monitored.interrupted)
    monitored.hooks.push_back(std::make_shared<InterruptionHook>(monitored.interrupted));
  if (options.is_chief) Append(monitored.hooks, ChiefHooks(options, scaffold, step));
  Append(monitored.hooks, options.hooks);
  if (options.last_step.has_value())
    monitored.hooks.push_back(StopAtStepHook::At(step, *options.last_step));
  if (options.model.sync != nullptr) {
    monitored.hooks.push_back(
        std::make_shared<SyncReplicasHook>(options.model.sync, scope, options.is_chief));
  }
  if (options.model.all_reduce != nullptr) {
    AllReduceHookOptions all_reduce = options.all_reduce;
    all_reduce.interrupted = options.session.interrupted;
    monitored.hooks.push_back(std::make_shared<AllReduceHook>(
        options.model.all_reduce, scope, std::move(all_reduce),
        [variables = options.model.variables]() -> absl::StatusOr<std::vector<TrainVariable>> {
          return variables;
        }));
  }
  for (const auto& queue : options.model.shard_queues)
    monitored.hooks.push_back(std::make_shared<ShardQueueHook>(queue));
  monitored.start_queue_runners = [runners = options.model.queue_runners](
                                      const std::shared_ptr<Session>& session,
                                      const std::shared_ptr<Coordinator>& coordinator) {
    for (const auto& runner : runners) runner->Start(session, coordinator);
    return absl::OkStatus();
  };
  const SessionFactory factory = SessionsOn(*options.graph, options.session);
  auto creator = std::make_shared<FinalizingCreator>(
      [=, model = options.model, folder = options.checkpoint_dir, is_chief = options.is_chief,
       max_wait = options.max_wait,
       interrupted =
           options.session.interrupted]() -> absl::StatusOr<std::shared_ptr<SessionCreator>> {
        RETURN_IF_ERROR(scaffold->Finalize(scope, model));
        if (is_chief)
          return ChiefSessionCreator::Create(scaffold, factory, folder, "", interrupted);
        return WorkerSessionCreator::Create(*scaffold, factory, max_wait, interrupted);
      });
  return MonitoredSession::Create(std::move(creator), std::move(monitored));
}

}  // namespace muster
