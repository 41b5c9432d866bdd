// Lets a caller's cancellation reach into what is done for it.
#pragma once

#include <memory>
#include <utility>

#include "muster/runtime/cancellation.h"

namespace muster {

// While it lives, cancelling `outer` cancels `inner` for the same reason. `outer` may be null.
class LinkedCancellation {
 public:
  LinkedCancellation(std::shared_ptr<Cancellation> outer, std::shared_ptr<Cancellation> inner)
      : outer_(std::move(outer)) {
    if (outer_ == nullptr) return;
    token_ = outer_->NewToken();
    const bool registered =
        outer_->Register(token_, [inner, from = outer_.get()] { inner->Cancel(from->reason()); });
    if (!registered) inner->Cancel(outer_->reason());
  }
  ~LinkedCancellation() {
    if (outer_ != nullptr) outer_->Deregister(token_);
  }
  LinkedCancellation(const LinkedCancellation&) = delete;
  LinkedCancellation& operator=(const LinkedCancellation&) = delete;

 private:
  const std::shared_ptr<Cancellation> outer_;
  Cancellation::Token token_ = 0;
};

}  // namespace muster
