// What a task does for masters and for other tasks: run partitions, hand out tensors.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/device/device.h"
#include "muster/graph/graph.h"
#include "muster/runtime/collectives.h"
#include "muster/runtime/frame_ids.h"
#include "muster/runtime/rendezvous.h"
#include "muster/transport/api/call.h"
#include "muster/transport/api/cluster.h"

namespace muster {

struct CreateWorkerSessionRequest {
  std::string session;  // the master's handle
  // The name of this task in the session, when the session has a cluster of its own.
  struct Identity {
    ClusterSpec cluster;
    TaskName self;
  };
  std::optional<Identity> identity;
  TaskName task;  // its name for the master; without a job: not told
  bool isolate_state = false;
  std::string master_task;  // empty before TensorFlow 2.4
  uint64_t master_incarnation = 0;
  // Of the session at its master. Null: not told, as by stock masters.
  std::shared_ptr<const Caller> owner;
};

// A graph is made when it is needed, so that code without access to protos can check other things
// first.
using GraphMaker = absl::AnyInvocable<absl::StatusOr<std::unique_ptr<Graph>>() &&>;

struct RegisterGraphRequest {
  std::string session;
  bool in_session = true;  // false: the session of masters that make none (before 1.15)
  GraphMaker graph;        // every node with the whole name of one of the task's devices
  bool optimize = true;
  FrameIds frame_ids = FrameIds::kSince23;
  int64_t collective_graph_key = 0;
  std::string collective_group_leader;  // of the session; empty: the one the task was started with
  std::string config;  // the session's ConfigProto, serialized; only stock workers read it
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct RunGraphRequest {
  std::string session;
  bool in_session = true;
  std::string graph;  // handle of RegisterGraph
  int64_t step_id = 0;
  std::vector<NamedTensor>
      send;  // put into the rendezvous before the step starts, under these keys
  std::vector<std::string> recv_keys;  // taken out of it afterwards
  bool record_timeline = false;
  bool record_partition_graphs = false;
  bool is_partial = false;
  bool is_last_partial = false;
  int64_t request_id = 0;
  // Earlier steps that are over, as by CleanupGraph. Only for tasks of Muster.
  std::vector<int64_t> finished_steps;
};

struct RunGraphReply {
  std::vector<NamedTensor> recv;
  std::string step_stats;                     // a serialized StepStats
  std::vector<std::string> partition_graphs;  // serialized GraphDefs
};

struct RecvTensorRequest {
  int64_t step_id = 0;
  std::string key;
  int64_t request_id = 0;
};

struct RecvTensorReply {
  Rendezvous::Value value;
  bool require_ack = false;  // the receiver calls MarkRecvFinished
};

struct RecvBufRequest {
  int64_t step_id = 0;
  std::string key;
  int64_t num_bytes = 0;
  std::string src_device;
  uint64_t src_incarnation = 0;  // zero: not told, as before TensorFlow 2.4
  std::string dst_device;
  int64_t request_id = 0;
};

struct RecvBufReply {
  Buffer bytes;
  bool require_ack = false;
};

struct CompleteGroupReply {
  int32_t group_key = 0;
  std::string device_type;
  std::vector<DeviceAttributes> devices;
  bool is_legacy = false;  // told by a leader before TensorFlow 2.4: names alone
};

struct StepSequence {
  int64_t graph_key = 0;
  int64_t next_step_id = 0;
};

// Strings stored in one block: a hundred of them cost two allocations.
class KeyList {
 public:
  KeyList() = default;
  KeyList(std::initializer_list<absl::string_view> keys) {
    for (const absl::string_view key : keys) push_back(key);
  }

  void push_back(absl::string_view key) {
    text_.append(key.data(), key.size());
    ends_.push_back(text_.size());
  }
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  // Valid until the list changes.
  absl::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return absl::string_view(text_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

// Several tensors of one step. Only for tasks of Muster.
struct RecvTensorsRequest {
  static constexpr size_t kMaxKeys = 256;
  int64_t step_id = 0;
  KeyList keys;
  int64_t request_id = 0;
};

// Those that were there first, one at least; for the others the receiver asks again.
struct RecvTensorsReply {
  struct Tensor {
    size_t index = 0;  // of its key
    Rendezvous::Value value;
  };
  std::vector<Tensor> tensors;
};

struct LoggingRequest {
  bool enable = false;
  bool disable = false;
  bool clear = false;
  std::vector<int64_t> fetch_steps;
};

struct LoggingReply {
  struct Step {
    int64_t id = 0;
    std::string step_stats;  // a serialized StepStats
  };
  std::vector<Step> steps;
};

// Thread-safe. Implemented by the worker itself, and by stubs that carry calls to the worker of
// another task.
class WorkerApi {
 public:
  virtual ~WorkerApi() = default;

  // All devices of the task, CPU:0 first, by the names that the process was started with.
  virtual void GetStatus(CallOptions options, CallDone<std::vector<DeviceAttributes>> done) = 0;
  virtual void CreateWorkerSession(CallOptions options, CreateWorkerSessionRequest request,
                                   CallDone<Empty> done) = 0;
  virtual void DeleteWorkerSession(CallOptions options, std::string session,
                                   CallDone<Empty> done) = 0;
  virtual void RegisterGraph(CallOptions options, RegisterGraphRequest request,
                             CallDone<std::string> done) = 0;
  virtual void DeregisterGraph(CallOptions options, std::string session, bool in_session,
                               std::string graph, CallDone<Empty> done) = 0;
  virtual void RunGraph(CallOptions options, RunGraphRequest request,
                        CallDone<RunGraphReply> done) = 0;
  virtual void CleanupGraph(CallOptions options, int64_t step_id, CallDone<Empty> done) = 0;
  virtual void CleanupAll(CallOptions options, std::vector<std::string> containers,
                          CallDone<Empty> done) = 0;
  virtual void RecvTensor(CallOptions options, RecvTensorRequest request,
                          CallDone<RecvTensorReply> done) = 0;
  virtual void MarkRecvFinished(CallOptions options, int64_t request_id, CallDone<Empty> done) = 0;
  virtual void Logging(CallOptions options, LoggingRequest request,
                       CallDone<LoggingReply> done) = 0;

  // --- Collectives: see wire-protocol §5. The last three are for the leader of a group.
  virtual void RecvBuf(CallOptions, RecvBufRequest, CallDone<RecvBufReply> done) {
    std::move(done)(Unimplemented("RecvBuf"));
  }
  virtual void CompleteGroup(CallOptions, CollectiveJoin, CallDone<CompleteGroupReply> done) {
    std::move(done)(Unimplemented("CompleteGroup"));
  }
  // The rank of a broadcast's source, or -1.
  virtual void CompleteInstance(CallOptions, CollectiveInstance, CallDone<int> done) {
    std::move(done)(Unimplemented("CompleteInstance"));
  }
  virtual void GetStepSequence(CallOptions, std::vector<int64_t> /*graph_keys*/,
                               CallDone<std::vector<StepSequence>> done) {
    std::move(done)(Unimplemented("GetStepSequence"));
  }

  // Whether the task is known to be Muster's, so that what follows can be asked of it. Where that
  // is not known yet, it is being found out.
  virtual bool IsMuster() { return false; }
  // The task is known to be alive: a connection that failed before is retried now.
  virtual void Reconnect() {}
  virtual void RecvTensors(CallOptions /*options*/, RecvTensorsRequest /*request*/,
                           CallDone<RecvTensorsReply> done) {
    std::move(done)(absl::UnimplementedError("RecvTensors"));
  }
};

}  // namespace muster
