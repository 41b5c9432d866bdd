// What the bindings of the training library share.
#pragma once

#include <memory>
#include <vector>

#include "bindings.h"

#include "muster/graph/gradients/gradients.h"
#include "muster/train/loop/queue_runner.h"
#include "muster/train/model/operand.h"

namespace muster {

// A number, an Output, a TrainVariable or a tensor value: muster.graph.convert.operand
// gives these.
Operand OperandFromPython(nb::handle value);
// Of objects with the method _train_variable.
std::vector<TrainVariable> VariablesFromPython(nb::handle values);

// None, an Output, or a tuple (values, indices, dense_shape or None).
nb::object GradientToPython(const Gradient& gradient);
Gradient GradientFromPython(nb::handle value);

// `on_error` gets the exception of a thread and gives the one to report.
std::shared_ptr<QueueRunner> QueueRunnerFromDef(QueueRunnerDef def, nb::object on_error);

// What a Python object holds, kept with that object, on any thread. Null for None.
template <typename T>
std::shared_ptr<T> Shared(nb::object object) {
  if (object.is_none()) return nullptr;
  return std::shared_ptr<T>(HoldPython(object), nb::cast<T*>(object));
}

}  // namespace muster
