#include "muster/client/remote_session.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/log.h"
#include "muster/base/threads/waiting_thread.h"
#include "muster/client/step_links.h"
#include "muster/client/step_plan.h"
#include "muster/device/device.h"
#include "muster/runtime/trace.h"
#include "muster/task/feeds.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {
namespace {

constexpr int kMaxRetries = 10;
// A master that does not answer must not hold up a program that wants to end. Longer than a master
// waits for its own tasks: its answer comes first.
constexpr absl::Duration kCloseTimeout = absl::Seconds(2);
// Deadline of the CloseSession call that is sent after that; no thread waits for it.
constexpr absl::Duration kLateCloseTimeout = absl::Minutes(5);
constexpr absl::Duration kInterruptInterval = absl::Milliseconds(100);
// A step that does little takes some 200 us over gRPC, and being woken for its answer a fifth more.
constexpr int64_t kLongestSpinNanos = 300'000;

// About 1 ms * 1.3^n, at most 10 s, spread so that clients do not come back all at once.
absl::Duration Backoff(int attempt) {
  const double spread = static_cast<double>(static_cast<uint64_t>(NewRequestId()) >> 11) /
                        static_cast<double>(uint64_t{1} << 53);
  return std::min(absl::Milliseconds(std::pow(1.3, attempt) * (0.5 + spread)), absl::Seconds(10));
}

// Whether the master was not reached. Errors of steps come from tasks, which they name.
bool MayRetry(const absl::Status& status) {
  return absl::IsUnavailable(status) && !absl::StrContains(status.message(), "From /job:") &&
         !status.GetPayload(kGivenUpPayload).has_value();
}

class RemoteSession : public Session {
 public:
  RemoteSession(const Graph& graph, SessionOptions options)
      : graph_(graph),
        options_(std::move(options)),
        master_(options_.master),
        helps_(options_.scheduler != nullptr),
        scheduler_(helps_ ? *options_.scheduler : DefaultScheduler()) {
    if (options_.config.operation_timeout == absl::ZeroDuration())
      options_.config.operation_timeout = options_.operation_timeout;
    options_.config.allow_soft_placement |= options_.allow_soft_placement;
    options_.config.log_device_placement |= options_.log_device_placement;
    options_.config.optimize_graph &= options_.optimize_graph;
  }

  ~RemoteSession() override { Close().IgnoreError(); }

  absl::StatusOr<std::shared_ptr<StepPlan>> Prepare(const StepSignature& signature) override {
    MutexLock lock(mutex_);
    if (closed_) return Closed();
    TakeNewNodes();
    return std::make_shared<StepPlan>(signature);
  }

  absl::StatusOr<std::vector<Tensor>> Run(StepPlan& plan, std::vector<Tensor> feeds,
                                          const RunOptions& options,
                                          RunMetadata* metadata) override {
    const StepSignature& signature = plan.signature;
    RETURN_IF_ERROR(CheckFeeds(signature.feeds, feeds));
    RunStepRequest request;
    for (size_t i = 0; i < feeds.size(); ++i)
      request.feeds.push_back({signature.feeds[i].name(), std::move(feeds[i])});
    for (const Node* target : signature.targets) request.targets.push_back(target->name());
    request.options.timeout = TimeoutOf(options);
    request.options.trace = options.trace;
    request.options.output_partition_graphs = options.keep_partition_graphs;
    request.options.collective_graph_key = options.collective_graph_key;
    const std::shared_ptr<Cancellation> ended = links_.Of(plan);
    if (ended == nullptr)
      return RunStep(std::move(request), signature.fetches, options.cancellation, metadata);
    const auto either = std::make_shared<Cancellation>();
    const LinkedCancellation caller(options.cancellation, either);
    // A call that ends with Unavailable would tell the master that its client is lost.
    const LinkedCancellation link(ended, either, absl::CancelledError("The step was cancelled"));
    auto results = RunStep(std::move(request), signature.fetches, either, metadata);
    if (absl::IsCancelled(results.status()) && ended->cancelled()) return ended->reason();
    return results;
  }

  void EndStepsWith(const Node* node, std::shared_ptr<Cancellation> cancellation) override {
    links_.Add(node, std::move(cancellation));
  }

  absl::StatusOr<std::string> PartialRunSetup(const StepSignature& signature) override {
    {
      MutexLock lock(mutex_);
      if (closed_) return Closed();
      TakeNewNodes();
    }
    ASSIGN_OR_RETURN(const std::string session,
                     SendGraph(options_.config.operation_timeout, nullptr));
    PartialRunSetupRequest request;
    request.session = session;
    for (const Output& feed : signature.feeds) request.feeds.push_back(feed.name());
    for (const Output& fetch : signature.fetches) request.fetches.push_back(fetch.name());
    for (const Node* target : signature.targets) request.targets.push_back(target->name());
    request.request_id = NewRequestId();
    return Call<std::string>(options_.config.operation_timeout,
                             [&](CallOptions call, CallDone<std::string> done) {
                               master_->PartialRunSetup(std::move(call), request, std::move(done));
                             });
  }

