// Kernels: one device's code for an op. A kernel is made once per node, set up from its attributes,
// and may then run many times at once: whatever it keeps must be constant or locked.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "muster/device/device.h"
#include "muster/graph/graph.h"
#include "muster/graph/place/memory_copies.h"
#include "muster/params/variable.h"
#include "muster/runtime/step.h"

namespace muster {

// A value on an edge: a tensor, or a reference to a variable (ref edges). Dead edges carry nothing.
struct Entry {
  enum class State : uint8_t { kEmpty, kValue, kReference, kDead };
  Tensor tensor;
  RefPtr<Variable> reference;
  State state = State::kEmpty;

  void Clear() {
    tensor = Tensor();
    reference.reset();
    state = State::kEmpty;
  }
};

// What a kernel's set-up may look at.
class KernelSetup {
 public:
  KernelSetup(const Node& node, Device& device, ResourceManager& resources,
              bool has_device_outputs = false)
      : node_(node),
        device_(device),
        resources_(resources),
        has_device_outputs_(has_device_outputs) {}
  const Node& node() const { return node_; }
  Device& device() const { return device_; }
  ResourceManager& resources() const { return resources_; }
  // Some output is in memory that the host cannot use.
  bool has_device_outputs() const { return has_device_outputs_; }
  template <typename T>
  absl::StatusOr<T> Attr(absl::string_view name) const {
    return node_.Attr<T>(name);
  }
  DType input_type(int i) const { return BaseType(node_.input_types()[i]); }
  DType output_type(int i) const { return BaseType(node_.output_types()[i]); }

 private:
  const Node& node_;
  Device& device_;
  ResourceManager& resources_;
  const bool has_device_outputs_;
};

// One execution of a kernel. Confined to the thread that runs the kernel (asynchronous kernels: one
// thread at a time).
class KernelContext {
 public:
  KernelContext(Step& step, Device& device, const Node& node, absl::Span<Entry> inputs,
                absl::Span<Entry> outputs)
      : step_(step), device_(device), node_(node), inputs_(inputs), outputs_(outputs) {}

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  // The value of an input; a reference input is read as a snapshot before the kernel starts.
  const Tensor& input(int i) const { return inputs_[i].tensor; }
  bool input_is_dead(int i) const { return inputs_[i].state == Entry::State::kDead; }
  // The variable behind a reference input. Requires: the op declares Ref(...) for it.
  Variable& input_variable(int i) const { return *inputs_[i].reference; }
  const RefPtr<Variable>& input_reference(int i) const { return inputs_[i].reference; }
  bool input_is_reference(int i) const { return static_cast<bool>(inputs_[i].reference); }
  // Takes input i out of the context: the caller is then its only owner, unless others outside the
  // context share it.
  Tensor TakeInput(int i) { return std::move(inputs_[i].tensor); }

  // New memory, of the device or, for outputs that the kernel has there and for what is not plain
  // data, of the host; the tensor stays in output i and may be written until the kernel returns.
  absl::StatusOr<Tensor*> AllocateOutput(int i, const Shape& shape);
  // The memory of the first of `inputs` that has no other owner and has output i's type and
  // `shape`'s size, else new memory.
  absl::StatusOr<Tensor*> ForwardOrAllocate(std::initializer_list<int> inputs, int i,
                                            const Shape& shape);
  absl::StatusOr<Tensor> AllocateTemporary(DType dtype, const Shape& shape);
  void SetOutput(int i, Tensor tensor);
  // Hands input `from` on as output `to`: the value, or the reference of one that it was given.
  void PassInput(int from, int to) { outputs_[to] = std::move(inputs_[from]); }
  void SetOutputReference(int i, RefPtr<Variable> variable);
  // Dead: Switch and Recv only.
  void SetOutputDead(int i) { outputs_[i].state = Entry::State::kDead; }

  DType output_type(int i) const { return BaseType(node_.output_types()[i]); }
  DType input_type(int i) const { return BaseType(node_.input_types()[i]); }
  const Node& node() const { return node_; }
  Device& device() const { return device_; }
  Step& step() const { return step_; }
  ResourceManager& resources() const { return *step_.resources; }

