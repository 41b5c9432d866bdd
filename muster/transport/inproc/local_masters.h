// The masters of this process, so that a session beside its server needs no network.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/transport/api/master_api.h"

namespace muster {

struct LocalMaster {
  std::string target;  // "grpc://host:port"
  int port = 0;
  std::vector<std::string> addresses;  // numeric, at which it listens; empty: at all of the machine
  std::weak_ptr<MasterApi> master;
};

// While the object lives, FindLocalMaster knows the master.
class LocalMasterRegistration {
 public:
  explicit LocalMasterRegistration(LocalMaster master);
  ~LocalMasterRegistration();
  LocalMasterRegistration(const LocalMasterRegistration&) = delete;
  LocalMasterRegistration& operator=(const LocalMasterRegistration&) = delete;

 private:
  int64_t id_;
};

// The master that a connection to `target` would reach, when it is in this process; else null.
std::shared_ptr<MasterApi> FindLocalMaster(absl::string_view target);

}  // namespace muster
