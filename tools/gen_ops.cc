// Writes muster/ops.h: one typed C++ function per op of the registry.
//
//   Output product = ops::MatMul(scope, a, b, {.transpose_a = true, .name = "xw"});
//
// Attributes with a default are fields of the options; those that the inputs decide are left out;
// the rest are arguments. Several outputs come back as a struct.
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/graph/op_registry.h"

namespace muster {
namespace {

// A name of an op definition as a C++ name.
std::string Safe(const std::string& name) {
  static const auto* reserved = new std::set<std::string>{
      "auto",     "bool",   "char",      "class",  "const",    "default", "delete",
      "double",   "else",   "enum",      "export", "float",    "for",     "if",
      "int",      "long",   "namespace", "new",    "operator", "private", "public",
      "register", "return", "scope",     "name",   "options",  "short",   "switch",
      "template", "this",   "typename",  "union",  "while"};
  return reserved->contains(name) ? name + "_" : name;
}

std::string CppType(const std::string& kind) {
  if (kind == "string") return "std::string";
  if (kind == "int") return "int64_t";
  if (kind == "float") return "float";
  if (kind == "bool") return "bool";
  if (kind == "type") return "DType";
  if (kind == "shape") return "PartialShape";
  if (kind == "tensor") return "Tensor";
  if (kind == "func") return "FunctionRef";
  return absl::StrCat("std::vector<", CppType(kind.substr(5, kind.size() - 6)), ">");
}

std::string Literal(const AttrValue& value);
template <typename T>
std::string ListLiteral(const std::vector<T>& values) {
  std::vector<std::string> parts;
  for (const T& value : values) parts.push_back(Literal(AttrValue(T(value))));
  return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
}

std::string Literal(const AttrValue& value) {
  if (const auto* text = value.get<std::string>())
    return absl::StrCat("\"", absl::CEscape(*text), "\"");
  if (const auto* number = value.get<int64_t>()) return absl::StrCat(*number);
  if (const auto* real = value.get<float>()) {
    std::string digits = absl::StrCat(*real);
    if (!absl::StrContains(digits, ".") && !absl::StrContains(digits, "e") &&
        !absl::StrContains(digits, "n"))
      digits += ".0";
    if (absl::StrContains(digits, "inf")) return "std::numeric_limits<float>::infinity()";
    return digits + "f";
  }
  if (const auto* flag = value.get<bool>()) return *flag ? "true" : "false";
  if (const auto* type = value.get<DType>())
    return absl::StrCat("static_cast<DType>(", static_cast<int>(*type), ")");
  if (const auto* shape = value.get<PartialShape>()) {
    if (!shape->known_rank()) return "PartialShape()";
    return shape->rank() == 0
               ? "PartialShape::Scalar()"
               : absl::StrCat("PartialShape({", absl::StrJoin(shape->dims(), ", "), "})");
  }
  if (const auto* tensor = value.get<Tensor>()) {
    // The only default of this kind is a colour.
    std::vector<int> bytes(tensor->data<uint8_t>(),
                           tensor->data<uint8_t>() + tensor->num_elements());
    return absl::StrCat("Tensor::Vector<uint8_t>({", absl::StrJoin(bytes, ", "), "})");
  }
  if (const auto* list = value.get<std::vector<int64_t>>()) return ListLiteral(*list);
  if (const auto* list = value.get<std::vector<float>>()) return ListLiteral(*list);
  if (const auto* list = value.get<std::vector<std::string>>()) return ListLiteral(*list);
  if (const auto* list = value.get<std::vector<DType>>()) return ListLiteral(*list);
  return "{}";
}

class OpWriter {
 public:
  OpWriter(const OpRegistration& op, std::ostream& out) : op_(op), def_(op.def), out_(out) {
    for (const ArgDef& arg : def_.inputs) {
      inferred_.insert({arg.type_attr, arg.number_attr, arg.type_list_attr});
    }
  }

  void Write() {
    if (!op_.doc.empty()) out_ << "// " << op_.doc << "\n";
    WriteOptions();
    WriteOutputs();
    WriteFunction();
  }

 private:
  bool IsOption(const AttrDef& attr) const {
    return attr.default_value.has_value() && !inferred_.contains(attr.name);
  }
  bool IsArgument(const AttrDef& attr) const {
    return !attr.default_value && !inferred_.contains(attr.name);
  }
  std::string OptionsName() const { return def_.name + "Options"; }
  std::string ResultType() const {
    if (def_.outputs.empty()) return "Node*";
    if (def_.outputs.size() > 1) return def_.name + "Outputs";
    return def_.outputs[0].is_list() ? "std::vector<Output>" : "Output";
  }

