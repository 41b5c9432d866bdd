// Masters and workers of other tasks.
#pragma once

#include <memory>

#include "muster/transport/messages/channel.h"

namespace muster {

std::shared_ptr<WorkerApi> NewWorkerStub(std::shared_ptr<const Channel> channel);
std::shared_ptr<MasterApi> NewMasterStub(std::shared_ptr<const Channel> channel);

}  // namespace muster
