// Writes the classes of the optimizers from what their files in muster/train/optimizers say of
// them:
//
//   gen_optimizers --cpp FILE       muster/optimizers.h
//       AdamOptimizer adam(0.001, {.beta1 = 0.8});
//   gen_optimizers --python FILE    the module muster.generated.optimizers: tf.train.AdamOptimizer
//
// In C++ the learning rate and what has no default are arguments; the rest are fields of the
// options.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "muster/graph/proto/message_text_proto.h"
#include "muster/train/optimizers/definition.h"

namespace muster {
namespace {

using Kind = OptimizerParameter::Kind;

// `text` in lines of at most `width` columns, each after `indent`; the first stands after `head`.
std::string Wrapped(const std::string& head, const std::string& indent, const std::string& text,
                    size_t width) {
  std::string result, line = head;
  bool is_first_word = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!is_first_word && line.size() + 1 + word.size() > width) {
      absl::StrAppend(&result, line, "\n");
      line = indent;
      is_first_word = true;
    }
    absl::StrAppend(&line, is_first_word ? "" : " ", word);
    is_first_word = false;
  }
  return absl::StrCat(result, line, "\n");
}

// --- C++

bool IsArgument(const OptimizerParameter& parameter) {
  return !parameter.default_value.has_value() || parameter.name == "learning_rate";
}

std::string CppType(Kind kind) {
  switch (kind) {
    case Kind::kTensor:
      return "Operand";
    case Kind::kNumber:
      return "double";
    case Kind::kFlag:
      return "bool";
    case Kind::kText:
      return "std::string";
  }
  return "";
}

std::string CppDefault(const OptimizerValue& value) {
  if (const auto* operand = std::get_if<Operand>(&value)) {
    return PythonFloat(operand->number()->value);
  }
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  const auto& text = std::get<std::string>(value);
  return text.empty() ? "{}" : absl::StrCat("\"", absl::CEscape(text), "\"");
}

void WriteCpp(const OptimizerDef& def, std::ostream& out) {
  const std::string options = def.name() + "Options";
  std::vector<std::string> arguments, values;
  out << "\nstruct " << options << " {\n";
  for (const OptimizerParameter& parameter : def.parameters()) {
    const std::string declared = absl::StrCat(
        CppType(parameter.kind), " ", parameter.name,
        parameter.default_value ? absl::StrCat(" = ", CppDefault(*parameter.default_value)) : "");
    const bool is_argument = IsArgument(parameter);
    if (is_argument) {
      arguments.push_back(declared);
    } else {
      out << Wrapped("  // ", "  // ", parameter.doc, 100) << "  " << declared << ";\n";
    }
    values.push_back(
        absl::StrCat("std::move(", is_argument ? "" : "options.", parameter.name, ")"));
  }
  arguments.push_back(absl::StrCat(options, " options = {}"));
  out << "};\n\n" << Wrapped("// ", "// ", def.doc(), 100);
  out << "class " << def.name() << "Optimizer : public DefinedOptimizer {\n public:\n";
  out << "  explicit " << def.name() << "Optimizer(" << absl::StrJoin(arguments, ", ") << ")\n";
  const std::string head = absl::StrCat("      : DefinedOptimizer(\"", def.name(), "\", {");
  out << Wrapped(head, std::string(head.size(), ' '), absl::StrJoin(values, ", ") + "}) {}", 100);
  out << "};\n";
}

// --- Python

std::string PythonDefault(const OptimizerValue& value) {
  if (const auto* operand = std::get_if<Operand>(&value)) {
    return PythonFloat(operand->number()->value);
  }
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  const auto& text = std::get<std::string>(value);
  return text.empty() ? "None" : absl::StrCat("\"", absl::CEscape(text), "\"");
}

const char* PythonType(const OptimizerParameter& parameter) {
  switch (parameter.kind) {
    case Kind::kTensor:
      return "A number, a tensor or variable, or a callable that returns one.";
    case Kind::kNumber:
      return "A number.";
    case Kind::kFlag:
      return "A bool.";
    case Kind::kText:
      return "A string.";
  }
  return "";
}

