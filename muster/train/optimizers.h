// All optimizers.
#pragma once

#include "muster/train/adadelta.h"          // IWYU pragma: export
#include "muster/train/adagrad.h"           // IWYU pragma: export
#include "muster/train/adam.h"              // IWYU pragma: export
#include "muster/train/ftrl.h"              // IWYU pragma: export
#include "muster/train/gradient_descent.h"  // IWYU pragma: export
#include "muster/train/momentum.h"          // IWYU pragma: export
#include "muster/train/proximal.h"          // IWYU pragma: export
#include "muster/train/rmsprop.h"           // IWYU pragma: export
