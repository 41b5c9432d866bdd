#include "muster/device/gpu/gpu_work.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

#include "muster/base/log.h"
#include "muster/base/settings.h"
#include "muster/device/gpu/gpu.h"
#include "muster/device/gpu/gpu_times.h"
#include "muster/device/running_node.h"

namespace muster {
namespace {

// So many calls after somebody has waited, the card begins. It then has work while the host notes
// more, and so on. More than the most does not wait: what the host has noted last, the card
// computes when there is nothing left to note.
constexpr size_t kFirstWaiting = 192;
constexpr size_t kMostWaiting = 384;
constexpr size_t kMostWaitingBytes = size_t{4} << 20;  // of notes
// A copy that takes longer than the host takes to say what comes next begins at once.
constexpr size_t kWorthBeginning = size_t{64} << 10;
// A graph pays from so many calls on.
constexpr size_t kLeastInGraph = 3;
constexpr int kSeenBeforeCapture = 3;
// And so often more where the driver has refused to change a graph.
constexpr int kSeenAfterRefusal = 32;
constexpr size_t kMostSequences = 512;
constexpr size_t kMostSequenceBytes = size_t{64} << 20;

// Four chains at once: the multiplications of one take too long.
uint64_t HashOf(absl::Span<const char> bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  uint64_t chains[4] = {bytes.size(), 1, 2, 3};
  const auto join = [&](size_t at, size_t count, int chain) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, count);
    chains[chain] = (chains[chain] ^ word) * kFactor;
    chains[chain] ^= chains[chain] >> 32;
  };
  size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) {
    for (int chain = 0; chain < 4; ++chain) join(at + 8 * static_cast<size_t>(chain), 8, chain);
  }
  for (; at < bytes.size(); at += 8) join(at, std::min<size_t>(8, bytes.size() - at), 0);
  uint64_t hash = 0;
  for (const uint64_t chain : chains) hash = (hash ^ chain) * kFactor ^ (hash >> 29);
  return hash;
}

cuda::Address AddressOf(const void* memory) {
  return reinterpret_cast<cuda::Address>(memory);
}

}  // namespace

GpuWork::GpuWork(Gpu& gpu)
    : gpu_(gpu),
      waits_for_each_(EnvironmentVariable("MUSTER_GPU_WAIT") == "1"),
      rewrites_(EnvironmentVariable("MUSTER_GPU_FUSE") != "0"),
      shows_(EnvironmentVariable("MUSTER_GPU_SHOW") == "1"),
      most_waiting_(kFirstWaiting) {}

GpuWork::~GpuWork() = default;

absl::Status GpuWork::Launch(cuda::Function function, const GpuGrid& grid,
                             absl::Span<const GpuArgument> arguments) {
  return Add([&](GpuTrace& trace) { trace.AddLaunch(function, grid, arguments); });
}

absl::Status GpuWork::AddCopy(GpuCall::Kind kind, void* to, const void* from, size_t bytes) {
  if (kind == GpuCall::Kind::kCopyIn && bytes >= kWorthBeginning) {
    // Nothing has to come before: the card may begin at once, while the host says what comes next.
    MutexLock lock(mutex_);
    if (trace_.num_calls() == 0) {
      RETURN_IF_ERROR(gpu_.MakeCurrent());
      ++counts_.calls;
      GpuCall call;
      call.kind = kind;
      call.to = to;
      call.from = from;
      call.bytes = bytes;
      return RunLocked(call);
    }
  }
  return Add([&](GpuTrace& trace) { trace.AddCopy(kind, to, from, bytes); });
}

absl::Status GpuWork::Fill(void* to, unsigned char value, size_t bytes) {
  return Add([&](GpuTrace& trace) { trace.AddFill(to, value, bytes); });
}

absl::Status GpuWork::AddLibraryCall(absl::Span<const char> key, const GpuAccesses* accesses,
                                     GpuLibraryCall library) {
  return Add([&](GpuTrace& trace) { trace.AddLibrary(key, accesses, std::move(library)); });
}

