// A card for tests on machines without one: a library with the functions of CUDA's driver and of NVRTC that Muster uses, which
// MUSTER_CUDA_DRIVER names; emulated_cublas.cc and its kin add the libraries. As strict as a real card:
//  - its memory has no rights while nothing of its stream runs, so that a host that touches it crashes;
//  - nothing that is put on the stream runs before the host waits for something behind it;
//  - the memory of a free chunk is gone.
// Functions are compiled by g++ (emulated_cuda.h) and run one thread at a time, block by block.
//
// MUSTER_EMULATED_GPU_BYTES sets the size of its memory, MUSTER_EMULATED_GPU_COUNT the number of cards.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulated_gpu.h"

using emulated::kOk;
using emulated::NumberFrom;

namespace {

constexpr int  kInvalidValue = 1, kOutOfMemory = 2, kInvalidImage = 200, kNotFound = 500, kNotReady = 600,
              kLaunchFailed = 719, kCompilationFailed = 6;
constexpr unsigned kMostThreads = 1024;

// As emulated_cuda.h has it.
struct Dim3 {
  unsigned x, y, z;
};
struct Machine {
  Dim3 thread_idx, block_idx, block_dim, grid_dim;
  void (*wait)(bool whole_block);
  alignas(16) unsigned char exchanged[kMostThreads][16];
};
Machine machine;

}  // namespace

size_t emulated::NumberFrom(const char* variable, size_t otherwise) {
  const char* const text = getenv(variable);
  return text == nullptr ? otherwise : strtoull(text, nullptr, 10);
}

namespace {

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

// --- Threads of a block
class Block {
 public:
  Block() {
    for (Fiber& fiber : fibers_) fiber.stack = nullptr;
    machine.wait = [](bool whole_block) { current_->Wait(whole_block); };
  }

  // False: threads wait for each other for ever.
  bool Run(void (*function)(void**), void** arguments) {
    function_ = function;
    arguments_ = arguments;
    current_ = this;
    num_threads_ = machine.block_dim.x * machine.block_dim.y * machine.block_dim.z;
    failed_ = false;
    // Most functions have no barrier: where the first thread meets none, the others need no stack of their own.
    Begin(0);
    SwitchTo(0);
    if (fibers_[0].state == State::kOver) {
      in_fiber_ = false;
      for (unsigned i = 1; i < num_threads_ && !failed_; ++i) {
        SetThread(i);
        function_(arguments_);
      }
      return !failed_;
    }
    for (unsigned i = 1; i < num_threads_; ++i) Begin(i);
    for (;;) {
      for (unsigned i = 0; i < num_threads_; ++i) {
        if (fibers_[i].state == State::kReady) SwitchTo(i);
      }
      const bool some_released = Release(State::kWaitsForWarp, 32) || Release(State::kWaitsForBlock, num_threads_);
      if (some_released) continue;
      return std::all_of(fibers_, fibers_ + num_threads_, [](const Fiber& f) { return f.state == State::kOver; });
    }
  }

 private:
  enum class State { kReady, kWaitsForWarp, kWaitsForBlock, kOver };
  static constexpr size_t kStackBytes = 128 << 10;
  struct Fiber {
    ucontext_t context;
    char* stack;
    State state;
  };

  void SetThread(unsigned i) {
    const Dim3& size = machine.block_dim;
    machine.thread_idx = {i % size.x, i / size.x % size.y, i / size.x / size.y};
  }
  void Begin(unsigned i) {
    Fiber& fiber = fibers_[i];
    if (fiber.stack == nullptr) fiber.stack = static_cast<char*>(malloc(kStackBytes));
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler_;
    fiber.state = State::kReady;
    makecontext(&fiber.context, [] { current_->RunThread(); }, 0);
  }
  void RunThread() {
    const unsigned own = running_;
    function_(arguments_);
    fibers_[own].state = State::kOver;
  }
  void SwitchTo(unsigned i) {
    in_fiber_ = true;
    running_ = i;
    SetThread(i);
    swapcontext(&scheduler_, &fibers_[i].context);
  }
  void Wait(bool whole_block) {
    if (!in_fiber_) {  // the first thread had no barrier, and this one has
      failed_ = true;
      return;
    }
    const unsigned own = running_;
    fibers_[own].state = whole_block ? State::kWaitsForBlock : State::kWaitsForWarp;
    swapcontext(&fibers_[own].context, &scheduler_);
    SetThread(own);
  }
  // Lets groups of `size` threads go on, all of which have come there or are over.
  bool Release(State there, unsigned size) {
    bool some = false;
    for (unsigned first = 0; first < num_threads_; first += size) {
      const unsigned end = std::min(first + size, num_threads_);
      bool all = true;
      for (unsigned i = first; i < end; ++i) all = all && (fibers_[i].state == there || fibers_[i].state == State::kOver);
      if (!all) continue;
      for (unsigned i = first; i < end; ++i) {
        if (fibers_[i].state != there) continue;
        fibers_[i].state = State::kReady;
        some = true;
      }
    }
    return some;
  }

