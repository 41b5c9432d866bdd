// Session options as TensorFlow's ConfigProto.
#pragma once

#include "muster/transport/api/session_config.h"

namespace tensorflow {
class ConfigProto;
class GraphOptions;
}  // namespace tensorflow

namespace muster {

absl::StatusOr<SessionConfig> SessionConfigFromProto(const tensorflow::ConfigProto& proto);
// What `config.serialized` holds, with the other members of `config` in their places.
void SessionConfigToProto(const SessionConfig& config, tensorflow::ConfigProto& proto);
// The same for code without access to protos.
absl::StatusOr<SessionConfig> ParseSessionConfig(absl::string_view serialized);
std::string SerializeSessionConfig(const SessionConfig& config);

// Whether graphs may be optimised.
bool WantsOptimization(const tensorflow::GraphOptions& options);
void SetWantsOptimization(bool wanted, tensorflow::GraphOptions& options);

}  // namespace muster
