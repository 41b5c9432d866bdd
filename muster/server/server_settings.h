// What a task takes from the environment.
#pragma once

#include "muster/base/settings.h"
#include "muster/server/server.h"

namespace muster {

// Everything that the settings say of a task but for `security` (SecurityFrom), over what `options`
// say.
void ApplySettings(const Settings& settings, ServerOptions& options);

}  // namespace muster
