#include "muster/graph/build/build_state.h"

namespace muster {

BuildState& Graph::build_state() {
  if (build_state_ == nullptr) build_state_ = std::make_shared<BuildState>();
  return *build_state_;
}

}  // namespace muster
