// Workers and masters of other tasks whose calls end when the task is not alive any more.
#pragma once

#include <memory>

#include "muster/transport/watch/task_watch.h"

namespace muster {

// The worker that `watch` watches.
std::shared_ptr<WorkerApi> NewWatchedWorker(std::shared_ptr<TaskWatch> watch);
// `master`, whose task `watch` watches.
std::shared_ptr<MasterApi> NewWatchedMaster(std::shared_ptr<MasterApi> master,
                                            std::shared_ptr<TaskWatch> watch);

// The worker beside a master, connected when its silence is first worth a question.
std::shared_ptr<WorkerApi> NewWorkerBesideMaster(
    absl::AnyInvocable<std::shared_ptr<WorkerApi>()> connect);

}  // namespace muster
