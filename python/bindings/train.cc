// Coordinators, threads, queue runners and session managers.
#include "train_bindings.h"
#include <nanobind/stl/tuple.h>

#include "muster/train/loop/looper.h"
#include "muster/train/loop/notice.h"
#include "muster/train/loop/queue_runner.h"
#include "muster/train/loop/session_manager.h"

namespace muster {

void BindSupervisor(nb::module_& m);  // supervisor.cc

namespace {

// A Python function that C++ keeps and may release on any thread.
class Callback {
 public:
  explicit Callback(nb::object function) : function_(HoldPython(std::move(function))) {}
  explicit operator bool() const { return !function_->is_none(); }
  // Requires: the GIL is held.
  template <typename... Args>
  nb::object operator()(Args&&... args) const {
    return (*function_)(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<nb::object> function_;
};

// threading.Thread, which cannot tell C++ that it has ended. Held weakly: the interpreter keeps
// threads that run.
class PythonThread : public Joinable {
 public:
  explicit PythonThread(nb::object reference) : reference_(std::move(reference)) {}

  std::string name() const override {
    std::string name;
    CallPython([&] {
      nb::object thread = reference_();
      if (!thread.is_none()) name = nb::str(thread.attr("name")).c_str();
    }).IgnoreError();
    return name;
  }
  bool alive() const override {
    bool alive = false;
    CallPython([&] {
      nb::object thread = reference_();
      if (!thread.is_none()) alive = nb::cast<bool>(thread.attr("is_alive")());
    }).IgnoreError();
    return alive;
  }
  bool WhenEnded(std::function<void()>) override { return false; }

 private:
  Callback reference_;
};

absl::Duration DurationFrom(const std::optional<double>& seconds) {
  return seconds ? absl::Seconds(*seconds) : absl::InfiniteDuration();
}

std::function<absl::Status()> StatusCall(nb::object function) {
  Callback call(std::move(function));
  if (!call) return {};
  return [call] { return CallPython([&] { call(); }); };
}

// --- Coordinator

std::unique_ptr<Coordinator> NewCoordinator(nb::object is_clean, nb::object describe) {
  Coordinator::Options options;
  options.is_clean = [call = Callback(std::move(is_clean))](const absl::Status& status) {
    bool clean = false;
    CallPython([&] { clean = nb::cast<bool>(call(ExceptionFor(status))); }).IgnoreError();
    return clean;
  };
  options.describe = [call = Callback(std::move(describe))](const absl::Status& status) {
    std::string text;
    CallPython([&] { text = nb::cast<std::string>(call(ExceptionFor(status))); }).IgnoreError();
    return text;
  };
  return std::make_unique<Coordinator>(std::move(options));
}

// In slices, so that Ctrl-C gets through.
bool WaitForStop(Coordinator& coordinator, std::optional<double> timeout) {
  absl::Duration left = DurationFrom(timeout);
  for (;;) {
    bool stopped;
    const absl::Duration slice = std::min(left, kInterruptInterval);
    {
      ReleasedGil unlocked;
      stopped = coordinator.WaitForStop(slice);
    }
    left -= slice;
    if (stopped || left <= absl::ZeroDuration()) return stopped;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void RequestStop(Coordinator& coordinator, nb::object exception) {
  absl::Status why;
  if (!exception.is_none()) why = KeepException(exception);
  ReleasedGil unlocked;
  ThrowIfRunError(coordinator.RequestStop(std::move(why)));
}

void Join(Coordinator& coordinator, std::vector<std::shared_ptr<Joinable>> threads, double grace,
          bool ignore_live_threads) {
  Coordinator::JoinOptions options;
  options.grace = absl::Seconds(grace);
  options.ignore_live_threads = ignore_live_threads;
  options.interrupted = RunSignalHandlers;
  ReleasedGil unlocked;
  ThrowIfRunError(coordinator.Join(std::move(threads), std::move(options)));
}

void BindCoordinator(nb::module_& m) {
  nb::class_<Joinable>(m, "Joinable")
      .def_prop_ro("name", &Joinable::name)
      .def("is_alive", &Joinable::alive);
  nb::class_<PythonThread, Joinable>(m, "PythonThread").def(nb::init<nb::object>());
  nb::class_<Thread, Joinable>(m, "Thread")
      .def("mark_started", &Thread::MarkStarted)
      .def(
          "run", [](Thread& t) { ThrowIfRunError(t.Run()); }, nb::call_guard<ReleasedGil>())
      .def(
          "run_loop",
          [](Thread& t, Coordinator& coordinator, std::optional<double> interval, nb::object start,
             nb::object run, nb::object stop) {
            const LoopCalls calls{StatusCall(std::move(start)), StatusCall(std::move(run)),
                                  StatusCall(std::move(stop))};
            std::optional<absl::Duration> every;
            if (interval) every = absl::Seconds(*interval);
            ReleasedGil unlocked;
            ThrowIfRunError(t.Run([&] { return RunLoop(coordinator, every, calls); }));
          },
          nb::arg("coordinator"), nb::arg("interval").none(), nb::arg("start").none(),
          nb::arg("run").none(), nb::arg("stop").none());
  m.def("new_thread", [](std::string name) { return Thread::Create(std::move(name), {}); });

  nb::class_<Coordinator>(m, "Coordinator")
      .def("request_stop", &RequestStop, nb::arg("exception").none())
      .def("should_stop", &Coordinator::ShouldStop)
      .def("wait_for_stop", &WaitForStop, nb::arg("timeout").none())
      .def("clear_stop", &Coordinator::ClearStop)
      .def("register_thread", &Coordinator::Register)
      .def("join", &Join)
      .def_prop_ro("joined", &Coordinator::joined)
      .def_prop_ro("requested", [](const Coordinator& c) -> nb::object {
        const absl::Status status = c.requested();
        return status.ok() ? nb::none() : ExceptionFor(status);
      });
  m.def("new_coordinator", &NewCoordinator);
}

// --- Queue runners

}  // namespace

std::shared_ptr<QueueRunner> QueueRunnerFromDef(QueueRunnerDef def, nb::object on_error) {
  QueueRunner::Options options;
  options.on_error = [call = Callback(std::move(on_error))](absl::Status status) {
    absl::Status kept;
    const absl::Status called =
        CallPython([&] { kept = KeepException(call(ExceptionFor(status))); });
    return called.ok() ? kept : called;
  };
  return QueueRunner::Create(std::move(def), std::move(options));
}

namespace {

std::shared_ptr<QueueRunner> NewQueueRunner(std::string queue_name, std::vector<Node*> enqueue_ops,
                                            Node* close_op, Node* cancel_op,
                                            const std::vector<int>& closed_codes,
                                            nb::object on_error) {
  QueueRunnerDef def;
  def.queue_name = std::move(queue_name);
  def.enqueue_ops = std::move(enqueue_ops);
  def.close_op = close_op;
  def.cancel_op = cancel_op;
  def.closed_codes.clear();
  for (int code : closed_codes) def.closed_codes.push_back(static_cast<absl::StatusCode>(code));
  return QueueRunnerFromDef(std::move(def), std::move(on_error));
}

void BindQueueRunner(nb::module_& m) {
  nb::class_<QueueRunner>(m, "QueueRunner")
      .def(
          "create_threads",
          [](QueueRunner& runner, nb::object session, nb::object coordinator) {
            return runner.CreateThreads(Shared<Session>(session), Shared<Coordinator>(coordinator));
          },
          nb::arg("session"), nb::arg("coordinator").none())
      .def_prop_ro("exceptions", [](const QueueRunner& runner) {
        nb::list list;
        for (const absl::Status& status : runner.errors()) list.append(ExceptionFor(status));
        return list;
      });
  m.def("new_queue_runner", &NewQueueRunner);
}

// --- Session managers

struct PyInitStep {
  InitStep step;
};

PyInitStep NewInitStep(std::vector<Output> feeds, const nb::list& values,
                       std::vector<Output> fetches, std::vector<Node*> targets, std::string name,
                       int64_t timeout_ms) {
  PyInitStep result;
  InitStep& step = result.step;
  for (size_t i = 0; i < feeds.size(); ++i) {
    nb::handle value = values[i];
    step.feeds.push_back(nb::isinstance<Tensor>(value)
                             ? nb::cast<Tensor>(value)
                             : TensorFromNumpy(value, feeds[i].base_dtype()));
  }
  step.signature = {std::move(feeds), std::move(fetches), std::move(targets)};
  step.name = std::move(name);
  step.options.timeout = absl::Milliseconds(timeout_ms);
  return result;
}

std::optional<InitStep> StepFrom(const PyInitStep* step) {
  return step != nullptr ? std::optional<InitStep>(step->step) : std::nullopt;
}

// Makes tf.Session objects; the newest is the one that C++ returns in the end.
class PySessions {
 public:
  explicit PySessions(nb::object make) : make_(std::move(make)) {}
  SessionFactory factory() {
    return [this]() -> absl::StatusOr<std::shared_ptr<Session>> {
      std::shared_ptr<Session> session;
      RETURN_IF_ERROR(CallPython([&] {
        newest_ = make_();
        session = nb::cast<std::shared_ptr<Session>>(newest_.attr("_session"));
      }));
      return session;
    };
  }
  nb::object newest() const { return newest_; }

 private:
  nb::object make_;
  nb::object newest_ = nb::none();
};

// Python's saver: restore(session, prefix), recover_last_checkpoints(prefixes) and
// read_state(directory) -> (newest, all).
struct PySource {
  nb::object restore, recover, read_state;
  std::string directory, file;
  bool wait;
  double max_wait;
};

CheckpointSource SourceFrom(const PySource* python, const PySessions& sessions) {
  CheckpointSource source;
  if (python == nullptr) return source;
  source.directory = python->directory;
  source.file = python->file;
  source.wait = python->wait;
  source.max_wait = absl::Seconds(python->max_wait);
  if (!python->restore.is_none()) {
    source.restore = [&sessions, python](Session&, const std::string& prefix) {
      return CallPython([&] { python->restore(sessions.newest(), prefix); });
    };
  }
  source.recover_last_checkpoints = [python](std::vector<std::string> prefixes) {
    return CallPython([&] { python->recover(prefixes); });
  };
  source.read_state =
      [python](const std::string& directory) -> absl::StatusOr<CheckpointSource::State> {
    CheckpointSource::State state;
    RETURN_IF_ERROR(CallPython([&] {
      auto [newest, all] =
          nb::cast<std::pair<std::string, std::vector<std::string>>>(python->read_state(directory));
      state.newest = std::move(newest);
      state.all = std::move(all);
    }));
    return state;
  };
  return source;
}

nb::object PrepareSession(const SessionManager& manager, nb::object make, const PyInitStep* init,
                          nb::object init_fn, std::string init_fn_name, const PySource* source) {
  PySessions sessions(std::move(make));
  SessionManager::InitOptions options;
  options.init = StepFrom(init);
  if (!init_fn.is_none()) {
    options.init_fn = [&](Session&) { return CallPython([&] { init_fn(sessions.newest()); }); };
  }
  options.init_fn_name = std::move(init_fn_name);
  const CheckpointSource from = SourceFrom(source, sessions);
  {
    ReleasedGil unlocked;
    ThrowIfRunError(manager.PrepareSession(sessions.factory(), options, from).status());
  }
  return sessions.newest();
}

nb::object RecoverSession(const SessionManager& manager, nb::object make, const PySource* source) {
  PySessions sessions(std::move(make));
  const CheckpointSource from = SourceFrom(source, sessions);
  bool ready;
  {
    ReleasedGil unlocked;
    ready = RunValue(manager.RecoverSession(sessions.factory(), from)).ready;
  }
  return nb::make_tuple(sessions.newest(), ready);
}

nb::object WaitForSession(const SessionManager& manager, nb::object make,
                          std::optional<double> max_wait) {
  PySessions sessions(std::move(make));
  {
    ReleasedGil unlocked;
    ThrowIfRunError(manager.WaitForSession(sessions.factory(), DurationFrom(max_wait)).status());
  }
  return sessions.newest();
}

void BindSessionManager(nb::module_& m) {
  nb::class_<PyInitStep>(m, "InitStep");
  m.def("new_init_step", &NewInitStep);
  nb::class_<PySource>(m, "CheckpointSource");
  m.def(
      "new_checkpoint_source",
      [](nb::object restore, nb::object recover, nb::object read_state, std::string directory,
         std::string file, bool wait, double max_wait) {
        return PySource{std::move(restore),
                        std::move(recover),
                        std::move(read_state),
                        std::move(directory),
                        std::move(file),
                        wait,
                        max_wait};
      },
      nb::arg("restore").none(), nb::arg("recover").none(), nb::arg("read_state"),
      nb::arg("directory"), nb::arg("file"), nb::arg("wait"), nb::arg("max_wait"));
  nb::class_<SessionManager>(m, "SessionManager")
      .def("prepare_session", &PrepareSession, nb::arg("make"), nb::arg("init").none(),
           nb::arg("init_fn").none(), nb::arg("init_fn_name"), nb::arg("source").none())
      .def("recover_session", &RecoverSession, nb::arg("make"), nb::arg("source").none())
      .def("wait_for_session", &WaitForSession, nb::arg("make"), nb::arg("max_wait").none());
  m.def(
      "new_session_manager",
      [](const PyInitStep* local_init, const PyInitStep* ready,
         const PyInitStep* ready_for_local_init, double recovery_wait, nb::object keeps_model) {
        SessionManager::Options options;
        options.local_init = StepFrom(local_init);
        options.ready = StepFrom(ready);
        options.ready_for_local_init = StepFrom(ready_for_local_init);
        options.recovery_wait = absl::Seconds(recovery_wait);
        if (!keeps_model.is_none()) {
          options.keeps_model = [call = Callback(std::move(keeps_model))] {
            bool keeps = false;
            CallPython([&] { keeps = nb::cast<bool>(call()); }).IgnoreError();
            return keeps;
          };
        }
        options.interrupted = RunSignalHandlers;
        return RunValue(SessionManager::Create(std::move(options)));
      },
      nb::arg("local_init").none(), nb::arg("ready").none(), nb::arg("ready_for_local_init").none(),
      nb::arg("recovery_wait"), nb::arg("keeps_model").none());
}

}  // namespace

void BindTrain(nb::module_& m) {
  BindCoordinator(m);
  BindQueueRunner(m);
  BindSessionManager(m);
  BindSupervisor(m);
  m.def("set_notices", [](nb::object sink) {
    SetNotices([call = Callback(std::move(sink))](LogLevel level, const std::string& line) {
      CallPython([&] { call(static_cast<int>(level), line); }).IgnoreError();
    });
  });
}

}  // namespace muster
