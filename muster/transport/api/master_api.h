// What a task does for clients: sessions over the whole cluster.
#pragma once

#include <string>
#include <vector>

#include "muster/transport/api/session_config.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

// Adds nodes and functions to a graph; all of them or, with an error, none.
using GraphEdit = absl::AnyInvocable<absl::Status(Graph&) &&>;

struct CreateSessionRequest {
  GraphEdit graph;
  SessionConfig config;
  std::string target;  // as the client wrote it, "grpc://host:port"
};

struct CreateSessionReply {
  std::string session;
  int64_t graph_version = 0;
};

struct ExtendSessionRequest {
  std::string session;
  GraphEdit graph;
  int64_t current_version = 0;
  // Of the nodes, so that a request that is sent again can be told from another one; 0: not known.
  size_t fingerprint = 0;
};

struct StepOptions {
  absl::Duration timeout = absl::ZeroDuration();  // zero: the session's
  bool trace = false;
  bool output_partition_graphs = false;
  bool has_debug_watches = false;  // refused: there is no debugger
  int64_t collective_graph_key = 0;
};

struct RunStepRequest {
  std::string session;
  std::vector<NamedTensor> feeds;    // "node:k"
  std::vector<std::string> fetches;  // "node:k"
  std::vector<std::string> targets;  // node names
  StepOptions options;
  std::string partial_run;  // empty: a whole step
  int64_t request_id = 0;
};

struct RunStepReply {
  std::vector<NamedTensor> tensors;  // one for each different fetch, by the name that was asked for
  std::string metadata;              // a serialized RunMetadata
  bool has_metadata = true;          // only the last part of a partial run has
};

struct PartialRunSetupRequest {
  std::string session;
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
  std::vector<std::string> targets;
  int64_t request_id = 0;
};

struct MakeCallableRequest {
  std::string session;
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
  std::vector<std::string> targets;
  StepOptions options;
  // The second is replaced by the first.
  std::vector<std::pair<std::string, std::string>> connections;
  bool has_feed_or_fetch_devices = false;  // refused
  int64_t request_id = 0;
};

struct RunCallableRequest {
  std::string session;
  int64_t callable = 0;
  std::vector<Tensor> feeds;
  int64_t request_id = 0;
};

struct RunCallableReply {
  std::vector<Tensor> fetches;
  std::string metadata;  // a serialized RunMetadata
};

struct ListDevicesReply {
  std::vector<DeviceAttributes> local;
  std::vector<DeviceAttributes> remote;
};

// Thread-safe. Implemented by the master itself, and by the stub through which clients reach a
// remote one.
class MasterApi {
 public:
  virtual ~MasterApi() = default;

  virtual void CreateSession(CallOptions options, CreateSessionRequest request,
                             CallDone<CreateSessionReply> done) = 0;
  // The new version.
  virtual void ExtendSession(CallOptions options, ExtendSessionRequest request,
                             CallDone<int64_t> done) = 0;
  virtual void RunStep(CallOptions options, RunStepRequest request,
                       CallDone<RunStepReply> done) = 0;
  // The handle of the partial run.
  virtual void PartialRunSetup(CallOptions options, PartialRunSetupRequest request,
                               CallDone<std::string> done) = 0;
  virtual void CloseSession(CallOptions options, std::string session, CallDone<Empty> done) = 0;
  virtual void ListDevices(CallOptions options, std::string session,
                           CallDone<ListDevicesReply> done) = 0;
  virtual void Reset(CallOptions options, std::vector<std::string> containers,
                     std::vector<std::string> device_filters, CallDone<Empty> done) = 0;
  virtual void MakeCallable(CallOptions options, MakeCallableRequest request,
                            CallDone<int64_t> done) = 0;
  virtual void RunCallable(CallOptions options, RunCallableRequest request,
                           CallDone<RunCallableReply> done) = 0;
  virtual void ReleaseCallable(CallOptions options, std::string session, int64_t callable,
                               CallDone<Empty> done) = 0;
};

}  // namespace muster
