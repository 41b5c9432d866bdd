// How a client gets to a master.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/client/session.h"
#include "muster/transport/api/master_api.h"

namespace muster {

// The master at "grpc://host:port": directly when it is in this process (unless the options forbid
// it), through gRPC otherwise, with TLS and token as the environment says. Nothing is sent yet.
// NotFound or InvalidArgument, saying what a target looks like, for other texts.
absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target,
                                                         const SessionConfig& config);

// For Session::Create: a session at that master. "" is a session in this process.
absl::StatusOr<SessionOptions> OptionsForTarget(std::string target, SessionConfig config = {});

// Removes variables and other state of the containers, all of them when none is named, from the
// tasks of the target's cluster, and closes its sessions. Waits as long as the options' timeout, or
// until `interrupted`, which is asked now and then, gives an error.
absl::Status ResetContainers(absl::string_view target, std::vector<std::string> containers,
                             const SessionConfig& config,
                             const std::function<absl::Status()>& interrupted = nullptr);

}  // namespace muster
