#include "muster/device/gpu/cuda_api.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include <dlfcn.h>
#include <unistd.h>

#include "muster/base/settings.h"

namespace muster::cuda {
namespace {

// Where Python's packages of NVIDIA's libraries put them, below site-packages, newest first.
constexpr const char* kPackageFolders[] = {
    "nvidia/cu13/lib",  "nvidia/cuda_nvrtc/lib", "nvidia/cublas/lib", "nvidia/cudnn/lib",
    "nvidia/cufft/lib", "nvidia/cusolver/lib",   "nvidia/nccl/lib"};

// Where a library may be besides where the loader looks.
std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  for (absl::string_view folder :
       absl::StrSplit(EnvironmentVariable("MUSTER_CUDA_PATH"), ':', absl::SkipEmpty()))
    folders.emplace_back(folder);
  // libmuster.so is in <site-packages>/muster/lib or in a build folder.
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&MachineHasCards), &own) != 0 &&
      own.dli_fname != nullptr) {
    std::filesystem::path at(own.dli_fname);
    for (int level = 0; level < 3 && at.has_parent_path(); ++level) {
      at = at.parent_path();
      for (const char* folder : kPackageFolders) folders.push_back((at / folder).string());
    }
  }
  if (const std::string venv = EnvironmentVariable("VIRTUAL_ENV"); !venv.empty()) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(venv + "/lib", error)) {
      for (const char* folder : kPackageFolders)
        folders.push_back((entry.path() / "site-packages" / folder).string());
    }
  }
  for (const char* folder : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"})
    folders.emplace_back(folder);
  return folders;
}

