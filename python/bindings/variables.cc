// Variables, groups, moving averages, decays and device setters of the training library.
#include "muster/train/variables.h"

#include "bindings.h"
#include "train_bindings.h"

namespace muster {

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
}

}  // namespace muster
