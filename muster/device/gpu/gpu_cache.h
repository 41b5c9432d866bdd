// Compiled functions on disk: a file for each, in $MUSTER_CACHE, $XDG_CACHE_HOME/muster or
// ~/.cache/muster. A file is written whole or not at all, belongs to the user alone, and is not
// used when it is damaged.
#pragma once

#include <optional>
#include <string>

#include "muster/device/gpu/gpu_programs.h"

namespace muster {

// The folder, made where it is missing; empty where there is none that only this user can write to.
std::string GpuCacheFolder();

// `key` names all that the binary depends on.
std::optional<GpuBinary> ReadGpuCache(const std::string& folder, const std::string& key);
// Does nothing where it cannot be written.
void WriteGpuCache(const std::string& folder, const std::string& key, const GpuBinary& binary);

}  // namespace muster
