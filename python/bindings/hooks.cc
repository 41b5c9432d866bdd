// The built-in hooks. What they ask of Python (the global step's nodes, names that become tensors,
// savers with their meta graphs) are functions given to them.
#include "hooks.h"

#include <cmath>

#include "muster/train/events/event_writer.h"
#include "muster/train/events/timeline.h"
#include "muster/train/hooks/hooks.h"

namespace muster {
namespace {

using Held = std::shared_ptr<nb::object>;

// Whole steps: 2.5 are over when the third is.
Interval IntervalFrom(std::optional<double> steps, std::optional<double> secs) {
  Interval every;
  if (steps.has_value()) every.steps = static_cast<int64_t>(std::ceil(*steps));
  if (secs.has_value()) every.time = absl::Seconds(*secs);
  return every;
}

// `ask` gives (output, name of the variable) or None.
GlobalStepSource StepSource(nb::object ask) {
  return [ask = HoldPython(std::move(ask))]() -> absl::StatusOr<GlobalStep> {
    GlobalStep step;
    RETURN_IF_ERROR(CallPython([&] {
      const nb::object found = (*ask)();
      if (found.is_none()) return;
      step.read = nb::cast<Output>(found[0]);
      step.name = nb::cast<std::string>(found[1]);
    }));
    return step;
  };
}

// `open` gives a writer; None: no events.
EventSink SinkFrom(nb::object open) {
  if (open.is_none()) return nullptr;
  return [open = HoldPython(std::move(open))]() -> absl::StatusOr<std::shared_ptr<EventWriter>> {
    std::shared_ptr<EventWriter> writer;
    RETURN_IF_ERROR(
        CallPython([&] { writer = nb::cast<std::shared_ptr<EventWriter>>((*open)()); }));
    return writer;
  };
}

nb::object SessionToPython(Session& session) {
  return nb::cast(&session, nb::rv_policy::reference);
}

class PythonListener : public CheckpointSaverListener {
 public:
  // `listener` takes sessions of C++ (muster.train.basic_session_run_hooks).
  explicit PythonListener(nb::object listener) : listener_(HoldPython(std::move(listener))) {}
  absl::Status Begin() override {
    return CallPython([&] { listener_->attr("begin")(); });
  }
  absl::Status BeforeSave(Session& session, int64_t step) override {
    return CallPython([&] { listener_->attr("before_save")(SessionToPython(session), step); });
  }
  absl::StatusOr<bool> AfterSave(Session& session, int64_t step) override {
    bool stop = false;
    RETURN_IF_ERROR(CallPython([&] {
      stop = nb::cast<bool>(listener_->attr("after_save")(SessionToPython(session), step));
    }));
    return stop;
  }
  absl::Status End(Session& session, int64_t step) override {
    return CallPython([&] { listener_->attr("end")(SessionToPython(session), step); });
  }
  std::string name() const override {
    std::string text;
    CallPython([&] { text = nb::cast<std::string>(nb::str(*listener_)); }).IgnoreError();
    return text;
  }

 private:
  const Held listener_;
};

std::shared_ptr<CheckpointSaverHook> MakeCheckpointSaver(nb::object step, std::string folder,
                                                         std::string basename, nb::object sink,
                                                         std::optional<double> save_steps,
                                                         std::optional<double> save_secs,
                                                         nb::object save, nb::object describe,
                                                         const nb::list& listeners) {
  CheckpointSaverOptions options;
  options.global_step = StepSource(std::move(step));
  options.checkpoint_dir = std::move(folder);
  options.checkpoint_basename = std::move(basename);
  options.sink = SinkFrom(std::move(sink));
  options.every = IntervalFrom(save_steps, save_secs);
  options.save = [save = HoldPython(std::move(save))](Session& session, const std::string& path,
                                                      int64_t step_value) {
    return CallPython([&] { (*save)(SessionToPython(session), path, step_value); });
  };
  options.describe = [describe = HoldPython(std::move(describe))](Session& session, EventWriter&) {
    return CallPython([&] { (*describe)(SessionToPython(session)); });
  };
  for (nb::handle listener : listeners)
    options.listeners.push_back(std::make_shared<PythonListener>(nb::borrow(listener)));
  return std::make_shared<CheckpointSaverHook>(std::move(options));
}

std::shared_ptr<SummarySaverHook> MakeSummarySaver(nb::object step, nb::object sink,
                                                   std::optional<double> save_steps,
                                                   std::optional<double> save_secs,
                                                   nb::object summaries) {
  SummarySaverOptions options;
  options.global_step = StepSource(std::move(step));
  options.sink = SinkFrom(std::move(sink));
  options.every = IntervalFrom(save_steps, save_secs);
  options.summaries =
      [ask = HoldPython(std::move(summaries))]() -> absl::StatusOr<std::vector<Output>> {
    std::vector<Output> outputs;
    RETURN_IF_ERROR(CallPython([&] { outputs = nb::cast<std::vector<Output>>((*ask)()); }));
    return outputs;
  };
  return std::make_shared<SummarySaverHook>(std::move(options));
}

std::shared_ptr<StepCounterHook> MakeStepCounter(nb::object step, nb::object sink,
                                                 std::optional<double> steps,
                                                 std::optional<double> secs) {
  StepCounterOptions options;
  options.global_step = StepSource(std::move(step));
  options.sink = SinkFrom(std::move(sink));
  options.every = IntervalFrom(steps, secs);
  return std::make_shared<StepCounterHook>(std::move(options));
}

std::shared_ptr<ProfilerHook> MakeProfiler(nb::object step, std::string folder, nb::object sink,
                                           std::optional<double> save_steps,
                                           std::optional<double> save_secs, nb::object save) {
  ProfilerOptions options;
  options.global_step = StepSource(std::move(step));
  options.output_dir = std::move(folder);
  options.sink = SinkFrom(std::move(sink));
  options.every = IntervalFrom(save_steps, save_secs);
  options.save = [save = HoldPython(std::move(save))](
                     const RunMetadata& metadata,
                     const std::string& path) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const std::string bytes, SerializeRunMetadata(metadata, false));
    RETURN_IF_ERROR(CallPython([&] { (*save)(nb::bytes(bytes.data(), bytes.size()), path); }));
    return bytes;
  };
  return std::make_shared<ProfilerHook>(std::move(options));
}

