// Texts that lie one behind the other: a hundred of them cost two allocations.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster {

class KeyList {
 public:
  KeyList() = default;
  KeyList(std::initializer_list<absl::string_view> keys) {
    for (const absl::string_view key : keys) push_back(key);
  }

  void push_back(absl::string_view key) {
    text_.append(key.data(), key.size());
    ends_.push_back(text_.size());
  }
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  // Valid until the list changes.
  absl::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return absl::string_view(text_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

}  // namespace muster
