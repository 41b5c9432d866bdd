// Lets a caller's cancellation reach into what is done for it.
#pragma once

#include <memory>
#include <utility>

#include "muster/runtime/cancellation.h"

namespace muster {

// While it lives, cancelling `outer` cancels `inner`: for the same reason, or for `reason` unless
// that is OK. `outer` may be null.
class LinkedCancellation {
 public:
  LinkedCancellation(std::shared_ptr<Cancellation> outer, std::shared_ptr<Cancellation> inner,
                     absl::Status reason = absl::OkStatus())
      : outer_(std::move(outer)) {
    if (outer_ == nullptr) return;
    token_ = outer_->NewToken();
    const auto cancel = [inner, from = outer_.get(), reason = std::move(reason)] {
      inner->Cancel(reason.ok() ? from->reason() : reason);
    };
    if (!outer_->Register(token_, cancel)) cancel();
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