void GpuWork::NoteFree(const void* base, size_t bytes) {
  MutexLock lock(mutex_);
  trace_.AddFree(base, bytes);
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
  Over over;
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(gpu_.MakeCurrent());
  const absl::Status status = RunLocked(over);
  most_waiting_ = kFirstWaiting;
  const absl::Status after = then(std::exchange(kept_, {}));
  return status.ok() ? after : status;
}

absl::Status GpuWork::Add(absl::FunctionRef<void(GpuTrace&)> add) {
  Over over;
  MutexLock lock(mutex_);
  const bool is_timed = RunningNode::Current().times != nullptr;
  if (is_timed) {
    // What waits was not asked for by this node.
    const RunningNode untimed(NodeAtWork{});
    RETURN_IF_ERROR(gpu_.MakeCurrent());
    RETURN_IF_ERROR(RunLocked(over));
  }
  add(trace_);
  if (trace_.num_calls() < most_waiting_ && trace_.bytes().size() < kMostWaitingBytes &&
      !waits_for_each_ && !is_timed)
    return absl::OkStatus();
  most_waiting_ = std::min(2 * most_waiting_, kMostWaiting);
  RETURN_IF_ERROR(gpu_.MakeCurrent());
  RETURN_IF_ERROR(RunLocked(over));
  if (!waits_for_each_) return absl::OkStatus();
  RETURN_IF_ERROR(
      gpu_.Check(gpu_.driver().StreamSynchronize(gpu_.stream_handle()), "work on the GPU"));
  gpu_.history().NoteDone(gpu_.history().last());
  return absl::OkStatus();
}

void GpuWork::ForgetSequences() {
  Over over;
  MutexLock lock(mutex_);
  if (!gpu_.MakeCurrent().ok()) return;
  for (auto& [hash, sequence] : sequences_) {
    DropGraphLocked(*sequence);
    absl::c_move(sequence->libraries, std::back_inserter(over));
  }
  sequences_.clear();
}

absl::Status GpuWork::RunLocked(Over& over) {
  const size_t num_calls = trace_.num_calls();
  if (num_calls == 0) return absl::OkStatus();
  if (absl::Status failed = gpu_.failure(); !failed.ok()) {
    absl::c_move(trace_.Clear(), std::back_inserter(over));
    return failed;
  }
  ++flushes_;
  counts_.calls += static_cast<int64_t>(num_calls);
  Sequence* const sequence = num_calls < kLeastInGraph ? nullptr : FindLocked();
  if (sequence == nullptr) {
    gpu_.history().Add(FunctionsLocked());
  } else {
    if (sequence->functions == nullptr) sequence->functions = FunctionsLocked();
    gpu_.history().Add(sequence->functions);
  }
  absl::Status status;
  if (sequence != nullptr) {
    sequence->used = flushes_;
    if (sequence->graph == nullptr && ++sequence->seen >= kSeenBeforeCapture &&
        !sequence->cannot_be_captured) {
      TakeGraphLocked(*sequence, CaptureLocked([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return RunDirectlyLocked();
      }));
      sequence->cannot_be_captured = sequence->graph == nullptr;
      if (sequence->graph != nullptr) {
        RewriteLocked(*sequence);
        sequence->libraries = trace_.TakeLibraries();
      }
    } else if (!sequence->rewritten.empty()) {
      AdoptRewrittenLocked(*sequence, over);
    }
  }
  const bool is_graph =
      sequence != nullptr && sequence->graph != nullptr && PlaceCopiesLocked(*sequence);
  // Where the graph has been dropped.
  if (sequence != nullptr && sequence->graph == nullptr)
    absl::c_move(std::exchange(sequence->libraries, {}), std::back_inserter(over));
  if (is_graph) {
    counts_.replayed += sequence->num_calls;
    counts_.saved += sequence->saved;
    status = gpu_.Check(gpu_.driver().GraphLaunch(sequence->graph, gpu_.stream_handle()),
                        "cuGraphLaunch");
  } else {
    status = RunDirectlyLocked();
  }
  absl::c_move(trace_.Clear(), std::back_inserter(over));
  return status;
}

