// The functions of the emulated card: compiled by g++ (emulated_cuda.h) where a real one has NVRTC, loaded as libraries, and run one
// thread at a time, block by block.
#include <dlfcn.h>
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
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emulated_gpu.h"

using emulated::kIllegalAddress;
using emulated::kInvalidValue;
using emulated::kLaunchFailed;
using emulated::kOk;
using emulated::kOutOfMemory;

namespace {

constexpr int kInvalidImage = 200, kNotFound = 500, kCompilationFailed = 6;
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

Block& TheBlock() {
  static auto* const block = new Block;  // never destroyed, see TheCard
  return *block;
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

// See MUSTER_EMULATED_GPU_FAILS_AT. Called for one function after the other.
bool FailsNow() {
  static const size_t fails_at = emulated::NumberFrom("MUSTER_EMULATED_GPU_FAILS_AT", 0);
  static size_t num_run = 0;
  if (++num_run != fails_at) return false;
  const char* const once = emulated::TextFrom("MUSTER_EMULATED_GPU_FAILS_ONCE");
  return once == nullptr || unlink(once) == 0;
}

template <typename T>
T* Find(void* library, const char* name) {
  return reinterpret_cast<T*>(dlsym(library, name));
}

}  // namespace

// --- Modules of the driver
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
  return emulated::PutOnStream([=, copy = std::move(copy), offsets = std::move(offsets)]() mutable {
    if (FailsNow()) return kIllegalAddress;
    std::vector<void*> pointers;
    for (const size_t offset : offsets) pointers.push_back(reinterpret_cast<char*>(copy.data()) + offset);
    machine.grid_dim = {grid_x, grid_y, grid_z};
    machine.block_dim = {block_x, block_y, block_z};
    for (unsigned z = 0; z < grid_z; ++z) {
      for (unsigned y = 0; y < grid_y; ++y) {
        for (unsigned x = 0; x < grid_x; ++x) {
          machine.block_idx = {x, y, z};
          if (!TheBlock().Run(f.run, pointers.data())) return kLaunchFailed;
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
  // As NVIDIA's, the compiler crashes a program that ends while it works.
  struct InUse {
    std::atomic<int> calls{0};
    ~InUse() {
      if (calls > 0) abort();
    }
  };
  static InUse in_use;
  ++in_use.calls;
  const int result = Compile(*static_cast<Program*>(program));
  --in_use.calls;
  return result;
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
