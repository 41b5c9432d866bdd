// How many cores a task may count on.
#pragma once

#include "muster/transport/api/cluster.h"

namespace muster {

// Of `cores`, where tasks of the same job run at the same time on the machine, as far as addresses
// tell; at least one. Other jobs mostly wait while this one works.
int CoreShare(const ClusterSpec& cluster, const TaskName& self, int cores);

}  // namespace muster
