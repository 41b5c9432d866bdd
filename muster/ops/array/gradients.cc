#include "muster/ops/array/gradients.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster {

Output RankOf(GradientContext& c, Output x) {
  if (x.shape().known_rank()) return c.scope().ConstScalar<int32_t>(x.shape().rank(), "Rank");
  return c.Op("Rank", {x});
}

Output PackScalars(GradientContext& c, const std::vector<std::variant<Output, int32_t>>& values,
                   const std::string& name) {
  std::vector<Output> outputs;
  for (size_t i = 0; i < values.size(); ++i) {
    if (const int32_t* number = std::get_if<int32_t>(&values[i])) {
      outputs.push_back(c.scope().ConstScalar<int32_t>(*number, absl::StrCat(name, "/", i)));
    } else {
      outputs.push_back(std::get<Output>(values[i]));
    }
  }
  return c.Op("Pack", {outputs}, {{"axis", 0}}, name);
}

Output ConcatOf(GradientContext& c, std::vector<Output> values, int32_t axis,
                const std::string& name) {
  const Output axis_value = c.scope().ConstScalar<int32_t>(axis, name + "/axis");
  return c.Op("ConcatV2", {std::move(values), axis_value}, {}, name);
}

absl::Status ReshapeToInput(GradientContext& c) {
  const Output dy = c.dy();
  const Output shape = c.ShapeOf(c.input(0));
  c.SetDx(0, c.Op("Reshape", {dy, shape}));
  return absl::OkStatus();
}

std::string PythonBytes(const std::string& text) {
  const bool has_single = absl::StrContains(text, '\''), has_double = absl::StrContains(text, '"');
  if (!has_single || has_double) return absl::StrCat("b'", absl::CHexEscape(text), "'");
  return absl::StrCat("b\"", text, "\"");
}

}  // namespace muster
