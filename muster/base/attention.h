// What a thread looks after besides what it is doing right now, a connection for example. Before
// work that may take long it lets go of it, so that another thread can take over.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace muster {

// Lives on the stack of the thread that looks after something.
class Attention {
 public:
  // `let_go` outlives this.
  explicit Attention(absl::FunctionRef<void()> let_go);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  bool has_let_go() const { return has_let_go_; }
  void TakeBack() { has_let_go_ = false; }
  // Gives up what was kept. Requires: the frames above are gone.
  void DropKept() { kept_.clear(); }

  // Whether this thread looks after anything: then it was not taken from a pool, and may as well do
  // at once what it has found out is to be done.
  static bool IsHeld();
  // This thread is going to be busy.
  static void LetGo();
  // Keeps it until the frames above are gone: true. False where nothing is looked after.
  static bool Keep(std::shared_ptr<void> last);

 private:
  const absl::FunctionRef<void()> let_go_;
  Attention* const outer_;
  bool has_let_go_ = false;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace muster
