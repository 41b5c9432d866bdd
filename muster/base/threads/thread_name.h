#pragma once

#include <algorithm>
#include <string>

#include <pthread.h>

namespace muster {

// What the system calls this thread: at most 15 characters, the rest is cut off. A thread without a
// name of its own has that of the thread which started it, often by chance: each names itself
// first.
inline void NameThread(std::string name) {
  constexpr size_t kLongest = 15;
  name.resize(std::min(name.size(), kLongest));
  pthread_setname_np(pthread_self(), name.c_str());
}

}  // namespace muster
