// For tests of the master alone: workers that note what they are asked and answer as told.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/cancel_callback.h"
#include "muster/graph/build/scope.h"
#include "muster/master/master.h"

namespace muster {

// Confined to the test's thread.
class FakeWorker : public WorkerApi {
 public:
  FakeWorker(std::string task, uint64_t incarnation, std::vector<std::string>& log)
      : task_(std::move(task)), incarnation_(incarnation), log_(log) {}

  std::string booted_as;  // the task by the worker's own idea; empty: as the master calls it
  bool is_up = true;
  absl::Status create_session_status;
  absl::Status register_status;
  // Answers RunGraph; the default fetches nothing and succeeds. Nothing: the call hangs.
  std::function<std::optional<absl::StatusOr<RunGraphReply>>(const RunGraphRequest&)> run;
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<CreateWorkerSessionRequest> sessions;
  std::vector<RunGraphRequest> runs;

  void ComeUp() {
    is_up = true;
    auto waiting = std::move(waiting_);
    waiting_.clear();
    for (auto& done : waiting) std::move(done)(Devices());
  }

  void GetStatus(CallOptions options, CallDone<std::vector<DeviceAttributes>> done) override {
    Note("GetStatus");
    if (is_up) return std::move(done)(Devices());
    if (!options.wait_for_ready) return std::move(done)(absl::UnavailableError("down"));
    waiting_.push_back(std::move(done));
    Hang(options, [this, i = waiting_.size() - 1](absl::Status reason) {
      if (i < waiting_.size() && waiting_[i]) std::move(waiting_[i])(std::move(reason));
      if (i < waiting_.size()) waiting_[i] = [](absl::StatusOr<std::vector<DeviceAttributes>>) {};
    });
  }
  void CreateWorkerSession(CallOptions, CreateWorkerSessionRequest request,
                           CallDone<Empty> done) override {
    Note("CreateWorkerSession");
    sessions.push_back(std::move(request));
    Reply(create_session_status, std::move(done));
  }
  void DeleteWorkerSession(CallOptions, std::string, CallDone<Empty> done) override {
    Note("DeleteWorkerSession");
    if (is_up) std::move(done)(Empty());
  }
  void RegisterGraph(CallOptions, RegisterGraphRequest request,
                     CallDone<std::string> done) override {
    Note("RegisterGraph");
    if (!register_status.ok()) return std::move(done)(register_status);
    graphs.push_back(std::move(request.graph)().value());
    std::move(done)(absl::StrCat("graph", graphs.size()));
  }
  void DeregisterGraph(CallOptions, std::string, bool, std::string, CallDone<Empty> done) override {
    Note("DeregisterGraph");
    std::move(done)(Empty());
  }
  void RunGraph(CallOptions options, RunGraphRequest request,
                CallDone<RunGraphReply> done) override {
    Note("RunGraph");
    runs.push_back(request);
    if (!run) {
      RunGraphReply reply;
      for (const std::string& key : request.recv_keys)
        reply.recv.push_back({key, Tensor::Scalar<float>(7)});
      return std::move(done)(std::move(reply));
    }
    auto answer = run(request);
    if (answer) return std::move(done)(*std::move(answer));
    Hang(options, std::move(done));
  }
  void CleanupGraph(CallOptions, int64_t, CallDone<Empty> done) override {
    Note("CleanupGraph");
    std::move(done)(Empty());
  }
  void CleanupAll(CallOptions, std::vector<std::string>, CallDone<Empty> done) override {
    Note("CleanupAll");
    std::move(done)(Empty());
  }
  void RecvTensor(CallOptions, RecvTensorRequest, CallDone<RecvTensorReply> done) override {
    std::move(done)(Unimplemented("RecvTensor"));
  }
  void MarkRecvFinished(CallOptions, int64_t, CallDone<Empty> done) override {
    std::move(done)(Empty());
  }
  void Logging(CallOptions, LoggingRequest request, CallDone<LoggingReply> done) override {
    Note(request.enable ? "Logging on" : request.disable ? "Logging off" : "Logging fetch");
    std::move(done)(LoggingReply());
  }

 private:
  std::vector<DeviceAttributes> Devices() const {
    DeviceAttributes device;
    device.name = absl::StrCat(booted_as.empty() ? task_ : booted_as, "/device:CPU:0");
    device.device_type = "CPU";
    device.incarnation = incarnation_;
    return {device};
  }
  void Note(absl::string_view what) { log_.push_back(absl::StrCat(what, " ", task_)); }
  static void Reply(const absl::Status& status, CallDone<Empty> done) {
    if (!status.ok()) return std::move(done)(status);
    std::move(done)(Empty());
  }
  // `end` gets the reason when the call is cancelled.
  template <typename End>
  void Hang(const CallOptions& options, End end) {
    hanging_.emplace_back().Start(
        options.cancellation,
        [end = std::move(end)](const absl::Status& reason) mutable { std::move(end)(reason); });
  }

  const std::string task_;
  const uint64_t incarnation_;
  std::vector<std::string>& log_;
  std::vector<CallDone<std::vector<DeviceAttributes>>> waiting_;
  std::list<CancelCallback> hanging_;
};

class FakePeers : public Peers {
 public:
  explicit FakePeers(std::map<std::string, std::shared_ptr<FakeWorker>> workers)
      : workers_(std::move(workers)) {}
  std::vector<TaskName> Tasks() const override {
    std::vector<TaskName> tasks;
    for (const auto& [text, worker] : workers_) tasks.push_back(TaskName::Parse(text).value());
    return tasks;
  }
  std::shared_ptr<WorkerApi> Worker(absl::string_view task) override {
    const auto found = workers_.find(std::string(task));
    return found == workers_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, std::shared_ptr<FakeWorker>> workers_;
};

// Clusters of sessions' own, in which addresses are the names of the fakes' tasks.
class FakeTransport : public Transport {
 public:
  std::map<std::string, std::shared_ptr<FakeWorker>> by_address;

  std::shared_ptr<Peers> Connect(const ClusterSpec& cluster, const TaskName&,
                                 std::shared_ptr<WorkerApi>) override {
    std::map<std::string, std::shared_ptr<FakeWorker>> workers;
    for (const TaskName& task : cluster.tasks())
      workers[task.ToString()] = by_address.at(cluster.Address(task).value());
    return std::make_shared<FakePeers>(std::move(workers));
  }
  absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view) override {
    return Unimplemented("ConnectMaster");
  }
};

}  // namespace muster
