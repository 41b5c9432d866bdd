#include "muster/graph/shape_text.h"

#include "absl/strings/str_cat.h"

namespace muster {

std::string PythonShapeText(const PartialShape& shape) {
  if (!shape.known_rank()) return "<unknown>";
  std::string text = "(";
  for (int i = 0; i < shape.rank(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ",
                    shape[i] < 0 ? std::string("?") : absl::StrCat(shape[i]));
  }
  return absl::StrCat(text, shape.rank() == 1 ? ",)" : ")");
}

}  // namespace muster
