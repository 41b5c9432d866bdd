// What the gradient functions of array ops share.
#pragma once

#include <string>

#include "muster/graph/gradients/gradient_context.h"

namespace muster {

// Rank(x) as the front end builds it in gradients: a Const where the rank is known.
Output RankOf(GradientContext& c, Output x);
// Pack of scalars, each an Output or a number: numbers become Const "<name>/<position>" first.
Output PackScalars(GradientContext& c, const std::vector<std::variant<Output, int32_t>>& values,
                   const std::string& name);
// ConcatV2 along `axis`, with the Const "<name>/axis".
Output ConcatOf(GradientContext& c, std::vector<Output> values, int32_t axis,
                const std::string& name);
// Gradient of a reshape of input 0: Reshape(dy, Shape(x)).
absl::Status ReshapeToInput(GradientContext& c);
// The text as Python shows a bytes object: b'text'.
std::string PythonBytes(const std::string& text);

}  // namespace muster
