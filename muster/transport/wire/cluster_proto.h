// Clusters as TensorFlow's ClusterDef.
#pragma once

#include "muster/transport/api/cluster.h"

namespace tensorflow {
class ClusterDef;
}

namespace muster {

// InvalidArgument for jobs without a name or that come twice and for negative numbers; addresses
// are taken as they stand.
absl::StatusOr<ClusterSpec> ClusterFromProto(const tensorflow::ClusterDef& proto);
// Jobs sorted by name.
void ClusterToProto(const ClusterSpec& cluster, tensorflow::ClusterDef& proto);

}  // namespace muster
