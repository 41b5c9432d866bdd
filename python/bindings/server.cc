// Servers in this process.
#include "muster/server/server.h"

#include <map>
#include <set>

#include "bindings.h"
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "muster/server/local_cluster.h"
#include "muster/server/server_options_proto.h"
#include "muster/server/server_settings.h"
#include "muster/transport/grpc/security.h"

namespace muster {
namespace {

// The tasks that threads of this process run; null: none. Under the interpreter's lock.
std::shared_ptr<LocalTasks>& SharedTasks() {
  static std::shared_ptr<LocalTasks>& tasks =
      *std::make_unique<std::shared_ptr<LocalTasks>>().release();  // servers may outlive the module
  return tasks;
}

void ShareProcess(const std::vector<std::string>& addresses, bool closed) {
  SharedTasks() = std::make_shared<LocalTasks>(
      Server::SharedScheduler(), std::set<std::string>(addresses.begin(), addresses.end()), closed);
}

std::unique_ptr<Server> NewServer(const nb::bytes& server_def, const std::string& bind,
                                  const std::string& tls_cert, const std::string& tls_key,
                                  const std::string& tls_ca, const std::string& auth_token_file,
                                  int metrics_port) {
  ServerOptions options =
      RunValue(ParseServerDef(absl::string_view(server_def.c_str(), server_def.size())));
  const Settings settings = RunValue(ReadSettings());
  ApplySettings(settings, options);
  options.bind = bind;
  if (metrics_port >= 0) options.metrics_port = metrics_port;
  options.security = RunValue(SecurityFrom(settings));
  if (!tls_cert.empty()) options.security.certificate_file = tls_cert;
  if (!tls_key.empty()) options.security.key_file = tls_key;
  if (!tls_ca.empty()) options.security.ca_file = tls_ca;
  if (!auth_token_file.empty()) options.security.token = RunValue(ReadAuthToken(auth_token_file));
  const absl::StatusOr<std::string> address =
      options.cluster.Address({options.job, std::max(options.task, 0)});
  if (SharedTasks() != nullptr && address.ok() && SharedTasks()->Has(*address))
    options.local_tasks = SharedTasks();
  ReleasedGil unlocked;  // resolving host names may take long
  return RunValue(Server::Create(std::move(options)));
}

// Waits in slices, so that Ctrl-C gets through.
void Join(Server& server) {
  for (;;) {
    bool stopped;
    {
      ReleasedGil unlocked;
      stopped = server.JoinFor(absl::Milliseconds(200));
    }
    if (stopped) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace

void BindServer(nb::module_& m) {
  nb::class_<Server>(m, "Server")
      .def(
          "start", [](Server& s) { ThrowIfRunError(s.Start()); }, nb::call_guard<ReleasedGil>())
      .def(
          "stop",
          [](Server& s, double grace) {
            grace < 0 ? s.Stop() : s.StopWithin(absl::Seconds(grace));
          },
          nb::call_guard<ReleasedGil>())
      .def("join", &Join)
      .def_prop_ro("target", &Server::target);
  nb::class_<LocalCluster>(m, "LocalCluster")
      .def("addresses",
           [](const LocalCluster& c) {
             std::vector<std::pair<std::pair<std::string, int>, std::string>> all;
             for (const auto& [job, tasks] : c.spec().jobs())
               for (const auto& [number, address] : tasks) all.push_back({{job, number}, address});
             return all;
           })
      .def("target", [](const LocalCluster& c, const std::string& job,
                        int number) { return RunValue(c.target(job, number)); })
      .def("stop", &LocalCluster::Stop, nb::call_guard<ReleasedGil>());
  m.def(
      "new_local_cluster",
      [](const std::vector<std::pair<std::string, int>>& jobs) {
        return RunValue(LocalCluster::Create(std::map<std::string, int>(jobs.begin(), jobs.end())));
      },
      nb::arg("jobs"));
  m.def("share_process", &ShareProcess, nb::arg("addresses"), nb::arg("closed"));
  m.def("new_server", &NewServer, nb::arg("server_def"), nb::arg("bind"), nb::arg("tls_cert"),
        nb::arg("tls_key"), nb::arg("tls_ca"), nb::arg("auth_token_file"), nb::arg("metrics_port"));
}

}  // namespace muster
