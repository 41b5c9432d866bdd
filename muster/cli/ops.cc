// muster ops [NAME]: what the registry knows.
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "muster/cli/commands.h"
#include "muster/graph/op_registry.h"

namespace muster {
namespace {

int ListOps(const std::string& name) {
  if (name.empty()) {
    for (const OpRegistration* op : OpRegistry::Global().All())
      std::printf("%s\n", op->def.name.c_str());
    return 0;
  }
  const OpRegistration* op = OpRegistry::Global().Find(name);
  if (op == nullptr) {
    std::fprintf(stderr, "muster ops: there is no op '%s'\n", name.c_str());
    return 1;
  }
  std::printf("%s\n%s\n", SummarizeOpDef(op->def).c_str(), op->doc.c_str());
  return 0;
}

}  // namespace

void AddOpsCommand(CLI::App& app, Command& chosen) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("ops", "List the ops, or describe one");
  command->add_option("name", *name, "The op to describe");
  command->callback([name, &chosen] { chosen = [name] { return ListOps(*name); }; });
}

}  // namespace muster
