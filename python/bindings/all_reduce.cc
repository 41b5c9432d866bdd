// Training by all-reduce.
#include "muster/train/replicas/all_reduce.h"

#include "train_bindings.h"

#include "muster/train/replicas/all_reduce_hook.h"

namespace muster {
namespace {

AllReduceParts::Apply ApplyFromPython(const nb::object& apply,
                                      const std::vector<TrainVariable>& trained,
                                      const nb::list& variables) {
  return [=](const Scope& scope, absl::Span<const GradientAndVariable> means,
             bool counts_step) -> absl::StatusOr<Node*> {
    Node* node = nullptr;
    RETURN_IF_ERROR(CallPython([&] {
      nb::list gradients;
      nb::list of;
      for (const GradientAndVariable& entry : means) {
        gradients.append(GradientToPython(entry.gradient));
        for (size_t i = 0; i < trained.size(); ++i)
          if (trained[i].handle == entry.variable.handle) of.append(variables[i]);
      }
      node = nb::cast<Node*>(apply(scope, gradients, of, counts_step));
    }));
    return node;
  };
}

// The wrapped optimizers and the variables of the group are Python's.
Node* ApplyGradients(AllReduce& all_reduce, const Scope& scope, const nb::list& gradients,
                     const nb::list& variables, nb::handle global_step, const nb::object& apply,
                     const nb::object& apply_staying, const nb::object& make_local) {
  std::vector<GradientAndVariable> entries;
  const std::vector<TrainVariable> trained = VariablesFromPython(variables);
  for (size_t i = 0; i < trained.size(); ++i)
    entries.push_back({GradientFromPython(gradients[i]), trained[i]});
  nb::list step;
  step.append(global_step);
  AllReduceParts parts;
  parts.apply = ApplyFromPython(apply, trained, variables);
  if (!apply_staying.is_none())
    parts.apply_staying = ApplyFromPython(apply_staying, trained, variables);
  parts.make_local = [&](const Scope& at, const std::string& name,
                         int32_t initial) -> absl::StatusOr<TrainVariable> {
    TrainVariable variable;
    RETURN_IF_ERROR(CallPython([&] {
      nb::list made;
      made.append(make_local(at, name, initial));
      variable = VariablesFromPython(made)[0];
    }));
    return variable;
  };
  return BuildValue(all_reduce.ApplyGradients(scope, entries, VariablesFromPython(step)[0], parts));
}

std::shared_ptr<SessionRunHook> NewHook(
    std::shared_ptr<AllReduce> all_reduce, const Scope& scope,
    const std::vector<std::pair<std::string, std::string>>& tasks, int index, int least,
    double grace, double patience, const nb::object& variables) {
  AllReduceHookOptions options;
  for (const auto& [task, target] : tasks) options.members.push_back({task, target});
  options.index = index;
  options.least = least;
  options.grace = absl::Seconds(grace);
  options.patience = absl::Seconds(patience);
  options.interrupted = RunSignalHandlers;
  return std::make_shared<AllReduceHook>(
      std::move(all_reduce), scope, std::move(options),
      [variables]() -> absl::StatusOr<std::vector<TrainVariable>> {
        std::vector<TrainVariable> found;
        RETURN_IF_ERROR(CallPython([&] { found = VariablesFromPython(variables()); }));
        return found;
      });
}

}  // namespace

void BindAllReduce(nb::module_& m) {
  nb::class_<AllReduce>(m, "AllReduce")
      .def("apply_gradients", &ApplyGradients, nb::rv_policy::reference, nb::arg("scope"),
           nb::arg("gradients"), nb::arg("variables"), nb::arg("global_step"), nb::arg("apply"),
           nb::arg("apply_staying").none(), nb::arg("make_local"))
      .def("has_trained", &AllReduce::has_trained)
      .def(
          "gentle_initializer",
          [](const AllReduce& all_reduce, const Scope& scope, const nb::list& variables,
             bool with_staying) {
            return BuildValue(all_reduce.AddGentleInitializer(scope, VariablesFromPython(variables),
                                                              with_staying));
          },
          nb::rv_policy::reference);
  m.def(
      "new_all_reduce",
      [](std::string name, int64_t bucket_bytes, int64_t average_every, const nb::object& stays) {
        AllReduceOptions options;
        options.name = std::move(name);
        options.bucket_bytes = bucket_bytes;
        options.average_every = average_every;
        if (!stays.is_none()) {
          options.stays = [stays](const TrainVariable& variable) {
            bool result = false;
            CallPython([&] {
              result = nb::cast<bool>(stays(variable.name(), variable.node().device()));
            }).IgnoreError();
            return result;
          };
        }
        return std::make_shared<AllReduce>(std::move(options));
      },
      nb::arg("name"), nb::arg("bucket_bytes"), nb::arg("average_every"), nb::arg("stays").none());
  m.def("new_all_reduce_hook", &NewHook);
}

}  // namespace muster
