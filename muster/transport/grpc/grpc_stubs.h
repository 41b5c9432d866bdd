// Masters and workers of other tasks.
#pragma once

#include <memory>

#include "muster/transport/grpc/grpc_channel.h"

namespace muster {

std::shared_ptr<WorkerApi> NewGrpcWorker(std::shared_ptr<const GrpcChannel> channel);
std::shared_ptr<MasterApi> NewGrpcMaster(std::shared_ptr<const GrpcChannel> channel);

}  // namespace muster
