// Folders and files that interrupted saves leave behind.
#pragma once

#include <string>

namespace muster {

// A saver with several shards writes them into a folder "<prefix>_temp_<id>" and then merges them
// from there. A process that is killed in between leaves the folder. Its id is TensorFlow's, 32
// hexadecimal digits that name a saver; those of our savers are random and tell which process made
// them too.
std::string NewSaveId();

// While it lives, saves to `prefix` by this process are under way.
class SaveUnderWay {
 public:
  explicit SaveUnderWay(std::string prefix);
  ~SaveUnderWay();
  SaveUnderWay(const SaveUnderWay&) = delete;
  SaveUnderWay& operator=(const SaveUnderWay&) = delete;

 private:
  const std::string prefix_;
};

// Removes such folders of `path`, with any step number behind it, unless a save may still be
// writing there: those of this process without a save under way; those of processes of this machine
// that have ended; others when nothing in them has changed for an hour. Half-written files
// ("<prefix>.data-00000-of-00001.tempstate<number>") do not name their writer: they are removed
// after that hour too.
void RemoveSaveLeftovers(const std::string& path);

}  // namespace muster
