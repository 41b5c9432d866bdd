#include "muster/train/optimizers/definition.h"

#include <algorithm>
#include <map>
#include <memory>

#include "muster/base/check.h"
#include "muster/graph/proto/message_text_proto.h"

namespace muster {
namespace {

OptimizerEntry* first_entry = nullptr;  // constant-initialized: usable by every static constructor

const char* KindName(OptimizerParameter::Kind kind) {
  switch (kind) {
    case OptimizerParameter::Kind::kTensor:
      return "a number, a tensor or a variable";
    case OptimizerParameter::Kind::kNumber:
      return "a number";
    case OptimizerParameter::Kind::kFlag:
      return "true or false";
    case OptimizerParameter::Kind::kText:
      return "a string";
  }
  return "";
}

bool IsOfKind(const OptimizerValue& value, OptimizerParameter::Kind kind) {
  const auto* operand = std::get_if<Operand>(&value);
  switch (kind) {
    case OptimizerParameter::Kind::kTensor:
      return operand != nullptr;
    case OptimizerParameter::Kind::kNumber:
      return operand != nullptr && operand->number() != nullptr;
    case OptimizerParameter::Kind::kFlag:
      return std::holds_alternative<bool>(value);
    case OptimizerParameter::Kind::kText:
      return std::holds_alternative<std::string>(value);
  }
  return false;
}

size_t IndexOf(const OptimizerDef& def, absl::string_view parameter) {
  const auto& parameters = def.parameters();
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const auto& known) { return known.name == parameter; });
  CHECK(found != parameters.end());
  return static_cast<size_t>(found - parameters.begin());
}

const OptimizerDef& Defined(absl::string_view name) {
  const OptimizerDef* def = OptimizerRegistry::Find(name);
  CHECK(def != nullptr);
  return *def;
}

template <typename T>
T Given(const OptimizerDef& def, const std::vector<OptimizerValue>& values,
        absl::string_view parameter) {
  const size_t index = IndexOf(def, parameter);
  CHECK(index < values.size());
  const T* value = std::get_if<T>(&values[index]);
  CHECK(value != nullptr);
  return *value;
}

}  // namespace

OptimizerEntry::OptimizerEntry(const char* optimizer_name, void (*define_optimizer)(OptimizerDef&))
    : name(optimizer_name), define(define_optimizer), next(first_entry) {
  first_entry = this;
}

// --- OptimizerDef

OptimizerDef::OptimizerDef(std::string name) : name_(std::move(name)) {}

OptimizerDef& OptimizerDef::Doc(std::string text) {
  doc_ = std::move(text);
  return *this;
}

OptimizerDef& OptimizerDef::Add(OptimizerParameter parameter) {
  CHECK(!Has(parameter.name));
  parameter.attribute = absl::StrCat("_", parameter.name);
  if (parameter.kind == OptimizerParameter::Kind::kTensor) {
    parameter.tensor_attribute = absl::StrCat("_", parameter.name, "_tensor");
  }
  parameters_.push_back(std::move(parameter));
  return *this;
}

OptimizerDef& OptimizerDef::Tensor(std::string name, std::optional<double> default_value,
                                   std::string doc) {
  return Add({.name = std::move(name),
              .kind = OptimizerParameter::Kind::kTensor,
              .default_value = default_value,
              .doc = std::move(doc)});
}

OptimizerDef& OptimizerDef::Number(std::string name, std::optional<double> default_value,
                                   std::string doc) {
  return Add({.name = std::move(name),
              .kind = OptimizerParameter::Kind::kNumber,
              .default_value = default_value,
              .doc = std::move(doc)});
}

OptimizerDef& OptimizerDef::Flag(std::string name, bool default_value, std::string doc) {
  return Add({.name = std::move(name),
              .kind = OptimizerParameter::Kind::kFlag,
              .default_value = default_value,
              .doc = std::move(doc)});
}

