// muster launch: one script or program as the tasks of a cluster, wherever this runs.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include <CLI/CLI.hpp>

#include "muster/cli/commands.h"
#include "muster/cli/launcher.h"
#include "muster/cli/remote_task.h"
#include "muster/cli/script.h"

namespace muster {
namespace {

int Run(const LaunchFlags& flags, const std::string& script,
        const std::vector<std::string>& arguments) {
  absl::StatusOr<LaunchPlan> plan = MakePlan(flags);
  if (!plan.ok()) {
    std::fprintf(stderr, "muster launch: %s\n", std::string(plan.status().message()).c_str());
    return 2;
  }
  Launcher launcher(flags, *std::move(plan), script, arguments);
  return flags.dry_run ? launcher.Show() : launcher.Run();
}

void AddClusterOptions(CLI::App& command, LaunchFlags& flags) {
  command.add_option("--ps", flags.ps, "parameter servers (1)")->check(CLI::Range(0, 1000));
  command.add_option("--workers", flags.workers, "workers (1)")->check(CLI::Range(1, 1000));
  command
      .add_option("--max-restarts,--max_restarts", flags.max_restarts,
                  "how often a task that fails is started again (0)")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--standalone", flags.standalone,
                   "all tasks in one process, as threads, without sockets between them");
  command
      .add_option("--processes", flags.processes,
                  "all tasks in this many processes; those of one process call each other directly")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--port", flags.port,
                  "the first of the ports of the tasks, on each host; default: free ones")
      ->check(CLI::Range(1, 65535));
  command
      .add_option("--metrics-port,--metrics_port", flags.metrics_port,
                  "serve /metrics and /healthz: the first ps on this port, the others on the next "
                  "ones, then the workers")
      ->check(CLI::Range(1, 65535));
  command
      .add_option("--environment", flags.environment,
                  "where cluster and task come from (auto): auto, local, slurm, mpi, tf_config")
      ->check(CLI::IsMember({"auto", "local", "slurm", "mpi", "tf_config"}));
  command.add_flag("--dry-run,--dry_run", flags.dry_run,
                   "print arguments and TF_CONFIG of each task, start nothing");
}

void AddHostOptions(CLI::App& command, LaunchFlags& flags) {
  command.add_option("--hosts", flags.hosts_file,
                     "tasks run by SSH on the hosts of this file, lines of [USER@]HOST [slots=N]");
  command.add_option("--ssh", flags.ssh, "the command for it (ssh -o BatchMode=yes)");
  command.add_option("--remote-muster", flags.remote_muster,
                     "the path of `muster` on those hosts; default: its path here");
  command
      .add_option("--env", flags.variables,
                  "carry this variable too, NAME or NAME=VALUE; may be repeated")
      ->expected(1);
  command.add_option("--rendezvous", flags.rendezvous,
                     "under mpirun on several nodes: a folder that they share");
  command.add_option("--host", flags.host, "under mpirun: the name of this node for the others");
  command.add_option("--job_name", flags.job_name,
                     "run one task only, of this job (ps or worker), with --ps_address and "
                     "--worker_address");
  command
      .add_option("--task_index", flags.task_index,
                  "its number; default: JOB_COMPLETION_INDEX, or the end of the host's name")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--ps_address", flags.ps_address,
                     "addresses, {} for the number: ps-{}.ps:2222");
  command.add_option("--worker_address", flags.worker_address, "the same for workers");
}

}  // namespace

void AddLaunchCommand(CLI::App& app, Command& chosen) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* command =
      app.add_subcommand("launch",
                         "Run a script or a program as a whole cluster, on this machine, by SSH on "
                         "others, under Slurm "
                         "or mpirun: muster launch --ps 1 --workers 2 SCRIPT [ARGUMENTS]");
  AddClusterOptions(*command, *flags);
  AddHostOptions(*command, *flags);
  command->add_option("--stop_seconds", flags->stop_seconds,
                      "how long tasks have to end before they are killed (5)");
  AddPythonOption(*command, flags->python);
  command->add_flag("--no_colour,--no_color", flags->no_colour, "names of tasks without colours");
  command->add_flag("--no_status", flags->no_status, "no line of progress");
  command->prefix_command();
  command->callback([command, flags, &chosen] {
    std::vector<std::string> words = command->remaining();
    if (words.empty() || absl::StartsWith(words.front(), "-")) {
      const std::string why = words.empty() ? "which script?" : "unknown flag " + words.front();
      chosen = [why] {
        std::fprintf(stderr,
                     "muster launch: %s usage: muster launch [--ps N] [--workers M] SCRIPT "
                     "[ARGUMENTS]\n",
                     why.c_str());
        return 2;
      };
      return;
    }
    flags->ps_given = command->count("--ps") > 0;
    flags->workers_given = command->count("--workers") > 0;
    const std::string script = words.front();
    words.erase(words.begin());
    chosen = [flags, script, words] { return Run(*flags, script, words); };
  });
  // The other end of --hosts; not for people.
  CLI::App* task =
      app.add_subcommand("launch-task", "One task that a launcher elsewhere has asked for");
  task->group("");
  auto port = std::make_shared<int>(0);
  task->add_option("--port", *port, "the port that is kept for it")->check(CLI::Range(0, 65535));
  task->callback([port, &chosen] { chosen = [port] { return RunRemoteTask(*port); }; });
}

}  // namespace muster
