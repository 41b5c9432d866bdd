// A whole cluster, masters, workers and network, in one thread on a virtual clock.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/master/cluster_watch.h"
#include "muster/master/master.h"
#include "muster/server/task_report.h"
#include "muster/transport/simulated/simulated_network.h"
#include "muster/transport/watch/watched_peers.h"
#include "muster/worker/worker.h"

namespace muster {

class SimulatedCluster {
 public:
  // Jobs with their numbers of tasks.
  SimulatedCluster(uint64_t seed, const std::map<std::string, int>& jobs,
                   std::string collective_group_leader = "")
      : collective_group_leader_(std::move(collective_group_leader)),
        scheduler_(SimulatedScheduler::Create(seed)),
        network_(SimulatedNetwork::Create(*scheduler_, {.seed = seed})) {
    SeedIds(seed);
    std::map<std::string, ClusterSpec::Tasks> specs;
    for (const auto& [job, count] : jobs) {
      for (int i = 0; i < count; ++i) specs[job][i] = absl::StrCat(job, i, ":1");
    }
    cluster_ = ClusterSpec(specs);
    transport_ =
        NewWatchedTransport(std::make_unique<Borrowed>(*network_), *scheduler_, LivenessOptions());
    for (const TaskName& task : cluster_.tasks()) Start(Address(task));
  }
  ~SimulatedCluster() {
    for (const std::string& address : Addresses()) Kill(address);
    RunFor(absl::Minutes(2));
  }

  static std::string Address(const TaskName& task) {
    return absl::StrCat(task.job, task.task, ":1");
  }
  std::vector<std::string> Addresses() const {
    std::vector<std::string> addresses;
    for (const TaskName& task : cluster_.tasks()) addresses.push_back(Address(task));
    return addresses;
  }

  SimulatedNetwork& network() { return *network_; }
  SimulatedScheduler& scheduler() { return *scheduler_; }
  absl::Duration now() const { return scheduler_->clock().Now() - absl::UnixEpoch(); }
  Worker& worker(const std::string& address) { return *running_.at(address).worker; }
  Master& master(const std::string& address) { return *running_.at(address).master; }
  bool runs(const std::string& address) const { return running_.contains(address); }
  // Polls the others once it is started.
  ClusterWatch& watch(const std::string& address) { return *running_.at(address).watch; }
  // The task reports that it runs that many steps per second for a client.
  void Pretend(const std::string& address, double steps_per_second) {
    const double now_seconds = absl::ToDoubleSeconds(now());
    Pretended& pretended = pretended_[address];
    pretended.steps += pretended.rate * (now_seconds - pretended.since);
    pretended.rate = steps_per_second;
    pretended.since = now_seconds;
  }

  void Start(const std::string& address) {
    if (runs(address)) return;
    const TaskName self = TaskAt(address);
    Running task;
    WorkerOptions worker;
    worker.self = self;
    worker.cluster = cluster_;
    worker.scheduler = scheduler_.get();
    worker.transport = transport_.get();
    worker.collective_group_leader = collective_group_leader_;
    task.worker = Worker::Create(std::move(worker)).value();
    MasterOptions master;
    master.self = self;
    master.scheduler = scheduler_.get();
    master.transport = transport_.get();
    master.peers = task.worker->peers();
    master.local_worker = task.worker;
    master.default_config.collective_group_leader = collective_group_leader_;
    master.step_sequences = task.worker->step_sequences();
    task.master = Master::Create(std::move(master));
    ClusterWatchOptions watch;
    watch.self = self;
    watch.peers = task.worker->peers();
    watch.scheduler = scheduler_.get();
    watch.own = [this, self, address, own_master = task.master, own_worker = task.worker] {
      TaskStatus status = ReportOf(self, *own_master, *own_worker);
      const auto pretended = pretended_.find(address);
      if (pretended == pretended_.end()) return status;
      const Pretended& steps = pretended->second;
      status.sessions = 1;
      status.steps = static_cast<int64_t>(
          steps.steps + steps.rate * (absl::ToDoubleSeconds(now()) - steps.since));
      return status;
    };
    task.watch = ClusterWatch::Create(std::move(watch));
    network_->Listen(address, {task.worker, task.master, task.watch});
    running_[address] = std::move(task);
  }

  void Kill(const std::string& address) {
    const auto found = running_.find(address);
    if (found == running_.end()) return;
    Running task = std::move(found->second);
    running_.erase(found);
    network_->Kill(address);
    // Its process has ended: it sends nothing more.
    task.watch->Stop();
    const absl::Status reason = absl::UnavailableError("killed");
    task.worker->Stop(reason);
    task.master->Stop(reason, [](absl::Status) {});
  }

  void After(absl::Duration delay, Task task) { scheduler_->ScheduleAfter(delay, std::move(task)); }
  void RunFor(absl::Duration duration) {
    const absl::Duration end = now() + duration;
    After(duration, [] {});
    scheduler_->RunUntil([&] { return now() >= end; });
  }

  std::unique_ptr<Session> NewSession(const Graph& graph, const std::string& master,
                                      absl::Duration timeout = absl::ZeroDuration()) {
    SessionOptions options;
    options.scheduler = scheduler_.get();
    options.operation_timeout = timeout;
    options.target = absl::StrCat("grpc://", master);
    options.master = transport_->ConnectMaster(options.target).value();
    return Session::Create(graph, std::move(options)).value();
  }

 private:
  struct Running {
    std::shared_ptr<Worker> worker;
    std::shared_ptr<Master> master;
    std::shared_ptr<ClusterWatch> watch;
  };
  struct Pretended {
    double steps = 0;  // before `since`
    double rate = 0;
    double since = 0;
  };
  // The network, which tests go on using themselves.
  class Borrowed : public Transport {
   public:
    explicit Borrowed(Transport& network) : network_(network) {}
    std::shared_ptr<Peers> Connect(const ClusterSpec& cluster, const TaskName& self,
                                   std::shared_ptr<WorkerApi> worker) override {
      return network_.Connect(cluster, self, std::move(worker));
    }
    absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target) override {
      return network_.ConnectMaster(target);
    }

   private:
    Transport& network_;
  };

  TaskName TaskAt(const std::string& address) const {
    for (const TaskName& task : cluster_.tasks()) {
      if (Address(task) == address) return task;
    }
    ADD_FAILURE() << "no task at " << address;
    return {};
  }

  const std::string collective_group_leader_;
  const std::unique_ptr<SimulatedScheduler> scheduler_;
  const std::unique_ptr<SimulatedNetwork> network_;
  ClusterSpec cluster_;
  std::unique_ptr<Transport> transport_;
  std::map<std::string, Pretended> pretended_;
  std::map<std::string, Running> running_;
};

}  // namespace muster
