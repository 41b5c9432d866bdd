// Sorted tables, in the layout of LevelDB's: the index of a checkpoint, and V1 checkpoints whole.
// Gives the bytes that TensorFlow writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster {

// Thread-compatible. Builds the file in memory.
class TableWriter {
 public:
  // Requires: keys come in strictly increasing order of their bytes.
  void Add(absl::string_view key, absl::string_view value);
  // The whole file; nothing may be added afterwards.
  std::string Finish() &&;

 private:
  // One block while it grows.
  class Block {
   public:
    explicit Block(int restart_interval) : restart_interval_(restart_interval) {}
    void Add(absl::string_view key, absl::string_view value);
    size_t EstimatedSize() const { return contents_.size() + 4 * restarts_.size() + 4; }
    bool empty() const { return contents_.empty(); }
    // The contents with the restart array; the block is empty again.
    std::string Take();

   private:
    const int restart_interval_;
    std::string contents_;
    std::vector<uint32_t> restarts_ = {0};
    int since_restart_ = 0;
    std::string last_key_;
  };

  // Writes a block and its trailer; gives its handle, encoded.
  std::string Write(std::string block);
  void CloseDataBlock();

  std::string file_;
  Block data_{16};
  Block index_{1};
  std::string last_key_;
  std::string waiting_handle_;  // of a closed block whose entry in the index is still to come
};

}  // namespace muster
