// A task on another host: what the launcher here and `muster launch-task` there say to each other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace muster {

// A remote side must have answered, and must have heard something, within these.
inline constexpr absl::Duration kConnectTime = absl::Seconds(60);
inline constexpr absl::Duration kPingInterval = absl::Seconds(5);
inline constexpr absl::Duration kSilenceTime = absl::Seconds(60);

// The words that run `muster launch-task` on a host, in the folder that this process is in.
// `muster` empty: its path there is the same as here. `port` 0: any free one.
std::vector<std::string> RemoteCommand(const std::string& ssh, const std::string& host,
                                       const std::string& muster, int port);

// The line that has it start the task: its words, and of the environment what is given, what
// concerns Python, Muster and TensorFlow, and `variables` (NAME or NAME=VALUE).
std::string RemoteStart(const std::vector<std::string>& words,
                        const std::vector<std::pair<std::string, std::string>>& given,
                        const std::vector<std::string>& variables, double stop_seconds);

// The remote side. Says its port, waits for the line above, runs the task, and takes "signal N".
// The task ends when the connection does.
int RunRemoteTask(int port);

}  // namespace muster
