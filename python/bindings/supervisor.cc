// The supervisor for Python, which brings its own savers, writers and sessions.
#include "muster/train/loop/supervisor.h"

#include "bindings.h"
#include "hooks.h"
#include <nanobind/stl/array.h>

namespace muster {
namespace {

// An object with the methods of SupervisorEvents.
class PythonEvents : public SupervisorEvents {
 public:
  explicit PythonEvents(nb::object events) : events_(HoldPython(std::move(events))) {}
  absl::Status AddSummary(const Tensor& summary, Step step) override {
    return CallPython([&] { events_->attr("add_summary")(TensorToNumpy(summary), step); });
  }
  absl::Status AddScalar(const std::string& tag, double value, Step step) override {
    return CallPython([&] { events_->attr("add_scalar")(tag, value, step); });
  }
  absl::Status AddSessionLog(SessionStatus status, const std::string& path, Step step) override {
    return CallPython(
        [&] { events_->attr("add_session_log")(static_cast<int>(status), path, step); });
  }
  absl::Status Reopen() override {
    return CallPython([&] { events_->attr("reopen")(); });
  }
  absl::Status Close() override {
    return CallPython([&] { events_->attr("close")(); });
  }

 private:
  const std::shared_ptr<nb::object> events_;
};

nb::object SessionToPython(Session& session) {
  return nb::cast(&session, nb::rv_policy::reference);
}

// `front` is the supervisor of Python: what it does for this one are methods with these names. It
// is held weakly, since it holds this one.
std::shared_ptr<Supervisor> NewSupervisor(
    nb::object front, std::shared_ptr<Coordinator> coordinator, bool is_chief, std::string logdir,
    std::string checkpoint_basename, std::array<double, 3> seconds,
    std::optional<Output> summary_op, std::optional<Output> global_step,
    std::string global_step_name, nb::object events, bool saves) {
  const std::shared_ptr<nb::object> held = HoldPython(std::move(front));
  SupervisorOptions options;
  options.coordinator = std::move(coordinator);
  options.is_chief = is_chief;
  options.logdir = std::move(logdir);
  options.checkpoint_basename = std::move(checkpoint_basename);
  options.save_summaries_every = absl::Seconds(seconds[0]);
  options.save_model_every = absl::Seconds(seconds[1]);
  options.stop_grace = absl::Seconds(seconds[2]);
  if (summary_op) options.summary_op = *summary_op;
  if (global_step) options.global_step = *global_step;
  options.global_step_name = std::move(global_step_name);
  if (!events.is_none()) options.events = std::make_shared<PythonEvents>(std::move(events));
  options.interrupted = RunSignalHandlers;
  if (saves) {
    options.save = [held](Session& session, const std::string& path, std::optional<int64_t> step) {
      return CallPython([&] { (*held)().attr("_save")(SessionToPython(session), path, step); });
    };
  }
  options.describe = [held](Session&, bool with_events) {
    return CallPython([&] { (*held)().attr("_describe")(with_events); });
  };
  options.start_services = [held](const std::shared_ptr<Session>& session) {
    return CallPython([&] { (*held)().attr("_start_services")(SessionToPython(*session)); });
  };
  options.start_queue_runners = [held](const std::shared_ptr<Session>& session) {
    return CallPython([&] { (*held)().attr("_start_runners")(SessionToPython(*session)); });
  };
  return Supervisor::Create(std::move(options));
}

}  // namespace

void BindSupervisor(nb::module_& m) {
  nb::class_<Supervisor::Service>(m, "SupervisorService")
      .def_ro("name", &Supervisor::Service::name)
      .def_prop_ro(
          "every",
          [](const Supervisor::Service& service) { return absl::ToDoubleSeconds(service.every); })
      .def(
          "start",
          [](const Supervisor::Service& service) {
            if (service.calls.start) ThrowIfRunError(service.calls.start());
          },
          nb::call_guard<ReleasedGil>())
      .def(
          "run", [](const Supervisor::Service& service) { ThrowIfRunError(service.calls.run()); },
          nb::call_guard<ReleasedGil>());
  nb::class_<Supervisor>(m, "Supervisor")
      .def("prepare_or_wait_for_session",
           [](Supervisor& supervisor, nb::object open, bool start_standard_services) {
             const SessionFactory factory = [&]() -> absl::StatusOr<std::shared_ptr<Session>> {
               std::shared_ptr<Session> session;
               RETURN_IF_ERROR(
                   CallPython([&] { session = nb::cast<std::shared_ptr<Session>>(open()); }));
               return session;
             };
             ReleasedGil unlocked;
             ThrowIfRunError(
                 supervisor.PrepareOrWaitForSession(factory, start_standard_services).status());
           })
      .def("services",
           [](Supervisor& supervisor, std::shared_ptr<Session> session) {
             ReleasedGil unlocked;
             return RunValue(supervisor.Services(session));
           })
      .def("stop", [](Supervisor& supervisor, std::vector<std::shared_ptr<Joinable>> threads,
                      bool close_events, bool ignore_live_threads) {
        ReleasedGil unlocked;
        ThrowIfRunError(supervisor.Stop({std::move(threads), close_events, ignore_live_threads}));
      });
  m.def("new_supervisor", &NewSupervisor, nb::arg("front"), nb::arg("coordinator"),
        nb::arg("is_chief"), nb::arg("logdir"), nb::arg("checkpoint_basename"), nb::arg("seconds"),
        nb::arg("summary_op").none(), nb::arg("global_step").none(), nb::arg("global_step_name"),
        nb::arg("events").none(), nb::arg("saves"));
}

}  // namespace muster
