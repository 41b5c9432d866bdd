#include <CLI/CLI.hpp>

#include "muster/base/log.h"
#include "muster/base/settings.h"
#include "muster/cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"Muster: distributed TensorFlow 1.x training"};
  app.set_version_flag("--version", std::string("muster ") + MUSTER_VERSION);
  app.require_subcommand(1);
  muster::Command chosen;
  muster::AddRunCommand(app, chosen);
  muster::AddOpsCommand(app, chosen);
  muster::AddLaunchCommand(app, chosen);
  muster::AddServeCommand(app, chosen);
  muster::AddStatusCommand(app, chosen);
  muster::AddExplainCommand(app, chosen);
  muster::AddCheckpointCommand(app, chosen);
  const absl::StatusOr<int> level = muster::ReadLogLevel();
  if (!level.ok()) LOG(WARNING) << level.status().message() << "; all lines are shown";
  muster::SetLogLevel(static_cast<muster::LogLevel>(level.value_or(0)));
  CLI11_PARSE(app, argc, argv);
  return chosen ? chosen() : 0;
}
