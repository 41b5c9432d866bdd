// Synchronous replicas.
#include "muster/train/replicas/sync_replicas.h"

#include "train_bindings.h"

#include "muster/train/replicas/sync_replicas_hook.h"

namespace muster {
namespace {

// The wrapped optimizer, the local step and moving averages are Python's: each is called with the
// scope in which its nodes belong.
SyncReplicasParts PartsFromPython(const nb::object& apply, const nb::object& make_local_step,
                                  const nb::object& average) {
  SyncReplicasParts parts;
  parts.apply = [apply](const Scope& scope,
                        absl::Span<const GradientAndVariable> means) -> absl::StatusOr<Node*> {
    Node* node = nullptr;
    RETURN_IF_ERROR(CallPython([&] {
      nb::list gradients;
      for (const GradientAndVariable& entry : means)
        gradients.append(GradientToPython(entry.gradient));
      node = nb::cast<Node*>(apply(scope, gradients));
    }));
    return node;
  };
  parts.make_local_step = [make_local_step](const Scope& scope,
                                            DType) -> absl::StatusOr<TrainVariable> {
    TrainVariable variable;
    RETURN_IF_ERROR(CallPython([&] {
      nb::list made;
      made.append(make_local_step(scope));
      variable = VariablesFromPython(made)[0];
    }));
    return variable;
  };
  if (!average.is_none()) {
    parts.average = [average](const Scope& scope) -> absl::StatusOr<Node*> {
      Node* node = nullptr;
      RETURN_IF_ERROR(CallPython([&] { node = nb::cast<Node*>(average(scope)); }));
      return node;
    };
  }
  return parts;
}

Node* ApplyGradients(SyncReplicas& sync, const Scope& scope, const nb::list& gradients,
                     const nb::list& variables, nb::handle global_step,
                     const nb::list& global_variables, const nb::object& apply,
                     const nb::object& make_local_step, const nb::object& average) {
  std::vector<GradientAndVariable> entries;
  const std::vector<TrainVariable> trained = VariablesFromPython(variables);
  for (size_t i = 0; i < trained.size(); ++i)
    entries.push_back({GradientFromPython(gradients[i]), trained[i]});
  nb::list step;
  step.append(global_step);
  SyncReplicasParts parts = PartsFromPython(apply, make_local_step, average);
  parts.global_variables = VariablesFromPython(global_variables);
  return BuildValue(sync.ApplyGradients(scope, entries, VariablesFromPython(step)[0], parts));
}

}  // namespace

void BindSyncReplicas(nb::module_& m) {
  nb::class_<SyncReplicas>(m, "SyncReplicas")
      .def("apply_gradients", &ApplyGradients, nb::rv_policy::reference, nb::arg("scope"),
           nb::arg("gradients"), nb::arg("variables"), nb::arg("global_step"),
           nb::arg("global_variables"), nb::arg("apply"), nb::arg("make_local_step"),
           nb::arg("average").none())
      .def(
          "init_tokens",
          [](const SyncReplicas& sync, const Scope& scope, int count) {
            return BuildValue(sync.InitTokens(scope, count));
          },
          nb::rv_policy::reference)
      .def_prop_ro("local_step_init", &SyncReplicas::local_step_init, nb::rv_policy::reference)
      .def_prop_ro("chief_init", &SyncReplicas::chief_init, nb::rv_policy::reference)
      .def_prop_ro("ready_for_local_init", &SyncReplicas::ready_for_local_init)
      .def_prop_ro("token_queue", &SyncReplicas::token_queue)
      .def_prop_ro(
          "enqueue_op",
          [](const SyncReplicas& sync) { return sync.chief_queue_runner().enqueue_ops.at(0); },
          nb::rv_policy::reference)
      .def_prop_ro(
          "close_op", [](const SyncReplicas& sync) { return sync.chief_queue_runner().close_op; },
          nb::rv_policy::reference)
      .def_prop_ro(
          "cancel_op", [](const SyncReplicas& sync) { return sync.chief_queue_runner().cancel_op; },
          nb::rv_policy::reference)
      .def("note_chief_started", &SyncReplicas::NoteChiefStarted)
      .def_prop_ro("queue_name",
                   [](const SyncReplicas& sync) { return sync.chief_queue_runner().queue_name; })
      .def(
          "release_workers",
          [](const SyncReplicas& sync, Session& session) {
            ThrowIfRunError(sync.ReleaseWorkers(session));
          },
          nb::call_guard<ReleasedGil>())
      .def(
          "return_tokens",
          [](const SyncReplicas& sync, Session& session) {
            ThrowIfRunError(sync.ReturnTokens(session));
          },
          nb::call_guard<ReleasedGil>());
  m.def("new_sync_replicas", [](int aggregate, int total, std::string name) {
    SyncReplicasOptions options;
    options.replicas_to_aggregate = aggregate;
    options.total_num_replicas = total;
    options.name = std::move(name);
    return std::make_shared<SyncReplicas>(std::move(options));
  });
  // The chief's queue runner: the def of `sync`, which it keeps.
  m.def("new_chief_queue_runner", [](std::shared_ptr<SyncReplicas> sync, nb::object on_error) {
    return QueueRunnerFromDef(SyncReplicas::ChiefQueueRunner(std::move(sync)), std::move(on_error));
  });
  nb::class_<MissingChiefWatch>(m, "MissingChiefWatch")
      .def("step_starts",
           [](MissingChiefWatch& watch, const std::vector<Output>& fetches,
              const std::vector<Node*>& targets) {
             std::vector<const Node*> asked(targets.begin(), targets.end());
             for (const Output& fetch : fetches) asked.push_back(fetch.node);
             watch.StepStarts(asked);
           })
      .def("step_ends", &MissingChiefWatch::StepEnds)
      .def_prop_ro("chief_started", &MissingChiefWatch::chief_started);
  m.def("watch_for_missing_chief", [](std::shared_ptr<SyncReplicas> sync, nb::object session,
                                      nb::object coordinator) {
    auto watch = std::make_unique<MissingChiefWatch>(std::move(sync));
    watch->Start(Shared<Session>(std::move(session)), Shared<Coordinator>(std::move(coordinator)));
    return watch;
  });
  m.def("new_missing_chief_hook",
        [](std::shared_ptr<SyncReplicas> sync) -> std::shared_ptr<SessionRunHook> {
          return std::make_shared<MissingChiefHook>(std::move(sync));
        });
  m.def(
      "new_sync_replicas_hook",
      [](std::shared_ptr<SyncReplicas> sync, const Scope& scope, bool is_chief, int num_tokens,
         std::shared_ptr<QueueRunner> runner) -> std::shared_ptr<SessionRunHook> {
        return std::make_shared<SyncReplicasHook>(std::move(sync), scope, is_chief, num_tokens,
                                                  std::move(runner));
      },
      nb::arg("sync"), nb::arg("scope"), nb::arg("is_chief"), nb::arg("num_tokens"),
      nb::arg("runner").none());
}

}  // namespace muster
