// The monitored session and its hooks for Python: a Python hook is one C++ hook that calls an
// adapter object (muster.train.session_run_hook), which flattens the hook's fetches.
#include "bindings.h"
#include "hooks.h"

#include "muster/train/hooks/saving_hooks.h"
#include "muster/train/loop/coordinator.h"
#include "muster/train/loop/monitored_session.h"

namespace muster {
namespace {

using Feeds = std::vector<std::pair<Output, Tensor>>;

RunOptions OptionsFromPython(nb::handle options) {
  RunOptions result;
  if (options.is_none()) return result;
  result.timeout = absl::Milliseconds(nb::cast<int64_t>(options[0]));
  result.trace = nb::cast<bool>(options[1]);
  result.keep_partition_graphs = nb::cast<bool>(options[2]);
  return result;
}

nb::tuple OptionsToPython(const RunOptions& options) {
  return nb::make_tuple(absl::ToInt64Milliseconds(options.timeout), options.trace,
                        options.keep_partition_graphs);
}

// (outputs, targets, [(output, array)], options)
RunArgs ArgsFromPython(nb::handle request) {
  RunArgs args;
  args.fetches = nb::cast<std::vector<Output>>(request[0]);
  args.targets = nb::cast<std::vector<Node*>>(request[1]);
  args.feeds = FeedsFromPython(nb::borrow(request[2]));
  args.options = OptionsFromPython(request[3]);
  return args;
}

nb::object MetadataToPython(const RunMetadata& metadata, const RunOptions& options) {
  if (!options.trace && !options.keep_partition_graphs) return nb::none();
  const std::string bytes = RunValue(SerializeRunMetadata(metadata, options.keep_partition_graphs));
  return nb::bytes(bytes.data(), bytes.size());
}

nb::object SessionToPython(Session& session) {
  return nb::cast(&session, nb::rv_policy::reference);
}

// The stop flag of one run; it outlives the run where a hook keeps the context.
struct StopFlag {
  std::shared_ptr<std::atomic<bool>> flag;
};

class PythonHook : public SessionRunHook {
 public:
  explicit PythonHook(nb::object adapter) : adapter_(HoldPython(std::move(adapter))) {}

  absl::Status Begin() override {
    return CallPython([&] { adapter_->attr("begin")(); });
  }
  absl::Status AfterCreateSession(const std::shared_ptr<Session>& session,
                                  const std::shared_ptr<Coordinator>& coordinator) override {
    return CallPython([&] { adapter_->attr("after_create_session")(session, coordinator); });
  }
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override {
    std::optional<RunArgs> args;
    RETURN_IF_ERROR(CallPython([&] {
      const nb::object request = adapter_->attr("before_run")(SessionToPython(context.session()),
                                                              StopFlag{context.stop_flag()});
      if (!request.is_none()) args = ArgsFromPython(request);
    }));
    return args;
  }
  absl::Status AfterRun(RunContext& context, const RunValues& values) override {
    return CallPython([&] {
      adapter_->attr("after_run")(SessionToPython(context.session()), StopFlag{context.stop_flag()},
                                  TensorsToPython({values.results.begin(), values.results.end()}),
                                  OptionsToPython(values.options),
                                  MetadataToPython(values.metadata, values.options));
    });
  }
  absl::Status End(Session& session) override {
    return CallPython([&] { adapter_->attr("end")(SessionToPython(session)); });
  }

 private:
  const std::shared_ptr<nb::object> adapter_;
};

class PythonSessionCreator : public SessionCreator {
 public:
  explicit PythonSessionCreator(nb::object create) : create_(HoldPython(std::move(create))) {}
  absl::StatusOr<std::shared_ptr<Session>> CreateSession() override {
    std::shared_ptr<Session> session;
    RETURN_IF_ERROR(
        CallPython([&] { session = nb::cast<std::shared_ptr<Session>>((*create_)()); }));
    return session;
  }