GpuFunctions GpuWork::FunctionsLocked() {
  auto functions = std::make_shared<std::vector<cuda::Function>>();
  const auto add = [&](cuda::Function function) {
    if (!absl::c_linear_search(*functions, function)) functions->push_back(function);
  };
  trace_
      .ForEach([&](const GpuCall& call) {
        if (call.kind == GpuCall::Kind::kLaunch) add(call.function);
        if (call.kind == GpuCall::Kind::kLibrary) add(nullptr);
        return absl::OkStatus();
      })
      .IgnoreError();  // the visitor does not fail
  return functions;
}

absl::Status GpuWork::RunDirectlyLocked() {
  return trace_.ForEach([this](const GpuCall& call)
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return RunLocked(call); });
}

absl::Status GpuWork::RunRewrittenLocked(const Sequence& sequence) {
  std::vector<GpuCall> calls;
  RETURN_IF_ERROR(trace_.ForEach([&](const GpuCall& call) {
    calls.push_back(call);
    return absl::OkStatus();
  }));
  for (const GpuReplacement& each : sequence.rewritten) {
    if (each.program == nullptr) {
      RETURN_IF_ERROR(RunLocked(calls[static_cast<size_t>(each.original)]));
      continue;
    }
    GpuCall call;
    call.function = each.program->function();
    call.grid = each.grid;
    call.arguments = {{each.argument.data(), each.argument.size()}};
    RETURN_IF_ERROR(RunLocked(call));
  }
  return absl::OkStatus();
}

// The sequence of the calls that wait, which is remembered from now on; null where another one has
// the same hash.
GpuWork::Sequence* GpuWork::FindLocked() {
  const absl::Span<const char> bytes = trace_.bytes();
  std::unique_ptr<Sequence>& found = sequences_[HashOf(bytes)];
  if (found == nullptr) {
    found = std::make_unique<Sequence>();
    found->bytes.assign(bytes.begin(), bytes.end());
    found->num_calls = static_cast<int64_t>(trace_.num_calls());
    Sequence* const made = found.get();
    made->used = flushes_;
    sequence_bytes_ += bytes.size();
    if (sequences_.size() > kMostSequences || sequence_bytes_ > kMostSequenceBytes)
      ForgetOldestLocked();
    return made;
  }
  const bool is_same = found->bytes.size() == bytes.size() &&
                       std::memcmp(found->bytes.data(), bytes.data(), bytes.size()) == 0;
  return is_same ? found.get() : nullptr;
}

GpuWork::Captured GpuWork::CaptureLocked(absl::FunctionRef<absl::Status()> run) {
  Captured captured;
  const cuda::Driver& driver = gpu_.driver();
  const cuda::StreamHandle stream = gpu_.stream_handle();
  if (driver.StreamBeginCapture(stream, cuda::kCaptureRelaxed) != 0) return captured;
  captured_ = &captured.copies;
  const absl::Status status = run();
  captured_ = nullptr;
  cuda::Graph graph = nullptr;
  if (driver.StreamEndCapture(stream, &graph) != 0 || graph == nullptr) return captured;
  cuda::GraphExec exec = nullptr;
  const bool is_made = status.ok() && driver.GraphInstantiate(&exec, graph, /*flags=*/0) == 0;
  for (HostCopy& each : captured.copies) {
    // Without a node the graph copies as it was captured, and PlaceCopiesLocked finds that out.
    if (each.node != nullptr && driver.GraphMemcpyNodeGetParams(each.node, &each.copy) != 0)
      each.node = nullptr;
  }
  if (!is_made) {
    driver.GraphDestroy(graph);
    return captured;
  }
  ++counts_.graphs;
  captured.graph = exec;
  captured.source = graph;
  return captured;
}

void GpuWork::TakeGraphLocked(Sequence& sequence, Captured captured) {
  DropGraphLocked(sequence);
  sequence.graph = captured.graph;
  sequence.source = captured.source;
  sequence.copies = std::move(captured.copies);
}