void* TryOpen(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

#define FIND(table, library, member, name) \
  RETURN_IF_ERROR(FindFunction(library, name, reinterpret_cast<void**>(&(table)->member)))

absl::Status FillDriver(void* library, Driver* driver) {
  FIND(driver, library, Init, "cuInit");
  FIND(driver, library, DriverGetVersion, "cuDriverGetVersion");
  FIND(driver, library, GetErrorName, "cuGetErrorName");
  FIND(driver, library, GetErrorString, "cuGetErrorString");
  FIND(driver, library, DeviceGetCount, "cuDeviceGetCount");
  FIND(driver, library, DeviceGet, "cuDeviceGet");
  FIND(driver, library, DeviceGetName, "cuDeviceGetName");
  FIND(driver, library, DeviceGetAttribute, "cuDeviceGetAttribute");
  FIND(driver, library, DeviceTotalMem, "cuDeviceTotalMem_v2");
  FIND(driver, library, DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  FIND(driver, library, CtxSetCurrent, "cuCtxSetCurrent");
  FIND(driver, library, MemGetInfo, "cuMemGetInfo_v2");
  FIND(driver, library, MemAlloc, "cuMemAlloc_v2");
  FIND(driver, library, MemFree, "cuMemFree_v2");
  FIND(driver, library, MemHostAlloc, "cuMemHostAlloc");
  FIND(driver, library, MemFreeHost, "cuMemFreeHost");
  FIND(driver, library, MemHostRegister, "cuMemHostRegister_v2");
  FIND(driver, library, MemHostUnregister, "cuMemHostUnregister");
  FIND(driver, library, MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  FIND(driver, library, MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  FIND(driver, library, MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  FIND(driver, library, MemcpyPeerAsync, "cuMemcpyPeerAsync");
  FIND(driver, library, MemsetD8Async, "cuMemsetD8Async");
  FIND(driver, library, StreamCreate, "cuStreamCreate");
  FIND(driver, library, StreamSynchronize, "cuStreamSynchronize");
  FIND(driver, library, StreamWaitEvent, "cuStreamWaitEvent");
  FIND(driver, library, StreamBeginCapture, "cuStreamBeginCapture_v2");
  FIND(driver, library, StreamEndCapture, "cuStreamEndCapture");
  FIND(driver, library, StreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2");
  FIND(driver, library, GraphMemcpyNodeGetParams, "cuGraphMemcpyNodeGetParams");
  FIND(driver, library, GraphExecMemcpyNodeSetParams, "cuGraphExecMemcpyNodeSetParams");
  FIND(driver, library, GraphInstantiate, "cuGraphInstantiateWithFlags");
  FIND(driver, library, GraphDestroy, "cuGraphDestroy");
  FIND(driver, library, GraphLaunch, "cuGraphLaunch");
  FIND(driver, library, GraphExecDestroy, "cuGraphExecDestroy");
  FIND(driver, library, EventCreate, "cuEventCreate");
  FIND(driver, library, EventRecord, "cuEventRecord");
  FIND(driver, library, EventQuery, "cuEventQuery");
  FIND(driver, library, EventSynchronize, "cuEventSynchronize");
  FIND(driver, library, EventElapsedTime, "cuEventElapsedTime");
  FIND(driver, library, ModuleLoadData, "cuModuleLoadData");
  FIND(driver, library, ModuleGetFunction, "cuModuleGetFunction");
  FIND(driver, library, LaunchKernel, "cuLaunchKernel");
  return absl::OkStatus();
}

absl::Status FillCompiler(void* library, Compiler* compiler) {
  FIND(compiler, library, Version, "nvrtcVersion");
  FIND(compiler, library, GetErrorString, "nvrtcGetErrorString");
  FIND(compiler, library, CreateProgram, "nvrtcCreateProgram");
  FIND(compiler, library, DestroyProgram, "nvrtcDestroyProgram");
  FIND(compiler, library, AddNameExpression, "nvrtcAddNameExpression");
  FIND(compiler, library, CompileProgram, "nvrtcCompileProgram");
  FIND(compiler, library, GetLoweredName, "nvrtcGetLoweredName");
  FIND(compiler, library, GetProgramLogSize, "nvrtcGetProgramLogSize");
  FIND(compiler, library, GetProgramLog, "nvrtcGetProgramLog");
  FIND(compiler, library, GetCUBINSize, "nvrtcGetCUBINSize");
  FIND(compiler, library, GetCUBIN, "nvrtcGetCUBIN");
  return absl::OkStatus();
}

#undef FIND

constexpr Result kNoDevice = 100;

// Null until the driver is loaded: for the texts of errors.
const Driver* loaded_driver = nullptr;

absl::StatusOr<const Driver*> FindDriver() {
  const std::string chosen = EnvironmentVariable("MUSTER_CUDA_DRIVER");
  if (chosen.empty() && !MachineHasCards())
    return NotFound("this machine has no NVIDIA GPU: there is no /dev/nvidiactl");
  const std::string name = chosen.empty() ? "libcuda.so.1" : chosen;
  void* const library = TryOpen(name);
  if (library == nullptr) {
    const char* const why = dlerror();
    return NotFound("the NVIDIA driver's library ", name,
                    " cannot be loaded: ", why == nullptr ? "no reason given" : why);
  }
  static Driver driver;
  RETURN_IF_ERROR(FillDriver(library, &driver));
  loaded_driver = &driver;
  const Result started = driver.Init(0);
  if (started == kNoDevice) {
    // CUDA_VISIBLE_DEVICES hides all cards: nothing is wrong.
    driver.DeviceGetCount = [](int* count) -> Result {
      *count = 0;
      return 0;
    };
    return &driver;
  }
  RETURN_IF_ERROR(Check(started, "cuInit"));
  return &driver;
}

absl::StatusOr<const Compiler*> FindCompiler() {
  ASSIGN_OR_RETURN(void* const library, OpenLibrary("libnvrtc.so", {13, 12}, "nvrtcVersion"));
  static Compiler compiler;
  RETURN_IF_ERROR(FillCompiler(library, &compiler));
  return &compiler;
}

}  // namespace

bool MachineHasCards() {
  return access("/dev/nvidiactl", F_OK) == 0;
}

absl::StatusOr<const Driver*> LoadDriver() {
  static const auto* const driver = new absl::StatusOr<const Driver*>(FindDriver());
  return *driver;
}

absl::StatusOr<const Compiler*> LoadCompiler() {
  static const auto* const compiler = new absl::StatusOr<const Compiler*>(FindCompiler());
  return *compiler;
}

absl::StatusOr<void*> OpenLibrary(const std::string& name, std::initializer_list<int> versions,
                                  const char* probe) {
  if (const std::string chosen = EnvironmentVariable("MUSTER_CUDA_DRIVER");
      probe != nullptr && !chosen.empty()) {
    void* const library = TryOpen(chosen);
    if (library != nullptr && dlsym(library, probe) != nullptr) return library;
  }
  static const auto* const folders = new std::vector<std::string>(Folders());
  std::vector<std::string> names;
  for (int version : versions) names.push_back(absl::StrCat(name, ".", version));
  for (const std::string& versioned : names) {
    if (void* const library = TryOpen(versioned)) return library;
    for (const std::string& folder : *folders) {
      const std::string path = absl::StrCat(folder, "/", versioned);
      if (access(path.c_str(), R_OK) != 0) continue;
      if (void* const library = TryOpen(path)) return library;
    }
  }
  return NotFound(names.front(),
                  " was not found. `make setup-gpu` installs it, or MUSTER_CUDA_PATH "
                  "names the folder that it is in.");
}

absl::Status FindFunction(void* library, const char* name, void** function) {
  *function = dlsym(library, name);
  if (*function == nullptr)
    return FailedPrecondition("an installed library of CUDA is too old: it has no ", name);
  return absl::OkStatus();
}

bool EndsAllUse(Result result) {
  switch (result) {
    case 214:  // an error of the card's memory
    case 220:  // a link between cards
    case 700:  // an illegal address
    case 702:  // a function that runs for too long
    case 709:  // the context is gone
    case 710:  // an assertion
    case 714:  // the stack of the hardware
    case 715:  // an illegal instruction
    case 716:  // a misaligned address
    case 717:  // an address in the wrong space
    case 718:  // an invalid program counter
    case 719:  // a launch
    case 999:  // unknown
      return true;
    default:
      return false;
  }
}

absl::Status Check(Result result, const char* what) {
  if (result == 0) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (loaded_driver != nullptr) {
    loaded_driver->GetErrorName(result, &name);
    loaded_driver->GetErrorString(result, &text);
  }
  const std::string message =
      absl::StrCat(what, " failed: ", name == nullptr ? "error" : name, " (", result, ")",
                   text == nullptr ? "" : ": ", text == nullptr ? "" : text);
  return result == kOutOfMemory ? absl::ResourceExhaustedError(message) : Internal(message);
}

}  // namespace muster::cuda
