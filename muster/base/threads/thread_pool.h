// A pool whose threads are not all for one loop.
#pragma once

#include <memory>

#include "muster/base/scheduler.h"

namespace muster {

// As NewThreadPool, but ParallelFor divides work among at most `parallelism` threads, its caller
// included.
std::unique_ptr<Scheduler> NewThreadPool(int threads, int parallelism);

}  // namespace muster
