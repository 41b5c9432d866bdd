// What the bindings of the training library share.
#pragma once

#include <memory>
#include <vector>

#include "bindings.h"

#include "muster/graph/gradients.h"
#include "muster/train/operand.h"
#include "muster/train/queue_runner.h"

namespace muster {

// A number, an Output, a TrainVariable or a tensor value: muster.operand.operand gives these.
Operand OperandFromPython(nb::handle value);
// Of objects with the method _train_variable.
std::vector<TrainVariable> VariablesFromPython(nb::handle values);

// None, an Output, or a tuple (values, indices, dense_shape or None).
nb::object GradientToPython(const Gradient& gradient);
Gradient GradientFromPython(nb::handle value);

// `on_error` gets the exception of a thread and gives the one to report.
std::shared_ptr<QueueRunner> QueueRunnerFromDef(QueueRunnerDef def, nb::object on_error);

}  // namespace muster
