#include "muster/master/master.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/in_order.h"
#include "muster/master/farewells.h"
#include "muster/master/gather.h"
#include "muster/master/request_log.h"
#include "muster/master/session.h"

namespace muster {
namespace {

absl::Status NotThere(absl::string_view session) {
  return absl::AbortedError(absl::StrCat("Session ", session, " is not found."));
}

absl::Status PerhapsRestarted(absl::StatusCode code, absl::string_view session) {
  return absl::Status(code, absl::StrCat("Session ", session,
                                         " is not found. Possibly, this master has restarted."));
}

// Whether the connection broke; cancelled calls and deadlines are a client's own doing.
bool IsLost(const std::shared_ptr<Cancellation>& cancellation) {
  if (cancellation == nullptr || !cancellation->cancelled()) return false;
  return absl::IsUnavailable(cancellation->reason());
}

// Null where the transport does not know when it ends.
std::shared_ptr<Cancellation> ConnectionOf(const CallOptions& call) {
  return call.caller == nullptr ? nullptr : call.caller->connection;
}

// `done` that also tells the session that its client's call has ended.
template <typename Reply>
CallDone<Reply> Tracked(const std::shared_ptr<MasterSession>& session, const CallOptions& call,
                        CallDone<Reply> done) {
  session->BeginCall(ConnectionOf(call));
  return [session, cancellation = call.cancellation,
          done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
    session->EndCall(IsLost(cancellation));
    std::move(done)(std::move(reply));
  };
}

// Ends a call that cannot be stopped itself when its caller has gone.
template <typename Reply>
CallDone<Reply> Interruptible(const std::shared_ptr<Cancellation>& cancellation,
                              Scheduler& scheduler, CallDone<Reply> done) {
  using Call = AnswerOnce<absl::StatusOr<Reply>>;
  const auto call = std::make_shared<Call>(std::move(done));
  call->on_cancel.StartScheduled(
      cancellation, scheduler, std::weak_ptr<Call>(call),
      [](Call& self, const absl::Status& reason) { self.Answer(reason); });
  return [call](absl::StatusOr<Reply> reply) { call->Answer(std::move(reply)); };
}

class MasterImpl : public Master, public std::enable_shared_from_this<MasterImpl> {
 public:
  explicit MasterImpl(MasterOptions options)
      : options_(std::make_shared<const MasterOptions>(std::move(options))),
        scheduler_(*options_->scheduler),
        requests_(std::make_shared<RequestLog>(options_)) {}

  void CreateSession(CallOptions options, CreateSessionRequest request,
                     CallDone<CreateSessionReply> done) override {
    const auto cancellation = Follow(options.cancellation, scheduler_);
    absl::Status refused;
    {
      MutexLock lock(mutex_);
      refused = refused_;
      if (refused.ok()) creating_.insert(cancellation);
    }
    if (!refused.ok()) return std::move(done)(std::move(refused));
    const auto weak = weak_from_this();
    MasterSession::Create(
        options_, OwnerOf(options), cancellation, std::move(request),
        [weak](const std::string& handle) {
          if (const auto self = weak.lock()) self->Drop(handle);
        },
        [self = shared_from_this(), cancellation, connection = ConnectionOf(options),
         done = std::move(done)](absl::StatusOr<std::shared_ptr<MasterSession>> session) mutable {
          self->Created(cancellation, connection, std::move(session), std::move(done));
        });
  }

  void ExtendSession(CallOptions options, ExtendSessionRequest request,
                     CallDone<int64_t> done) override {
    const auto session = Find(request.session);
    if (session == nullptr) return std::move(done)(Missing(request.session));
    session->Extend(options, std::move(request), Tracked(session, options, std::move(done)));
  }

  void RunStep(CallOptions options, RunStepRequest request, CallDone<RunStepReply> done) override {
    const auto session = Find(request.session);
    if (session == nullptr) return std::move(done)(Missing(request.session));
    auto admission =
        requests_->AdmitStep(options, request, Tracked(session, options, std::move(done)));
    if (!admission) return;
    options.cancellation = admission->cancellation;
    session->Run(options, std::move(request), std::move(admission->done));
  }

  void PartialRunSetup(CallOptions options, PartialRunSetupRequest request,
                       CallDone<std::string> done) override {
    const auto session = Find(request.session);
    if (session == nullptr) return std::move(done)(Missing(request.session));
    auto admission = requests_->AdmitPartialRunSetup(options, request,
                                                     Tracked(session, options, std::move(done)));
    if (!admission) return;
    session->PartialRunSetup(std::move(request), Guarded(*std::move(admission)));
  }