OptimizerDef& OptimizerDef::Text(std::string name, std::string doc) {
  return Add({.name = std::move(name),
              .kind = OptimizerParameter::Kind::kText,
              .default_value = std::string(),
              .doc = std::move(doc)});
}

OptimizerDef& OptimizerDef::UseLocking() {
  return Flag("use_locking", false, "Whether updates of one variable exclude each other.");
}

OptimizerDef& OptimizerDef::Name() {
  Text("name", "Prefix of the nodes that apply gradients, and the name of the slots.");
  parameters_.back().default_value = name_;
  return *this;
}

OptimizerDef& OptimizerDef::WithTensor() {
  CHECK(!parameters_.empty());
  parameters_.back().tensor_attribute = absl::StrCat(parameters_.back().attribute, "_tensor");
  return *this;
}

OptimizerDef& OptimizerDef::KeptAs(std::string attribute, std::string tensor_attribute) {
  CHECK(!parameters_.empty());
  parameters_.back().attribute = std::move(attribute);
  parameters_.back().tensor_attribute = std::move(tensor_attribute);
  return *this;
}

OptimizerDef& OptimizerDef::Rule(ApplyRule rule) {
  rule_ = [rule = std::move(rule)](const DefinedOptimizer&) { return rule; };
  return *this;
}

OptimizerDef& OptimizerDef::Rule(RuleFunction rule) {
  rule_ = std::move(rule);
  return *this;
}

OptimizerDef& OptimizerDef::Check(CheckFunction function) {
  check_ = function;
  return *this;
}

OptimizerDef& OptimizerDef::CreateSlots(CreateSlotsFunction function) {
  create_slots_ = function;
  return *this;
}

OptimizerDef& OptimizerDef::Prepare(PrepareFunction function) {
  prepare_ = function;
  return *this;
}

OptimizerDef& OptimizerDef::Arguments(ArgumentsFunction function) {
  arguments_ = function;
  return *this;
}

OptimizerDef& OptimizerDef::Dense(DenseFunction function) {
  dense_ = function;
  return *this;
}

OptimizerDef& OptimizerDef::Sparse(SparseFunction function) {
  sparse_ = function;
  return *this;
}

OptimizerDef& OptimizerDef::SparseDuplicates(SparseFunction function) {
  sparse_duplicates_ = function;
  return *this;
}

OptimizerDef& OptimizerDef::Finish(FinishFunction function) {
  finish_ = function;
  return *this;
}

bool OptimizerDef::Has(absl::string_view parameter) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [&](const OptimizerParameter& known) { return known.name == parameter; });
}

void OptimizerDef::Complete() {
  if (!Has("use_locking")) UseLocking();
  if (!Has("name")) Name();
  CHECK(rule_ != nullptr);
}

// --- OptimizerRegistry

const std::map<std::string, OptimizerDef, std::less<>>& OptimizerRegistry::Definitions() {
  static const auto* const definitions = [] {
    auto* made = new std::map<std::string, OptimizerDef, std::less<>>;
    for (const OptimizerEntry* entry = first_entry; entry != nullptr; entry = entry->next) {
      const auto [at, is_new] = made->try_emplace(entry->name, entry->name);
      CHECK(is_new);
      entry->define(at->second);
      at->second.Complete();
    }
    return made;
  }();
  return *definitions;
}

const OptimizerDef* OptimizerRegistry::Find(absl::string_view name) {
  const auto found = Definitions().find(name);
  return found == Definitions().end() ? nullptr : &found->second;
}

std::vector<const OptimizerDef*> OptimizerRegistry::All() {
  std::vector<const OptimizerDef*> all;
  for (const auto& [name, def] : Definitions()) all.push_back(&def);
  return all;
}

// --- DefinedOptimizer