// The driver waits with it until the graph has run.
void GpuWork::DropGraphLocked(Sequence& sequence) {
  if (sequence.graph == nullptr) return;
  gpu_.driver().GraphExecDestroy(std::exchange(sequence.graph, nullptr));
  gpu_.driver().GraphDestroy(std::exchange(sequence.source, nullptr));
}

// The node that was captured last is the copy.
void GpuWork::NoteCapturedLocked(const GpuCall& call) {
  if (captured_ == nullptr || call.host < 0) return;
  HostCopy copy;
  copy.host = call.host;
  copy.at = trace_.hosts()[static_cast<size_t>(call.host)];
  int status = 0;
  unsigned long long id = 0;
  cuda::Graph graph = nullptr;
  const cuda::GraphNode* nodes = nullptr;
  size_t num_nodes = 0;
  const cuda::Result result = gpu_.driver().StreamGetCaptureInfo(gpu_.stream_handle(), &status, &id,
                                                                 &graph, &nodes, &num_nodes);
  if (result == 0 && num_nodes == 1) copy.node = nodes[0];
  captured_->push_back(copy);
}

bool GpuWork::PlaceCopiesLocked(Sequence& sequence) {
  for (HostCopy& each : sequence.copies) {
    void* const wanted = trace_.hosts()[static_cast<size_t>(each.host)];
    if (wanted == each.at) continue;
    bool is_found = false;
    cuda::Copy3D::End* const ends[] = {&each.copy.from, &each.copy.to};
    for (cuda::Copy3D::End* const end : ends) {
      // The driver may describe the host's memory as such or by an address that all memory has.
      if (end->memory_type == cuda::kHostMemory && end->host == each.at) {
        end->host = wanted;
        is_found = true;
      } else if (end->memory_type != cuda::kHostMemory && end->device == AddressOf(each.at)) {
        end->device = AddressOf(wanted);
        is_found = true;
      }
    }
    if (!is_found || each.node == nullptr ||
        gpu_.driver().GraphExecMemcpyNodeSetParams(sequence.graph, each.node, &each.copy,
                                                   gpu_.context()) != 0) {
      // Memory that the graph knows may be gone: it is made anew, later.
      if (!std::exchange(sequence.keeps_hosts, true))
        LOG(INFO) << "the driver does not change the copies of a graph, which is made anew";
      DropGraphLocked(sequence);
      sequence.rewritten = {};
      sequence.saved = 0;
      sequence.seen = -kSeenAfterRefusal;
      return false;
    }
    each.at = wanted;
  }
  return true;
}

void GpuWork::RewriteLocked(Sequence& sequence) {
  GpuRewriter* const rewriter = GpuRewriter::Get();
  if (!rewrites_ || rewriter == nullptr) return;
  sequence.rewritten = rewriter->Rewrite(gpu_, FindAccesses(trace_, gpu_.memory().BlocksInUse()));
}

void GpuWork::AdoptRewrittenLocked(Sequence& sequence, Over& over) {
  for (const GpuReplacement& each : sequence.rewritten) {
    if (each.program == nullptr || each.program->function() != nullptr) continue;
    if (each.program->is_over() && each.program->function() == nullptr) {
      LOG(WARNING) << "steps run without joined functions: "
                   << each.program->Await().status().message();
      sequence.rewritten.clear();
    }
    return;
  }
  Captured captured = CaptureLocked(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return RunRewrittenLocked(sequence); });
  if (captured.graph != nullptr) {
    TakeGraphLocked(sequence, std::move(captured));
    absl::c_move(sequence.libraries, std::back_inserter(over));
    sequence.libraries = trace_.TakeLibraries();
    auto functions = std::make_shared<std::vector<cuda::Function>>(*sequence.functions);
    for (const GpuReplacement& each : sequence.rewritten)
      if (each.program != nullptr) functions->push_back(each.program->function());
    sequence.functions = std::move(functions);
    sequence.saved = sequence.num_calls - static_cast<int64_t>(sequence.rewritten.size());
    if (shows_) ShowLocked(sequence);
  }
  sequence.rewritten = {};
}

