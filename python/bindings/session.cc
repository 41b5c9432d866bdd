#include "muster/client/session.h"

#include <algorithm>
#include <map>

#include "bindings.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/client/connect.h"
#include "muster/device/device.h"
#include "muster/device/gpu/gpu_report.h"
#include "muster/runtime/trace.h"
#include "muster/task/feeds.h"
#include "muster/train/hooks/saving_hooks.h"
#include "muster/transport/wire/session_config_proto.h"

namespace muster {
namespace {

std::vector<Tensor> FeedsFromPython(const StepSignature& signature, const nb::list& feeds) {
  if (nb::len(feeds) != signature.feeds.size())
    throw nb::value_error("the step takes another number of fed values");
  std::vector<Tensor> tensors;
  tensors.reserve(signature.feeds.size());
  for (size_t i = 0; i < signature.feeds.size(); ++i) {
    nb::handle feed = feeds[i];
    tensors.push_back(nb::isinstance<Tensor>(feed)
                          ? nb::cast<Tensor>(feed)
                          : TensorFromNumpy(feed, signature.feeds[i].base_dtype()));
  }
  return tensors;
}

nb::list ToNumpyList(std::vector<Tensor> tensors) {
  nb::list list;
  for (Tensor& tensor : tensors) {
    const DType dtype = tensor.dtype();
    if (dtype == DType::kResource || dtype == DType::kVariant) {
      list.append(nb::cast(std::move(tensor)));
    } else {
      list.append(TensorToNumpy(std::move(tensor)));
    }
  }
  return list;
}

// A pool for sessions that may use `threads` threads (0: all cores), the one that runs a step among
// them. Pools stay, one for each number.
Scheduler& PoolOf(int threads) {
  if (threads <= 0) return DefaultScheduler();
  static Mutex mutex;
  static auto& pools = *std::make_unique<std::map<int, std::unique_ptr<Scheduler>>>().release();
  const int workers = std::clamp(threads - 1, 1, 1024);
  MutexLock lock(mutex);
  std::unique_ptr<Scheduler>& pool = pools[workers];
  if (pool == nullptr) pool = NewThreadPool(workers);
  return *pool;
}

// The pool of the process; its first session decides the size.
Scheduler& SharedPool(int threads) {
  static Scheduler& pool = PoolOf(threads);
  return pool;
}

// A plan together with the signature that feeds are checked against.
struct PyPlan {
  StepSignature signature;
  std::shared_ptr<StepPlan> plan;