 private:
  const std::shared_ptr<nb::object> create_;
};

// Runs without the lock of the interpreter, also when the object goes.
class PyMonitoredSession {
 public:
  static PyMonitoredSession* Create(nb::object creator,
                                    std::vector<std::shared_ptr<SessionRunHook>> hooks,
                                    double grace_secs, bool recover, nb::object new_coordinator,
                                    nb::object start_runners) {
    MonitoredSessionOptions options;
    options.hooks = std::move(hooks);
    options.stop_grace_period = absl::Seconds(grace_secs);
    options.recover = recover;
    options.interrupted = RunSignalHandlers;
    options.new_coordinator = [make = HoldPython(std::move(new_coordinator))]()
        -> absl::StatusOr<std::shared_ptr<Coordinator>> {
      std::shared_ptr<Coordinator> coordinator;
      RETURN_IF_ERROR(
          CallPython([&] { coordinator = nb::cast<std::shared_ptr<Coordinator>>((*make)()); }));
      return coordinator;
    };
    options.start_queue_runners = [start = HoldPython(std::move(start_runners))](
                                      const std::shared_ptr<Session>& session,
                                      const std::shared_ptr<Coordinator>& coordinator) {
      return CallPython([&] { (*start)(session, coordinator); });
    };
    auto creation = std::make_shared<PythonSessionCreator>(std::move(creator));
    absl::StatusOr<std::unique_ptr<MonitoredSession>> session = absl::UnknownError("");
    {
      ReleasedGil unlocked;
      session = MonitoredSession::Create(std::move(creation), std::move(options));
    }
    return new PyMonitoredSession(RunValue(std::move(session)));
  }

  ~PyMonitoredSession() {
    ReleasedGil unlocked;
    session_.reset();
  }

  // The values, and the serialized RunMetadata where it is wanted.
  nb::object Run(nb::handle request, bool want_metadata) {
    return RunWith(request, want_metadata, [this](const RunArgs& args, RunMetadata* metadata) {
      return session_->Run(args, metadata);
    });
  }

  static nb::object RunWith(nb::handle request, bool want_metadata,
                            const StepContext::RunFunction& run) {
    const RunArgs args = ArgsFromPython(request);
    RunMetadata metadata;
    absl::StatusOr<std::vector<Tensor>> values = absl::UnknownError("");
    {
      ReleasedGil unlocked;
      values = run(args, want_metadata ? &metadata : nullptr);
    }
    nb::list list = TensorsToPython(RunValue(std::move(values)));
    if (!want_metadata) return list;
    return nb::make_tuple(list, MetadataToPython(metadata, args.options));
  }

  // Calls step(session, run_with_hooks).
  void RunStep(const nb::object& step) {
    absl::Status done;
    {
      ReleasedGil unlocked;
      done = session_->RunStep([&](StepContext& context) {
        return CallPython([&] {
          step(SessionToPython(context.session()),
               nb::cpp_function([&context](nb::object request, bool want_metadata) {
                 return RunWith(request, want_metadata,
                                [&](const RunArgs& args, RunMetadata* metadata) {
                                  return context.RunWithHooks(args, metadata);
                                });
               }));
        });
      });
    }
    ThrowIfRunError(done);
  }

  bool ShouldStop() {
    absl::StatusOr<bool> stop = false;
    {
      ReleasedGil unlocked;
      stop = session_->CheckStop();
    }
    return RunValue(std::move(stop));
  }

  void Close(bool clean) {
    absl::Status closed;
    {
      ReleasedGil unlocked;
      // Which error the body ended with is the caller's business.
      closed = clean ? session_->Close() : session_->CloseAfterError();
    }
    ThrowIfRunError(closed);
  }

  std::vector<std::string> CloseInterrupted() {
    absl::StatusOr<std::vector<std::string>> saved = std::vector<std::string>();
    {
      ReleasedGil unlocked;
      saved = session_->CloseInterrupted();
    }
    ThrowIfRunError(saved.status());
    return *std::move(saved);
  }

  std::shared_ptr<Session> raw_session() const { return session_->raw_session(); }
  std::shared_ptr<Coordinator> coordinator() const { return session_->coordinator(); }

 private:
  explicit PyMonitoredSession(std::unique_ptr<MonitoredSession> session)
      : session_(std::move(session)) {}
  std::unique_ptr<MonitoredSession> session_;
};

// A C++ hook called from Python: by a class derived from a built-in one, or by hand.
class CalledHook {
 public:
  static nb::object BeforeRun(SessionRunHook& hook, Session& session) {
    const RunArgs none;
    RunContext context(none, session);
    absl::StatusOr<std::optional<RunArgs>> request = std::nullopt;
    {
      ReleasedGil unlocked;
      request = hook.BeforeRun(context);
    }
    const std::optional<RunArgs> args = RunValue(std::move(request));
    if (!args.has_value()) return nb::make_tuple(nb::none(), context.stop_requested());
    nb::list feeds;
    for (const auto& [output, tensor] : args->feeds)
      feeds.append(nb::make_tuple(output, TensorToNumpy(tensor)));
    return nb::make_tuple(
        nb::make_tuple(args->fetches, args->targets, feeds, OptionsToPython(args->options)),
        context.stop_requested());
  }

