// A card for tests on machines without one: a library with the functions of CUDA's driver and of NVRTC that Muster uses, which
// MUSTER_CUDA_DRIVER names; emulated_functions.cc compiles and runs its functions, emulated_cublas.cc and its kin add the libraries.
// As strict as a real card:
//  - its memory has no rights while nothing of its stream runs, so that a host that touches it crashes;
//  - nothing that is put on the stream runs before the host waits for something behind it;
//  - the memory of a free chunk is gone.
//
// MUSTER_EMULATED_GPU_BYTES sets the size of its memory, MUSTER_EMULATED_GPU_PINNED_BYTES how much of the host's memory it may pin,
// MUSTER_EMULATED_GPU_COUNT the number of cards. MUSTER_EMULATED_GPU_FAILS_AT=N makes the Nth function since the start touch memory that is not
// there; with MUSTER_EMULATED_GPU_FAILS_ONCE=FILE only the process that can remove FILE.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "emulated_gpu.h"

using emulated::kInvalidValue;
using emulated::kLaunchFailed;
using emulated::kOk;
using emulated::kOutOfMemory;
using emulated::NumberFrom;

const char* emulated::TextFrom(const char* variable) {
  return getenv(variable);
}

size_t emulated::NumberFrom(const char* variable, size_t otherwise) {
  const char* const text = TextFrom(variable);
  return text == nullptr ? otherwise : strtoull(text, nullptr, 10);
}

namespace {

constexpr int kNotReady = 600;

// --- Memory: one range of addresses, without rights except while the stream runs.
class Memory {
 public:
  static constexpr size_t kRange = size_t{64} << 30;
  static constexpr size_t kPage = 4096;

