// What all nodes of one step share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/cancellation.h"
#include "muster/device/device.h"
#include "muster/graph/attr_value.h"
#include "muster/runtime/frame_ids.h"
#include "muster/runtime/rendezvous.h"
#include "muster/runtime/resource_manager.h"

namespace muster {

class StepTrace;
struct Caller;

// Where a function is called. Its nodes that ask for no device run on that of the caller where it
// has kernels for them.
struct CallSite {
  Device* device = nullptr;  // of the caller; null: any, and all values are in host memory
  // Arguments and results are in the memory of the device, but for what StaysOnHost and for int32,
  // which functions have in host memory; else all are in host memory.
  bool on_device = false;
  bool results_on_host = false;   // nevertheless
  bool counts_on_device = false;  // int32 as other numbers
  // By argument: the device of what a handle points to; empty for other types and where it is not
  // known. May be shorter.
  std::vector<std::string> handle_devices;
};
// The caller is a kernel on `device`, which has its arguments where
// KernelRegistration::counts_on_host says.
CallSite CallSiteOf(Device& device, absl::Span<const Tensor> arguments);

// Runs functions of the graph's library for kernels: their own executor, the caller's rendezvous,
// cancellation and step container.
class FunctionCaller {
 public:
  using Handle = int64_t;
  using CallDone = absl::AnyInvocable<void(absl::StatusOr<std::vector<Tensor>>) &&>;
  virtual ~FunctionCaller() = default;
  // A device that functions run on; null where there is none of that name.
  virtual Device* FindDevice(absl::string_view name) const = 0;
  virtual absl::StatusOr<Handle> Instantiate(const FunctionRef& function, const CallSite& site) = 0;
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
  Rendezvous* rendezvous = nullptr;  // may be null: the graph has no transfers
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