  void CloseSession(CallOptions /*options*/, std::string session, CallDone<Empty> done) override {
    const auto found = Take(session);
    if (found == nullptr)
      return std::move(done)(PerhapsRestarted(absl::StatusCode::kAborted, session));
    found->Close(ClosedByCall(), [done = std::move(done)](absl::Status status) mutable {
      if (!status.ok()) return std::move(done)(std::move(status));
      std::move(done)(Empty());
    });
  }

  void ListDevices(CallOptions options, std::string session,
                   CallDone<ListDevicesReply> done) override {
    if (!session.empty()) {
      const auto found = Find(session);
      if (found == nullptr)
        return std::move(done)(PerhapsRestarted(absl::StatusCode::kInvalidArgument, session));
      return Tracked(found, options, std::move(done))(found->Devices());
    }
    AskForDevices(options_, "ListDevices", SelectTasks(*options_->peers, options_->self, {}), {},
                  options.cancellation,
                  [done = std::move(done)](absl::StatusOr<std::vector<SessionTask>> tasks) mutable {
                    if (!tasks.ok()) return std::move(done)(tasks.status());
                    ListDevicesReply reply;
                    for (size_t i = 0; i < tasks->size(); ++i) {
                      std::vector<DeviceAttributes>& into = i == 0 ? reply.local : reply.remote;
                      for (DeviceAttributes& device : (*tasks)[i].devices)
                        into.push_back(std::move(device));
                    }
                    std::move(done)(std::move(reply));
                  });
  }

  void Reset(CallOptions options, std::vector<std::string> containers,
             std::vector<std::string> device_filters, CallDone<Empty> done) override {
    const absl::StatusOr<DeviceFilters> filters = DeviceFilters::Parse(device_filters);
    if (!filters.ok()) return std::move(done)(filters.status());
    const std::vector<SessionTask> tasks = SelectTasks(*options_->peers, options_->self, *filters);
    auto dones = Gather<Empty>(tasks.size(), [self = shared_from_this(), done = std::move(done)](
                                                 Replies<Empty> replies) mutable {
      self->CloseAll(ClosedByCall(),
                     [status = FirstError(replies), done = std::move(done)](absl::Status) mutable {
                       if (!status.ok()) return std::move(done)(std::move(status));
                       std::move(done)(Empty());
                     });
    });
    for (size_t i = 0; i < dones.size(); ++i) {
      CallOptions call;
      call.cancellation = options.cancellation;
      tasks[i].worker->CleanupAll(
          std::move(call), containers,
          [worker = tasks[i].worker, end = std::move(dones[i])](
              absl::StatusOr<Empty> reply) mutable { std::move(end)(std::move(reply)); });
    }
  }

  void MakeCallable(CallOptions options, MakeCallableRequest request,
                    CallDone<int64_t> done) override {
    const auto session = Find(request.session);
    if (session == nullptr) return std::move(done)(Missing(request.session));
    auto admission =
        requests_->AdmitMakeCallable(options, request, Tracked(session, options, std::move(done)));
    if (!admission) return;
    session->MakeCallable(std::move(request), Guarded(*std::move(admission)));
  }

  void RunCallable(CallOptions options, RunCallableRequest request,
                   CallDone<RunCallableReply> done) override {
    const auto session = Find(request.session);
    if (session == nullptr) return std::move(done)(Missing(request.session));
    auto admission =
        requests_->AdmitCallable(options, request, Tracked(session, options, std::move(done)));
    if (!admission) return;
    options.cancellation = admission->cancellation;
    session->RunCallable(options, std::move(request), std::move(admission->done));
  }

  void ReleaseCallable(CallOptions options, std::string session, int64_t callable,
                       CallDone<Empty> done) override {
    const auto found = Find(session);
    if (found == nullptr) return std::move(done)(Missing(session));
    auto tracked = Tracked(found, options, std::move(done));
    found->ReleaseCallable(callable);
    std::move(tracked)(Empty());
  }

  void Refuse(absl::Status reason) override {
    std::vector<std::shared_ptr<Cancellation>> creating;
    {
      MutexLock lock(mutex_);
      refused_.Update(reason);
      creating.assign(creating_.begin(), creating_.end());
    }
    for (const auto& cancellation : creating) CancelSoon(cancellation, scheduler_, reason);
  }

  void Stop(absl::Status reason, Done done) override {
    Refuse(reason);
    options_->farewells->Stop();
    CloseAll(std::move(reason), std::move(done));
  }

  Counts counts() const override {
    Counts result;
    std::vector<std::shared_ptr<MasterSession>> sessions;
    {
      MutexLock lock(mutex_);
      result.steps_run = steps_of_closed_;
      for (const auto& [handle, session] : sessions_) sessions.push_back(session);
    }
    result.sessions = static_cast<int64_t>(sessions.size());
    for (const auto& session : sessions) {
      result.steps += session->steps_under_way();
      result.steps_run += session->steps_run();
    }
    return result;
  }

