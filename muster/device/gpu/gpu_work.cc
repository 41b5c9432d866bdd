#include "muster/device/gpu/gpu_work.h"

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"

#include "muster/base/settings.h"
#include "muster/device/gpu/gpu.h"

namespace muster {
namespace {

// More work than this does not wait: the card would be idle meanwhile.
constexpr size_t kMostWaiting = 192;
// A graph pays from so many calls on.
constexpr size_t kLeastInGraph = 3;
constexpr int kSeenBeforeCapture = 3;
constexpr size_t kMostSequences = 512;

enum class Kind : uint32_t { kLaunch, kCopyIn, kCopyOut, kCopyWithin, kFill, kLibrary };

// Numbers and arguments one after the other, each at a multiple of 16.
class Writer {
 public:
  explicit Writer(absl::InlinedVector<char, 160>& bytes) : bytes_(bytes) {}
  void Put(const void* value, size_t size) {
    const size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + size, 0);
    std::memcpy(bytes_.data() + at, value, size);
  }
  template <typename T>
  void Put(const T& value) {
    Put(&value, sizeof(value));
  }

 private:
  absl::InlinedVector<char, 160>& bytes_;
};

class Reader {
 public:
  explicit Reader(char* bytes) : bytes_(bytes) {}
  char* Take(size_t size) {
    char* const at = bytes_ + (offset_ + 15) / 16 * 16;
    offset_ = static_cast<size_t>(at - bytes_) + size;
    return at;
  }
  template <typename T>
  T Take() {
    T value;
    std::memcpy(&value, Take(sizeof(T)), sizeof(T));
    return value;
  }

 private:
  char* const bytes_;
  size_t offset_ = 0;
};

// Where a call's own hash joins that of the calls before it.
uint64_t Joined(uint64_t hash, absl::Span<const char> bytes) {
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  }
  return hash;
}

cuda::Address AddressOf(const void* memory) {
  return reinterpret_cast<cuda::Address>(memory);
}

}  // namespace

GpuWork::GpuWork(Gpu& gpu)
    : gpu_(gpu), waits_for_each_(EnvironmentVariable("MUSTER_GPU_WAIT") == "1") {}

GpuWork::~GpuWork() = default;

absl::Status GpuWork::Launch(cuda::Function function, const GpuGrid& grid,
                             absl::Span<const GpuArgument> arguments) {
  Call call;
  Writer writer(call.bytes);
  writer.Put(Kind::kLaunch);
  writer.Put(function);
  writer.Put(grid);
  writer.Put(arguments.size());
  for (const GpuArgument& argument : arguments) {
    writer.Put(argument.bytes);
    writer.Put(argument.value, argument.bytes);
  }
  MutexLock lock(mutex_);
  return AddLocked(std::move(call));
}

absl::Status GpuWork::AddCopy(Copy kind, void* to, const void* from, size_t bytes) {
  Call call;
  Writer writer(call.bytes);
  writer.Put(kind == Copy::kIn    ? Kind::kCopyIn
             : kind == Copy::kOut ? Kind::kCopyOut
                                  : Kind::kCopyWithin);
  writer.Put(to);
  writer.Put(from);
  writer.Put(bytes);
  MutexLock lock(mutex_);
  return AddLocked(std::move(call));
}

absl::Status GpuWork::Fill(void* to, unsigned char value, size_t bytes) {
  Call call;
  Writer writer(call.bytes);
  writer.Put(Kind::kFill);
  writer.Put(to);
  writer.Put(value);
  writer.Put(bytes);
  MutexLock lock(mutex_);
  return AddLocked(std::move(call));
}

absl::Status GpuWork::AddLibraryCall(absl::Span<const char> key, GpuLibraryCall library) {
  Call call;
  Writer writer(call.bytes);
  writer.Put(Kind::kLibrary);
  writer.Put(key.data(), key.size());
  call.library = std::move(library);
  MutexLock lock(mutex_);
  return AddLocked(std::move(call));
}

void GpuWork::Keep(Buffer buffer) {
  MutexLock lock(mutex_);
  kept_.push_back(std::move(buffer));
}

GpuWork::Counts GpuWork::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

absl::Status GpuWork::Flush(absl::FunctionRef<absl::Status(std::vector<Buffer> kept)> then) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(gpu_.MakeCurrent());
  const absl::Status status = RunLocked();
  const absl::Status after = then(std::exchange(kept_, {}));
  return status.ok() ? after : status;
}

absl::Status GpuWork::AddLocked(Call call) {
  calls_.push_back(std::move(call));
  if (calls_.size() < kMostWaiting && !waits_for_each_) return absl::OkStatus();
  RETURN_IF_ERROR(gpu_.MakeCurrent());
  RETURN_IF_ERROR(RunLocked());
  return waits_for_each_
             ? cuda::Check(gpu_.driver().StreamSynchronize(gpu_.stream_handle()), "work on the GPU")
             : absl::OkStatus();
}

absl::Status GpuWork::RunLocked() {
  const auto clear = absl::MakeCleanup([this] { calls_.clear(); });
  ++flushes_;
  counts_.calls += static_cast<int64_t>(calls_.size());
  Sequence* const sequence = calls_.size() < kLeastInGraph ? nullptr : FindLocked();
  if (sequence == nullptr) return RunDirectlyLocked();
  sequence->used = flushes_;
  if (sequence->graph == nullptr && ++sequence->seen >= kSeenBeforeCapture &&
      !sequence->cannot_be_captured && !CaptureLocked(*sequence))
    sequence->cannot_be_captured = true;
  if (sequence->graph == nullptr) return RunDirectlyLocked();
  counts_.replayed += static_cast<int64_t>(calls_.size());
  return cuda::Check(gpu_.driver().GraphLaunch(sequence->graph, gpu_.stream_handle()),
                     "cuGraphLaunch");
}