// What a rewritten sequence consists of, by how often.
void GpuWork::ShowLocked(const Sequence& sequence) const {
  std::vector<std::string> names;
  trace_
      .ForEach([&](const GpuCall& call) {
        static constexpr const char* kKinds[] = {"",     "copy in", "copy out", "copy within",
                                                 "fill", "library", "free"};
        names.push_back(call.kind == GpuCall::Kind::kLaunch
                            ? gpu_.programs().NameOf(call.function)
                            : kKinds[static_cast<size_t>(call.kind)]);
        return absl::OkStatus();
      })
      .IgnoreError();
  std::map<std::string, int> times;
  for (const GpuReplacement& each : sequence.rewritten)
    ++times[each.program == nullptr ? names[static_cast<size_t>(each.original)]
                                    : gpu_.programs().NameOf(each.program->function())];
  std::vector<std::pair<int, std::string>> ordered;
  for (auto& [name, count] : times) ordered.emplace_back(-count, name);
  absl::c_sort(ordered);
  std::string text;
  for (const auto& [count, name] : ordered) absl::StrAppend(&text, "\n", -count, " ", name);
  LOG(INFO) << "a graph of " << sequence.num_calls << " calls runs " << sequence.rewritten.size()
            << ":" << text;
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
    DropGraphLocked(*current->second);
    sequences_.erase(current);
  }
}

absl::Status GpuWork::RunLocked(const GpuCall& call) {
  if (const NodeAtWork at_work = RunningNode::Current();
      at_work.times != nullptr && call.kind != GpuCall::Kind::kFree) {
    return at_work.times->Time(gpu_, call, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const RunningNode untimed(NodeAtWork{});
      return RunLocked(call);
    });
  }
  const cuda::Driver& driver = gpu_.driver();
  const cuda::StreamHandle stream = gpu_.stream_handle();
  switch (call.kind) {
    case GpuCall::Kind::kLaunch: {
      absl::InlinedVector<void*, 16> arguments;
      for (const GpuArgument& argument : call.arguments)
        arguments.push_back(const_cast<void*>(argument.value));
      const GpuGrid& grid = call.grid;
      const cuda::Result result = driver.LaunchKernel(
          call.function, grid.blocks_x, grid.blocks_y, grid.blocks_z, grid.threads_x,
          grid.threads_y, grid.threads_z, grid.shared_bytes, stream, arguments.data(), nullptr);
      if (result == 0) return absl::OkStatus();
      return Prefixed(gpu_.Check(result, "cuLaunchKernel"),
                      absl::StrCat(gpu_.programs().NameOf(call.function), ": "));
    }
    case GpuCall::Kind::kCopyIn:
      RETURN_IF_ERROR(
          gpu_.Check(driver.MemcpyHtoDAsync(AddressOf(call.to), call.from, call.bytes, stream),
                     "cuMemcpyHtoDAsync"));
      NoteCapturedLocked(call);
      return absl::OkStatus();
    case GpuCall::Kind::kCopyOut:
      RETURN_IF_ERROR(
          gpu_.Check(driver.MemcpyDtoHAsync(call.to, AddressOf(call.from), call.bytes, stream),
                     "cuMemcpyDtoHAsync"));
      NoteCapturedLocked(call);
      return absl::OkStatus();
    case GpuCall::Kind::kCopyWithin:
      return gpu_.Check(
          driver.MemcpyDtoDAsync(AddressOf(call.to), AddressOf(call.from), call.bytes, stream),
          "cuMemcpyDtoDAsync");
    case GpuCall::Kind::kFill:
      return gpu_.Check(driver.MemsetD8Async(AddressOf(call.to), call.value, call.bytes, stream),
                        "cuMemsetD8Async");
    case GpuCall::Kind::kLibrary:
      return trace_.library(call.library)();
    case GpuCall::Kind::kFree:
      return absl::OkStatus();
  }
  return Internal("no such work");
}

}  // namespace muster
