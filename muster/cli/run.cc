// muster run script.py args: runs a script in which `tensorflow` means Muster, or a program.
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <CLI/CLI.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "muster/base/settings.h"
#include "muster/cli/commands.h"
#include "muster/cli/interpreter.h"
#include "muster/cli/launch_plan.h"
#include "muster/cli/script.h"

namespace muster {
namespace {

std::string FolderOfThisProgram() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return ".";
  const std::string program(path, static_cast<size_t>(length));
  return program.substr(0, program.rfind('/'));
}

bool Exists(const std::string& path) {
  return access(path.c_str(), R_OK) == 0;
}

// Where the package is relative to the program: build tree, installation, wheel.
std::string PackageFolder(const std::string& program_folder) {
  for (const char* candidate : {"/../python", "/../lib/muster/python", "/../.."}) {
    const std::string folder = program_folder + candidate;
    if (Exists(folder + "/muster/__init__.py")) return folder;
  }
  return "";
}

// A program of its own: executable, and neither *.py nor a file whose first line names Python.
bool IsProgram(const std::string& path) {
  struct stat about {};
  if (absl::EndsWith(path, ".py") || stat(path.c_str(), &about) != 0) return false;
  if (!S_ISREG(about.st_mode) || access(path.c_str(), X_OK) != 0) return false;
  std::string first_line;
  std::ifstream file(path);
  return file.get() != '#' || !std::getline(file, first_line) ||
         !absl::StrContains(first_line, "python");
}

int Run(const std::string& script, const std::vector<std::string>& arguments,
        const std::string& python) {
  absl::StatusOr<std::vector<std::string>> words = ScriptCommand(script, arguments, python);
  if (!words.ok()) {
    std::fprintf(stderr, "muster run: %s\n", std::string(words.status().message()).c_str());
    return 2;
  }
  std::vector<char*> argv;
  for (std::string& word : *words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::fprintf(stderr, "muster run: cannot start '%s': %s\n", argv[0], std::strerror(errno));
  return 127;
}

// The arguments of a script, those that TF_CONFIG stands for before its own.
absl::StatusOr<std::vector<std::string>> WithClusterFlags(std::vector<std::string> words) {
  ASSIGN_OR_RETURN(const LaunchPlan plan, PlanTfConfig(EnvironmentVariable("TF_CONFIG")));
  const std::vector<std::string> flags = ClusterFlags(plan, plan.processes[0].tasks[0]);
  words.insert(words.begin(), flags.begin(), flags.end());
  return words;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ScriptCommand(const std::string& script,
                                                       const std::vector<std::string>& arguments,
                                                       const std::string& python) {
  if (!Exists(script)) return NotFound("cannot read script '", script, "': ", std::strerror(errno));
  if (IsProgram(script)) {
    std::vector<std::string> words = {absl::StrContains(script, '/') ? script : "./" + script};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  const std::string package = PackageFolder(FolderOfThisProgram());
  ASSIGN_OR_RETURN(const std::string interpreter, FindInterpreter(python, package));
  if (!package.empty()) {
    const std::string old = EnvironmentVariable("PYTHONPATH");
    const std::string path = old.empty() ? package : absl::StrCat(package, ":", old);
    setenv("PYTHONPATH", path.c_str(), 1);
  }
  std::vector<std::string> words = {interpreter, "-m", "muster._run", script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void AddPythonOption(CLI::App& command, std::string& python) {
  command.add_option("--python", python,
                     "the Python for scripts; default: MUSTER_PYTHON, the activated virtual "
                     "environment's, or the one that Muster was installed for");
}

void AddRunCommand(CLI::App& app, Command& chosen) {
  auto cluster_flags = std::make_shared<bool>(false);
  auto python = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "run", "Run a script; `import tensorflow` gives it Muster. A program runs as it is");
  command->add_flag("--cluster_flags", *cluster_flags,
                    "Put --ps_hosts, --worker_hosts, --job_name and --task_index, as TF_CONFIG has "
                    "them, before the script's arguments");
  AddPythonOption(*command, *python);
  command->prefix_command();
  command->callback([command, cluster_flags, python, &chosen] {
    std::vector<std::string> words = command->remaining();
    if (words.empty()) {
      chosen = [] {
        std::fprintf(stderr, "muster run: which script? usage: muster run SCRIPT [ARGUMENTS]\n");
        return 2;
      };
      return;
    }
    const std::string script = words.front();
    words.erase(words.begin());
    chosen = [script, words, with_flags = *cluster_flags, python] {
      if (!with_flags) return Run(script, words, *python);
      const absl::StatusOr<std::vector<std::string>> all = WithClusterFlags(words);
      if (all.ok()) return Run(script, *all, *python);
      std::fprintf(stderr, "muster run: %s\n", std::string(all.status().message()).c_str());
      return 2;
    };
  });
}

}  // namespace muster
