// muster explain GRAPH --cluster ...: why each node of a graph would run where it would.
#include "muster/client/explain.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"
#include <CLI/CLI.hpp>
#include <google/protobuf/text_format.h>

#include "muster/cli/commands.h"
#include "muster/graph/proto/graph_proto.h"
#include "muster/transport/api/cluster.h"

namespace muster {
namespace {

struct ExplainFlags {
  std::string graph, cluster, node, master;
  int cpu_devices = 1;
  int gpu_devices = 0;
  bool soft = false;
};

absl::StatusOr<tensorflow::GraphDef> ReadGraph(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream stream;
  if (!file || !(stream << file.rdbuf()))
    return NotFound("cannot read '", path, "': ", std::strerror(errno));
  const std::string contents = stream.str();
  tensorflow::GraphDef graph;
  tensorflow::MetaGraphDef meta;
  const bool text = absl::EndsWith(path, "txt");
  if (absl::StrContains(path, ".meta")) {
    if (text ? google::protobuf::TextFormat::ParseFromString(contents, &meta)
             : meta.ParseFromString(contents)) {
      return meta.graph_def();
    }
    return InvalidArgument("'", path, "' is not a MetaGraphDef");
  }
  if (text ? google::protobuf::TextFormat::ParseFromString(contents, &graph)
           : graph.ParseFromString(contents)) {
    return graph;
  }
  return InvalidArgument("'", path,
                         "' is not a GraphDef (a name that ends in 'txt' means text, one "
                         "with '.meta' a MetaGraphDef)");
}

struct Devices {
  std::vector<std::string> names;
  std::string master;  // nodes without a device request run there
};

absl::StatusOr<Devices> DevicesOf(const ExplainFlags& flags) {
  ClusterSpec cluster({{"localhost", {{0, "localhost:0"}}}});
  if (!flags.cluster.empty()) {
    ASSIGN_OR_RETURN(cluster, ClusterSpec::Parse(flags.cluster));
  }
  const std::vector<TaskName> tasks = cluster.tasks();
  TaskName master = cluster.Address({"worker", 0}).ok() ? TaskName{"worker", 0} : tasks.front();
  if (!flags.master.empty()) {
    ASSIGN_OR_RETURN(master, TaskName::Parse(flags.master));
    RETURN_IF_ERROR(cluster.Address(master).status());
  }
  Devices devices;
  devices.master = master.ToString();
  for (const TaskName& task : tasks) {
    for (int i = 0; i < flags.cpu_devices; ++i)
      devices.names.push_back(absl::StrCat(task.ToString(), "/device:CPU:", i));
    for (int i = 0; task.job != "ps" && i < flags.gpu_devices; ++i)
      devices.names.push_back(absl::StrCat(task.ToString(), "/device:GPU:", i));
  }
  return devices;
}

absl::Status PrintPlacement(const ExplainFlags& flags) {
  ASSIGN_OR_RETURN(const tensorflow::GraphDef proto, ReadGraph(flags.graph));
  Graph graph;
  ImportOptions import;
  import.allow_internal_names = true;
  import.adopt_versions = true;
  RETURN_IF_ERROR(ImportGraph(graph, proto, import).status());
  ASSIGN_OR_RETURN(const Devices devices, DevicesOf(flags));
  ExplainOptions options;
  options.allow_soft_placement = flags.soft;
  options.local_task = devices.master;
  options.node = flags.node;
  ASSIGN_OR_RETURN(const auto reasons, ExplainPlacement(graph, devices.names, options));
  for (const std::string& reason : reasons) std::printf("%s\n", reason.c_str());
  return absl::OkStatus();
}

int Explain(const ExplainFlags& flags) {
  const absl::Status status = PrintPlacement(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "muster explain: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

void AddExplainCommand(CLI::App& app, Command& chosen) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command =
      app.add_subcommand("explain", "Say why each node of a graph runs where it does");
  command->add_option("graph", flags->graph, "A GraphDef: binary, or text when it ends in 'txt'")
      ->required();
  command->add_option("--cluster,--cluster_spec", flags->cluster,
                      "Tasks and addresses, as for `muster serve`; default: one local task");
  command->add_option("--node", flags->node, "Only this node");
  command->add_option("--master", flags->master,
                      "The task whose master is asked, /job:NAME/task:N; default: worker 0");
  command->add_option("--cpu-devices", flags->cpu_devices, "CPU devices of each task")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--gpu-devices", flags->gpu_devices,
                   "GPUs of each task that is not a parameter server")
      ->check(CLI::Range(0, 64));
  command->add_flag("--soft", flags->soft, "With allow_soft_placement");
  command->callback([flags, &chosen] { chosen = [flags] { return Explain(*flags); }; });
}

}  // namespace muster