  static Block* current_;
  Fiber fibers_[kMostThreads];
  ucontext_t scheduler_;
  void (*function_)(void**) = nullptr;
  void** arguments_ = nullptr;
  unsigned num_threads_ = 0, running_ = 0;
  bool in_fiber_ = false, failed_ = false;
};
Block* Block::current_ = nullptr;

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
  Block& block() { return block_; }

 private:
  std::deque<Work> queue_;
  std::unique_ptr<Graph> capturing_;
  uint64_t num_put_ = 0, num_run_ = 0;
  int failed_ = kOk;
  Block block_;
};

Card& TheCard() {
  static auto* const card = new Card;  // never destroyed: threads of the program may still use it
  return *card;
}

// --- Compiled functions
struct Function {
  void (*use)(Machine*);
  void (*run)(void**);
  unsigned long count;
  const unsigned long* sizes;
};

// What NVRTC's caller sees as machine code: this, then the bytes of a shared library.
struct Header {
  char magic[8];
  uint64_t bytes;
};
constexpr char kMagic[8] = {'e', 'm', 'u', 'l', 'a', 't', 'e', 'd'};

struct Program {
  std::string source, expression, log, code;
  std::vector<std::pair<std::string, std::string>> headers;
};

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

int Compile(Program& program) {
  std::string at = std::filesystem::temp_directory_path() / "emulated_gpu_XXXXXX";
  if (mkdtemp(at.data()) == nullptr) return kCompilationFailed;
  for (const auto& [name, text] : program.headers) Write(at + "/" + name, text);
  Write(at + "/function.cc", "#include \"" MUSTER_EMULATED_CUDA_H "\"\n" + program.source + "\nMUSTER_EMULATED_FUNCTION(" +
                                 program.expression + ")\n");
  const std::string command = "g++ -std=c++17 -O1 -w -ffp-contract=off -fno-strict-aliasing -DMUSTER_EMULATED_GPU -shared -fPIC -I" + at +
                              " " + at + "/function.cc -o " + at + "/function.so >" + at + "/log 2>&1";
  const int status = system(command.c_str());
  program.log = Read(at + "/log");
  const std::string library = Read(at + "/function.so");
  std::error_code error;
  std::filesystem::remove_all(at, error);
  if (status != 0) return kCompilationFailed;
  Header header = {{}, library.size()};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  program.code.assign(reinterpret_cast<const char*>(&header), sizeof(header));
  program.code += library;
  return kOk;
}

