// Optimizers: the C++ core behind the Python classes, and the way back for what a Python class
// overrides (TF1's protocol of _create_slots, _prepare, _apply_dense and so on).
#include "muster/train/optimizers.h"

#include <map>
#include <utility>

#include "bindings.h"
#include "train_bindings.h"

#include "muster/graph/sparse_gradients.h"

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
  absl::StatusOr<TrainVariable> GetOrMakeShared(const Scope& scope, absl::string_view name,
                                                const Operand&,
                                                const TrainVariable& beside) override {
    return Ask([&] {
      return CallIn(optimizer_, scope, "_make_shared",
                    nb::make_tuple(std::string(name), objects_.at(beside.handle.node)));
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

// The structure of each kind of optimizer; its numbers are given when it is prepared.
struct CoreOptions {
  const nb::dict& given;
  double Double(const char* name) const { return nb::cast<double>(given[name]); }
  bool Bool(const char* name) const { return nb::cast<bool>(given[name]); }
  std::string Text(const char* name) const {
    return given[name].is_none() ? std::string() : nb::cast<std::string>(given[name]);
  }
};

std::unique_ptr<Optimizer> MakeCore(const std::string& kind, const std::string& name,
                                    bool use_locking, const nb::dict& given) {
  const CoreOptions options{given};
  if (kind == "GradientDescent") {
    return std::make_unique<GradientDescentOptimizer>(
        0.0, GradientDescentOptions{.use_locking = use_locking, .name = name});
  }
  if (kind == "Momentum") {
    return std::make_unique<MomentumOptimizer>(
        0.0, 0.0,
        MomentumOptions{.use_locking = use_locking,
                        .name = name,
                        .use_nesterov = options.Bool("use_nesterov")});
  }
  if (kind == "Adagrad") {
    return std::make_unique<AdagradOptimizer>(
        0.0, AdagradOptions{.initial_accumulator_value = options.Double("initial_value"),
                            .use_locking = use_locking,
                            .name = name});
  }
  if (kind == "AdagradDA") {
    AdagradDAOptions da;
    da.initial_gradient_squared_accumulator_value = options.Double("initial_value");
    da.l1_regularization_strength = OperandFromPython(given["l1"]);
    da.l2_regularization_strength = OperandFromPython(given["l2"]);
    da.use_locking = use_locking;
    da.name = name;
    return std::make_unique<AdagradDAOptimizer>(0.0, 0, std::move(da));
  }
  if (kind == "Adadelta") {
    AdadeltaOptions adadelta;
    adadelta.use_locking = use_locking;
    adadelta.name = name;
    return std::make_unique<AdadeltaOptimizer>(0.0, std::move(adadelta));
  }
  if (kind == "Adam") {
    AdamOptions adam;
    adam.use_locking = use_locking;
    adam.name = name;
    return std::make_unique<AdamOptimizer>(0.0, std::move(adam));
  }
  if (kind == "RMSProp") {
    RMSPropOptions rmsprop;
    rmsprop.use_locking = use_locking;
    rmsprop.centered = options.Bool("centered");
    rmsprop.name = name;
    return std::make_unique<RMSPropOptimizer>(0.0, std::move(rmsprop));
  }
  if (kind == "Ftrl") {
    FtrlOptions ftrl;
    ftrl.initial_accumulator_value = options.Double("initial_value");
    ftrl.l2_shrinkage_regularization_strength = options.Double("l2_shrinkage");
    ftrl.use_locking = use_locking;
    ftrl.name = name;
    ftrl.accum_name = options.Text("accum_name");
    ftrl.linear_name = options.Text("linear_name");
    return std::make_unique<FtrlOptimizer>(0.0, std::move(ftrl));
  }
  if (kind == "ProximalGradientDescent") {
    ProximalGradientDescentOptions proximal;
    proximal.use_locking = use_locking;
    proximal.name = name;
    return std::make_unique<ProximalGradientDescentOptimizer>(0.0, std::move(proximal));
  }
  if (kind == "ProximalAdagrad") {
    ProximalAdagradOptions proximal;
    proximal.initial_accumulator_value = options.Double("initial_value");
    proximal.use_locking = use_locking;
    proximal.name = name;
    return std::make_unique<ProximalAdagradOptimizer>(0.0, std::move(proximal));
  }
  throw nb::value_error(("no optimizer is called " + kind).c_str());
}

// Runs `part` of the core with the slots of the Python optimizer that it belongs to.
template <typename Part>
auto WithSlots(Optimizer& core, const nb::object& optimizer, const nb::list& variables,
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
  nb::class_<Optimizer>(m, "OptimizerCore")
      .def_prop_ro("hyperparameters",
                   [](const Optimizer& core) {
                     std::vector<std::string> names;
                     for (const auto& hyper : core.hyperparameters()) names.push_back(hyper.name);
                     return names;
                   })
      .def("set_tensor", [](Optimizer& core, const std::string& name,
                            Output tensor) { ThrowIfBuildError(core.SetTensor(name, tensor)); })
      .def("get_tensor",
           [](const Optimizer& core, const std::string& name) -> nb::object {
             const Output tensor = BuildValue(core.GetTensor(name));
             return tensor ? nb::cast(tensor) : nb::none();
           })
      .def("create_slots",
           [](Optimizer& core, const Scope& scope, const nb::object& optimizer,
              const nb::list& variables) {
             ThrowIfBuildError(WithSlots(core, optimizer, variables, scope, [&](const Scope& at) {
               return core.CreateSlots(at, VariablesFromPython(variables));
             }));
           })
      .def("prepare_step",
           [](Optimizer& core, const Scope& scope, nb::handle global_step) {
             auto* adagrad = dynamic_cast<AdagradDAOptimizer*>(&core);
             if (adagrad == nullptr) throw nb::type_error("only AdagradDA takes a step");
             ThrowIfBuildError(
                 adagrad->PrepareStep(scope.WithFreshStatus(), OperandFromPython(global_step)));
           })
      .def(
          "apply",
          [](Optimizer& core, const Scope& scope, const nb::object& optimizer, nb::handle gradient,
             nb::handle variable, bool duplicates) {
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
          [](Optimizer& core, const Scope& scope, const nb::object& optimizer,
             const std::vector<Node*>& updates, const std::string& name) {
            return BuildValue(WithSlots(core, optimizer, nb::list(), scope, [&](const Scope& at) {
              return core.Finish(at, updates, name);
            }));
          },
          nb::rv_policy::reference);
  m.def("optimizer_core", &MakeCore);
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
