// Optimizers: the C++ core behind the Python classes, and the way back for what a Python class
// overrides (TF1's protocol of _create_slots, _prepare, _apply_dense and so on).
#include <map>
#include <utility>

#include "bindings.h"
#include "train_bindings.h"

#include "muster/graph/gradients/sparse_gradients.h"
#include "muster/train/optimizers/definition.h"

namespace muster {

Operand OperandFromPython(nb::handle value) {
  if (nb::isinstance<Output>(value)) return nb::cast<Output>(value);
  if (nb::isinstance<TrainVariable>(value)) return nb::cast<TrainVariable>(value);
  if (nb::isinstance<Tensor>(value)) return nb::cast<Tensor>(value);
  return Number{nb::cast<double>(value), !PyFloat_Check(value.ptr())};
}

std::vector<TrainVariable> VariablesFromPython(nb::handle values) {
  std::vector<TrainVariable> variables;
  for (nb::handle value : values) {
    variables.push_back(nb::cast<TrainVariable>(value.attr("_train_variable")()));
  }
  return variables;
}

namespace {

// A Python object's method, called where `scope` is the current one of its graph.
nb::object CallIn(const nb::object& self, const Scope& scope, const char* method,
                  nb::object arguments) {
  return self.attr("_called")(scope, method, *arguments);
}

// Slots that a Python optimizer makes and keeps, with get_variable behind it.
class PythonSlots : public SlotMaker {
 public:
  PythonSlots(nb::object optimizer, const nb::list& variables) : optimizer_(std::move(optimizer)) {
    for (nb::handle variable : variables) {
      const TrainVariable known = nb::cast<TrainVariable>(variable.attr("_train_variable")());
      objects_.emplace(known.handle.node, nb::borrow(variable));
    }
  }

  absl::StatusOr<TrainVariable> GetOrMake(const Scope& scope, const TrainVariable& variable,
                                          const SlotSpec& spec) override {
    return Ask([&] {
      nb::object initial = nb::none();
      bool ones = false;
      if (const auto* value = std::get_if<Output>(&spec.initial)) initial = nb::cast(*value);
      if (const auto* filled = std::get_if<SlotSpec::Filled>(&spec.initial)) {
        initial = nb::cast(filled->value);
        ones = filled->ones;
      }
      return CallIn(optimizer_, scope, "_make_slot",
                    nb::make_tuple(objects_.at(variable.handle.node), initial, ones, spec.slot,
                                   spec.op_name));
    });
  }
  absl::StatusOr<TrainVariable> Get(const TrainVariable& variable,
                                    absl::string_view slot) override {
    return Ask([&] {
      return optimizer_.attr("get_slot")(objects_.at(variable.handle.node), std::string(slot));
    });
  }
  absl::StatusOr<TrainVariable> GetOrMakeShared(const Scope& scope, const SharedSpec& spec,
                                                const TrainVariable& beside) override {
    return Ask([&] {
      return CallIn(optimizer_, scope, "_make_shared",
                    nb::make_tuple(spec.name, spec.parameter, objects_.at(beside.handle.node)));
    });
  }
  absl::StatusOr<TrainVariable> GetShared(const Graph&, absl::string_view name) override {
    return Ask([&] { return optimizer_.attr("_get_non_slot_variable")(std::string(name)); });
  }

 private:
  absl::StatusOr<TrainVariable> Ask(const std::function<nb::object()>& question) {
    TrainVariable variable;
    RETURN_IF_ERROR(CallPython(
        [&] { variable = nb::cast<TrainVariable>(question().attr("_train_variable")()); }));
    return variable;
  }

  nb::object optimizer_;
  std::map<const Node*, nb::object> objects_;
};

// Any Python optimizer, driven through TF1's protocol.
class PythonOptimizer : public Optimizer {
 public:
  PythonOptimizer(nb::object self, nb::list gradients, nb::list variables)
      : Optimizer(nb::cast<std::string>(self.attr("get_name")()), false),
        self_(std::move(self)),
        gradients_(std::move(gradients)),
        variables_(std::move(variables)) {}