  Memory()
      : limit_(NumberFrom("MUSTER_EMULATED_GPU_BYTES", size_t{2} << 30)),
        base_(static_cast<char*>(
            mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (base_ == MAP_FAILED) abort();
  }

  // Addresses are not handed out twice, so that what is used after it was freed is noticed.
  void* Take(size_t bytes) {
    const size_t whole = (bytes + kPage - 1) / kPage * kPage;
    if (taken_ + whole > limit_ || next_ + whole + kPage > kRange) return nullptr;
    char* const at = base_ + next_;
    next_ += whole + kPage;
    taken_ += whole;
    chunks_[at] = whole;
    return at;
  }
  bool Free(void* at) {
    const auto found = chunks_.find(static_cast<char*>(at));
    if (found == chunks_.end()) return false;
    madvise(found->first, found->second, MADV_DONTNEED);
    taken_ -= found->second;
    chunks_.erase(found);
    return true;
  }
  void Open(bool is_open) {
    for (const auto& [at, bytes] : chunks_) mprotect(at, bytes, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  bool Has(const void* at, size_t bytes) const {
    auto found = chunks_.upper_bound(static_cast<char*>(const_cast<void*>(at)));
    if (found == chunks_.begin()) return false;
    --found;
    return static_cast<const char*>(at) + bytes <= found->first + found->second;
  }
  size_t limit() const { return limit_; }
  size_t taken() const { return taken_; }

 private:
  const size_t limit_;
  char* const base_;
  size_t next_ = 0, taken_ = 0;
  std::map<char*, size_t> chunks_;
};

// --- The stream
using Work = std::function<int()>;

struct Event {
  uint64_t at = 0;  // how much had been put on the stream
  bool was_asked_for = false;
};

// A copy is kept as such: graphs that were made of others may copy from and to elsewhere.
struct Copying {
  uint64_t to = 0, from = 0;
  size_t bytes = 0;
  int operator()() const {
    memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return kOk;
  }
};
struct GraphNode {
  size_t number = 0;
  Work work;  // null: `copy`
  Copying copy;
};
struct Graph {
  std::deque<GraphNode> nodes;  // which do not move
};

// CUDA_MEMCPY3D
struct Copy3D {
  struct End {
    size_t x, y, z, level;
    unsigned type;
    uint64_t host, device;
    void *array, *reserved;
    size_t pitch, height;
  };
  End from, to;
  size_t width, height, depth;
};

class Card {
 public:
  std::mutex mutex;
  Memory memory;
  std::map<void*, size_t> registered;
  size_t bytes_to_registered = 0, bytes_from_registered = 0;

  int Put(Work work) {
    if (capturing_ != nullptr) {
      capturing_->nodes.push_back({capturing_->nodes.size(), std::move(work), {}});
    } else {
      queue_.push_back(std::move(work));
      ++num_put_;
    }
    return failed_;
  }
  int Put(Copying copy) {
    if (capturing_ == nullptr) {
      return Put(Work([this, copy] {
        if (IsRegistered(copy.to)) bytes_to_registered += copy.bytes;
        if (IsRegistered(copy.from)) bytes_from_registered += copy.bytes;
        return copy();
      }));
    }
    capturing_->nodes.push_back({capturing_->nodes.size(), nullptr, copy});
    return failed_;
  }
  bool IsRegistered(uint64_t address) const {
    auto after = registered.upper_bound(reinterpret_cast<void*>(address));
    if (after == registered.begin()) return false;
    --after;
    return address < reinterpret_cast<uint64_t>(after->first) + after->second;
  }
  const GraphNode* last_captured() const {
    return capturing_ == nullptr || capturing_->nodes.empty() ? nullptr : &capturing_->nodes.back();
  }
  int RunUntil(uint64_t at) {
    if (num_run_ >= at) return failed_;
    memory.Open(true);
    while (num_run_ < at) {
      Work work = std::move(queue_.front());
      queue_.pop_front();
      ++num_run_;
      if (failed_ == kOk) failed_ = work();  // as on a card, the first error is that of all later work too
    }
    memory.Open(false);
    return failed_;
  }
  uint64_t num_put() const { return num_put_; }
  uint64_t num_run() const { return num_run_; }
  int failed() const { return failed_; }
  bool BeginCapture() {
    if (capturing_ != nullptr) return false;
    capturing_ = std::make_unique<Graph>();
    return true;
  }
  std::unique_ptr<Graph> EndCapture() { return std::move(capturing_); }

 private:
  std::deque<Work> queue_;
  std::unique_ptr<Graph> capturing_;
  uint64_t num_put_ = 0, num_run_ = 0;
  int failed_ = kOk;
};

Card& TheCard() {
  static auto* const card = new Card;  // never destroyed: threads of the program may still use it
  return *card;
}

}  // namespace

// --- What libraries do on the card
int emulated::PutOnStream(std::function<int()> work) {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().Put(std::move(work));
}
bool emulated::IsOnCard(const void* at, size_t bytes) {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().memory.Has(at, bytes);
}
void* emulated::CardsStream() {
  return &TheCard();
}

float emulated::FromHalf(uint16_t bits) {
  _Float16 half;
  memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}
uint16_t emulated::ToHalf(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits;
  memcpy(&bits, &half, 2);
  return bits;
}
float emulated::FromBfloat16(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value;
  memcpy(&value, &word, 4);
  return value;
}
uint16_t emulated::ToBfloat16(float value) {
  uint32_t word;
  memcpy(&word, &value, 4);
  if (value != value) return static_cast<uint16_t>((word >> 16) | 0x40);
  return static_cast<uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
}

// --- The driver
namespace {

// As the driver does: the list ends at the first number that is none of a card.
int VisibleCards() {
  const int count = static_cast<int>(NumberFrom("MUSTER_EMULATED_GPU_COUNT", 1));
  const char* text = emulated::TextFrom("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return count;
  int visible = 0;
  for (char* end = nullptr; *text != 0; text = *end == ',' ? end + 1 : end) {
    const long number = strtol(text, &end, 10);
    if (end == text || number < 0 || number >= count) break;
    ++visible;
  }
  return visible;
}

}  // namespace

EXPORT int cuInit(unsigned) {
  return VisibleCards() == 0 ? emulated::kNoDevice : kOk;
}
EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kOk;
}
EXPORT int cuGetErrorName(int error, const char** name) {
  *name = error == kOutOfMemory                ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kLaunchFailed             ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == emulated::kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                               : "CUDA_ERROR";
  return kOk;
}
EXPORT int cuGetErrorString(int error, const char** text) {
  *text = error == kOutOfMemory                ? "out of memory"
          : error == kLaunchFailed             ? "unspecified launch failure"
          : error == emulated::kIllegalAddress ? "an illegal memory access was encountered"
                                               : "an error of the emulated card";
  return kOk;
}
EXPORT int cuDeviceGetCount(int* count) {
  *count = VisibleCards();
  return *count == 0 ? 3 : kOk;  // without a card nothing was started
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return kOk;
}
EXPORT int cuDeviceGetName(char* name, int length, int) {
  snprintf(name, static_cast<size_t>(length), "Emulated card");
  return kOk;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 16 ? 2 : attribute == 75 ? 9 : 0;  // multiprocessors, major version
  return kOk;
}
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = TheCard().memory.limit();
  return kOk;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &TheCard();
  return kOk;
}
EXPORT int cuCtxSetCurrent(void*) {
  return kOk;
}
EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
  std::lock_guard lock(TheCard().mutex);
  *total = TheCard().memory.limit();
  *free = *total - TheCard().memory.taken();
  return kOk;
}
EXPORT int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  std::lock_guard lock(TheCard().mutex);
  void* const memory = TheCard().memory.Take(bytes);
  *address = reinterpret_cast<uint64_t>(memory);
  return memory == nullptr ? kOutOfMemory : kOk;
}
EXPORT int cuMemFree_v2(uint64_t address) {
  std::lock_guard lock(TheCard().mutex);
  TheCard().RunUntil(TheCard().num_put());  // the driver waits for the card too
  return TheCard().memory.Free(reinterpret_cast<void*>(address)) ? kOk : kInvalidValue;
}
namespace {

// What is pinned of the host's memory. Unlike the card it is used while the stream rests.
class Pinned {
 public:
  void* Take(size_t bytes) {
    const size_t whole = (bytes + Memory::kPage - 1) / Memory::kPage * Memory::kPage;
    std::lock_guard lock(mutex_);
    if (taken_ + whole > NumberFrom("MUSTER_EMULATED_GPU_PINNED_BYTES", SIZE_MAX)) return nullptr;
    void* const memory = aligned_alloc(Memory::kPage, whole);
    if (memory == nullptr) return nullptr;
    taken_ += whole;
    blocks_[memory] = whole;
    return memory;
  }
  bool Free(void* memory) {
    std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return false;
    taken_ -= found->second;
    blocks_.erase(found);
    free(memory);
    return true;
  }
  size_t taken() {
    std::lock_guard lock(mutex_);
    return taken_;
  }