template <typename T>
T* Find(void* library, const char* name) {
  return reinterpret_cast<T*>(dlsym(library, name));
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
EXPORT int cuInit(unsigned) {
  return kOk;
}
EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kOk;
}
EXPORT int cuGetErrorName(int error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : error == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return kOk;
}
EXPORT int cuGetErrorString(int error, const char** text) {
  *text = error == kOutOfMemory ? "out of memory" : error == kLaunchFailed ? "unspecified launch failure" : "an error of the emulated card";
  return kOk;
}
EXPORT int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(NumberFrom("MUSTER_EMULATED_GPU_COUNT", 1));
  if (const char* const visible = getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr && *visible == 0) *count = 0;
  return kOk;
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
EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *memory == nullptr ? kOutOfMemory : kOk;
}
EXPORT int cuMemFreeHost(void* memory) {
  free(memory);
  return kOk;
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
EXPORT int cuModuleLoadData(void** module, const void* image) {
  Header header;
  memcpy(&header, image, sizeof(header));
  if (memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) return kInvalidImage;
  // Each has a name of its own: dlopen knows libraries by their names.
  std::string path = std::filesystem::temp_directory_path() / "emulated_function_XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return kOutOfMemory;
  const char* const bytes = static_cast<const char*>(image) + sizeof(header);
  const bool is_written = write(file, bytes, header.bytes) == static_cast<ssize_t>(header.bytes);
  close(file);
  *module = is_written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (*module == nullptr) fprintf(stderr, "emulated card: %s\n", dlerror());
  unlink(path.c_str());
  return *module == nullptr ? kInvalidImage : kOk;
}
EXPORT int cuModuleGetFunction(void** function, void* module, const char*) {
  auto made = std::make_unique<Function>();
  made->use = Find<void(Machine*)>(module, "muster_use");
  made->run = Find<void(void**)>(module, "muster_run");
  auto* const count = Find<unsigned long()>(module, "muster_num_parameters");
  auto* const sizes = Find<const unsigned long*()>(module, "muster_sizes");
  if (made->use == nullptr || made->run == nullptr || count == nullptr || sizes == nullptr) return kNotFound;
  made->count = count();
  made->sizes = sizes();
  made->use(&machine);
  *function = made.release();
  return kOk;
}
EXPORT int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void*, void** arguments, void**) {
  const auto& f = *static_cast<Function*>(function);
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  if (threads == 0 || threads > kMostThreads || grid_x == 0 || grid_y == 0 || grid_y > 65535 || grid_z == 0 ||
      grid_z > 65535 || shared_bytes > 0)
    return kInvalidValue;
  // Parameters are copied now, as by the driver, each at a multiple of 16.
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (unsigned long i = 0; i < f.count; ++i) {
    offsets.push_back(bytes);
    bytes += (f.sizes[i] + 15) / 16 * 16;
  }
  using Line = std::array<uint64_t, 2>;
  std::vector<Line> copy((bytes + 15) / 16 + 1);
  for (unsigned long i = 0; i < f.count; ++i)
    memcpy(reinterpret_cast<char*>(copy.data()) + offsets[i], arguments[i], f.sizes[i]);
  std::lock_guard lock(TheCard().mutex);
  return TheCard().Put([=, copy = std::move(copy), offsets = std::move(offsets)]() mutable {
    std::vector<void*> pointers;
    for (const size_t offset : offsets) pointers.push_back(reinterpret_cast<char*>(copy.data()) + offset);
    machine.grid_dim = {grid_x, grid_y, grid_z};
    machine.block_dim = {block_x, block_y, block_z};
    for (unsigned z = 0; z < grid_z; ++z) {
      for (unsigned y = 0; y < grid_y; ++y) {
        for (unsigned x = 0; x < grid_x; ++x) {
          machine.block_idx = {x, y, z};
          if (!TheCard().block().Run(f.run, pointers.data())) return kLaunchFailed;
        }
      }
    }
    return kOk;
  });
}

// --- NVRTC
EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 0;
  *minor = 1;
  return kOk;
}
EXPORT const char* nvrtcGetErrorString(int) {
  return "the emulated card's compiler failed";
}
EXPORT int nvrtcCreateProgram(void** program, const char* source, const char*, int num_headers, const char* const* headers,
                              const char* const* names) {
  auto made = std::make_unique<Program>();
  made->source = source;
  for (int i = 0; i < num_headers; ++i) made->headers.emplace_back(names[i], headers[i]);
  *program = made.release();
  return kOk;
}
EXPORT int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return kOk;
}
EXPORT int nvrtcAddNameExpression(void* program, const char* expression) {
  static_cast<Program*>(program)->expression = expression;
  return kOk;
}
EXPORT int nvrtcCompileProgram(void* program, int, const char* const*) {
  return Compile(*static_cast<Program*>(program));
}
EXPORT int nvrtcGetLoweredName(void*, const char*, const char** name) {
  *name = "muster_run";
  return kOk;
}
EXPORT int nvrtcGetProgramLogSize(void* program, size_t* bytes) {
  *bytes = static_cast<Program*>(program)->log.size() + 1;
  return kOk;
}
EXPORT int nvrtcGetProgramLog(void* program, char* log) {
  const std::string& text = static_cast<Program*>(program)->log;
  memcpy(log, text.c_str(), text.size() + 1);
  return kOk;
}
EXPORT int nvrtcGetCUBINSize(void* program, size_t* bytes) {
  *bytes = static_cast<Program*>(program)->code.size();
  return kOk;
}
EXPORT int nvrtcGetCUBIN(void* program, char* code) {
  const std::string& made = static_cast<Program*>(program)->code;
  memcpy(code, made.data(), made.size());
  return kOk;
}