  absl::Status CreateSlots(const Scope& scope, absl::Span<const TrainVariable>) override {
    return CallPython([&] { CallIn(self_, scope, "_create_slots", nb::make_tuple(variables_)); });
  }
  absl::Status Prepare(const Scope& scope) override {
    return CallPython([&] { CallIn(self_, scope, "_prepare", nb::make_tuple()); });
  }
  absl::StatusOr<Node*> Update(const Scope& scope, const Gradient&, const TrainVariable&) override {
    RETURN_IF_ERROR(CallPython([&] {
      const size_t at = nb::len(updates_);
      updates_.append(
          CallIn(self_, scope, "_update_op", nb::make_tuple(gradients_[at], variables_[at])));
    }));
    return nullptr;  // what Python returned is handed to its _finish
  }
  absl::StatusOr<Node*> ApplyDense(const Scope&, Output, const TrainVariable&) override {
    return Unimplemented("Update is what Python overrides");
  }
  absl::StatusOr<Node*> ApplySparse(const Scope&, const IndexedSlices&,
                                    const TrainVariable&) override {
    return Unimplemented("Update is what Python overrides");
  }
  absl::StatusOr<Node*> Finish(const Scope& scope, absl::Span<Node* const>,
                               absl::string_view name) override {
    Node* node = nullptr;
    RETURN_IF_ERROR(CallPython([&] {
      node = nb::cast<Node*>(
          CallIn(self_, scope, "_finished", nb::make_tuple(updates_, std::string(name))));
    }));
    return node;
  }