  // See Scheduler::ParallelFor.
  void ParallelFor(int64_t count, double cost_per_item_ns,
                   absl::FunctionRef<void(int64_t, int64_t)> body) const {
    step_.scheduler->ParallelFor(count, cost_per_item_ns, body);
  }

  // "frame;iteration" of this execution for keys of transfers: "0:0" outside loops.
  std::string frame_and_iteration() const;
  void set_frame(uint64_t frame_id, int64_t iteration) {
    frame_id_ = frame_id;
    iteration_ = iteration;
  }
  // _Send and _Recv also run when an input is dead.
  bool is_input_dead() const { return is_input_dead_; }
  void set_input_dead(bool dead) { is_input_dead_ = dead; }
  // By output, on a device that has memory of its own: whether it is in host memory.
  void set_host_outputs(const std::vector<bool>* host_outputs) { host_outputs_ = host_outputs; }

 private:
  bool IsHostOutput(int i) const { return host_outputs_ != nullptr && (*host_outputs_)[i]; }

  Step& step_;
  Device& device_;
  const Node& node_;
  absl::Span<Entry> inputs_;
  absl::Span<Entry> outputs_;
  uint64_t frame_id_ = 0;
  int64_t iteration_ = 0;
  const std::vector<bool>* host_outputs_ = nullptr;
  bool is_input_dead_ = false;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Reads attributes; called once, before anything else.
  virtual absl::Status Init(KernelSetup&) { return absl::OkStatus(); }
  virtual absl::Status Compute(KernelContext& c) = 0;
  // Asynchronous kernels override these two: `done` is called exactly once, from any thread.
  virtual bool is_async() const { return false; }
  virtual void ComputeAsync(KernelContext& c, Done done) { std::move(done)(Compute(c)); }
};

using KernelFunction = absl::Status (*)(KernelContext&);
using KernelFactory = std::function<std::unique_ptr<Kernel>()>;

// A factory for a class with a default constructor.
template <typename K>
KernelFactory New() {
  return [] { return std::make_unique<K>(); };
}
// A kernel that is one function and needs no attributes.
KernelFactory Stateless(KernelFunction function);

struct KernelRegistration {
  std::string op;
  std::string device_type;
  // Attribute -> type that it must have; several for ops with several type attributes.
  std::vector<std::pair<std::string, DType>> types;
  std::vector<std::string> host_memory_args;
  KernelFactory factory;
  bool is_last_choice = false;  // kernels of other types of devices are preferred
  bool counts_on_host = false;  // int32 is in host memory, as in functions
  bool needs_card = false;      // a GpuKernel: of no use for other devices of the type GPU
};

// Thread-safe once the op definitions have run.
class KernelRegistry {
 public:
  static KernelRegistry& Global();
  void Add(KernelRegistration registration);
  // The kernel for `node` on a device type. NotFound/InvalidArgument "No OpKernel was registered to
  // support Op 'X' with these attrs. ..." as TensorFlow says it.
  absl::StatusOr<const KernelRegistration*> Find(const Node& node,
                                                 absl::string_view device_type) const;
  // Null where there is none.
  const KernelRegistration* FindOrNull(const Node& node, absl::string_view device_type) const;
  // As PlaceOptions::supports.
  int Preference(const Node& node, absl::string_view device_type) const;
  const std::vector<KernelRegistration>& For(absl::string_view op) const;
  // For tests with a device of the type GPU that is no card: kernels that need one are not found.
  void WithoutCards() { without_cards_ = true; }

 private:
  absl::flat_hash_map<std::string, std::vector<KernelRegistration>> by_op_;
  bool without_cards_ = false;
};

// Which arguments the kernel of a node has in host memory on a device with memory of its own: those
// that it names, strings and handles. Of variants it is the tensors that their values hold. Errors
// as Find.
absl::StatusOr<HostArgs> HostArgsOf(const Node& node, absl::string_view device_type);

// Makes and sets up the kernel of a node.
absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const Node& node, Device& device,
                                                   ResourceManager& resources);

}  // namespace muster
