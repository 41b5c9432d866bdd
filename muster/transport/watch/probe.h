// What keeps a task from being reached, in words.
#pragma once

#include <string>

#include "absl/functional/any_invocable.h"

namespace muster {

// Resolves the name of "host:port", connects and opens HTTP/2, each within a second or two, on a
// thread of its own: one for all probes of the process, which wait for each other. The line says
// what was tried, how long it took and where it ended.
void ProbeAddress(std::string address, absl::AnyInvocable<void(std::string) &&> done);

}  // namespace muster
