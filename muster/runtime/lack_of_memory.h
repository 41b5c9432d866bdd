// What happens when work runs out of memory.
#pragma once

#include <new>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/tensor/memory_guard.h"

namespace muster {

// A container or a temporary tensor in a kernel may grow with an input, or an attribute, beyond the
// memory that there is: that ends the step (ResourceExhausted), not the process.
template <typename Work>
absl::Status EndedByLackOfMemory(Work&& work) {
  const CatchesLackOfMemory catches;
  try {
    return std::forward<Work>(work)();
  } catch (const LackOfMemory& lack) {
    return lack.status();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("The kernel needs more memory than there is");
  } catch (const std::length_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("The kernel needs more memory than there is: ", error.what()));
  }
}

}  // namespace muster
