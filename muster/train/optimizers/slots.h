// The variables that an optimizer keeps beside those it trains.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "muster/train/model/operand.h"
#include "muster/train/model/variables.h"

namespace muster {

// One slot of a variable: where it starts, and what it is called.
struct SlotSpec {
  struct Zeros {};
  // Every element, made by the initializer `constant_initializer` or, for ones, `ones_initializer`.
  struct Filled {
    double value = 0;
    bool ones = false;
  };
  std::string slot;     // the optimizer's name for it: "m"
  std::string op_name;  // its place below the variable: "Adam"
  std::variant<Zeros, Filled, Output> initial;
};

// A scalar that belongs to the optimizer as a whole.
struct SharedSpec {
  std::string name;       // "beta1_power"
  std::string parameter;  // the optimizer's, at whose value it starts
  Operand initial;        // that value
};

// Makes and finds slots. The front ends differ in how a variable comes to be (Python: get_variable
// with its scopes, getters and collections), never in which slots there are.
class SlotMaker {
 public:
  virtual ~SlotMaker() = default;

  // The slot, made when it does not exist yet.
  virtual absl::StatusOr<TrainVariable> GetOrMake(const Scope& scope, const TrainVariable& variable,
                                                  const SlotSpec& spec) = 0;
  // NotFound when it has not been made.
  virtual absl::StatusOr<TrainVariable> Get(const TrainVariable& variable,
                                            absl::string_view slot) = 0;
  // The scalar, colocated with `beside` when it has to be made.
  virtual absl::StatusOr<TrainVariable> GetOrMakeShared(const Scope& scope, const SharedSpec& spec,
                                                        const TrainVariable& beside) = 0;
  virtual absl::StatusOr<TrainVariable> GetShared(const Graph& graph, absl::string_view name) = 0;
};

// Slots as nodes of the graph, with the names that TensorFlow gives them: "<variable>/<op name>",
// "<variable>/<op name>_1". Graphs must outlive it.
class GraphSlots : public SlotMaker {
 public:
  absl::StatusOr<TrainVariable> GetOrMake(const Scope& scope, const TrainVariable& variable,
                                          const SlotSpec& spec) override;
  absl::StatusOr<TrainVariable> Get(const TrainVariable& variable, absl::string_view slot) override;
  absl::StatusOr<TrainVariable> GetOrMakeShared(const Scope& scope, const SharedSpec& spec,
                                                const TrainVariable& beside) override;
  absl::StatusOr<TrainVariable> GetShared(const Graph& graph, absl::string_view name) override;

  // All of them, in the order in which they were made: what an initializer or a saver needs.
  const std::vector<TrainVariable>& variables() const { return variables_; }
  // Sorted, without repetition.
  std::vector<std::string> names() const;

 private:
  std::map<std::pair<const Node*, std::string>, TrainVariable> slots_;
  std::map<std::pair<const Graph*, std::string>, TrainVariable> shared_;
  std::vector<TrainVariable> variables_;
};

// A variable beside another: "<primary>/<name>", colocated with it, and a slice where the primary
// is one.
absl::StatusOr<TrainVariable> MakeSlot(const Scope& scope, const TrainVariable& primary,
                                       const InitialValue& initial, absl::string_view name);

}  // namespace muster
