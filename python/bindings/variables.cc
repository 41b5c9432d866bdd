// Variables, groups, moving averages, decays and device setters of the training library.
#include "muster/train/model/variables.h"

#include <map>
#include <utility>

#include "bindings.h"
#include "train_bindings.h"

#include "muster/train/model/device_setter.h"
#include "muster/train/optimizers/decay.h"
#include "muster/train/optimizers/moving_average.h"

namespace muster {
namespace {

// Averages that a Python ExponentialMovingAverage makes and keeps.
class PythonAverages : public AverageMaker {
 public:
  PythonAverages(nb::object owner, const nb::list& values) : owner_(std::move(owner)) {
    for (nb::handle value : values) {
      const TrainVariable known = nb::cast<TrainVariable>(value.attr("_train_variable")());
      objects_.emplace(std::make_pair(known.handle.node, known.handle.index), nb::borrow(value));
    }
  }
  absl::StatusOr<Average> GetOrMake(const Scope& scope, const Operand& averaged,
                                    absl::string_view) override {
    const Output key =
        averaged.variable() != nullptr ? averaged.variable()->handle : *averaged.output();
    Average average;
    RETURN_IF_ERROR(CallPython([&] {
      nb::object made = owner_.attr("_get_or_make")(scope, objects_.at({key.node, key.index}));
      average.variable = nb::cast<TrainVariable>(made[0].attr("_train_variable")());
      average.is_new = nb::cast<bool>(made[1]);
      objects_.insert_or_assign(
          std::make_pair(average.variable.handle.node, average.variable.handle.index),
          nb::object(made[0]));
    }));
    return average;
  }
  absl::StatusOr<Debiasing> MakeDebiasing(const Scope& scope,
                                          const TrainVariable& average) override {
    Debiasing made;
    RETURN_IF_ERROR(CallPython([&] {
      nb::object both = owner_.attr("_make_debiasing")(
          scope, objects_.at({average.handle.node, average.handle.index}));
      made.biased = nb::cast<TrainVariable>(both[0].attr("_train_variable")());
      made.local_step = nb::cast<TrainVariable>(both[1].attr("_train_variable")());
    }));
    return made;
  }

