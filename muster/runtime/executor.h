// Runs one partition in one process, many steps at once: a node runs when its inputs have arrived.
#pragma once

#include <functional>
#include <memory>

#include "muster/runtime/kernel.h"

namespace muster {

// Thread-safe.
class Executor {
 public:
  // Gives the kernel of a node; stateful ones are shared by all executors of a session.
  using KernelSource = std::function<absl::StatusOr<std::shared_ptr<Kernel>>(const Node&)>;

  // `graph` must outlive the executor and not change. InvalidArgument for graphs that cannot run
  // (cycles outside loops, nodes that belong to two frames).
  static absl::StatusOr<std::unique_ptr<Executor>> Create(const Graph& graph, Device& device,
                                                          KernelSource kernels);
  virtual ~Executor() = default;

  // Runs every node. Works on the calling thread until nothing is left for it; `done` is called
  // exactly once, from here or from another thread, after the last kernel has returned. The first
  // error of the step is its result; it names the node, cancels the step and aborts its rendezvous.
  // `step` must live until then.
  virtual void Run(Step& step, Done done) = 0;
  // By what its nodes took so far a step is over sooner than another thread could be woken for it.
  virtual bool is_brief() const = 0;
  // Likewise: soon enough for a thread that could wait for it instead.
  virtual bool is_short() const = 0;
};

// The names that programs give executors all mean this one. NotFound for a name that TensorFlow does
// not have either.
absl::Status CheckExecutorType(absl::string_view name);

}  // namespace muster
