// What all nodes of one step share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/base/cancellation.h"
#include "muster/device/device.h"
#include "muster/graph/attr_value.h"
#include "muster/runtime/frame_ids.h"
#include "muster/runtime/rendezvous.h"
#include "muster/runtime/resource_manager.h"

namespace muster {

class StepTrace;
struct Caller;

// Runs functions of the graph's library for kernels: their own executor, the caller's rendezvous,
// cancellation and step container.
class FunctionCaller {
 public:
  using Handle = int64_t;
  using CallDone = absl::AnyInvocable<void(absl::StatusOr<std::vector<Tensor>>) &&>;
  virtual ~FunctionCaller() = default;
  virtual absl::StatusOr<Handle> Instantiate(const FunctionRef& function) = 0;
  virtual void Call(Handle handle, std::vector<Tensor> arguments, struct Step& step,
                    CallDone done) = 0;
};

// Values fed to and fetched from a partition through _Arg and _Retval nodes.
class CallFrame {
 public:
  virtual ~CallFrame() = default;
  virtual absl::StatusOr<Tensor> GetArg(int index) = 0;
  virtual absl::Status SetRetval(int index, Tensor value) = 0;
};

// Lives as long as the step. Pointers may be null only where said.
struct Step {
  int64_t id = 0;
  Rendezvous* rendezvous = nullptr;
  Cancellation* cancellation = nullptr;
  ResourceManager* resources = nullptr;  // of the session or task
  ResourceManager* step_resources =
      nullptr;  // stacks, tensor arrays, temporary variables: gone with the step
  Scheduler* scheduler = nullptr;
  FunctionCaller* functions = nullptr;  // may be null: no function library
  CallFrame* call_frame = nullptr;      // may be null: the partition has no _Arg
  StepTrace* trace = nullptr;           // null: not traced
  FrameIds frame_ids = FrameIds::kSince23;
  const Caller* caller = nullptr;  // that the session belongs to; null: this process
};

}  // namespace muster
