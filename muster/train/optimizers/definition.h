// For authors of optimizers. An optimizer is one file of this folder, and no line elsewhere:
//
//   DEFINE_OPTIMIZER(Momentum) {
//     optimizer.Doc("Gradient descent with momentum.")
//         .Tensor("learning_rate", kRequired, "The learning rate.")
//         .Tensor("momentum", kRequired, "How much of the accumulation a step keeps.")
//         .Rule({.op = "Momentum",
//                .slots = {{"momentum", "accum"}},
//                .hypers = {{"learning_rate", "lr"}, {"momentum", "momentum"}}});
//   }
//
// From this the build makes the C++ class MomentumOptimizer with its MomentumOptions
// (muster/optimizers.h) and the Python class tf.train.MomentumOptimizer with its signature,
// docstring and type stub (tools/gen_optimizers.cc); the bindings know all optimizers by name.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "muster/train/optimizers/optimizer.h"

namespace muster {

class DefinedOptimizer;

// An update that is one op per variable: "Apply" + op, "SparseApply" + op and both with "Resource"
// before them. Arguments are those of the op besides the variable and the indices.
struct ApplyRule {
  struct Slot {
    std::string slot;
    std::string argument = {};
    std::variant<SlotSpec::Zeros, SlotSpec::Filled> initial = SlotSpec::Zeros();
  };
  struct Hyper {
    std::string parameter;
    std::string argument = {};  // empty: the op does not take it
    std::string node = {};      // the name of its constant; the parameter's where empty
  };
  std::string op = {};
  std::vector<Slot> slots = {};
  std::vector<Hyper> hypers = {};  // in the order in which they become tensors
  std::string dense_gradient = "grad";
  AttrMap attrs = {};
};

// What a parameter of an optimizer is given. Numbers are operands too.
using OptimizerValue = std::variant<Operand, bool, std::string>;

struct OptimizerParameter {
  enum class Kind {
    kTensor,  // a number, a tensor or a variable; in Python also a function that gives one
    kNumber,  // known when the optimizer is made
    kFlag,
    kText,  // empty is Python's None
  };
  std::string name;
  Kind kind = Kind::kTensor;
  std::optional<OptimizerValue> default_value;  // none: required
  std::string doc;
  // What TensorFlow's class calls the value and its tensor; subclasses in Python use them.
  std::string attribute = {};
  std::string tensor_attribute = {};  // empty where it becomes no tensor
};

inline constexpr std::nullopt_t kRequired = std::nullopt;

// The description of an optimizer, made by DEFINE_OPTIMIZER.
class OptimizerDef {
 public:
  using OptimizerArguments = std::vector<std::pair<std::string, Operand>>;
  using RuleFunction = std::function<ApplyRule(const DefinedOptimizer& optimizer)>;
  using CheckFunction = absl::Status (*)(const DefinedOptimizer& optimizer);
  using CreateSlotsFunction = absl::Status (*)(DefinedOptimizer& optimizer, const Scope& scope,
                                               absl::Span<const TrainVariable> variables);
  using PrepareFunction = absl::Status (*)(DefinedOptimizer& optimizer, const Scope& scope);
  using ArgumentsFunction = absl::StatusOr<OptimizerArguments> (*)(
      const DefinedOptimizer& optimizer, const Scope& scope, DType dtype);
  using DenseFunction = absl::StatusOr<Node*> (*)(DefinedOptimizer& optimizer, const Scope& scope,
                                                  Output gradient, const TrainVariable& variable);
  using SparseFunction = absl::StatusOr<Node*> (*)(DefinedOptimizer& optimizer, const Scope& scope,
                                                   const IndexedSlices& gradient,
                                                   const TrainVariable& variable);
  using FinishFunction = absl::StatusOr<Node*> (*)(DefinedOptimizer& optimizer, const Scope& scope,
                                                   absl::Span<Node* const> updates,
                                                   absl::string_view name);

  explicit OptimizerDef(std::string name);

  OptimizerDef& Doc(std::string text);

  // --- Parameters, in the order of TensorFlow's signature. `use_locking` and `name` come last
  // unless they are placed.
  OptimizerDef& Tensor(std::string name, std::optional<double> default_value, std::string doc);
  OptimizerDef& Number(std::string name, std::optional<double> default_value, std::string doc);
  OptimizerDef& Flag(std::string name, bool default_value, std::string doc);
  OptimizerDef& Text(std::string name, std::string doc);
  OptimizerDef& UseLocking();
  OptimizerDef& Name();
  // The number declared last is also one of the rule's hyperparameters.
  OptimizerDef& WithTensor();
  // Names the Python attributes of the parameter declared last; without it they are "_<name>" and
  // "_<name>_tensor".
  OptimizerDef& KeptAs(std::string attribute, std::string tensor_attribute);

  // --- What it does. Either a rule says all, or functions take the place of parts of it.
  OptimizerDef& Rule(ApplyRule rule);
  OptimizerDef& Rule(RuleFunction rule);        // where flags or numbers decide
  OptimizerDef& Check(CheckFunction function);  // InvalidArgument for values that are not allowed
  OptimizerDef& CreateSlots(CreateSlotsFunction function);
  OptimizerDef& Prepare(PrepareFunction function);
  OptimizerDef& Arguments(ArgumentsFunction function);
  OptimizerDef& Dense(DenseFunction function);
  OptimizerDef& Sparse(SparseFunction function);            // gets no index twice
  OptimizerDef& SparseDuplicates(SparseFunction function);  // gets gradients as they are
  OptimizerDef& Finish(FinishFunction function);

  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  const std::vector<OptimizerParameter>& parameters() const { return parameters_; }
  bool sums_duplicates() const { return sparse_duplicates_ == nullptr; }

