#include "muster/base/pace.h"

#include <thread>

namespace muster {
namespace {

std::atomic<int> num_awake{0};

// One for each core: a task with two neighbours waits for both, and who is awake yields to whoever
// has work. Where there is one core only, that would be whom it waits for.
int MostAwake() {
  static const int num_cores = static_cast<int>(std::thread::hardware_concurrency());
  return num_cores > 1 ? num_cores : 0;
}

}  // namespace

bool Awake::TryBegin() {
  if (num_awake.fetch_add(1, std::memory_order_relaxed) < MostAwake()) return true;
  End();
  return false;
}

void Awake::End() {
  num_awake.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace muster