  PyPlan() = default;
  PyPlan(PyPlan&&) = default;
  // The plan's iterators go with it, and may be waiting for functions of this interpreter.
  ~PyPlan() {
    if (plan == nullptr) return;
    ReleasedGil unlocked;
    plan.reset();
  }
};

SessionConfig ConfigFromPython(const nb::bytes& serialized) {
  return RunValue(ParseSessionConfig(absl::string_view(serialized.c_str(), serialized.size())));
}

std::unique_ptr<Session> ConnectSession(const Graph& graph, const std::string& target,
                                        const nb::bytes& config) {
  SessionConfig parsed = ConfigFromPython(config);
  ReleasedGil unlocked;  // resolving host names may take long
  SessionOptions options = RunValue(OptionsForTarget(target, std::move(parsed)));
  options.interrupted = RunSignalHandlers;
  return RunValue(Session::Create(graph, std::move(options)));
}

}  // namespace

void BindSession(nb::module_& m) {
  m.def(
      "end_session",
      [](std::unique_ptr<Session> session) {
        // Its iterators may be running functions of this interpreter, and are waited for.
        ReleasedGil unlocked;
        session.reset();
      },
      "Ends a session that has no other owner; the object must not be used afterwards.");
  nb::class_<PyPlan>(m, "StepPlan");
  nb::class_<Session>(m, "Session")
      .def("prepare",
           [](Session& s, std::vector<Output> feeds, std::vector<Output> fetches,
              std::vector<Node*> targets) {
             PyPlan plan;
             plan.signature = {std::move(feeds), std::move(fetches), std::move(targets)};
             plan.plan = RunValue(s.Prepare(plan.signature));
             return plan;
           })
      .def("run",
           [](Session& s, const PyPlan& plan, const nb::list& feeds) {
             std::vector<Tensor> tensors = FeedsFromPython(plan.signature, feeds);
             absl::StatusOr<std::vector<Tensor>> result = absl::UnknownError("");
             {
               ReleasedGil unlocked;
               result = s.Run(*plan.plan, std::move(tensors));
             }
             return ToNumpyList(RunValue(std::move(result)));
           })
      .def("run_with_options",
           [](Session& s, const PyPlan& plan, const nb::list& feeds, int64_t timeout_ms, bool trace,
              bool partition_graphs, int64_t collective_graph_key) {
             std::vector<Tensor> tensors = FeedsFromPython(plan.signature, feeds);
             RunOptions options;
             options.timeout = absl::Milliseconds(timeout_ms);
             options.trace = trace;
             options.keep_partition_graphs = trace || partition_graphs;
             options.collective_graph_key = collective_graph_key;
             RunMetadata metadata;
             absl::StatusOr<std::vector<Tensor>> result = absl::UnknownError("");
             {
               ReleasedGil unlocked;
               result = s.Run(*plan.plan, std::move(tensors), options, &metadata);
             }
             nb::list values = ToNumpyList(RunValue(std::move(result)));
             const std::string serialized =
                 metadata.serialized.empty()
                     ? RunValue(SerializeRunMetadata(metadata, partition_graphs))
                     : metadata.serialized;
             return nb::make_tuple(values, nb::bytes(serialized.data(), serialized.size()));
           })
      .def("partial_run_setup",
           [](Session& s, std::vector<Output> feeds, std::vector<Output> fetches,
              std::vector<Node*> targets) {
             ReleasedGil unlocked;
             return RunValue(
                 s.PartialRunSetup({std::move(feeds), std::move(fetches), std::move(targets)}));
           })
      .def("partial_run",
           [](Session& s, const std::string& handle, const nb::list& feeds,
              std::vector<Output> fetches) {
             std::vector<std::pair<Output, Tensor>> given;
             for (nb::handle feed : feeds) {
               const Output output = nb::cast<Output>(feed[0]);
               given.emplace_back(output, TensorFromNumpy(feed[1], output.base_dtype()));
             }
             absl::StatusOr<std::vector<Tensor>> result = absl::UnknownError("");
             {
               ReleasedGil unlocked;
               result = s.PartialRun(handle, given, fetches);
             }
             return ToNumpyList(RunValue(std::move(result)));
           })
      .def(
          "close", [](Session& s) { ThrowIfRunError(s.Close()); }, nb::call_guard<ReleasedGil>())
      .def_prop_ro("closed", &Session::closed)
      .def("explain_placement",
           [](const Session& s, const std::string& node) {
             absl::StatusOr<std::vector<std::string>> reasons = absl::UnknownError("");
             {
               ReleasedGil unlocked;
               reasons = s.ExplainPlacement(node);
             }
             return RunValue(std::move(reasons));
           })
      .def("list_devices",
           [](const Session& s) {
             std::vector<DeviceAttributes> devices;
             {
               ReleasedGil unlocked;
               devices = RunValue(s.ListDevices());
             }
             nb::list list;
             for (const DeviceAttributes& d : devices) {
               list.append(nb::make_tuple(d.name, d.device_type, d.memory_limit_bytes,
                                          d.incarnation, d.physical_device_desc));
             }
             return list;
           })
      .def(
          "clear_containers",
          [](Session& s, const std::vector<std::string>& containers) {
            ThrowIfRunError(s.ClearContainers(containers));
          },
          nb::call_guard<ReleasedGil>());
  m.def("gpu_reports", [] {
    nb::list list;
    for (const GpuReport& gpu : GpuReports()) {
      nb::dict report;
      report["number"] = gpu.number;
      report["name"] = gpu.name;
      report["memory_bytes"] = gpu.memory_bytes;
      report["taken_bytes"] = gpu.taken_bytes;
      report["used_bytes"] = gpu.used_bytes;
      report["peak_used_bytes"] = gpu.peak_used_bytes;
      report["calls"] = gpu.calls;
      report["replayed_calls"] = gpu.replayed_calls;
      report["graphs"] = gpu.graphs;
      report["joined_calls"] = gpu.joined_calls;
      list.append(report);
    }
    return list;
  });
  m.def(
      "new_session",
      [](const Graph& graph, int cpu_devices, int64_t operation_timeout_ms, bool optimize,
         bool log_placement, bool soft_placement, int threads, bool own_threads,
         std::string executor_type, int gpu_devices, std::string visible_gpus,
         double gpu_memory_fraction, std::vector<std::vector<float>> virtual_gpus) {
        SessionOptions options;
        options.scheduler = own_threads ? &PoolOf(threads) : &SharedPool(threads);
        options.devices = {cpu_devices, gpu_devices, std::move(visible_gpus), gpu_memory_fraction,
                           std::move(virtual_gpus)};
        options.operation_timeout = absl::Milliseconds(operation_timeout_ms);
        options.optimize_graph = optimize;
        options.log_device_placement = log_placement;
        options.allow_soft_placement = soft_placement;
        options.executor_type = std::move(executor_type);
        return RunValue(Session::Create(graph, options));
      },
      nb::keep_alive<0, 1>(), nb::arg("graph"), nb::arg("cpu_devices") = 1,
      nb::arg("operation_timeout_ms") = 0, nb::arg("optimize") = true,
      nb::arg("log_device_placement") = false, nb::arg("allow_soft_placement") = false,
      nb::arg("threads") = 0, nb::arg("own_threads") = false, nb::arg("executor_type") = "",
      nb::arg("gpu_devices") = -1, nb::arg("visible_gpus") = "",
      nb::arg("gpu_memory_fraction") = 0.0,
      nb::arg("virtual_gpus") = std::vector<std::vector<float>>());
  m.def(
      "check_feed",
      [](const Output& feed, const std::vector<int64_t>& dims) {
        const absl::StatusOr<Shape> shape = Shape::Make(dims);
        const absl::Status status = shape.ok() ? CheckFedShape(feed, *shape) : shape.status();
        if (!status.ok()) throw nb::value_error(std::string(status.message()).c_str());
      },
      nb::arg("feed"), nb::arg("shape"),
      "Raises ValueError unless a value of this shape may be fed for the tensor.");
  m.def("connect_session", &ConnectSession, nb::keep_alive<0, 1>(), nb::arg("graph"),
        nb::arg("target"), nb::arg("config"));
  m.def(
      "reset_containers",
      [](const std::string& target, std::vector<std::string> containers, const nb::bytes& config) {
        const SessionConfig parsed = ConfigFromPython(config);
        ReleasedGil unlocked;
        ThrowIfRunError(ResetContainers(target, std::move(containers), parsed, RunSignalHandlers));
      },
      nb::arg("target"), nb::arg("containers"), nb::arg("config"));
}

}  // namespace muster
