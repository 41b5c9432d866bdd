// Kernels that make a named, shared thing (a queue, an accumulator, a reader, a table) and hand out
// a handle to it: a resource, or the older reference to a pair of strings.
#pragma once

#include <string>
#include <utility>

#include "muster/ops/op.h"
#include "muster/params/kept_tensor.h"
#include "muster/runtime/resource_manager.h"

namespace muster {

struct ResourceName {
  std::string container;
  std::string name;         // the shared name, or "_<number>_<node>" for a private thing
  bool is_private = false;  // no shared name: nobody but this kernel can reach it
};
// From the attributes container and shared_name, under TensorFlow's rules. With
// `use_node_name` a thing without a shared name is shared under the name of its node.
absl::StatusOr<ResourceName> NameResource(const KernelSetup& setup, bool use_node_name = false);

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
  Tensor handle_ ABSL_GUARDED_BY(mutex_);
  RefPtr<Variable> reference_ ABSL_GUARDED_BY(mutex_);
};

// Shape rule of ops that give a handle: a pair of strings, or a scalar resource.
absl::Status HandleOutputShape(ShapeContext& c);

// What a waiting operation of `object` (with Cancel(ticket) and Flush()) is given so that it ends
// with the step: called with the operation's ticket, false when the step is cancelled already.
// What can go on after the withdrawal does so elsewhere: a thread that runs the callbacks of one
// step must not wait for those of another.
template <typename T>
auto CancelWithStep(KernelContext& c, RefPtr<T> object, Cancellation::Token token) {
  return [&c, object = std::move(object), token](uint64_t ticket) {
    Cancellation* cancellation = c.step().cancellation;
    if (cancellation == nullptr) return true;
    return cancellation->Register(token, [object, ticket, scheduler = c.step().scheduler] {
      if (!object->Cancel(ticket)) return;
      if (scheduler == nullptr) return object->Flush();
      scheduler->Schedule([object] { object->Flush(); });
    });
  };
}
inline Cancellation::Token CancellationToken(const KernelContext& c) {
  return c.step().cancellation == nullptr ? 0 : c.step().cancellation->NewToken();
}
// Before the operation reports that it is done.
inline void NoLongerWaits(const KernelContext& c, Cancellation::Token token) {
  if (c.step().cancellation != nullptr) c.step().cancellation->Deregister(token);
}

// "float, int32": types as error texts list them.
std::string DTypeList(absl::Span<const DType> dtypes);

}  // namespace muster