  static bool AfterRun(SessionRunHook& hook, Session& session, const std::vector<Output>& fetches,
                       const nb::list& results, nb::handle options, const nb::bytes& metadata) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < fetches.size(); ++i)
      tensors.push_back(TensorFromNumpy(results[i], fetches[i].base_dtype()));
    const RunOptions run_options = OptionsFromPython(options);
    RunMetadata run_metadata;
    run_metadata.serialized.assign(metadata.c_str(), metadata.size());
    const RunArgs none;
    RunContext context(none, session);
    absl::Status done;
    {
      ReleasedGil unlocked;
      done = hook.AfterRun(context, RunValues{tensors, run_options, run_metadata});
    }
    ThrowIfRunError(done);
    return context.stop_requested();
  }
};

template <typename Call>
void Unlocked(const Call& call) {
  absl::Status done;
  {
    ReleasedGil unlocked;
    done = call();
  }
  ThrowIfRunError(done);
}

}  // namespace

std::vector<std::pair<Output, Tensor>> FeedsFromPython(const nb::object& pairs) {
  Feeds feeds;
  for (nb::handle feed : pairs) {
    const Output output = nb::cast<Output>(feed[0]);
    const nb::object value = feed[1];
    feeds.emplace_back(output, nb::isinstance<Tensor>(value)
                                   ? nb::cast<Tensor>(value)
                                   : TensorFromNumpy(value, output.base_dtype()));
  }
  return feeds;
}

nb::list TensorsToPython(std::vector<Tensor> tensors) {
  nb::list list;
  for (Tensor& tensor : tensors) {
    const bool opaque = tensor.dtype() == DType::kResource || tensor.dtype() == DType::kVariant;
    list.append(opaque ? nb::cast(std::move(tensor)) : TensorToNumpy(std::move(tensor)));
  }
  return list;
}

void BindMonitored(nb::module_& m) {
  nb::class_<StopFlag>(m, "StopFlag")
      .def("set", [](StopFlag& f) { *f.flag = true; })
      .def("__bool__", [](const StopFlag& f) { return f.flag->load(); })
      .def("same", [](const StopFlag& f, const StopFlag& other) { return f.flag == other.flag; });
  nb::class_<SessionRunHook>(m, "SessionRunHook")
      .def("begin", [](SessionRunHook& h) { Unlocked([&] { return h.Begin(); }); })
      .def(
          "after_create_session",
          [](SessionRunHook& h, const std::shared_ptr<Session>& session,
             const std::shared_ptr<Coordinator>& coordinator) {
            Unlocked([&] { return h.AfterCreateSession(session, coordinator); });
          },
          nb::arg("session"), nb::arg("coord").none())
      .def("before_run", &CalledHook::BeforeRun)
      .def("after_run", &CalledHook::AfterRun)
      .def("end",
           [](SessionRunHook& h, Session& session) { Unlocked([&] { return h.End(session); }); });
  nb::class_<PythonHook, SessionRunHook>(m, "PythonHook").def(nb::init<nb::object>());
  nb::class_<PyMonitoredSession>(m, "MonitoredSession")
      .def_static("create", &PyMonitoredSession::Create, nb::rv_policy::take_ownership,
                  nb::arg("create_session"), nb::arg("hooks"), nb::arg("grace_secs"),
                  nb::arg("recover"), nb::arg("new_coordinator"), nb::arg("start_queue_runners"))
      .def("run", &PyMonitoredSession::Run)
      .def("run_step", &PyMonitoredSession::RunStep)
      .def("should_stop", &PyMonitoredSession::ShouldStop)
      .def("close", &PyMonitoredSession::Close)
      .def("close_interrupted", &PyMonitoredSession::CloseInterrupted)
      .def_prop_ro("raw_session", &PyMonitoredSession::raw_session)
      .def_prop_ro("coordinator", &PyMonitoredSession::coordinator);
}

}  // namespace muster