// A class attribute: {parameter: attribute that holds its value}.
std::string Attributes(const char* name, const std::vector<const OptimizerParameter*>& parameters) {
  const std::string head = absl::StrCat("    ", name, " = {");
  std::vector<std::string> items;
  for (const OptimizerParameter* parameter : parameters) {
    items.push_back(absl::StrCat("\"", parameter->name, "\": \"", parameter->attribute, "\""));
  }
  return absl::StrCat(head, absl::StrJoin(items, ",\n" + std::string(head.size(), ' ')), "}\n");
}

void WritePython(const OptimizerDef& def, std::ostream& out) {
  const std::string name = def.name() + "Optimizer";
  out << "\n\nclass " << name << "(CoreOptimizer):\n";
  out << Wrapped("    \"\"\"", "    ", def.doc(), 120) << "\n    Args:\n";
  std::vector<std::string> signature = {"self"};
  std::vector<const OptimizerParameter*> tensors, settings;
  for (const OptimizerParameter& parameter : def.parameters()) {
    out << Wrapped(absl::StrCat("      ", parameter.name, ": "), "        ",
                   absl::StrCat(PythonType(parameter), " ", parameter.doc), 120);
    signature.push_back(absl::StrCat(
        parameter.name,
        parameter.default_value ? "=" + PythonDefault(*parameter.default_value) : std::string()));
    if (parameter.name == "use_locking" || parameter.name == "name") continue;
    if (!parameter.tensor_attribute.empty()) tensors.push_back(&parameter);
    if (parameter.kind != Kind::kTensor) settings.push_back(&parameter);
  }
  out << "    \"\"\"\n    _kind = \"" << def.name() << "\"\n";
  out << Attributes("_tensors", tensors) << Attributes("_settings", settings);
  for (const OptimizerParameter* parameter : tensors) {
    out << "    " << parameter->tensor_attribute << " = tensor_of(\"" << parameter->name << "\")\n";
  }
  const std::string head = "\n    def __init__(";
  out << Wrapped(head, std::string(head.size() - 1, ' '),
                 absl::StrJoin(signature, ", ") + "):", 121);
  out << "        super(" << name << ", self).__init__(use_locking, name)\n";
  for (const OptimizerParameter& parameter : def.parameters()) {
    if (parameter.name == "use_locking" || parameter.name == "name") continue;
    out << "        self." << parameter.attribute << " = " << parameter.name << "\n";
  }
  out << "        self._check_settings()\n";
}

std::string CppHeader() {
  std::ostringstream text;
  text
      << R"(// The optimizers. Written by tools/gen_optimizers from the files in muster/train/optimizers.
#pragma once

#include <string>
#include <utility>

#include "muster/train/optimizers/definition.h"

namespace muster {
)";
  for (const OptimizerDef* def : OptimizerRegistry::All()) WriteCpp(*def, text);
  text << "\n}  // namespace muster\n";
  return text.str();
}

std::string PythonModule() {
  std::vector<std::string> names;
  for (const OptimizerDef* def : OptimizerRegistry::All()) {
    names.push_back(absl::StrCat("\"", def->name(), "Optimizer\""));
  }
  std::ostringstream text;
  text
      << R"("""The optimizers of tf.train. tools/gen_optimizers has made them from muster/train/optimizers."""
from muster.train.core_optimizer import CoreOptimizer, tensor_of

)" << Wrapped("__all__ = [", std::string(11, ' '), absl::StrJoin(names, ", ") + "]", 120);
  for (const OptimizerDef* def : OptimizerRegistry::All()) WritePython(*def, text);
  return text.str();
}

int Main(const std::string& language, const std::string& path) {
  std::ofstream file(path);
  file << (language == "--cpp" ? CppHeader() : PythonModule());
  file.close();
  if (!file.good()) {
    std::fprintf(stderr, "gen_optimizers: cannot write %s\n", path.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const std::string language = argc == 3 ? argv[1] : "";
  if (language != "--cpp" && language != "--python") {
    std::fprintf(stderr, "usage: gen_optimizers --cpp|--python FILE\n");
    return 2;
  }
  return muster::Main(language, argv[2]);
}