// `tensors` gives [(tag, output)]; `formatter` takes the list of values; `text` one of them.
std::shared_ptr<LoggingTensorHook> MakeLogging(nb::object tensors, std::optional<double> every_iter,
                                               std::optional<double> every_secs, bool at_end,
                                               nb::object formatter, nb::object text) {
  LoggingTensorOptions options;
  options.tensors =
      [ask = HoldPython(std::move(tensors))]() -> absl::StatusOr<std::vector<LoggedTensor>> {
    std::vector<LoggedTensor> logged;
    RETURN_IF_ERROR(CallPython([&] {
      for (nb::handle pair : (*ask)())
        logged.push_back({nb::cast<std::string>(pair[0]), nb::cast<Output>(pair[1])});
    }));
    return logged;
  };
  options.every = IntervalFrom(every_iter, every_secs);
  options.at_end = at_end;
  if (!formatter.is_none()) {
    options.formatter = [format = HoldPython(std::move(formatter))](
                            absl::Span<const Tensor> values) -> absl::StatusOr<std::string> {
      std::string line;
      RETURN_IF_ERROR(CallPython([&] {
        line = nb::cast<std::string>(
            nb::str((*format)(TensorsToPython({values.begin(), values.end()}))));
      }));
      return line;
    };
  }
  options.value_text =
      [text = HoldPython(std::move(text))](const Tensor& value) -> absl::StatusOr<std::string> {
    std::string result;
    RETURN_IF_ERROR(
        CallPython([&] { result = nb::cast<std::string>((*text)(TensorsToPython({value})[0])); }));
    return result;
  };
  return std::make_shared<LoggingTensorHook>(std::move(options));
}

std::shared_ptr<NanTensorHook> MakeNan(Output loss, nb::object on_nan) {
  if (on_nan.is_none()) return std::make_shared<NanTensorHook>(loss, nullptr);
  return std::make_shared<NanTensorHook>(loss, [fail = HoldPython(std::move(on_nan))] {
    const absl::Status raised = CallPython([&] { (*fail)(); });
    return raised.ok() ? NanTensorHook::NanLoss() : raised;
  });
}

std::shared_ptr<FinalOpsHook> MakeFinalOps(nb::object args) {
  return std::make_shared<FinalOpsHook>(
      [ask = HoldPython(std::move(args))]() -> absl::StatusOr<RunArgs> {
        RunArgs run;
        RETURN_IF_ERROR(CallPython([&] {
          const nb::object parts = (*ask)();
          run.fetches = nb::cast<std::vector<Output>>(parts[0]);
          run.targets = nb::cast<std::vector<Node*>>(parts[1]);
          run.feeds = FeedsFromPython(parts[2]);
        }));
        return run;
      });
}

std::shared_ptr<FeedFnHook> MakeFeedFn(nb::object feeds) {
  return std::make_shared<FeedFnHook>(
      [ask = HoldPython(std::move(feeds))]() -> absl::StatusOr<FeedFnHook::Feeds> {
        FeedFnHook::Feeds fed;
        RETURN_IF_ERROR(CallPython([&] { fed = FeedsFromPython((*ask)()); }));
        return fed;
      });
}

nb::object Happened(StepTimer& timer, int64_t step) {
  const std::optional<StepTimer::Elapsed> elapsed = timer.Happened(step);
  if (!elapsed.has_value()) return nb::make_tuple(nb::none(), nb::none());
  return nb::make_tuple(absl::ToDoubleSeconds(elapsed->time), elapsed->steps);
}

}  // namespace