 private:
  template <typename Reply>
  CallDone<Reply> Guarded(RequestLog::Admission<Reply> admission) {
    return Interruptible(admission.cancellation, scheduler_, std::move(admission.done));
  }

  // The caller with the limits that this task sets. To the workers of the session a client without
  // a transport is known by the task in whose process it is.
  std::shared_ptr<const Caller> OwnerOf(const CallOptions& call) const {
    auto owner = std::make_shared<Caller>(*OrThisProcess(call.caller.get()));
    if (call.caller == nullptr) owner->name = owner->host = options_->self.ToString();
    owner->role = Caller::Role::kClient;
    owner->limits = options_->limits;
    return owner;
  }

  void Created(const std::shared_ptr<Cancellation>& cancellation,
               const std::shared_ptr<Cancellation>& connection,
               absl::StatusOr<std::shared_ptr<MasterSession>> session,
               CallDone<CreateSessionReply> done) {
    absl::Status refused;
    {
      MutexLock lock(mutex_);
      creating_.erase(cancellation);
      refused = refused_;
      if (session.ok() && refused.ok()) {
        requests_->Open((*session)->handle());
        sessions_[(*session)->handle()] = *session;
      }
    }
    if (!session.ok()) return std::move(done)(session.status());
    if (!refused.ok()) {
      (*session)->Close(refused, [done = std::move(done), refused](absl::Status) mutable {
        std::move(done)(refused);
      });
      return;
    }
    // A client that is gone by now never learns of its session.
    (*session)->BeginCall(connection);
    (*session)->EndCall(IsLost(cancellation));
    std::move(done)(CreateSessionReply{(*session)->handle(), 0});
  }

  absl::Status Missing(absl::string_view session) const {
    MutexLock lock(mutex_);
    return refused_.ok() ? NotThere(session) : refused_;
  }

  // For a call that begins something.
  std::shared_ptr<MasterSession> Find(const std::string& handle) const {
    MutexLock lock(mutex_);
    if (!refused_.ok()) return nullptr;
    const auto found = sessions_.find(handle);
    return found == sessions_.end() ? nullptr : found->second;
  }

  // From here on the session is not found.
  std::shared_ptr<MasterSession> Take(const std::string& handle) {
    std::shared_ptr<MasterSession> session;
    {
      MutexLock lock(mutex_);
      const auto found = sessions_.find(handle);
      if (found == sessions_.end()) return nullptr;
      session = std::move(found->second);
      sessions_.erase(found);
      steps_of_closed_ += session->steps_run();
    }
    requests_->Close(handle);
    return session;
  }

  void Drop(const std::string& handle) {
    if (const auto session = Take(handle)) session->Close(ClosedByCall(), [](absl::Status) {});
  }

  void CloseAll(absl::Status reason, Done done) {
    std::vector<std::shared_ptr<MasterSession>> sessions;
    {
      MutexLock lock(mutex_);
      for (auto* entry : InOrder(sessions_)) {
        std::shared_ptr<MasterSession>& session = entry->second;
        steps_of_closed_ += session->steps_run();
        sessions.push_back(std::move(session));
      }
      sessions_.clear();
    }
    for (const auto& session : sessions) requests_->Close(session->handle());
    auto dones =
        Gather<Empty>(sessions.size(), [done = std::move(done)](Replies<Empty> replies) mutable {
          std::move(done)(FirstError(replies));
        });
    for (size_t i = 0; i < dones.size(); ++i) {
      sessions[i]->Close(reason, [end = std::move(dones[i])](absl::Status status) mutable {
        if (!status.ok()) return std::move(end)(std::move(status));
        std::move(end)(Empty());
      });
    }
  }

  const std::shared_ptr<const MasterOptions> options_;
  Scheduler& scheduler_;
  const std::shared_ptr<RequestLog> requests_;
  mutable Mutex mutex_;
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);  // why nothing new is begun
  absl::flat_hash_map<std::string, std::shared_ptr<MasterSession>> sessions_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::shared_ptr<Cancellation>> creating_ ABSL_GUARDED_BY(mutex_);
  int64_t steps_of_closed_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::shared_ptr<Master> Master::Create(MasterOptions options) {
  if (options.step_sequences == nullptr) options.step_sequences = std::make_shared<StepSequences>();
  if (options.farewells == nullptr)
    options.farewells = std::make_shared<Farewells>(*options.scheduler);
  return std::make_shared<MasterImpl>(std::move(options));
}

}  // namespace muster