 private:
  nb::object owner_;
  std::map<std::pair<const Node*, int>, nb::object> objects_;
};

nb::object AssignedToPython(const Assigned& assigned) {
  return nb::make_tuple(nb::cast(assigned.node, nb::rv_policy::reference),
                        nb::cast(assigned.value));
}

// An initial value: an Output, or a function that makes one in the scope it is given.
InitialValue InitialFromPython(nb::object initial) {
  if (nb::isinstance<Output>(initial)) return nb::cast<Output>(initial);
  return InitialValueFunction(
      [held = HoldPython(std::move(initial))](const Scope& scope) -> absl::StatusOr<Output> {
        Output value;
        RETURN_IF_ERROR(CallPython([&] { value = nb::cast<Output>((*held)(scope)); }));
        return value;
      });
}

TrainVariable MakeFromPython(const Scope& own, nb::object initial, bool use_resource,
                             bool validate_shape, bool has_shape, nb::handle shape,
                             nb::object caching, nb::object guard) {
  VariableOptions options;
  options.use_resource = use_resource;
  options.validate_shape = validate_shape;
  if (has_shape) options.shape = ShapeFromPython(shape);
  if (nb::isinstance<nb::str>(caching)) {
    options.caching_device = nb::cast<std::string>(caching);
  } else if (!caching.is_none()) {
    options.caching_function =
        [held = HoldPython(std::move(caching))](const Node& node) -> absl::StatusOr<std::string> {
      std::string device;
      RETURN_IF_ERROR(CallPython([&] {
        device = nb::cast<std::string>(
            (*held)(nb::cast(const_cast<Node*>(&node), nb::rv_policy::reference)));
      }));
      return device;
    };
  }
  options.guard = [held = HoldPython(std::move(guard))](const Scope& scope,
                                                        Output value) -> absl::StatusOr<Output> {
    Output guarded;
    RETURN_IF_ERROR(CallPython([&] { guarded = nb::cast<Output>((*held)(scope, value)); }));
    return guarded;
  };
  return BuildValue(
      MakeVariableIn(own.WithFreshStatus(), InitialFromPython(std::move(initial)), options));
}

void BindAverages(nb::module_& m) {
  m.def(
      "apply_moving_averages",
      [](const Scope& scope, nb::object owner, const nb::list& values, const nb::list& operands,
         nb::handle decay, nb::handle num_updates, bool zero_debias, const std::string& name) {
        PythonAverages averages(std::move(owner), values);
        std::vector<Operand> averaged;
        for (nb::handle operand : operands) averaged.push_back(OperandFromPython(operand));
        MovingAverageOptions options;
        if (!num_updates.is_none()) options.num_updates = OperandFromPython(num_updates);
        options.zero_debias = zero_debias;
        options.name = name;
        return BuildValue(ApplyMovingAverages(scope.WithFreshStatus(), averaged,
                                              OperandFromPython(decay), options, averages));
      },
      nb::rv_policy::reference, nb::arg("scope"), nb::arg("owner"), nb::arg("values"),
      nb::arg("operands"), nb::arg("decay"), nb::arg("num_updates").none(), nb::arg("zero_debias"),
      nb::arg("name"));
  m.def(
      "assign_moving_average",
      [](const Scope& scope, nb::object variable, nb::handle value, nb::handle decay,
         nb::object debias, const std::string& name) {
        nb::list variables;
        variables.append(variable);
        const TrainVariable changed = nb::cast<TrainVariable>(variable.attr("_train_variable")());
        const bool debiased = !debias.is_none();
        PythonAverages averages(std::move(debias), variables);
        return AssignedToPython(BuildValue(
            AssignMovingAverage(scope.WithFreshStatus(), changed, OperandFromPython(value),
                                OperandFromPython(decay), debiased ? &averages : nullptr, name)));
      },
      nb::arg("scope"), nb::arg("variable"), nb::arg("value"), nb::arg("decay"),
      nb::arg("debias").none(), nb::arg("name"));
}

std::vector<Operand> OperandsFromPython(const nb::list& values) {
  std::vector<Operand> operands;
  for (nb::handle value : values) operands.push_back(OperandFromPython(value));
  return operands;
}

// A decay by its name, with its arguments in the order of the Python function.
absl::StatusOr<Output> Decay(const Scope& scope, const std::string& kind,
                             const std::vector<Operand>& a, bool flag, const std::string& name) {
  if (kind == "exponential") return ExponentialDecay(scope, a[0], a[1], a[2], a[3], flag, name);
  if (kind == "natural_exp") return NaturalExpDecay(scope, a[0], a[1], a[2], a[3], flag, name);
  if (kind == "inverse_time") return InverseTimeDecay(scope, a[0], a[1], a[2], a[3], flag, name);
  if (kind == "polynomial") {
    return PolynomialDecay(scope, a[0], a[1], a[2], {a[3], a[4], flag, name});
  }
  if (kind == "cosine") return CosineDecay(scope, a[0], a[1], a[2], a[3], name);
  if (kind == "cosine_restarts") {
    return CosineDecayRestarts(scope, a[0], a[1], a[2], {a[3], a[4], a[5], name});
  }
  if (kind == "linear_cosine") {
    return LinearCosineDecay(scope, a[0], a[1], a[2], {a[3], a[4], a[5], name});
  }
  if (kind == "noisy_linear_cosine") {
    return NoisyLinearCosineDecay(scope, a[0], a[1], a[2], {a[3], a[4], {a[5], a[6], a[7], name}});
  }
  return InvalidArgument("No decay is called ", kind);
}

void BindDecays(nb::module_& m) {
  m.def("decay", [](const Scope& scope, const std::string& kind, const nb::list& arguments,
                    bool flag, const std::string& name) {
    return BuildValue(
        Decay(scope.WithFreshStatus(), kind, OperandsFromPython(arguments), flag, name));
  });
  m.def("piecewise_constant", [](const Scope& scope, nb::handle x, const nb::list& boundaries,
                                 const nb::list& values, const std::string& name) {
    return BuildValue(PiecewiseConstant(scope.WithFreshStatus(), OperandFromPython(x),
                                        OperandsFromPython(boundaries), OperandsFromPython(values),
                                        name));
  });
}

// A device function as a class of its own: the caster of std::function would wrap it once more.
struct DeviceChooser {
  DeviceFunction function;
};

void BindDeviceSetter(nb::module_& m) {
  nb::class_<GreedyLoads>(m, "GreedyLoads")
      .def(nb::init<int>())
      .def("place", &GreedyLoads::Place)
      .def_prop_ro("loads", [](const GreedyLoads& loads) { return loads.loads(); });
  m.def("byte_size_load", [](const Node& node) { return BuildValue(ByteSizeLoad(node)); });
  nb::class_<DeviceChooser>(m, "DeviceChooser")
      .def("__call__", [](const DeviceChooser& chooser, const Node& node) {
        return BuildValue(chooser.function(node));
      });
  m.def(
      "replica_device_setter",
      [](int ps_tasks, const std::string& ps_device, const std::string& worker_device,
         bool merge_devices, std::optional<std::vector<std::string>> ps_ops, nb::object strategy) {
        ReplicaDeviceOptions options;
        options.ps_device = ps_device;
        options.worker_device = worker_device;
        options.merge_devices = merge_devices;
        if (ps_ops.has_value()) options.ps_ops = *std::move(ps_ops);
        if (!strategy.is_none()) {
          options.strategy =
              [held = HoldPython(std::move(strategy))](const Node& node) -> absl::StatusOr<int> {
            int task = 0;
            RETURN_IF_ERROR(CallPython([&] {
              task = nb::cast<int>(
                  (*held)(nb::cast(const_cast<Node*>(&node), nb::rv_policy::reference)));
            }));
            return task;
          };
        }
        return DeviceChooser{ReplicaDeviceSetter(ps_tasks, std::move(options))};
      },
      nb::arg("ps_tasks"), nb::arg("ps_device"), nb::arg("worker_device"), nb::arg("merge_devices"),
      nb::arg("ps_ops").none(), nb::arg("strategy").none());
}

}  // namespace

void BindVariables(nb::module_& m) {
  nb::class_<TrainVariable>(m, "TrainVariable")
      .def(
          "__init__",
          [](TrainVariable* self, Output handle, bool is_resource, int dtype, nb::handle shape,
             std::optional<Output> snapshot, Node* initializer, std::optional<Output> initial_value,
             std::optional<Output> cached) {
            new (self) TrainVariable();
            self->handle = handle;
            self->is_resource = is_resource;
            self->dtype = BaseType(static_cast<DType>(dtype));
            self->shape = ShapeFromPython(shape);
            if (snapshot) self->snapshot = *snapshot;
            self->initializer = initializer;
            if (initial_value) self->initial_value = *initial_value;
            if (cached) self->cached = *cached;
          },
          nb::arg("handle"), nb::arg("is_resource"), nb::arg("dtype"), nb::arg("shape").none(),
          nb::arg("snapshot").none(), nb::arg("initializer").none(),
          nb::arg("initial_value").none(), nb::arg("cached").none())
      .def_ro("handle", &TrainVariable::handle)
      .def_ro("is_resource", &TrainVariable::is_resource)
      .def_ro("initial_value", &TrainVariable::initial_value)
      .def_ro("snapshot", &TrainVariable::snapshot)
      .def_prop_ro("cached",
                   [](const TrainVariable& v) -> nb::object {
                     return v.cached ? nb::cast(v.cached) : nb::none();
                   })
      .def_prop_ro(
          "initializer", [](const TrainVariable& v) { return v.initializer; },
          nb::rv_policy::reference)
      .def_prop_ro("name", [](const TrainVariable& v) { return v.name(); });
  m.def(
      "group",
      [](const Scope& scope, const std::vector<Node*>& nodes, const std::string& name) {
        return BuildValue(Group(scope, nodes, name));
      },
      nb::rv_policy::reference);
  m.def("initialized_value", [](const Scope& scope, const TrainVariable& variable) {
    return BuildValue(InitializedValue(scope.WithFreshStatus(), variable));
  });
  m.def("report_uninitialized", [](const Scope& scope, const std::vector<TrainVariable>& variables,
                                   const std::string& name) {
    return BuildValue(ReportUninitialized(scope.WithFreshStatus(), variables, name));
  });
  m.def("make_variable", &MakeFromPython, nb::arg("own"), nb::arg("initial"),
        nb::arg("use_resource"), nb::arg("validate_shape"), nb::arg("has_shape"),
        nb::arg("shape").none(), nb::arg("caching").none(), nb::arg("guard"));
  BindAverages(m);
  BindDecays(m);
  BindDeviceSetter(m);
}

}  // namespace muster
