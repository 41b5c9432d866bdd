// The static half of an executor: nodes, edges and frames as flat arrays.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "muster/runtime/executor.h"

namespace muster {

enum class NodeKind : uint8_t {
  kPlain,
  kMerge,
  kEnter,
  kConstantEnter,
  kExit,
  kNextIteration,
  kControlTrigger,
  kTransfer,
  kConstant  // never runs: its value lies in the inputs of its readers from the start
};

// One edge out of a node. Control edges have input -1.
struct PlanEdge {
  enum class Carries : uint8_t {
    kValue,
    kLastValue,  // no later edge carries the same output
    kReference   // not the value: the target reads the variable that it came from
  };
  int target = 0;  // index into ExecutorPlan::nodes
  int input = -1;  // the target's input
  int output = 0;  // of this node
  Carries carries = Carries::kValue;
};

struct PlanNode {
  const Node* node = nullptr;
  std::shared_ptr<Kernel> kernel;
  const DType* output_types = nullptr;  // the node's
  // By output: whether it is in host memory. Null where the device has no memory of its own.
  std::unique_ptr<const std::vector<bool>> host_outputs;
  NodeKind kind = NodeKind::kPlain;
  bool is_async = false;
  // Comes when nothing else is ready, where nodes keep their order: what changes a variable. Those
  // that read its old value have run then, so it is changed where it is and needs no copy.
  bool runs_last = false;
  // A value from elsewhere that nodes wait for together, where they keep their order.
  bool is_awaited = false;
  bool allows_uninitialized = false;
  bool has_reference_inputs = false;  // some edge into it carries a reference
  bool has_constant_inputs = false;   // see ExecutorPlan::constants
  bool passes_values = false;         // some edge of one that passes references carries a value
  int num_passed_inputs = 0;          // the first of its inputs whose references it passes on
  int num_inputs = 0;
  int num_outputs = 0;
  int frame = 0;         // static frame in which it runs
  int child_frame = -1;  // of Enter
  int index_in_frame = 0;
  int first_input = 0;  // slot in the frame's inputs
  uint64_t initial_count = 0;
  int first_edge = 0;
  int edge_end = 0;
  int first_target = 0;  // of its edges, itself where there are none
  // Running average of its time; nodes that take long go to other threads.
  mutable std::atomic<uint32_t> cost_nanos{0};

  PlanNode() = default;
  PlanNode(PlanNode&& other) noexcept { *this = std::move(other); }
  PlanNode& operator=(PlanNode&& other) noexcept;
};

// All nodes with the same frame name below the same parent.
struct PlanFrame {
  std::string name;
  int parent = -1;
  int enters = 0;
  int parallel_iterations = 10;
  int num_nodes = 0;
  int num_inputs = 0;
  std::vector<uint64_t> initial_counts;  // by index_in_frame
};

// A count holds what a node still waits for in its lower half and how many dead inputs came in the
// upper half.
//   plain: number of edges still to come
//   Merge: 2 * control edges still to come + (1 while no live value has come)
inline constexpr uint64_t kOneDead = uint64_t{1} << 32;
inline uint32_t Waiting(uint64_t count) {
  return static_cast<uint32_t>(count);
}
inline uint32_t Dead(uint64_t count) {
  return static_cast<uint32_t>(count >> 32) & 0x7FFFFFFF;
}
// Set by the first live value that reaches a Merge: later ones are dropped.
inline constexpr uint64_t kMergeTaken = uint64_t{1} << 63;

struct ExecutorPlan {
  std::vector<PlanNode> nodes;
  std::vector<PlanEdge> edges;
  std::vector<PlanFrame> frames;  // 0 is the root
  // The first of them ask other tasks for values; none where others can be given some before.
  std::vector<int> roots;
  int num_asking_roots = 0;
  // Nodes run on one thread, one after the other, so that those of a step come in the order of the
  // step before: a device with a stream recognizes work that repeats.
  bool keeps_order = false;
  // How many nodes are awaited. What they make ready, and what the other roots have made ready by
  // then, begins when all have their values.
  int num_awaited = 0;
  // Values that the inputs of the root frame hold in every step, by input (an empty tensor for all
  // others); no entries when there are none.
  std::vector<Tensor> constants;

  static absl::StatusOr<ExecutorPlan> Make(const Graph& graph, Device& device,
                                           const Executor::KernelSource& kernels);
};

}  // namespace muster