DefinedOptimizer::DefinedOptimizer(const OptimizerDef& def, std::vector<OptimizerValue> values)
    : Optimizer(Given<std::string>(def, values, "name"), Given<bool>(def, values, "use_locking")),
      def_(def),
      values_(std::move(values)),
      status_(CheckValues()) {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (const auto* operand = std::get_if<Operand>(&values_[i])) {
      AddHyperparameter(def_.parameters()[i].name, *operand);
    }
  }
  if (status_.ok()) rule_ = def_.rule_(*this);
}

DefinedOptimizer::DefinedOptimizer(absl::string_view name, std::vector<OptimizerValue> values)
    : DefinedOptimizer(Defined(name), std::move(values)) {}

absl::Status DefinedOptimizer::CheckValues() const {
  CHECK(values_.size() == def_.parameters().size());
  for (size_t i = 0; i < values_.size(); ++i) {
    const OptimizerParameter& parameter = def_.parameters()[i];
    if (!IsOfKind(values_[i], parameter.kind)) {
      return InvalidArgument(def_.name(), "Optimizer: ", parameter.name, " must be ",
                             KindName(parameter.kind));
    }
  }
  if (name().empty()) return InvalidArgument("Must specify the optimizer name");
  return def_.check_ == nullptr ? absl::OkStatus() : def_.check_(*this);
}

Number DefinedOptimizer::NumberAsGiven(absl::string_view parameter) const {
  const Operand value = Given<Operand>(def_, values_, parameter);
  CHECK(value.number() != nullptr);
  return *value.number();
}

double DefinedOptimizer::Number(absl::string_view parameter) const {
  return NumberAsGiven(parameter).value;
}

bool DefinedOptimizer::Flag(absl::string_view parameter) const {
  return Given<bool>(def_, values_, parameter);
}

std::string DefinedOptimizer::Text(absl::string_view parameter) const {
  return Given<std::string>(def_, values_, parameter);
}

absl::Status DefinedOptimizer::CreateSlots(const Scope& scope,
                                           absl::Span<const TrainVariable> variables) {
  RETURN_IF_ERROR(status_);
  if (def_.create_slots_ != nullptr) return def_.create_slots_(*this, scope, variables);
  return CreateSlotsOfRule(scope, variables);
}

absl::Status DefinedOptimizer::CreateSlotsOfRule(const Scope& scope,
                                                 absl::Span<const TrainVariable> variables) {
  for (const TrainVariable& variable : variables) {
    for (const ApplyRule::Slot& slot : rule_.slots) {
      SlotSpec spec{slot.slot, name(), SlotSpec::Zeros()};
      if (const auto* filled = std::get_if<SlotSpec::Filled>(&slot.initial)) spec.initial = *filled;
      RETURN_IF_ERROR(slots().GetOrMake(scope, variable, spec).status());
    }
  }
  return absl::OkStatus();
}

absl::Status DefinedOptimizer::Prepare(const Scope& scope) {
  if (def_.prepare_ != nullptr) return def_.prepare_(*this, scope);
  for (const ApplyRule::Hyper& hyper : rule_.hypers) {
    ASSIGN_OR_RETURN(const Operand value, GetValue(hyper.parameter));
    const std::string& node = hyper.node.empty() ? hyper.parameter : hyper.node;
    RETURN_IF_ERROR(SetTensor(hyper.parameter, Convert(scope, value, node)));
  }
  return scope.status();
}

absl::StatusOr<DefinedOptimizer::Arguments> DefinedOptimizer::HyperArguments(const Scope& scope,
                                                                             DType dtype) const {
  Arguments arguments;
  for (const ApplyRule::Hyper& hyper : rule_.hypers) {
    if (hyper.argument.empty()) continue;
    arguments.emplace_back(hyper.argument, Hyper(scope, hyper.parameter, dtype));
  }
  RETURN_IF_ERROR(scope.status());
  return arguments;
}

absl::StatusOr<DefinedOptimizer::Arguments> DefinedOptimizer::OpArguments(const Scope& scope,
                                                                          DType dtype) const {
  if (def_.arguments_ != nullptr) return def_.arguments_(*this, scope, dtype);
  return HyperArguments(scope, dtype);
}

