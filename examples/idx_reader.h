// Reads IDX files (the format of MNIST), gzipped or not.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "muster/tensor/tensor.h"

// Images as float [n, rows * columns] in [0, 1].
absl::StatusOr<muster::Tensor> ReadImages(const std::string& path);
// Labels as one-hot float [n, 10].
absl::StatusOr<muster::Tensor> ReadLabels(const std::string& path);
