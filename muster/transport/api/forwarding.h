// Proxies that treat all calls alike: each call becomes a function of the API that answers it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "muster/transport/api/master_api.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

// `Self` has Forward(CallOptions, CallDone<Reply>, call), where call(WorkerApi&, CallOptions,
// CallDone<Reply>) makes the call, once.
template <typename Self>
class ForwardingWorker : public WorkerApi {
 public:
  void GetStatus(CallOptions options, CallDone<std::vector<DeviceAttributes>> done) override {
    self().Forward(std::move(options), std::move(done),
                   [](WorkerApi& to, CallOptions o, CallDone<std::vector<DeviceAttributes>> d) {
                     to.GetStatus(std::move(o), std::move(d));
                   });
  }
  void CreateWorkerSession(CallOptions options, CreateWorkerSessionRequest request,
                           CallDone<Empty> done) override {
    Pass<&WorkerApi::CreateWorkerSession>(std::move(options), std::move(done), std::move(request));
  }
  void DeleteWorkerSession(CallOptions options, std::string session,
                           CallDone<Empty> done) override {
    Pass<&WorkerApi::DeleteWorkerSession>(std::move(options), std::move(done), std::move(session));
  }
  void RegisterGraph(CallOptions options, RegisterGraphRequest request,
                     CallDone<std::string> done) override {
    Pass<&WorkerApi::RegisterGraph>(std::move(options), std::move(done), std::move(request));
  }
  void DeregisterGraph(CallOptions options, std::string session, bool in_session, std::string graph,
                       CallDone<Empty> done) override {
    self().Forward(std::move(options), std::move(done),
                   [session = std::move(session), in_session, graph = std::move(graph)](
                       WorkerApi& to, CallOptions o, CallDone<Empty> d) mutable {
                     to.DeregisterGraph(std::move(o), std::move(session), in_session,
                                        std::move(graph), std::move(d));
                   });
  }
  void RunGraph(CallOptions options, RunGraphRequest request,
                CallDone<RunGraphReply> done) override {
    Pass<&WorkerApi::RunGraph>(std::move(options), std::move(done), std::move(request));
  }
  void CleanupGraph(CallOptions options, int64_t step_id, CallDone<Empty> done) override {
    Pass<&WorkerApi::CleanupGraph>(std::move(options), std::move(done), std::move(step_id));
  }
  void CleanupAll(CallOptions options, std::vector<std::string> containers,
                  CallDone<Empty> done) override {
    Pass<&WorkerApi::CleanupAll>(std::move(options), std::move(done), std::move(containers));
  }
  void RecvTensor(CallOptions options, RecvTensorRequest request,
                  CallDone<RecvTensorReply> done) override {
    Pass<&WorkerApi::RecvTensor>(std::move(options), std::move(done), std::move(request));
  }
  void MarkRecvFinished(CallOptions options, int64_t request_id, CallDone<Empty> done) override {
    Pass<&WorkerApi::MarkRecvFinished>(std::move(options), std::move(done), std::move(request_id));
  }
  void Logging(CallOptions options, LoggingRequest request, CallDone<LoggingReply> done) override {
    Pass<&WorkerApi::Logging>(std::move(options), std::move(done), std::move(request));
  }
  void RecvBuf(CallOptions options, RecvBufRequest request, CallDone<RecvBufReply> done) override {
    Pass<&WorkerApi::RecvBuf>(std::move(options), std::move(done), std::move(request));
  }
  void CompleteGroup(CallOptions options, CollectiveJoin request,
                     CallDone<CompleteGroupReply> done) override {
    Pass<&WorkerApi::CompleteGroup>(std::move(options), std::move(done), std::move(request));
  }
  void CompleteInstance(CallOptions options, CollectiveInstance request,
                        CallDone<int> done) override {
    Pass<&WorkerApi::CompleteInstance>(std::move(options), std::move(done), std::move(request));
  }
  void GetStepSequence(CallOptions options, std::vector<int64_t> graph_keys,
                       CallDone<std::vector<StepSequence>> done) override {
    Pass<&WorkerApi::GetStepSequence>(std::move(options), std::move(done), std::move(graph_keys));
  }
  void RecvTensors(CallOptions options, RecvTensorsRequest request,
                   CallDone<RecvTensorsReply> done) override {
    Pass<&WorkerApi::RecvTensors>(std::move(options), std::move(done), std::move(request));
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  template <auto kMethod, typename Reply, typename Request>
  void Pass(CallOptions options, CallDone<Reply> done, Request request) {
    self().Forward(
        std::move(options), std::move(done),
        [request = std::move(request)](WorkerApi& to, CallOptions o, CallDone<Reply> d) mutable {
          (to.*kMethod)(std::move(o), std::move(request), std::move(d));
        });
  }
};

// The same for masters.
template <typename Self>
class ForwardingMaster : public MasterApi {
 public:
  void CreateSession(CallOptions options, CreateSessionRequest request,
                     CallDone<CreateSessionReply> done) override {
    Pass<&MasterApi::CreateSession>(std::move(options), std::move(done), std::move(request));
  }
  void ExtendSession(CallOptions options, ExtendSessionRequest request,
                     CallDone<int64_t> done) override {
    Pass<&MasterApi::ExtendSession>(std::move(options), std::move(done), std::move(request));
  }
  void RunStep(CallOptions options, RunStepRequest request, CallDone<RunStepReply> done) override {
    Pass<&MasterApi::RunStep>(std::move(options), std::move(done), std::move(request));
  }
  void PartialRunSetup(CallOptions options, PartialRunSetupRequest request,
                       CallDone<std::string> done) override {
    Pass<&MasterApi::PartialRunSetup>(std::move(options), std::move(done), std::move(request));
  }
  void CloseSession(CallOptions options, std::string session, CallDone<Empty> done) override {
    Pass<&MasterApi::CloseSession>(std::move(options), std::move(done), std::move(session));
  }
  void ListDevices(CallOptions options, std::string session,
                   CallDone<ListDevicesReply> done) override {
    Pass<&MasterApi::ListDevices>(std::move(options), std::move(done), std::move(session));
  }
  void Reset(CallOptions options, std::vector<std::string> containers,
             std::vector<std::string> device_filters, CallDone<Empty> done) override {
    self().Forward(std::move(options), std::move(done),
                   [containers = std::move(containers), filters = std::move(device_filters)](
                       MasterApi& to, CallOptions o, CallDone<Empty> d) mutable {
                     to.Reset(std::move(o), std::move(containers), std::move(filters),
                              std::move(d));
                   });
  }
  void MakeCallable(CallOptions options, MakeCallableRequest request,
                    CallDone<int64_t> done) override {
    Pass<&MasterApi::MakeCallable>(std::move(options), std::move(done), std::move(request));
  }
  void RunCallable(CallOptions options, RunCallableRequest request,
                   CallDone<RunCallableReply> done) override {
    Pass<&MasterApi::RunCallable>(std::move(options), std::move(done), std::move(request));
  }
  void ReleaseCallable(CallOptions options, std::string session, int64_t callable,
                       CallDone<Empty> done) override {
    self().Forward(std::move(options), std::move(done),
                   [session = std::move(session), callable](MasterApi& to, CallOptions o,
                                                            CallDone<Empty> d) mutable {
                     to.ReleaseCallable(std::move(o), std::move(session), callable, std::move(d));
                   });
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  template <auto kMethod, typename Reply, typename Request>
  void Pass(CallOptions options, CallDone<Reply> done, Request request) {
    self().Forward(
        std::move(options), std::move(done),
        [request = std::move(request)](MasterApi& to, CallOptions o, CallDone<Reply> d) mutable {
          (to.*kMethod)(std::move(o), std::move(request), std::move(d));
        });
  }
};

}  // namespace muster
