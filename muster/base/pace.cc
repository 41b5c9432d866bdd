#include "muster/base/pace.h"

#include <thread>

namespace muster {
namespace {

std::atomic<int> num_awake{0};

int MostAwake() {
  static const int most = static_cast<int>(std::thread::hardware_concurrency()) - 1;
  return most;
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
