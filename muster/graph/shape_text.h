// Shapes as Python shows them, in texts that TensorFlow's Python gives.
#pragma once

#include <string>

#include "muster/tensor/shape.h"

namespace muster {

// "()", "(2,)", "(?, 3)", "<unknown>".
std::string PythonShapeText(const PartialShape& shape);

}  // namespace muster
