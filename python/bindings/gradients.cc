#include "muster/graph/gradients/gradients.h"

#include "bindings.h"
#include "train_bindings.h"
#include <nanobind/stl/variant.h>

#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/while_context.h"

namespace muster {

nb::object GradientToPython(const Gradient& gradient) {
  if (const auto* dense = std::get_if<Output>(&gradient)) return nb::cast(*dense);
  if (const auto* slices = std::get_if<IndexedSlices>(&gradient)) {
    return nb::make_tuple(slices->values, slices->indices,
                          slices->dense_shape ? nb::cast(slices->dense_shape) : nb::none());
  }
  return nb::none();
}

Gradient GradientFromPython(nb::handle value) {
  if (value.is_none()) return Gradient();
  if (nb::isinstance<Output>(value)) return nb::cast<Output>(value);
  IndexedSlices slices;
  slices.values = nb::cast<Output>(value[0]);
  slices.indices = nb::cast<Output>(value[1]);
  if (!value[2].is_none()) slices.dense_shape = nb::cast<Output>(value[2]);
  return slices;
}

namespace {

// A gradient function written in Python: called with the node, the gradients of its outputs and the
// scope in which to build; returns one gradient per input.
GradientFunction WrapGradientFunction(nb::object function) {
  auto held = HoldPython(std::move(function));
  return [held](GradientContext& c) -> absl::Status {
    return CallPython([&] {
      nb::list gradients;
      for (int i = 0; i < c.num_outputs(); ++i) gradients.append(GradientToPython(c.gradient(i)));
      nb::object results =
          (*held)(nb::cast(&c.node(), nb::rv_policy::reference), gradients, c.scope());
      int i = 0;
      for (nb::handle result : results) {
        if (i < c.num_inputs()) c.SetDx(i, GradientFromPython(result));
        ++i;
      }
    });
  };
}

std::vector<BranchResult> BranchResults(const nb::list& given) {
  std::vector<BranchResult> results;
  for (nb::handle value : given) {
    if (nb::isinstance<Output>(value)) {
      results.emplace_back(nb::cast<Output>(value));
    } else {
      results.emplace_back(nb::cast<Node*>(value));
    }
  }
  return results;
}

void BindControlFlow(nb::module_& m) {
  nb::class_<CondBuilder>(m, "CondBuilder")
      .def_static("create",
                  [](const Scope& scope, Output pred) {
                    return BuildValue(CondBuilder::Create(scope, pred));
                  })
      .def("true_scope", &CondBuilder::true_scope)
      .def("finish_true",
           [](CondBuilder& b, const nb::list& r) {
             ThrowIfBuildError(b.FinishTrue(BranchResults(r)));
           })
      .def("false_scope", [](CondBuilder& b) { return BuildValue(b.false_scope()); })
      .def("finish_false",
           [](CondBuilder& b, const nb::list& r) {
             ThrowIfBuildError(b.FinishFalse(BranchResults(r)));
           })
      .def("merge", [](CondBuilder& b) { return BuildValue(b.Merge()); });
  nb::class_<WhileBuilder>(m, "WhileBuilder")
      .def_static(
          "create",
          [](const Scope& scope, std::vector<Output> variables, nb::object invariants,
             int parallel_iterations, bool back_prop, bool swap_memory,
             std::optional<Output> maximum_iterations) {
            std::optional<std::vector<PartialShape>> shapes;
            if (!invariants.is_none()) {
              shapes.emplace();
              for (nb::handle shape : invariants) shapes->push_back(ShapeFromPython(shape));
            }
            WhileSettings settings;
            settings.parallel_iterations = parallel_iterations;
            settings.back_prop = back_prop;
            settings.swap_memory = swap_memory;
            if (maximum_iterations) settings.maximum_iterations = *maximum_iterations;
            return BuildValue(
                WhileBuilder::Create(scope, std::move(variables), std::move(shapes), settings));
          },
          nb::arg("scope"), nb::arg("variables"), nb::arg("invariants").none(),
          nb::arg("parallel_iterations"), nb::arg("back_prop"), nb::arg("swap_memory"),
          nb::arg("maximum_iterations").none())
      .def("scope", &WhileBuilder::scope)
      .def("condition_variables", [](const WhileBuilder& b) { return b.condition_variables(); })
      .def("set_condition",
           [](WhileBuilder& b, Output condition) { ThrowIfBuildError(b.SetCondition(condition)); })
      .def("body_variables", [](const WhileBuilder& b) { return b.body_variables(); })
      .def("finish", [](WhileBuilder& b, const std::vector<Output>& next) {
        return BuildValue(b.Finish(next));
      });
  m.def("is_fetchable", [](const Node& node) { return IsFetchable(node); });
  m.def("is_feedable", [](Output output) { return IsFeedable(output); });
  m.def("in_control_flow",
        [](const Scope& scope) { return scope.control_flow_context() != nullptr; });
}

}  // namespace

void BindGradients(nb::module_& m) {
  m.def(
      "gradients",
      [](const Scope& scope, const std::vector<Output>& ys, const std::vector<Output>& xs,
         const nb::list& grad_ys, const std::vector<Output>& stop_gradients,
         const std::string& name, bool colocate, bool gate, int aggregation_method,
         bool unconnected_zero) {
        GradientOptions options;
        for (nb::handle gradient : grad_ys) options.grad_ys.push_back(GradientFromPython(gradient));
        options.stop_gradients = stop_gradients;
        options.name = name;
        options.colocate_gradients_with_ops = colocate;
        options.gate_gradients = gate;
        options.aggregation_method = static_cast<AggregationMethod>(aggregation_method);
        options.unconnected_gradients =
            unconnected_zero ? UnconnectedGradients::kZero : UnconnectedGradients::kNone;
        nb::list results;
        for (const Gradient& gradient : BuildValue(Gradients(scope, ys, xs, std::move(options)))) {
          results.append(GradientToPython(gradient));
        }
        return results;
      },
      nb::arg("scope"), nb::arg("ys"), nb::arg("xs"), nb::arg("grad_ys"), nb::arg("stop_gradients"),
      nb::arg("name"), nb::arg("colocate"), nb::arg("gate"), nb::arg("aggregation_method"),
      nb::arg("unconnected_zero"));
  m.def("register_gradient", [](const std::string& name, nb::object function) {
    ThrowIfBuildError(RegisterGradient(
        name, function.is_none() ? GradientFunction() : WrapGradientFunction(std::move(function))));
  });
  BindControlFlow(m);
}

}  // namespace muster
