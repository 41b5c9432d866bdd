// The subcommands of `muster`; each adds itself to the parser and says what to run.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace muster {

// Set by the subcommand that was chosen; gives the exit status of the process.
using Command = std::function<int()>;

void AddRunCommand(CLI::App& app, Command& chosen);
void AddOpsCommand(CLI::App& app, Command& chosen);
void AddLaunchCommand(CLI::App& app, Command& chosen);
void AddServeCommand(CLI::App& app, Command& chosen);
void AddStatusCommand(CLI::App& app, Command& chosen);
void AddExplainCommand(CLI::App& app, Command& chosen);
void AddCheckpointCommand(CLI::App& app, Command& chosen);

}  // namespace muster