  void WriteOptions() {
    out_ << "struct " << OptionsName() << " {\n";
    for (const AttrDef& attr : def_.attrs) {
      if (!IsOption(attr)) continue;
      out_ << "  " << CppType(attr.type) << " " << Safe(attr.name) << " = "
           << Literal(*attr.default_value) << ";\n";
    }
    out_ << "  std::string name = {};  // of the node; the op's own by default\n};\n";
  }

  void WriteOutputs() {
    if (def_.outputs.size() < 2) return;
    out_ << "struct " << ResultType() << " {\n";
    for (const ArgDef& arg : def_.outputs) {
      out_ << "  " << (arg.is_list() ? "std::vector<Output> " : "Output ") << Safe(arg.name)
           << ";\n";
    }
    out_ << "};\n";
  }

  void WriteFunction() {
    std::vector<std::string> parameters = {"const Scope& scope"};
    std::vector<std::string> inputs;
    for (const ArgDef& arg : def_.inputs) {
      parameters.push_back(
          absl::StrCat(arg.is_list() ? "std::vector<Output> " : "Output ", Safe(arg.name)));
      inputs.push_back(Safe(arg.name));
    }
    for (const AttrDef& attr : def_.attrs) {
      if (IsArgument(attr))
        parameters.push_back(absl::StrCat("const ", CppType(attr.type), "& ", Safe(attr.name)));
    }
    parameters.push_back(absl::StrCat("const ", OptionsName(), "& options = {}"));
    out_ << "inline " << ResultType() << " " << def_.name << "(" << absl::StrJoin(parameters, ", ")
         << ") {\n";
    out_ << "  AttrMap attrs;\n";
    for (const AttrDef& attr : def_.attrs) {
      if (IsArgument(attr))
        out_ << "  attrs.emplace(\"" << attr.name << "\", AttrValue(" << Safe(attr.name) << "));\n";
      // What TensorFlow 1.15 does not know is written only where it matters.
      if (IsOption(attr) && attr.since_2x) {
        out_ << "  if (!(AttrValue(options." << Safe(attr.name) << ") == AttrValue("
             << OptionsName() << "()." << Safe(attr.name) << "))) attrs.emplace(\"" << attr.name
             << "\", AttrValue(options." << Safe(attr.name) << "));\n";
      } else if (IsOption(attr)) {
        out_ << "  attrs.emplace(\"" << attr.name << "\", AttrValue(options." << Safe(attr.name)
             << "));\n";
      }
    }
    out_ << "  Node* node = scope.Add(\"" << def_.name << "\", {" << absl::StrJoin(inputs, ", ")
         << "}, std::move(attrs), options.name);\n";
    WriteResult();
    out_ << "}\n\n";
  }

  void WriteResult() {
    if (def_.outputs.empty()) {
      out_ << "  return node;\n";
    } else if (def_.outputs.size() == 1) {
      out_ << "  return internal::" << (def_.outputs[0].is_list() ? "List" : "One") << "(node, \""
           << def_.outputs[0].name << "\");\n";
    } else {
      std::vector<std::string> parts;
      for (const ArgDef& arg : def_.outputs) {
        parts.push_back(absl::StrCat("internal::", arg.is_list() ? "List" : "One", "(node, \"",
                                     arg.name, "\")"));
      }
      out_ << "  return {" << absl::StrJoin(parts, ", ") << "};\n";
    }
  }

  const OpRegistration& op_;
  const OpDef& def_;
  std::ostream& out_;
  std::set<std::string> inferred_;
};

constexpr char kHead[] =
    R"(// Written by tools/gen_ops from the op registry. A node that could not be made gives empty outputs; scope.status() says why.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "muster/graph/build/scope.h"

namespace muster::ops {
namespace internal {
inline Output One(Node* node, const char* arg) {
  return node == nullptr ? Output() : Output(node, node->OutputRange(arg).begin);
}
inline std::vector<Output> List(Node* node, const char* arg) {
  std::vector<Output> outputs;
  if (node == nullptr) return outputs;
  const ArgRange range = node->OutputRange(arg);
  for (int i = range.begin; i < range.end; ++i) outputs.emplace_back(node, i);
  return outputs;
}
}  // namespace internal

)";

int Main(const std::string& path) {
  std::ostringstream text;
  text << kHead;
  for (const OpRegistration* op : OpRegistry::Global().All()) {
    if (op->def.name[0] != '_') OpWriter(*op, text).Write();
  }
  text << "}  // namespace muster::ops\n";
  std::ofstream file(path);
  file << text.str();
  if (!file.good()) {
    std::fprintf(stderr, "gen_ops: cannot write %s\n", path.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: gen_ops FILE\n");
    return 2;
  }
  return muster::Main(argv[1]);
}
