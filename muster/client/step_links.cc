#include "muster/client/step_links.h"

#include <algorithm>

namespace muster {

void StepLinks::Add(const Node* node, std::shared_ptr<Cancellation> cancellation) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [node](const auto& link) { return link.first == node; });
  if (found != links_.end()) {
    found->second = std::move(cancellation);
  } else {
    links_.emplace_back(node, std::move(cancellation));
  }
  any_ = true;
}

std::shared_ptr<Cancellation> StepLinks::Of(const StepPlan& plan) {
  if (!any_.load(std::memory_order_relaxed)) return nullptr;
  MutexLock lock(mutex_);
  for (const auto& [node, cancellation] : links_) {
    auto needed = plan.needed.find(node);
    if (needed == plan.needed.end()) {
      std::vector<const Node*> asked(plan.signature.targets.begin(), plan.signature.targets.end());
      for (const Output& fetch : plan.signature.fetches) asked.push_back(fetch.node);
      needed = plan.needed.emplace(node, IsNeeded(node, asked)).first;
    }
    if (needed->second) return cancellation;
  }
  return nullptr;
}

}  // namespace muster