 private:
  friend class DefinedOptimizer;
  friend class OptimizerRegistry;

  OptimizerDef& Add(OptimizerParameter parameter);
  bool Has(absl::string_view parameter) const;
  void Complete();  // adds use_locking and name where they were not placed

  std::string name_;
  std::string doc_;
  std::vector<OptimizerParameter> parameters_;
  RuleFunction rule_;
  CheckFunction check_ = nullptr;
  CreateSlotsFunction create_slots_ = nullptr;
  PrepareFunction prepare_ = nullptr;
  ArgumentsFunction arguments_ = nullptr;
  DenseFunction dense_ = nullptr;
  SparseFunction sparse_ = nullptr;
  SparseFunction sparse_duplicates_ = nullptr;
  FinishFunction finish_ = nullptr;
};

// All optimizers of the process. The files of optimizers link themselves into a list before main;
// their definitions run at the first question. Thread-safe.
class OptimizerRegistry {
 public:
  // Null where there is none of that name ("Adam").
  static const OptimizerDef* Find(absl::string_view name);
  static std::vector<const OptimizerDef*> All();  // sorted by name

 private:
  static const std::map<std::string, OptimizerDef, std::less<>>& Definitions();
};

// An optimizer that DEFINE_OPTIMIZER describes, with a value for each of its parameters. Values
// that are not allowed are reported by status() and by ApplyGradients.
class DefinedOptimizer : public Optimizer {
 public:
  using Arguments = OptimizerDef::OptimizerArguments;

  // Requires: an entry of the registry; values as its parameters are, in their order.
  DefinedOptimizer(const OptimizerDef& def, std::vector<OptimizerValue> values);
  // For muster/optimizers.h. Requires: an optimizer is called so.
  DefinedOptimizer(absl::string_view name, std::vector<OptimizerValue> values);

  const OptimizerDef& def() const { return def_; }
  const absl::Status& status() const { return status_; }

  // --- What was given when it was made. Require: the definition has such a parameter.
  double Number(absl::string_view parameter) const;
  muster::Number NumberAsGiven(absl::string_view parameter) const;
  bool Flag(absl::string_view parameter) const;
  std::string Text(absl::string_view parameter) const;

  // --- Parts of the definition, and what they are without one.
  absl::Status CreateSlots(const Scope& scope, absl::Span<const TrainVariable> variables) override;
  absl::Status CreateSlotsOfRule(const Scope& scope, absl::Span<const TrainVariable> variables);
  absl::Status Prepare(const Scope& scope) override;
  absl::StatusOr<Node*> ApplyDense(const Scope& scope, Output gradient,
                                   const TrainVariable& variable) override;
  absl::StatusOr<Node*> ApplySparse(const Scope& scope, const IndexedSlices& gradient,
                                    const TrainVariable& variable) override;
  absl::StatusOr<Node*> ApplySparseDuplicates(const Scope& scope, const IndexedSlices& gradient,
                                              const TrainVariable& variable) override;
  absl::StatusOr<Node*> Finish(const Scope& scope, absl::Span<Node* const> updates,
                               absl::string_view name) override;
  // Arguments of the op besides the variable, its slots and the gradient, cast in `scope`.
  absl::StatusOr<Arguments> OpArguments(const Scope& scope, DType dtype) const;
  absl::StatusOr<Arguments> HyperArguments(const Scope& scope, DType dtype) const;
  using Optimizer::Hyper;

 private:
  absl::Status CheckValues() const;
  absl::StatusOr<Node*> Apply(const Scope& scope, absl::string_view kind,
                              const TrainVariable& variable, Arguments gradient, DType dtype);

  const OptimizerDef& def_;
  std::vector<OptimizerValue> values_;
  absl::Status status_;
  ApplyRule rule_;
};

// A constant of the variable's shape, beside the variable: where a slot starts that is not filled
// by an initializer.
absl::StatusOr<Output> FilledLike(const Scope& scope, const TrainVariable& variable, double value);

// For Check: a ValueError in TensorFlow's words unless the number is above 0.
absl::Status CheckPositive(const DefinedOptimizer& optimizer, absl::string_view parameter);

// One node of the list of definitions; made by DEFINE_OPTIMIZER only.
struct OptimizerEntry {
  OptimizerEntry(const char* optimizer_name, void (*define_optimizer)(OptimizerDef& optimizer));
  const char* name;
  void (*define)(OptimizerDef& optimizer);
  OptimizerEntry* next;
};

#define DEFINE_OPTIMIZER(Name)                                                                  \
  static void MusterDefineOptimizer_##Name(::muster::OptimizerDef& optimizer);                  \
  static ::muster::OptimizerEntry muster_optimizer_##Name(#Name, MusterDefineOptimizer_##Name); \
  static void MusterDefineOptimizer_##Name(::muster::OptimizerDef& optimizer)

}  // namespace muster