absl::Status GpuWork::RunDirectlyLocked() {
  for (Call& call : calls_) RETURN_IF_ERROR(Run(call));
  return absl::OkStatus();
}

// The sequence of the calls that wait, which is remembered from now on; null where another one has
// the same hash.
GpuWork::Sequence* GpuWork::FindLocked() {
  uint64_t hash = calls_.size();
  for (const Call& call : calls_) hash = Joined(hash, call.bytes);
  std::unique_ptr<Sequence>& found = sequences_[hash];
  if (found == nullptr) {
    found = std::make_unique<Sequence>();
    for (const Call& call : calls_) found->calls.push_back(call.bytes);
    Sequence* const made = found.get();
    made->used = flushes_;
    if (sequences_.size() > kMostSequences) ForgetOldestLocked();
    return made;
  }
  const bool is_same =
      std::equal(calls_.begin(), calls_.end(), found->calls.begin(), found->calls.end(),
                 [](const Call& call, const auto& bytes) { return call.bytes == bytes; });
  return is_same ? found.get() : nullptr;
}

bool GpuWork::CaptureLocked(Sequence& sequence) {
  const cuda::Driver& driver = gpu_.driver();
  const cuda::StreamHandle stream = gpu_.stream_handle();
  if (driver.StreamBeginCapture(stream, cuda::kCaptureRelaxed) != 0) return false;
  const absl::Status status = RunDirectlyLocked();
  cuda::Graph graph = nullptr;
  if (driver.StreamEndCapture(stream, &graph) != 0 || graph == nullptr) return false;
  const bool is_made =
      status.ok() && driver.GraphInstantiate(&sequence.graph, graph, /*flags=*/0) == 0;
  driver.GraphDestroy(graph);
  if (!is_made) {
    sequence.graph = nullptr;
    return false;
  }
  ++counts_.graphs;
  for (Call& call : calls_) {
    if (call.library != nullptr) sequence.libraries.push_back(std::move(call.library));
  }
  return true;
}

// Half of them at once: what is left is looked for less often.
void GpuWork::ForgetOldestLocked() {
  std::vector<int64_t> uses;
  for (const auto& [hash, sequence] : sequences_) uses.push_back(sequence->used);
  std::nth_element(uses.begin(), uses.begin() + static_cast<int64_t>(uses.size() / 2), uses.end());
  const int64_t oldest_kept = uses[uses.size() / 2];
  for (auto at = sequences_.begin(); at != sequences_.end();) {
    const auto current = at++;
    if (current->second->used >= oldest_kept) continue;
    // The driver waits with it until the graph has run.
    if (current->second->graph != nullptr) gpu_.driver().GraphExecDestroy(current->second->graph);
    sequences_.erase(current);
  }
}

absl::Status GpuWork::Run(Call& call) const {
  const cuda::Driver& driver = gpu_.driver();
  const cuda::StreamHandle stream = gpu_.stream_handle();
  Reader reader(call.bytes.data());
  switch (reader.Take<Kind>()) {
    case Kind::kLaunch: {
      const auto function = reader.Take<cuda::Function>();
      const auto grid = reader.Take<GpuGrid>();
      absl::InlinedVector<void*, 16> arguments(reader.Take<size_t>());
      for (void*& argument : arguments) argument = reader.Take(reader.Take<size_t>());
      const cuda::Result result = driver.LaunchKernel(
          function, grid.blocks_x, grid.blocks_y, grid.blocks_z, grid.threads_x, grid.threads_y,
          grid.threads_z, grid.shared_bytes, stream, arguments.data(), nullptr);
      if (result == 0) return absl::OkStatus();
      return Prefixed(cuda::Check(result, "cuLaunchKernel"),
                      absl::StrCat(gpu_.programs().NameOf(function), ": "));
    }
    case Kind::kCopyIn: {
      auto* const to = reader.Take<void*>();
      const auto* const from = reader.Take<const void*>();
      return cuda::Check(driver.MemcpyHtoDAsync(AddressOf(to), from, reader.Take<size_t>(), stream),
                         "cuMemcpyHtoDAsync");
    }
    case Kind::kCopyOut: {
      auto* const to = reader.Take<void*>();
      const auto* const from = reader.Take<const void*>();
      return cuda::Check(driver.MemcpyDtoHAsync(to, AddressOf(from), reader.Take<size_t>(), stream),
                         "cuMemcpyDtoHAsync");
    }
    case Kind::kCopyWithin: {
      auto* const to = reader.Take<void*>();
      const auto* const from = reader.Take<const void*>();
      return cuda::Check(
          driver.MemcpyDtoDAsync(AddressOf(to), AddressOf(from), reader.Take<size_t>(), stream),
          "cuMemcpyDtoDAsync");
    }
    case Kind::kFill: {
      auto* const to = reader.Take<void*>();
      const auto value = reader.Take<unsigned char>();
      return cuda::Check(driver.MemsetD8Async(AddressOf(to), value, reader.Take<size_t>(), stream),
                         "cuMemsetD8Async");
    }
    case Kind::kLibrary:
      return call.library();
  }
  return Internal("no such work");
}

}  // namespace muster
