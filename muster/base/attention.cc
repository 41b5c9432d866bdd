#include "muster/base/attention.h"

namespace muster {
namespace {

thread_local Attention* current = nullptr;

}  // namespace

Attention::Attention(absl::FunctionRef<void()> let_go) : let_go_(let_go), outer_(current) {
  current = this;
}

Attention::~Attention() {
  current = outer_;
}

bool Attention::IsHeld() {
  return current != nullptr;
}

void Attention::LetGo() {
  for (Attention* each = current; each != nullptr; each = each->outer_) {
    if (std::exchange(each->has_let_go_, true)) continue;
    each->let_go_();
  }
}

bool Attention::Keep(std::shared_ptr<void> last) {
  if (current == nullptr) return false;
  current->kept_.push_back(std::move(last));
  return true;
}

}  // namespace muster
