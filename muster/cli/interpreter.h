// Which Python runs scripts.
#pragma once

#include <string>

#include "muster/base/status.h"

namespace muster {

// The first of: `given` (--python); MUSTER_PYTHON; the activated virtual environment's, if it can
// import Muster's package from the folder `package` ("": its own) and what that needs; the one that
// this program was installed into or built with, if it is there; python3 and python of PATH, if
// they can, too. What an activated environment lacks is said on standard error. FailedPrecondition,
// with what each of them lacks, when none can.
absl::StatusOr<std::string> FindInterpreter(const std::string& given, const std::string& package);

}  // namespace muster