 private:
  std::mutex mutex_;
  size_t taken_ = 0;
  std::map<void*, size_t> blocks_;
};

Pinned& ThePinned() {
  static auto* const pinned = new Pinned;
  return *pinned;
}

}  // namespace

EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = ThePinned().Take(bytes);
  return *memory == nullptr ? kOutOfMemory : kOk;
}
EXPORT int cuMemFreeHost(void* memory) {
  return ThePinned().Free(memory) ? kOk : kInvalidValue;
}
// For tests: what the process holds of the card and of pinned memory.
EXPORT size_t emulated_bytes_taken() {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().memory.taken();
}
EXPORT size_t emulated_bytes_pinned() {
  return ThePinned().taken();
}
EXPORT int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  if (getenv("MUSTER_EMULATED_GPU_REGISTERS_NOTHING") != nullptr) return kOutOfMemory;
  std::lock_guard lock(TheCard().mutex);
  return TheCard().registered.emplace(memory, bytes).second ? kOk : kInvalidValue;
}
EXPORT int cuMemHostUnregister(void* memory) {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().registered.erase(memory) > 0 ? kOk : kInvalidValue;
}
// For tests: bytes that were copied to the card from registered memory.
EXPORT size_t emulated_gpu_bytes_from_registered() {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().bytes_from_registered;
}
// And from the card to such.
EXPORT size_t emulated_gpu_bytes_to_registered() {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().bytes_to_registered;
}

