// Which node a thread runs: what a device says about memory and work names it.
#pragma once

#include <string>

namespace muster {

class GpuTimes;

// What is there lives as long as the node runs.
struct NodeAtWork {
  const std::string* node = nullptr;
  const std::string* op = nullptr;
  const std::string* device = nullptr;
  GpuTimes* times = nullptr;  // of a traced step; null: it is not traced
};

// Sets it for its own lifetime; by itself it changes nothing.
class RunningNode {
 public:
  RunningNode() = default;
  explicit RunningNode(const NodeAtWork& at_work) : is_set_(true), before_(current_) {
    current_ = at_work;
  }
  ~RunningNode() {
    if (is_set_) current_ = before_;
  }
  RunningNode(const RunningNode&) = delete;
  RunningNode& operator=(const RunningNode&) = delete;

  // Without a name where the thread runs none on a device with a stream.
  static const NodeAtWork& Current() { return current_; }

 private:
  static inline thread_local NodeAtWork current_;
  const bool is_set_ = false;
  NodeAtWork before_;
};

}  // namespace muster