absl::StatusOr<Node*> DefinedOptimizer::Apply(const Scope& scope, absl::string_view kind,
                                              const TrainVariable& variable, Arguments gradient,
                                              DType dtype) {
  if (rule_.op.empty()) {
    return Unimplemented(def_.name(), "Optimizer does not apply ",
                         kind == "Apply" ? "dense" : "sparse", " gradients ('", variable.name(),
                         "')");
  }
  Arguments arguments = {{"var", variable}};
  for (const ApplyRule::Slot& slot : rule_.slots) {
    ASSIGN_OR_RETURN(TrainVariable found, slots().Get(variable, slot.slot));
    arguments.emplace_back(slot.argument, std::move(found));
  }
  ASSIGN_OR_RETURN(const Arguments numbers, OpArguments(scope, dtype));
  arguments.insert(arguments.end(), numbers.begin(), numbers.end());
  arguments.insert(arguments.end(), gradient.begin(), gradient.end());
  AttrMap attrs = rule_.attrs;
  attrs.insert_or_assign("use_locking", AttrValue(use_locking()));
  Node* node = CallOp(scope, absl::StrCat(variable.is_resource ? "Resource" : "", kind, rule_.op),
                      arguments, std::move(attrs));
  RETURN_IF_ERROR(scope.status());
  return node;
}

absl::StatusOr<Node*> DefinedOptimizer::ApplyDense(const Scope& scope, Output gradient,
                                                   const TrainVariable& variable) {
  if (def_.dense_ != nullptr) return def_.dense_(*this, scope, gradient, variable);
  return Apply(scope, "Apply", variable, {{rule_.dense_gradient, gradient}}, gradient.base_dtype());
}

absl::StatusOr<Node*> DefinedOptimizer::ApplySparse(const Scope& scope,
                                                    const IndexedSlices& gradient,
                                                    const TrainVariable& variable) {
  if (def_.sparse_ != nullptr) return def_.sparse_(*this, scope, gradient, variable);
  return Apply(scope, "SparseApply", variable,
               {{"grad", gradient.values}, {"indices", gradient.indices}},
               gradient.values.base_dtype());
}

absl::StatusOr<Node*> DefinedOptimizer::ApplySparseDuplicates(const Scope& scope,
                                                              const IndexedSlices& gradient,
                                                              const TrainVariable& variable) {
  if (def_.sparse_duplicates_ == nullptr) {
    return Optimizer::ApplySparseDuplicates(scope, gradient, variable);
  }
  return def_.sparse_duplicates_(*this, scope, gradient, variable);
}

absl::StatusOr<Node*> DefinedOptimizer::Finish(const Scope& scope, absl::Span<Node* const> updates,
                                               absl::string_view name) {
  if (def_.finish_ != nullptr) return def_.finish_(*this, scope, updates, name);
  return Optimizer::Finish(scope, updates, name);
}

absl::StatusOr<Output> FilledLike(const Scope& scope, const TrainVariable& variable, double value) {
  const std::optional<Shape> shape = variable.shape.ToShape();
  if (!shape.has_value()) {
    return InvalidArgument("Cannot convert a partially known TensorShape to a Tensor: ",
                           variable.shape.ToString());
  }
  ASSIGN_OR_RETURN(const Output filled,
                   Constant(value, *shape, variable.dtype)(scope.ColocatedWith(variable.node())));
  RETURN_IF_ERROR(scope.status());
  return filled;
}

absl::Status CheckPositive(const DefinedOptimizer& optimizer, absl::string_view parameter) {
  const Number given = optimizer.NumberAsGiven(parameter);
  if (given.value > 0) return absl::OkStatus();
  return InvalidArgument(parameter, " must be positive: ",
                         given.is_integer ? absl::StrCat(static_cast<int64_t>(given.value))
                                          : PythonFloat(given.value));
}

}  // namespace muster
