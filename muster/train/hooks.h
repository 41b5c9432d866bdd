// All built-in hooks.
#pragma once

#include "muster/train/saving_hooks.h"  // IWYU pragma: export
#include "muster/train/step_hooks.h"    // IWYU pragma: export
