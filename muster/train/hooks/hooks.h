// All built-in hooks.
#pragma once

#include "muster/train/hooks/saving_hooks.h"  // IWYU pragma: export
#include "muster/train/hooks/step_hooks.h"    // IWYU pragma: export