void BindHooks(nb::module_& m) {
  nb::class_<StepTimer>(m, "StepTimer")
      .def(
          "__init__",
          [](StepTimer* timer, std::optional<double> steps, std::optional<double> secs) {
            new (timer) StepTimer(IntervalFrom(steps, secs));
          },
          nb::arg("steps").none(), nb::arg("secs").none())
      .def("reset", &StepTimer::Reset)
      .def("due", &StepTimer::Due)
      .def("happened", &Happened)
      .def("last_step", &StepTimer::last_step);
  nb::class_<StopAtStepHook, SessionRunHook>(m, "StopAtStepHook")
      .def_prop_ro("last_step", &StopAtStepHook::last_step);
  nb::class_<CheckpointSaverHook, SessionRunHook>(m, "CheckpointSaverHook")
      .def("save", [](CheckpointSaverHook& h, Session& session, int64_t step) {
        absl::StatusOr<bool> stop = false;
        {
          ReleasedGil unlocked;
          stop = h.Save(session, step);
        }
        return RunValue(std::move(stop));
      });
  nb::class_<FinalOpsHook, SessionRunHook>(m, "FinalOpsHook")
      .def_prop_ro("values", [](const FinalOpsHook& h) -> nb::object {
        if (!h.values().has_value()) return nb::none();
        return TensorsToPython(*h.values());
      });
  nb::class_<SummarySaverHook, SessionRunHook>(m, "SummarySaverHook");
  nb::class_<StepCounterHook, SessionRunHook>(m, "StepCounterHook");
  nb::class_<ProfilerHook, SessionRunHook>(m, "ProfilerHook");
  nb::class_<LoggingTensorHook, SessionRunHook>(m, "LoggingTensorHook");
  nb::class_<NanTensorHook, SessionRunHook>(m, "NanTensorHook");
  nb::class_<GlobalStepWaiterHook, SessionRunHook>(m, "GlobalStepWaiterHook");
  nb::class_<FeedFnHook, SessionRunHook>(m, "FeedFnHook");

  m.def("stop_after_steps", [](nb::object step, int64_t num_steps) {
    return StopAtStepHook::After(StepSource(std::move(step)), num_steps);
  });
  m.def("stop_at_step", [](nb::object step, int64_t last_step) {
    return StopAtStepHook::At(StepSource(std::move(step)), last_step);
  });
  m.def("global_step_waiter", [](nb::object step, int64_t wait_until_step) {
    return std::make_shared<GlobalStepWaiterHook>(StepSource(std::move(step)), wait_until_step,
                                                  RunSignalHandlers);
  });
  m.def("checkpoint_saver", &MakeCheckpointSaver, nb::arg("step"), nb::arg("folder"),
        nb::arg("basename"), nb::arg("sink"), nb::arg("save_steps").none(),
        nb::arg("save_secs").none(), nb::arg("save"), nb::arg("describe"), nb::arg("listeners"));
  m.def("summary_saver", &MakeSummarySaver, nb::arg("step"), nb::arg("sink").none(),
        nb::arg("save_steps").none(), nb::arg("save_secs").none(), nb::arg("summaries"));
  m.def("step_counter", &MakeStepCounter, nb::arg("step"), nb::arg("sink").none(),
        nb::arg("steps").none(), nb::arg("secs").none());
  m.def(
      "timeline",
      [](const nb::bytes& step_stats, bool show_dataflow, bool show_memory, bool kernels_only) {
        const Timeline made =
            RunValue(MakeTimeline(std::string(step_stats.c_str(), step_stats.size()),
                                  {show_dataflow, show_memory, kernels_only}));
        nb::dict maximums;
        for (const auto& [allocator, most] : made.maximums) {
          nb::set tensors;
          for (const std::string& name : most.tensors)
            tensors.add(nb::str(name.c_str(), name.size()));
          maximums[allocator.c_str()] = nb::make_tuple(most.micros, most.num_bytes, tensors);
        }
        return nb::make_tuple(nb::str(made.json.c_str(), made.json.size()), maximums);
      },
      nb::arg("step_stats"), nb::arg("show_dataflow"), nb::arg("show_memory"),
      nb::arg("kernels_only"),
      "(JSON for chrome://tracing, {allocator: (micros, bytes, names)}) of a serialized "
      "StepStats.");
  m.def("profiler", &MakeProfiler, nb::arg("step"), nb::arg("folder"), nb::arg("sink"),
        nb::arg("save_steps").none(), nb::arg("save_secs").none(), nb::arg("save"));
  m.def("logging_tensors", &MakeLogging, nb::arg("tensors"), nb::arg("every_iter").none(),
        nb::arg("every_secs").none(), nb::arg("at_end"), nb::arg("formatter").none(),
        nb::arg("text"));
  m.def("nan_tensor", &MakeNan, nb::arg("loss"), nb::arg("on_nan").none());
  m.def("final_ops", &MakeFinalOps);
  m.def("feed_fn", &MakeFeedFn);
  // The global step is a variable, or a tensor that the program itself increments.
  m.def("read_global_step", [](const Scope& scope, const TrainVariable& variable) {
    return BuildValue(ReadGlobalStep(scope, variable)).read;
  });
  m.def("read_global_step", [](const Scope& scope, Output value) {
    return BuildValue(ReadGlobalStep(scope, value, value.node->name())).read;
  });
}

}  // namespace muster
