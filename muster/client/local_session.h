// A session whose steps run in this process.
#pragma once

#include <memory>

#include "muster/client/session.h"

namespace muster {

absl::StatusOr<std::unique_ptr<Session>> NewLocalSession(const Graph& graph,
                                                         SessionOptions options);

}  // namespace muster
