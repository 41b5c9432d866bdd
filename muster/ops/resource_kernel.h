// Kernels that make a named, shared thing (a queue, an accumulator, a reader, a table) and hand out
// a handle to it: a resource, or the older reference to a pair of strings.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "muster/base/cancel_callback.h"
#include "muster/ops/op.h"
#include "muster/params/kept_tensor.h"
#include "muster/runtime/resource_manager.h"

namespace muster {

struct ResourceName {
  std::string container;
  std::string name;         // the shared name, or "_<number>_<node>" for a private thing
  bool is_private = false;  // no shared name: only this kernel can reach it
};
// From the attributes container and shared_name, under TensorFlow's rules. With
// `use_node_name` a thing without a shared name is shared under the name of its node.
absl::StatusOr<ResourceName> NameResource(const KernelSetup& setup, bool use_node_name = false);

// Of things that hold tensors: one on a device with memory of its own is another one than that of
// the same name elsewhere.
void NameForDevice(ResourceName& name, Device& device);

// Things of different types may share a name: this is what one is registered under.
std::string ResourceKey(absl::string_view name, absl::string_view type_name);

// The thing behind input i, whichever way its handle comes; `type_name` as in the handles of the
// wanted type.
absl::StatusOr<RefPtr<Resource>> InputResource(const KernelContext& c, int i,
                                               absl::string_view type_name);
absl::Status WrongResource(const KernelContext& c, const Resource& resource,
                           absl::string_view wanted);
// T has kTypeName, TensorFlow's C++ type: "N10tensorflow14QueueInterfaceE".
template <typename T>
absl::StatusOr<RefPtr<T>> InputResourceAs(const KernelContext& c, int i) {
  ASSIGN_OR_RETURN(const RefPtr<Resource> resource, InputResource(c, i, T::kTypeName));
  T* typed = dynamic_cast<T*>(resource.get());
  if (typed == nullptr) return WrongResource(c, *resource, T::kTypeName);
  return RefPtr<T>::Share(typed);
}

// Makes the thing on first use, or finds what another session made under the same name. The
// output is a resource or Ref(string), as the op declares it.
class ResourceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override;
  absl::Status Compute(KernelContext& c) final;
  // The thing, made when it is not there yet.
  absl::StatusOr<RefPtr<Resource>> Get(ResourceManager& resources);

 protected:
  virtual absl::StatusOr<RefPtr<Resource>> Make(const std::string& name) = 0;
  // Fails when what another node made does not fit this one.
  virtual absl::Status Verify(Resource&) { return absl::OkStatus(); }
  // The type that handles carry.
  virtual std::string type_name() const = 0;
  virtual bool use_node_name() const { return false; }
  const ResourceName& name() const { return name_; }
  const std::string& node_name() const { return node_name_; }

 private:
  absl::StatusOr<RefPtr<Resource>> GetLocked(ResourceManager& resources)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeHandleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ResourceName name_;
  std::string node_name_;
  std::string device_;
  bool is_reference_ = false;
  Mutex mutex_;
  RefPtr<Resource> resource_ ABSL_GUARDED_BY(mutex_);
  ListedState listed_ ABSL_GUARDED_BY(mutex_);  // what no other can look up
  Tensor handle_ ABSL_GUARDED_BY(mutex_);
  RefPtr<Variable> reference_ ABSL_GUARDED_BY(mutex_);
};

// Shape rule of ops that give a handle: a pair of strings, or a scalar resource.
absl::Status HandleOutputShape(ShapeContext& c);

// One operation of `object` (with Cancel(ticket) and Flush()) that may wait, and then ends with the
// step:
//
//   const StepWait wait(c, queue);
//   queue->Dequeue(wait.OnWait(), wait.Then([&c, done = ...](absl::StatusOr<Tuple> tuple) { ...
//   }));
//
// The object stays until the operation is done.
template <typename T>
class StepWait {
 public:
  StepWait(const KernelContext& c, RefPtr<T> object)
      : operation_(std::make_shared<Operation>(c.step(), std::move(object))) {}

  // Called with the operation's ticket, perhaps with a lock held: false when the step is cancelled
  // already.
  auto OnWait() const {
    return [operation = operation_.get()](uint64_t ticket) { return operation->Wait(ticket); };
  }
  // What the operation is given to call when it is done.
  template <typename Function>
  auto Then(Function then) const {
    return [operation = operation_, then = std::move(then)](auto result) mutable {
      operation->on_cancel.Release();
      std::move(then)(std::move(result));
    };
  }

 private:
  struct Operation {
    Operation(const Step& in_step, RefPtr<T> of) : step(in_step), object(std::move(of)) {}
    // Operations that the cancellation unblocks continue elsewhere: a thread that runs the
    // callbacks of one step must not wait for those of another.
    bool Wait(uint64_t ticket) {
      return on_cancel.TryStart(step.cancellation, [this, ticket](const absl::Status&) {
        // Cancel may end the operation, and with it the step and this object.
        const RefPtr<T> held = object;
        Scheduler* const scheduler = step.scheduler;
        if (!held->Cancel(ticket)) return;
        if (scheduler == nullptr) return held->Flush();
        scheduler->Schedule([held] { held->Flush(); });
      });
    }
    const Step& step;
    const RefPtr<T> object;
    CancelCallback on_cancel;
  };
  const std::shared_ptr<Operation> operation_;
};

// "float, int32": types as error texts list them.
std::string DTypeList(absl::Span<const DType> dtypes);

}  // namespace muster
