#include "muster/device/gpu/gpu_trace.h"

#include <cstring>
#include <utility>

namespace muster {
namespace {

// Records and arguments begin at multiples of it: the driver reads arguments where they are.
constexpr size_t kAlignment = 16;

constexpr size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What every record begins with; padding is part of the comparison, so there is none.
struct Head {
  GpuCall::Kind kind;
  uint32_t bytes;  // of the whole record
};
struct LaunchHead {
  Head head;
  cuda::Function function;
  GpuGrid grid;
  uint32_t num_arguments;
};
static_assert(sizeof(LaunchHead) == 48);
struct ArgumentHead {
  uint32_t bytes;
  GpuArgument::Kind kind;
  uint8_t zeros[3];
};
struct MemoryRecord {
  Head head;
  void* to;
  const void* from;
  uint64_t bytes;
  uint64_t value;
};
// Pointers and the key follow.
struct LibraryHead {
  Head head;
  uint32_t number;
  uint32_t has_accesses;
  uint32_t num_reads, num_writes;
};

}  // namespace

char* GpuTrace::AddRecord(GpuCall::Kind kind, size_t bytes) {
  const size_t at = bytes_.size();
  bytes = Aligned(bytes);
  bytes_.resize(at + bytes);  // zeros
  const Head head = {kind, static_cast<uint32_t>(bytes)};
  std::memcpy(bytes_.data() + at, &head, sizeof(head));
  if (kind != GpuCall::Kind::kFree) ++num_calls_;
  return bytes_.data() + at;
}

void GpuTrace::AddLaunch(cuda::Function function, const GpuGrid& grid,
                         absl::Span<const GpuArgument> arguments) {
  const size_t values_at = Aligned(sizeof(LaunchHead) + arguments.size() * sizeof(ArgumentHead));
  size_t bytes = values_at;
  for (const GpuArgument& argument : arguments) bytes += Aligned(argument.bytes);
  char* const record = AddRecord(GpuCall::Kind::kLaunch, bytes);
  LaunchHead launch = {{}, function, grid, static_cast<uint32_t>(arguments.size())};
  std::memcpy(&launch.head, record, sizeof(launch.head));
  std::memcpy(record, &launch, sizeof(launch));
  char* head_at = record + sizeof(launch);
  char* value_at = record + values_at;
  for (const GpuArgument& argument : arguments) {
    const ArgumentHead head = {static_cast<uint32_t>(argument.bytes), argument.kind, {}};
    std::memcpy(head_at, &head, sizeof(head));
    std::memcpy(value_at, argument.value, argument.bytes);
    head_at += sizeof(head);
    value_at += Aligned(argument.bytes);
  }
}

void GpuTrace::AddMemory(GpuCall::Kind kind, void* to, const void* from, size_t bytes,
                         unsigned char value) {
  char* const at = AddRecord(kind, sizeof(MemoryRecord));
  MemoryRecord record = {{}, to, from, bytes, value};
  std::memcpy(&record.head, at, sizeof(record.head));
  std::memcpy(at, &record, sizeof(record));
}

void GpuTrace::AddCopy(GpuCall::Kind kind, void* to, const void* from, size_t bytes) {
  if (kind == GpuCall::Kind::kCopyIn)
    hosts_.push_back(const_cast<void*>(std::exchange(from, nullptr)));
  if (kind == GpuCall::Kind::kCopyOut) hosts_.push_back(std::exchange(to, nullptr));
  AddMemory(kind, to, from, bytes, 0);
}

void GpuTrace::AddFill(void* to, unsigned char value, size_t bytes) {
  AddMemory(GpuCall::Kind::kFill, to, nullptr, bytes, value);
}

void GpuTrace::AddFree(const void* base, size_t bytes) {
  if (num_calls_ == 0) return;
  AddMemory(GpuCall::Kind::kFree, const_cast<void*>(base), nullptr, bytes, 0);
}

void GpuTrace::AddLibrary(absl::Span<const char> key, const GpuAccesses* accesses,
                          GpuLibraryCall call) {
  static constexpr GpuAccesses kNone;
  const GpuAccesses& known = accesses != nullptr ? *accesses : kNone;
  const size_t reads_bytes = known.reads.size() * sizeof(void*);
  const size_t writes_bytes = known.writes.size() * sizeof(void*);
  char* at = AddRecord(GpuCall::Kind::kLibrary,
                       sizeof(LibraryHead) + reads_bytes + writes_bytes + key.size());
  LibraryHead head = {{},
                      static_cast<uint32_t>(libraries_.size()),
                      accesses != nullptr,
                      static_cast<uint32_t>(known.reads.size()),
                      static_cast<uint32_t>(known.writes.size())};
  std::memcpy(&head.head, at, sizeof(head.head));
  const auto put = [&at](const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(at, from, bytes);
    at += bytes;
  };
  put(&head, sizeof(head));
  put(known.reads.data(), reads_bytes);
  put(known.writes.data(), writes_bytes);
  put(key.data(), key.size());
  libraries_.push_back(std::move(call));
}

absl::Status GpuTrace::ForEach(absl::FunctionRef<absl::Status(const GpuCall& call)> visit) const {
  GpuCall call;
  int num_hosts = 0;
  for (const char *at = bytes_.data(), *const end = at + bytes_.size(); at < end;) {
    Head head;
    std::memcpy(&head, at, sizeof(head));
    call.kind = head.kind;
    call.host = -1;
    if (head.kind == GpuCall::Kind::kLaunch) {
      LaunchHead launch;
      std::memcpy(&launch, at, sizeof(launch));
      call.function = launch.function;
      call.grid = launch.grid;
      call.arguments.clear();
      const char* head_at = at + sizeof(launch);
      const char* value_at =
          at + Aligned(sizeof(launch) + launch.num_arguments * sizeof(ArgumentHead));
      for (uint32_t i = 0; i < launch.num_arguments; ++i) {
        ArgumentHead argument;
        std::memcpy(&argument, head_at, sizeof(argument));
        call.arguments.push_back({value_at, argument.bytes, argument.kind});
        head_at += sizeof(argument);
        value_at += Aligned(argument.bytes);
      }
    } else if (head.kind == GpuCall::Kind::kLibrary) {
      LibraryHead library;
      std::memcpy(&library, at, sizeof(library));
      call.library = static_cast<int>(library.number);
      call.has_accesses = library.has_accesses != 0;
      const char* pointers_at = at + sizeof(library);
      const auto take = [&pointers_at](uint32_t count, std::vector<const void*>& to) {
        to.resize(count);
        if (count > 0) std::memcpy(to.data(), pointers_at, count * sizeof(void*));
        pointers_at += count * sizeof(void*);
      };
      take(library.num_reads, call.reads);
      take(library.num_writes, call.writes);
    } else {
      MemoryRecord record;
      std::memcpy(&record, at, sizeof(record));
      call.to = record.to;
      call.from = record.from;
      call.bytes = record.bytes;
      call.value = static_cast<unsigned char>(record.value);
      const bool is_in = head.kind == GpuCall::Kind::kCopyIn;
      if (is_in || head.kind == GpuCall::Kind::kCopyOut) {
        call.host = num_hosts++;
        void* const host = hosts_[static_cast<size_t>(call.host)];
        if (is_in)
          call.from = host;
        else
          call.to = host;
      }
    }
    RETURN_IF_ERROR(visit(call));
    at += head.bytes;
  }
  return absl::OkStatus();
}

std::vector<GpuLibraryCall> GpuTrace::Clear() {
  bytes_.clear();
  hosts_.clear();
  num_calls_ = 0;
  return std::exchange(libraries_, {});
}

}  // namespace muster