namespace {
int Copy(uint64_t to, uint64_t from, size_t bytes) {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().Put(Copying{to, from, bytes});
}
}  // namespace

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  return Copy(to, reinterpret_cast<uint64_t>(from), bytes);
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  return Copy(reinterpret_cast<uint64_t>(to), from, bytes);
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void*) {
  return Copy(to, from, bytes);
}
EXPORT int cuMemcpyPeerAsync(uint64_t to, void*, uint64_t from, void*, size_t bytes, void*) {
  return Copy(to, from, bytes);
}
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void*) {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().Put([to, value, bytes] {
    memset(reinterpret_cast<void*>(to), value, bytes);
    return kOk;
  });
}
EXPORT int cuStreamCreate(void** stream, unsigned) {
  *stream = &TheCard();
  return kOk;
}
EXPORT int cuStreamSynchronize(void*) {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().RunUntil(TheCard().num_put());
}
EXPORT int cuStreamWaitEvent(void*, void*, unsigned) {
  return kOk;
}
EXPORT int cuStreamBeginCapture_v2(void*, int) {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().BeginCapture() ? kOk : kInvalidValue;
}
EXPORT int cuStreamEndCapture(void*, void** graph) {
  std::lock_guard lock(TheCard().mutex);
  *graph = TheCard().EndCapture().release();
  return *graph == nullptr ? kInvalidValue : kOk;
}
EXPORT int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  *exec = new std::shared_ptr<Graph>(std::make_shared<Graph>(*static_cast<Graph*>(graph)));
  return kOk;
}
EXPORT int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kOk;
}
EXPORT int cuGraphLaunch(void* exec, void*) {
  std::lock_guard lock(TheCard().mutex);
  int result = kOk;
  for (const GraphNode& node : (*static_cast<std::shared_ptr<Graph>*>(exec))->nodes)
    result = node.work == nullptr ? TheCard().Put(node.copy) : TheCard().Put(node.work);
  return result;
}
EXPORT int cuGraphExecDestroy(void* exec) {
  delete static_cast<std::shared_ptr<Graph>*>(exec);
  return kOk;
}
EXPORT int cuStreamGetCaptureInfo_v2(void*, int* status, unsigned long long* id, void** graph, void* const** nodes, size_t* num_nodes) {
  std::lock_guard lock(TheCard().mutex);
  static void* last = nullptr;
  last = const_cast<GraphNode*>(TheCard().last_captured());
  *status = last != nullptr;
  *id = 1;
  *graph = nullptr;
  *nodes = &last;
  *num_nodes = last != nullptr;
  return kOk;
}
EXPORT int cuGraphMemcpyNodeGetParams(void* node, void* params) {
  const Copying& copy = static_cast<const GraphNode*>(node)->copy;
  // As a driver does that knows all memory by its address.
  Copy3D copy3d = {};
  copy3d.from.type = copy3d.to.type = 4;
  copy3d.from.device = copy.from;
  copy3d.to.device = copy.to;
  copy3d.width = copy.bytes;
  memcpy(params, &copy3d, sizeof(copy3d));
  return kOk;
}
EXPORT int cuGraphExecMemcpyNodeSetParams(void* exec, void* node, const void* params, void*) {
  Copy3D copy3d;
  memcpy(&copy3d, params, sizeof(copy3d));
  std::lock_guard lock(TheCard().mutex);
  Graph& graph = **static_cast<std::shared_ptr<Graph>*>(exec);
  GraphNode& changed = graph.nodes[static_cast<const GraphNode*>(node)->number];
  if (changed.work != nullptr || changed.copy.bytes != copy3d.width) return kInvalidValue;
  changed.copy = {copy3d.to.device, copy3d.from.device, copy3d.width};
  return kOk;
}
EXPORT int cuEventCreate(void** event, unsigned) {
  *event = new Event;
  return kOk;
}
EXPORT int cuEventRecord(void* event, void*) {
  std::lock_guard lock(TheCard().mutex);
  *static_cast<Event*>(event) = {TheCard().num_put(), false};
  return TheCard().failed();
}
// The first question comes too early, and the second one makes the stream run.
EXPORT int cuEventQuery(void* event) {
  std::lock_guard lock(TheCard().mutex);
  auto& asked = *static_cast<Event*>(event);
  if (TheCard().num_run() >= asked.at) return TheCard().failed();
  if (!std::exchange(asked.was_asked_for, true)) return kNotReady;
  return TheCard().RunUntil(asked.at);
}
EXPORT int cuEventSynchronize(void* event) {
  std::lock_guard lock(TheCard().mutex);
  return TheCard().RunUntil(static_cast<Event*>(event)->at);
}
// What was put on the stream in between.
EXPORT int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  std::lock_guard lock(TheCard().mutex);
  const uint64_t from = static_cast<Event*>(begin)->at, to = static_cast<Event*>(end)->at;
  if (TheCard().num_run() < to) return kNotReady;
  *milliseconds = static_cast<float>(to - from);
  return kOk;
}