 private:
  nb::object self_;
  nb::list gradients_;
  nb::list variables_;
  nb::list updates_;
};

// What a parameter is given when the core is made. Tensors are given whenever it is prepared.
OptimizerValue SettingFromPython(const OptimizerParameter& parameter, const nb::dict& settings) {
  const char* const name = parameter.name.c_str();
  if (parameter.kind == OptimizerParameter::Kind::kTensor || !settings.contains(name)) {
    return parameter.default_value.value_or(Operand(0.0));
  }
  const nb::object value = settings[name];
  switch (parameter.kind) {
    case OptimizerParameter::Kind::kFlag: {
      const int is_true = PyObject_IsTrue(value.ptr());
      if (is_true < 0) throw nb::python_error();
      return is_true != 0;
    }
    case OptimizerParameter::Kind::kText:
      return value.is_none() ? std::string() : nb::cast<std::string>(value);
    default: {
      const double number = PyFloat_AsDouble(value.ptr());
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return Operand(Number{number, PyLong_Check(value.ptr()) != 0});
    }
  }
}

std::unique_ptr<DefinedOptimizer> MakeCore(const std::string& kind, const std::string& name,
                                           bool use_locking, const nb::dict& settings) {
  const OptimizerDef* const def = OptimizerRegistry::Find(kind);
  if (def == nullptr) throw nb::value_error(("no optimizer is called " + kind).c_str());
  std::vector<OptimizerValue> values;
  for (const OptimizerParameter& parameter : def->parameters()) {
    if (parameter.name == "name") {
      values.emplace_back(name);
    } else if (parameter.name == "use_locking") {
      values.emplace_back(use_locking);
    } else {
      values.push_back(SettingFromPython(parameter, settings));
    }
  }
  auto core = std::make_unique<DefinedOptimizer>(*def, std::move(values));
  ThrowIfBuildError(core->status());
  return core;
}

// Runs `part` of the core with the slots of the Python optimizer that it belongs to.
template <typename Part>
auto WithSlots(DefinedOptimizer& core, const nb::object& optimizer, const nb::list& variables,
               const Scope& scope, Part part) {
  PythonSlots slots(optimizer, variables);
  core.UseSlots(&slots);
  auto result = part(scope.WithFreshStatus());
  core.UseSlots(nullptr);
  return result;
}

nb::list ListOf(nb::handle value) {
  nb::list list;
  list.append(value);
  return list;
}

void BindCore(nb::module_& m) {
  nb::class_<DefinedOptimizer>(m, "OptimizerCore")
      .def_prop_ro("sums_duplicates",
                   [](const DefinedOptimizer& core) { return core.def().sums_duplicates(); })
      .def("set_tensor", [](DefinedOptimizer& core, const std::string& name,
                            Output tensor) { ThrowIfBuildError(core.SetTensor(name, tensor)); })
      .def("get_tensor",
           [](const DefinedOptimizer& core, const std::string& name) -> nb::object {
             const Output tensor = BuildValue(core.GetTensor(name));
             return tensor ? nb::cast(tensor) : nb::none();
           })
      .def("create_slots",
           [](DefinedOptimizer& core, const Scope& scope, const nb::object& optimizer,
              const nb::list& variables) {
             ThrowIfBuildError(WithSlots(core, optimizer, variables, scope, [&](const Scope& at) {
               return core.CreateSlots(at, VariablesFromPython(variables));
             }));
           })
      .def("prepare",
           [](DefinedOptimizer& core, const Scope& scope, const nb::dict& values) {
             for (const auto& [name, value] : values) {
               ThrowIfBuildError(
                   core.SetValue(nb::cast<std::string>(name), OperandFromPython(value)));
             }
             ThrowIfBuildError(core.Prepare(scope.WithFreshStatus()));
           })
      .def(
          "apply",
          [](DefinedOptimizer& core, const Scope& scope, const nb::object& optimizer,
             nb::handle gradient, nb::handle variable, bool duplicates) {
            const nb::list variables = ListOf(variable);
            return BuildValue(WithSlots(
                core, optimizer, variables, scope, [&](const Scope& at) -> absl::StatusOr<Node*> {
                  const TrainVariable trained = VariablesFromPython(variables)[0];
                  const Gradient given = GradientFromPython(gradient);
                  const auto* slices = std::get_if<IndexedSlices>(&given);
                  if (slices != nullptr && !duplicates) {
                    return core.ApplySparse(at, *slices, trained);
                  }
                  return core.Update(at, given, trained);
                }));
          },
          nb::rv_policy::reference)
      .def(
          "finish",
          [](DefinedOptimizer& core, const Scope& scope, const nb::object& optimizer,
             const std::vector<Node*>& updates, const std::string& name) {
            return BuildValue(WithSlots(core, optimizer, nb::list(), scope, [&](const Scope& at) {
              return core.Finish(at, updates, name);
            }));
          },
          nb::rv_policy::reference);
  m.def("optimizer_core", &MakeCore);
  m.def("optimizer_names", [] {
    std::vector<std::string> names;
    for (const OptimizerDef* def : OptimizerRegistry::All()) names.push_back(def->name());
    return names;
  });
}

}  // namespace

void BindOptimizers(nb::module_& m) {
  BindCore(m);
  m.def(
      "apply_gradients",
      [](const Scope& scope, nb::object optimizer, nb::list gradients, nb::list components,
         nb::list variables, nb::object global_step, const std::string& name) {
        std::vector<GradientAndVariable> given;
        const std::vector<TrainVariable> trained = VariablesFromPython(variables);
        for (size_t i = 0; i < trained.size(); ++i) {
          given.push_back({GradientFromPython(components[i]), trained[i]});
        }
        ApplyOptions options;
        if (!global_step.is_none()) {
          options.global_step = nb::cast<TrainVariable>(global_step.attr("_train_variable")());
        }
        options.name = name;
        PythonOptimizer driven(std::move(optimizer), std::move(gradients), std::move(variables));
        return BuildValue(driven.ApplyGradients(scope.WithFreshStatus(), given, options));
      },
      nb::rv_policy::reference, nb::arg("scope"), nb::arg("optimizer"), nb::arg("gradients"),
      nb::arg("components"), nb::arg("variables"), nb::arg("global_step").none(), nb::arg("name"));
  m.def("sum_duplicates", [](const Scope& scope, Output values, Output indices) {
    const Scope at = scope.WithFreshStatus();
    const IndexedSlices summed = SumDuplicates(at, {values, indices, Output()});
    ThrowIfBuildError(at.status());
    return nb::make_tuple(summed.values, summed.indices);
  });
}

}  // namespace muster
