#include "muster/transport/simulated/simulated_network.h"

#include <map>
#include <random>
#include <set>

namespace muster {
namespace {

constexpr absl::Duration kSentAgainAfter = absl::Milliseconds(200);

class SimulatedCarrier : public Carrier, public std::enable_shared_from_this<SimulatedCarrier> {
 public:
  SimulatedCarrier(SimulatedScheduler& scheduler, SimulatedNetwork::Options options)
      : scheduler_(scheduler), options_(options), random_(options.seed) {}

  Scheduler& scheduler() override { return scheduler_; }

  void Listen(const std::string& address, Endpoint endpoint) {
    MutexLock lock(mutex_);
    endpoints_.insert_or_assign(address, std::move(endpoint));
    for (auto& call : std::exchange(waiting_[address], {})) SendLocked(std::move(call));
  }

  // Endpoints hold peers, which hold this; so do messages under way.
  void CloseAll() {
    std::map<std::string, Endpoint> endpoints;
    std::map<std::string, std::vector<Task>> held;
    std::map<std::pair<std::string, std::string>, std::vector<Task>> cut_off;
    std::map<std::string, std::vector<std::shared_ptr<RelayedCall>>> waiting;
    std::map<uint64_t, CallState> calls;
    MutexLock lock(mutex_);
    endpoints.swap(endpoints_);
    held.swap(held_);
    cut_off.swap(cut_off_);
    waiting.swap(waiting_);
    calls.swap(calls_);
  }

  void Kill(const std::string& address) {
    Endpoint dropped;
    MutexLock lock(mutex_);
    const auto endpoint = endpoints_.find(address);
    if (endpoint != endpoints_.end()) {
      dropped = std::move(endpoint->second);
      endpoints_.erase(endpoint);
    }
    ++lives_[address];
    held_.erase(address);
    paused_.erase(address);
    for (auto& [number, state] : calls_) {
      if (state.call->from == address) {
        AfterDelayLocked([call = state.call] {
          call->CancelAtServer(absl::CancelledError("The caller is gone"));
        });
      } else if (state.call->to == address && (state.delivered || !state.call->wait_for_ready)) {
        AfterDelayLocked(
            [call = state.call] { call->Fail(absl::UnavailableError("Socket closed")); });
      }
    }
  }

  void Pause(const std::string& address) {
    MutexLock lock(mutex_);
    paused_.insert(address);
  }

  void Resume(const std::string& address) {
    MutexLock lock(mutex_);
    paused_.erase(address);
    for (Task& message : std::exchange(held_[address], {})) AfterDelayLocked(std::move(message));
  }

  void SetLoss(const std::string& from, const std::string& to, double probability) {
    MutexLock lock(mutex_);
    loss_[{from, to}] = probability;
    if (probability >= 1) return;
    for (Task& message : std::exchange(cut_off_[{from, to}], {}))
      AfterDelayLocked(std::move(message));
  }

  SimulatedNetwork::Traffic traffic() const {
    MutexLock lock(mutex_);
    return {messages_, static_cast<int64_t>(links_.size())};
  }

  void Carry(std::shared_ptr<RelayedCall> call) override {
    MutexLock lock(mutex_);
    call->number = ++last_number_;
    CallState& state = calls_[call->number];
    state.call = call;
    state.caller_life = lives_[call->from];
    SendLocked(std::move(call));
  }

  void CarryReply(const std::shared_ptr<RelayedCall>& call, Task answer) override {
    MutexLock lock(mutex_);
    const auto found = calls_.find(call->number);
    if (found == calls_.end() || found->second.server_life != lives_[call->to]) return;
    TravelLocked(call->to, call->from,
                 [self = shared_from_this(), call, answer = std::move(answer)]() mutable {
                   if (self->CallerLives(*call)) std::move(answer)();
                 });
  }

  void Ended(RelayedCall& call) override {
    CallState dropped;
    MutexLock lock(mutex_);
    const auto found = calls_.find(call.number);
    if (found == calls_.end()) return;
    dropped = std::move(found->second);
    calls_.erase(found);
  }

 private:
  struct CallState {
    std::shared_ptr<RelayedCall> call;
    bool delivered = false;
    int caller_life = 0;
    int server_life = 0;
  };

  // How long a message is late because it was lost and sent again, ever more slowly.
  absl::Duration LateLocked(double loss) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Duration late = absl::ZeroDuration();
    absl::Duration again = kSentAgainAfter;
    while (loss > 0 && std::uniform_real_distribution<>(0, 1)(random_) < loss) {
      late += again;
      again *= 2;
    }
    return late;
  }

  void AfterDelayLocked(Task task, double loss = 0) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const double share = std::uniform_real_distribution<>(0, 1)(random_);
    scheduler_.ScheduleAfter(
        options_.min_delay + share * (options_.max_delay - options_.min_delay) + LateLocked(loss),
        std::move(task));
  }

