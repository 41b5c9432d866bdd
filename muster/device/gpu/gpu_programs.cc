#include "muster/device/gpu/gpu_programs.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

#include "muster/base/threads/thread_name.h"
#include "muster/device/gpu/gpu.h"
#include "muster/device/gpu/gpu_cache.h"
#include "muster/device/gpu/gpu_sources.h"

namespace muster {
namespace {

constexpr char kFolder[] = "muster/ops/";
constexpr int kMostThreads = 8;
// A function takes a second or two to compile.
constexpr absl::Duration kLongestStop = absl::Seconds(20);
// Each operation rounds by itself, as on the CPU: several nodes in one function then give the bits
// that they give one by one (ops/fusion/fused.cu).
constexpr const char* kOptions[] = {"--std=c++17", "--fmad=false",
                                    "--device-as-default-execution-space",
                                    "--extra-device-vectorization"};

// Of every source at once: a change of any header changes it.
uint64_t HashOfSources() {
  static const uint64_t all = [] {
    uint64_t hash = 0xcbf29ce484222325;
    for (const GpuSource& source : GpuSources()) {
      for (const char* at = source.text; *at != '\0'; ++at)
        hash = (hash ^ static_cast<unsigned char>(*at)) * 0x100000001b3;
    }
    return hash;
  }();
  return all;
}

absl::StatusOr<std::string> KeyOf(const cuda::Compiler& compiler, absl::string_view file,
                                  absl::string_view expression, int compute_capability) {
  int major = 0, minor = 0;
  if (compiler.Version(&major, &minor) != 0) return Internal("nvrtcVersion failed");
  return absl::StrCat(file, "\n", expression, "\nsm_", compute_capability, "\nnvrtc ", major, ".",
                      minor, "\n", absl::StrJoin(kOptions, " "), "\n", HashOfSources());
}

}  // namespace

absl::StatusOr<GpuBinary> CompileGpuFunction(absl::string_view file, absl::string_view expression,
                                             int compute_capability) {
  ASSIGN_OR_RETURN(const cuda::Compiler* const compiler, cuda::LoadCompiler());
  const std::string path = absl::StrCat(kFolder, file);
  const char* text = nullptr;
  std::vector<const char*> headers, names;
  for (const GpuSource& source : GpuSources()) {
    if (source.path == path) text = source.text;
    if (!absl::EndsWith(source.path, ".cuh")) continue;
    headers.push_back(source.text);
    names.push_back(source.path);
  }
  if (text == nullptr) return NotFound("no source ", path);
  const auto check = [&](cuda::Result result, const char* what) -> absl::Status {
    if (result == 0) return absl::OkStatus();
    return Internal(what, " of ", file, " ", expression, ": ", compiler->GetErrorString(result));
  };
  cuda::Program program = nullptr;
  RETURN_IF_ERROR(
      check(compiler->CreateProgram(&program, text, path.c_str(), static_cast<int>(headers.size()),
                                    headers.data(), names.data()),
            "nvrtcCreateProgram"));
  const auto destroy = absl::MakeCleanup([&] { compiler->DestroyProgram(&program); });
  const std::string name(expression);
  RETURN_IF_ERROR(
      check(compiler->AddNameExpression(program, name.c_str()), "nvrtcAddNameExpression"));
  const std::string architecture = absl::StrCat("--gpu-architecture=sm_", compute_capability);
  std::vector<const char*> options = {architecture.c_str()};
  options.insert(options.end(), std::begin(kOptions), std::end(kOptions));
  if (const cuda::Result result =
          compiler->CompileProgram(program, static_cast<int>(options.size()), options.data());
      result != 0) {
    size_t bytes = 0;
    compiler->GetProgramLogSize(program, &bytes);
    std::string log(bytes, '\0');
    if (bytes > 0) compiler->GetProgramLog(program, log.data());
    return InvalidArgument("the GPU function ", expression, " of ", file,
                           " does not compile: ", compiler->GetErrorString(result), "\n",
                           log.c_str());
  }
  GpuBinary binary;
  const char* lowered = nullptr;
  RETURN_IF_ERROR(
      check(compiler->GetLoweredName(program, name.c_str(), &lowered), "nvrtcGetLoweredName"));
  binary.lowered_name = lowered;
  size_t bytes = 0;
  RETURN_IF_ERROR(check(compiler->GetCUBINSize(program, &bytes), "nvrtcGetCUBINSize"));
  binary.cubin.resize(bytes);
  RETURN_IF_ERROR(check(compiler->GetCUBIN(program, binary.cubin.data()), "nvrtcGetCUBIN"));
  return binary;
}

absl::StatusOr<cuda::Function> GpuProgram::Await() {
  if (const cuda::Function ready = function()) return ready;
  MutexLock lock(mutex_);
  while (!is_over_) changed_.Wait(mutex_);
  if (!status_.ok()) return status_;
  return function();
}

GpuProgram& GpuPrograms::Get(const std::string& file, const std::string& expression) {
  MutexLock lock(mutex_);
  std::unique_ptr<GpuProgram>& program = programs_[{file, expression}];
  if (program != nullptr) return *program;
  program = std::make_unique<GpuProgram>();
  if (is_stopped_) {
    End(*program, absl::CancelledError("the program ends"));
    return *program;
  }
  requests_.push_back({file, expression, program.get()});
  const int most = std::min<int>(kMostThreads, std::max(1u, std::thread::hardware_concurrency()));
  if (num_threads_ < most) {
    ++num_threads_;
    std::thread([this] { RunCompiler(); }).detach();
  }
  return *program;
}

void GpuPrograms::StopAll() {
  for (Gpu* const gpu : Gpu::Started()) gpu->programs().Stop();
}

void GpuPrograms::Stop() {
  const absl::Time latest = absl::Now() + kLongestStop;
  MutexLock lock(mutex_);
  is_stopped_ = true;
  for (const Request& request : requests_)
    End(*request.program, absl::CancelledError("the program ends"));
  requests_.clear();
  while (num_threads_ > 0 && absl::Now() < latest)
    thread_ended_.WaitFor(mutex_, latest - absl::Now());
}

void GpuPrograms::End(GpuProgram& program, absl::Status status) {
  MutexLock lock(program.mutex_);
  program.status_ = std::move(status);
  program.is_over_ = true;
  program.changed_.NotifyAll();
}

std::string GpuPrograms::NameOf(cuda::Function function) const {
  MutexLock lock(mutex_);
  const auto found = names_.find(function);
  return found == names_.end() ? "a function" : found->second;
}

void GpuPrograms::RunCompiler() {
  NameThread("muster-compile");
  for (;;) {
    Request request;
    {
      MutexLock lock(mutex_);
      if (requests_.empty()) {
        --num_threads_;
        thread_ended_.NotifyAll();
        return;
      }
      request = std::move(requests_.front());
      requests_.pop_front();
    }
    const absl::StatusOr<cuda::Function> loaded = Load(request);
    // At the exit the last that was registered runs first: this before what libraries have
    // registered in their first use.
    [[maybe_unused]] static const int registered = std::atexit(StopAll);
    GpuProgram& program = *request.program;
    if (loaded.ok()) {
      {
        MutexLock lock(mutex_);
        names_[*loaded] = absl::StrCat(request.file, ": ", request.expression);
      }
      program.function_.store(*loaded, std::memory_order_release);
    }
    End(program, loaded.status());
  }
}

absl::StatusOr<cuda::Function> GpuPrograms::Load(const Request& request) const {
  static const auto* const folder = new std::string(GpuCacheFolder());
  ASSIGN_OR_RETURN(const cuda::Compiler* const compiler, cuda::LoadCompiler());
  ASSIGN_OR_RETURN(const std::string key,
                   KeyOf(*compiler, request.file, request.expression, gpu_.compute_capability()));
  RETURN_IF_ERROR(gpu_.MakeCurrent());
  const auto load = [&](const GpuBinary& binary) -> absl::StatusOr<cuda::Function> {
    cuda::Module module = nullptr;
    RETURN_IF_ERROR(cuda::Check(gpu_.driver().ModuleLoadData(&module, binary.cubin.data()),
                                "cuModuleLoadData"));
    cuda::Function function = nullptr;
    RETURN_IF_ERROR(
        cuda::Check(gpu_.driver().ModuleGetFunction(&function, module, binary.lowered_name.c_str()),
                    "cuModuleGetFunction"));
    return function;
  };
  if (const std::optional<GpuBinary> cached = ReadGpuCache(*folder, key)) {
    const absl::StatusOr<cuda::Function> function = load(*cached);
    if (function.ok()) return function;  // otherwise it is damaged: compile it again
  }
  ASSIGN_OR_RETURN(const GpuBinary binary,
                   CompileGpuFunction(request.file, request.expression, gpu_.compute_capability()));
  WriteGpuCache(*folder, key, binary);
  return load(binary);
}

}  // namespace muster
