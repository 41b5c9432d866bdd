// The variables that graphs of a task have named, so that a status report can count them.
#pragma once

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"

#include "muster/base/mutex.h"
#include "muster/graph/graph.h"
#include "muster/runtime/resource_manager.h"

namespace muster {

// Thread-safe.
class VariableNames {
 public:
  // Beyond this, names are not noted until a count has dropped those that are gone.
  static constexpr size_t kMaxNames = 1'000'000;

  void Note(const Graph& graph);
  struct Totals {
    int64_t variables = 0;  // initialized ones
    int64_t bytes = 0;
  };
  Totals Count(const ResourceManager& resources);

 private:
  Mutex mutex_;
  absl::flat_hash_set<std::pair<std::string, std::string>> names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
