// What an op is called, takes, gives and can be configured with: TensorFlow's OpDef as a domain
// type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/graph/attr_value.h"

namespace muster {

struct ArgDef {
  std::string name;
  DType type = DType::kInvalid;  // fixed type, or one of the following names an attribute
  std::string type_attr;
  std::string number_attr;     // a list of this many
  std::string type_list_attr;  // a list with these types
  bool is_ref = false;

  bool is_list() const { return !number_attr.empty() || !type_list_attr.empty(); }
};

struct AttrDef {
  std::string name;
  std::string type;  // "int", "list(type)", ...
  std::optional<AttrValue> default_value;
  std::optional<int64_t> minimum;  // of the int, or of the list's length
  std::vector<DType> allowed_types;
  std::vector<std::string> allowed_strings;
  // Unknown to TensorFlow 1.15: our front ends do not write it into nodes while it has its default
  // value.
  bool since_2x = false;
};

struct OpDef {
  std::string name;
  std::vector<ArgDef> inputs;
  std::vector<ArgDef> outputs;
  std::vector<AttrDef> attrs;
  bool is_stateful = false;
  bool is_commutative = false;
  bool is_aggregate = false;
  bool allows_uninitialized_input = false;
  bool is_distributed_communication = false;
  int deprecated_at_version = 0;  // 0: not deprecated
  std::string deprecation_text;

  const AttrDef* FindAttr(absl::string_view attr_name) const;
  // Index of the argument with that name, or -1.
  int FindInput(absl::string_view arg_name) const;
  int FindOutput(absl::string_view arg_name) const;
};

// Parse the compact notation of op files, which is TensorFlow's own:
//   argument  "x: T", "values: N * T", "input: Ref(T)", "components: Tcomponents", "shape: int32"
//   attribute "T: {float, double} = DT_FLOAT", "N: int >= 1", "padding: {'SAME', 'VALID'}", "shape:
//   shape",
//             "T: numbertype", "types: list(type) >= 1 = []", "use_locking: bool = false"
// Requires nothing: errors come back as InvalidArgument. `attrs` are the attributes parsed so far.
absl::StatusOr<AttrDef> ParseAttrDef(absl::string_view text);
absl::StatusOr<ArgDef> ParseArgDef(absl::string_view text, const std::vector<AttrDef>& attrs);

// "Op<name=MatMul; signature=a:T, b:T -> product:T; attr=...>", as TensorFlow's error texts show
// definitions.
std::string SummarizeOpDef(const OpDef& op);

// Input and output types of a node with these attributes, lists expanded. InvalidArgument for
// missing or bad attrs.
absl::StatusOr<std::vector<DType>> ArgTypes(const std::vector<ArgDef>& args, const AttrMap& attrs);
// The flat range [begin, end) that each argument occupies.
struct ArgRange {
  int begin = 0;
  int end = 0;
};
absl::StatusOr<std::vector<ArgRange>> ArgRanges(const std::vector<ArgDef>& args,
                                                const AttrMap& attrs);

}  // namespace muster