  // A message between two tasks; it waits at either end while that is paused.
  void TravelLocked(const std::string& from, const std::string& to, Task arrive)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Task travel = [self = shared_from_this(), to, arrive = std::move(arrive)]() mutable {
      {
        MutexLock lock(self->mutex_);
        if (self->paused_.contains(to)) {
          self->held_[to].push_back(std::move(arrive));
          return;
        }
      }
      std::move(arrive)();
    };
    const auto link = loss_.find({from, to});
    const double loss = link == loss_.end() ? 0 : link->second;
    if (paused_.contains(from)) {
      held_[from].push_back(std::move(travel));
    } else if (loss >= 1) {
      cut_off_[{from, to}].push_back(std::move(travel));
    } else {
      AfterDelayLocked(std::move(travel), loss);
    }
  }

  void SendLocked(std::shared_ptr<RelayedCall> call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++messages_;
    links_.emplace(call->from, call->to);
    const std::string from = call->from;
    const std::string to = call->to;
    TravelLocked(from, to, [self = shared_from_this(), call = std::move(call)]() mutable {
      self->Arrive(std::move(call));
    });
  }

  void Arrive(std::shared_ptr<RelayedCall> call) {
    Endpoint endpoint;
    {
      MutexLock lock(mutex_);
      const auto state = calls_.find(call->number);
      if (state == calls_.end()) return;  // cancelled meanwhile
      const auto found = endpoints_.find(call->to);
      if (found == endpoints_.end()) {
        if (call->wait_for_ready) {
          waiting_[call->to].push_back(std::move(call));
        } else {
          AfterDelayLocked([call = std::move(call)] {
            call->Fail(absl::UnavailableError("failed to connect to all addresses"));
          });
        }
        return;
      }
      endpoint = found->second;
      state->second.delivered = true;
      state->second.server_life = lives_[call->to];
    }
    call->Deliver(endpoint);
  }

  bool CallerLives(const RelayedCall& call) {
    MutexLock lock(mutex_);
    const auto found = calls_.find(call.number);
    return found != calls_.end() && found->second.caller_life == lives_[call.from];
  }

  SimulatedScheduler& scheduler_;
  const SimulatedNetwork::Options options_;
  mutable Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Endpoint> endpoints_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> lives_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, double> loss_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, std::vector<Task>> cut_off_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> paused_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<Task>> held_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<std::shared_ptr<RelayedCall>>> waiting_ ABSL_GUARDED_BY(mutex_);
  // Until they are answered, in the order in which they were made.
  std::map<uint64_t, CallState> calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t messages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::pair<std::string, std::string>> links_ ABSL_GUARDED_BY(mutex_);
};

class Network : public SimulatedNetwork {
 public:
  Network(SimulatedScheduler& scheduler, Options options)
      : carrier_(std::make_shared<SimulatedCarrier>(scheduler, options)) {}
  ~Network() override { carrier_->CloseAll(); }
  std::shared_ptr<Peers> Connect(const ClusterSpec& cluster, const TaskName& self,
                                 std::shared_ptr<WorkerApi> self_worker) override {
    // Thousands of tasks have the same.
    if (cluster_ == nullptr || !(*cluster_ == cluster))
      cluster_ = std::make_shared<const ClusterSpec>(cluster);
    return NewRelayedPeers(carrier_, cluster_, self, std::move(self_worker));
  }
  absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target) override {
    return NewRelayedMaster(carrier_, "client", target);
  }
  void Listen(const std::string& address, Endpoint endpoint) override {
    carrier_->Listen(address, std::move(endpoint));
  }
  void Kill(const std::string& address) override { carrier_->Kill(address); }
  void Pause(const std::string& address) override { carrier_->Pause(address); }
  void Resume(const std::string& address) override { carrier_->Resume(address); }
  void SetLoss(const std::string& from, const std::string& to, double probability) override {
    carrier_->SetLoss(from, to, probability);
  }
  void Cut(const std::string& a, const std::string& b) override {
    SetLoss(a, b, 1);
    SetLoss(b, a, 1);
  }
  void Heal(const std::string& a, const std::string& b) override {
    SetLoss(a, b, 0);
    SetLoss(b, a, 0);
  }
  Traffic traffic() const override { return carrier_->traffic(); }

 private:
  const std::shared_ptr<SimulatedCarrier> carrier_;
  std::shared_ptr<const ClusterSpec> cluster_;  // the latest
};

}  // namespace

std::unique_ptr<SimulatedNetwork> SimulatedNetwork::Create(SimulatedScheduler& scheduler,
                                                           Options options) {
  return std::make_unique<Network>(scheduler, options);
}

}  // namespace muster
