// Masters and workers of other tasks: each call becomes a message over a channel. The counterpart
// of methods.h.
#pragma once

#include <memory>

#include "muster/transport/api/master_api.h"
#include "muster/transport/api/worker_api.h"
#include "muster/transport/messages/channel.h"

namespace muster {

std::shared_ptr<WorkerApi> NewWorkerStub(std::shared_ptr<const Channel> channel);
std::shared_ptr<MasterApi> NewMasterStub(std::shared_ptr<const Channel> channel);

}  // namespace muster