  absl::StatusOr<std::vector<Tensor>> PartialRun(
      const std::string& handle, const std::vector<std::pair<Output, Tensor>>& feeds,
      const std::vector<Output>& fetches) override {
    RETURN_IF_ERROR(CheckFeeds(feeds));
    RunStepRequest request;
    request.partial_run = handle;
    for (const auto& [output, tensor] : feeds) request.feeds.push_back({output.name(), tensor});
    request.options.timeout = options_.config.operation_timeout;
    return RunStep(std::move(request), fetches, nullptr, nullptr);
  }

  absl::Status Close() override {
    std::string session;
    {
      MutexLock lock(mutex_);
      if (closed_) return absl::OkStatus();
      closed_ = true;
      session = session_;
    }
    absl::Status status;
    const absl::Duration timeout = options_.config.operation_timeout;
    if (!session.empty()) {
      status = Call<Empty>(timeout > absl::ZeroDuration() ? timeout : kCloseTimeout,
                           [&](CallOptions call, CallDone<Empty> done) {
                             master_->CloseSession(std::move(call), session, std::move(done));
                           })
                   .status();
      if (absl::IsDeadlineExceeded(status)) CloseLater(session);
      if (absl::IsDeadlineExceeded(status) && timeout == absl::ZeroDuration()) {
        LOG(WARNING) << "The master at '" << options_.target << "' did not answer: session "
                     << session << " is abandoned";
        status = absl::OkStatus();
      }
    }
    absl::flat_hash_set<std::shared_ptr<Cancellation>> calls;
    {
      MutexLock lock(mutex_);
      calls = calls_;
    }
    for (const auto& call : calls) call->Cancel(Closed());
    return status;
  }

  bool closed() const override {
    MutexLock lock(mutex_);
    return closed_;
  }

  const Graph& graph() const override { return graph_; }
  bool allows_soft_placement() const override {
    return options_.allow_soft_placement || options_.config.allow_soft_placement;
  }
  absl::StatusOr<std::vector<DeviceAttributes>> ListDevices() const override {
    std::string session;
    {
      MutexLock lock(mutex_);
      session = session_;
    }
    ASSIGN_OR_RETURN(ListDevicesReply reply,
                     Call<ListDevicesReply>(options_.config.operation_timeout,
                                            [&](CallOptions call, CallDone<ListDevicesReply> done) {
                                              master_->ListDevices(std::move(call), session,
                                                                   std::move(done));
                                            }));
    std::vector<DeviceAttributes> devices = std::move(reply.local);
    for (DeviceAttributes& device : reply.remote) devices.push_back(std::move(device));
    return devices;
  }

  absl::Status ClearContainers(const std::vector<std::string>& containers) override {
    return Call<Empty>(options_.config.operation_timeout,
                       [&](CallOptions call, CallDone<Empty> done) {
                         master_->Reset(std::move(call), containers, {}, std::move(done));
                       })
        .status();
  }

 private:
  static absl::Status Closed() { return absl::CancelledError("Session has been closed."); }

  // Other sessions may keep the connection, with whose end the master would forget this one.
  void CloseLater(const std::string& session) {
    CallOptions options;
    options.timeout = kLateCloseTimeout;
    options.wait_for_ready = true;
    master_->CloseSession(std::move(options), session,
                          [master = master_](const absl::StatusOr<Empty>&) {});
  }

  absl::Duration TimeoutOf(const RunOptions& options) const {
    return options.timeout > absl::ZeroDuration() ? options.timeout
                                                  : options_.config.operation_timeout;
  }

  // Here and not in Run, so that callers know when the graph is looked at.
  void TakeNewNodes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (taken_ >= 0 && graph_.num_nodes() == taken_) return;
    pieces_.push_back(GraphPiece::Take(graph_, std::max(taken_, 0)));
    taken_ = graph_.num_nodes();
  }

