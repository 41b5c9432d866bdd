// How a Python script is started so that its `tensorflow` is Muster, or a program of its own.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "muster/base/status.h"

namespace muster {

// The words of the command; PYTHONPATH of this process is set for a script. Other executables are
// started themselves. `python`: the interpreter, "" to look for one. NotFound for a script that
// cannot be read.
absl::StatusOr<std::vector<std::string>> ScriptCommand(const std::string& script,
                                                       const std::vector<std::string>& arguments,
                                                       const std::string& python);

// --python, for what starts scripts.
void AddPythonOption(CLI::App& command, std::string& python);

}  // namespace muster