  // Makes the session, or sends it what is new. The handle.
  absl::StatusOr<std::string> SendGraph(absl::Duration timeout,
                                        const std::shared_ptr<Cancellation>& cancellation) {
    std::vector<std::shared_ptr<const GraphPiece>> pieces;
    std::string session;
    int64_t version;
    {
      MutexLock lock(mutex_);
      // One at a time: versions follow each other.
      while (sending_) sent_.Wait(mutex_);
      if (closed_) return Closed();
      if (!session_.empty() && pieces_.empty()) return session_;
      sending_ = true;
      pieces.assign(pieces_.begin(), pieces_.end());
      session = session_;
      version = version_;
    }
    const auto edit = [&pieces]() -> GraphEdit {
      return [pieces](Graph& graph) -> absl::Status {
        const int before = graph.num_nodes();
        for (const auto& piece : pieces) {
          absl::Status status = piece->AddTo(graph);
          if (status.ok()) continue;
          graph.RemoveNewestNodes(before);
          return status;
        }
        return absl::OkStatus();
      };
    };
    absl::Status status;
    if (session.empty()) {
      auto reply = Call<CreateSessionReply>(
          timeout,
          [&](CallOptions call, CallDone<CreateSessionReply> done) {
            CreateSessionRequest request;
            request.graph = edit();
            request.config = options_.config;
            request.target = options_.target;
            master_->CreateSession(std::move(call), std::move(request), std::move(done));
          },
          cancellation);
      status = reply.status();
      if (reply.ok()) {
        session = reply->session;
        version = reply->graph_version;
      }
    } else {
      auto reply = Call<int64_t>(
          timeout,
          [&](CallOptions call, CallDone<int64_t> done) {
            ExtendSessionRequest request;
            request.session = session;
            request.graph = edit();
            request.current_version = version;
            master_->ExtendSession(std::move(call), std::move(request), std::move(done));
          },
          cancellation);
      status = reply.status();
      if (reply.ok()) version = *reply;
    }
    MutexLock lock(mutex_);
    sending_ = false;
    sent_.NotifyAll();
    // Nodes that the master refused are sent again before the next run, as TensorFlow's clients do.
    RETURN_IF_ERROR(status);
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(pieces.size()));
    session_ = session;
    version_ = version;
    return session;
  }

  absl::StatusOr<std::vector<Tensor>> RunStep(RunStepRequest request,
                                              const std::vector<Output>& fetches,
                                              const std::shared_ptr<Cancellation>& cancellation,
                                              RunMetadata* metadata) {
    ASSIGN_OR_RETURN(request.session, SendGraph(request.options.timeout, cancellation));
    // Masters refuse to fetch a fed tensor; its value is known here.
    absl::flat_hash_map<std::string, Tensor> values;
    for (const NamedTensor& feed : request.feeds) values[feed.name] = feed.tensor;
    for (const Output& fetch : fetches) {
      if (values.try_emplace(fetch.name()).second) request.fetches.push_back(fetch.name());
    }
    // Masters refuse a step that does nothing.
    const bool nothing = request.fetches.empty() && request.targets.empty() &&
                         (request.partial_run.empty() || request.feeds.empty());
    request.request_id = NewRequestId();
    RunStepReply reply;
    if (!nothing) {
      ASSIGN_OR_RETURN(reply, Call<RunStepReply>(
                                  request.options.timeout,
                                  [&](CallOptions call, CallDone<RunStepReply> done) {
                                    master_->RunStep(std::move(call), request, std::move(done));
                                  },
                                  cancellation));
    }
    for (NamedTensor& tensor : reply.tensors) values[tensor.name] = std::move(tensor.tensor);
    if (metadata != nullptr) metadata->serialized = std::move(reply.metadata);
    std::vector<Tensor> results;
    for (const Output& fetch : fetches) {
      const Tensor& value = values[fetch.name()];
      if (!value.valid()) return Internal("The master gave no value for ", fetch.name());
      results.push_back(value);
    }
    return results;
  }

  // --- Waiting

  template <typename Reply>
  using Start = absl::FunctionRef<void(CallOptions, CallDone<Reply>)>;

  // Makes a call, and retries it where the master could not be reached. Cancelling it makes the
  // master end the work that it does for the call.
  template <typename Reply>
  absl::StatusOr<Reply> Call(absl::Duration timeout, Start<Reply> start,
                             const std::shared_ptr<Cancellation>& cancellation = nullptr) const {
    const bool limited = timeout > absl::ZeroDuration();
    const absl::Time deadline =
        limited ? scheduler_.clock().Now() + timeout : absl::InfiniteFuture();
    for (int attempt = 0;; ++attempt) {
      absl::StatusOr<Reply> reply = CallOnce<Reply>(deadline, start, cancellation);
      if (reply.ok() || !MayRetry(reply.status()) || attempt == kMaxRetries) return reply;
      if (cancellation != nullptr && cancellation->cancelled()) return cancellation->reason();
      RETURN_IF_ERROR(Pause(Backoff(attempt)));
    }
  }

  template <typename Reply>
  struct Pending {
    Mutex mutex;
    std::optional<absl::StatusOr<Reply>> reply ABSL_GUARDED_BY(mutex);
    bool ready() {
      MutexLock lock(mutex);
      return reply.has_value();
    }
  };

  template <typename Reply>
  absl::StatusOr<Reply> CallOnce(absl::Time deadline, Start<Reply> start,
                                 const std::shared_ptr<Cancellation>& cancellation) const {
    auto pending = std::make_shared<Pending<Reply>>();
    CallOptions call;
    call.cancellation = std::make_shared<Cancellation>();
    const LinkedCancellation link(cancellation, call.cancellation);
    call.wait_for_ready = true;
    std::optional<Scheduler::TimerId> timer;
    if (deadline != absl::InfiniteFuture()) {
      call.timeout = std::max(deadline - scheduler_.clock().Now(), absl::Milliseconds(1));
      timer = scheduler_.ScheduleAfter(call.timeout, [cancellation = call.cancellation] {
        cancellation->Cancel(absl::DeadlineExceededError("Deadline Exceeded"));
      });
    }
    {
      MutexLock lock(mutex_);
      calls_.insert(call.cancellation);
    }
    WaitingThread& thread = WaitingThread::Current();
    auto arrived = [pending, waiting = thread.Share()](absl::StatusOr<Reply> reply) {
      {
        MutexLock lock(pending->mutex);
        pending->reply = std::move(reply);
      }
      waiting->Wake();
    };
    thread.ForgetCall();
    {
      // This thread would only wait: what a master in this process does for it, it may do itself.
      const auto nothing = [] {};
      const Duty duty(nothing);
      start(call, std::move(arrived));
    }
    const absl::Status interruption = Wait(*pending, call.cancellation);
    if (timer) scheduler_.CancelTimer(*timer);
    {
      MutexLock lock(mutex_);
      calls_.erase(call.cancellation);
    }
    RETURN_IF_ERROR(interruption);
    MutexLock lock(pending->mutex);
    return *std::move(pending->reply);
  }

  // The error with which the wait was interrupted; the call is cancelled then, and a reply that
  // still arrives is dropped.
  template <typename Reply>
  absl::Status Wait(Pending<Reply>& pending,
                    const std::shared_ptr<Cancellation>& cancellation) const {
    if (!helps_) {
      const absl::Duration limit =
          options_.interrupted ? kInterruptInterval : absl::InfiniteDuration();
      while (!WaitingThread::Current().WaitForAnswer([&pending] { return pending.ready(); }, pace_,
                                                     limit)) {
        const absl::Status interruption = options_.interrupted();
        if (interruption.ok()) continue;
        cancellation->Cancel(absl::CancelledError("The client was interrupted"));
        return interruption;
      }
      return absl::OkStatus();
    }
    scheduler_.HelpUntil([&pending] { return pending.ready(); });
    if (pending.ready()) return absl::OkStatus();
    // Only a simulation can run out of work: no answer can follow.
    cancellation->Cancel(absl::InternalError("No task is left that could answer the call"));
    scheduler_.HelpUntil([&pending] { return pending.ready(); });
    MutexLock lock(pending.mutex);
    if (!pending.reply) pending.reply = cancellation->reason();
    return absl::OkStatus();
  }

  absl::Status Pause(absl::Duration duration) const {
    auto pending = std::make_shared<Pending<Empty>>();
    scheduler_.ScheduleAfter(duration, [pending, waiting = WaitingThread::Current().Share()] {
      {
        MutexLock lock(pending->mutex);
        pending->reply = Empty();
      }
      waiting->Wake();
    });
    return Wait(*pending, std::make_shared<Cancellation>());
  }

  const Graph& graph_;
  SessionOptions options_;
  const std::shared_ptr<MasterApi> master_;
  const bool helps_;
  Scheduler& scheduler_;
  mutable Pace pace_{kLongestSpinNanos};  // of answers that other threads read

  StepLinks links_;
  mutable Mutex mutex_;
  CondVar sent_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  int taken_ ABSL_GUARDED_BY(mutex_) = -1;  // the number of nodes in pieces or at the master
  std::deque<std::shared_ptr<const GraphPiece>> pieces_ ABSL_GUARDED_BY(mutex_);
  std::string session_ ABSL_GUARDED_BY(mutex_);
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable absl::flat_hash_set<std::shared_ptr<Cancellation>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> NewRemoteSession(const Graph& graph,
                                                          SessionOptions options) {
  if (options.master == nullptr)
    return InvalidArgument("A session at the target '", options.target, "' needs its master");
  return std::make_unique<RemoteSession>(graph, std::move(options));
}

}  // namespace muster
