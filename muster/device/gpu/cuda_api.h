// NVIDIA's driver and its compiler for kernels (NVRTC), loaded when a GPU is looked for. Nothing is
// linked with them and none of their headers is needed, so that one build runs with and without.
#pragma once

#include <cstddef>
#include <string>

#include "muster/base/status.h"

namespace muster::cuda {

using Result = int;  // 0: success
using Address = unsigned long long;
using Context = struct ContextRecord*;
using StreamHandle = struct StreamRecord*;
using Event = struct EventRecord*;
using Module = struct ModuleRecord*;
using Function = struct FunctionRecord*;
using Program = struct ProgramRecord*;
using Graph = struct GraphRecord*;
using GraphExec = struct GraphExecRecord*;
using GraphNode = struct GraphNodeRecord*;

inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotReady = 600;

// Of DeviceGetAttribute.
inline constexpr int kMultiprocessors = 16;
inline constexpr int kPciBus = 33;
inline constexpr int kPciDevice = 34;
inline constexpr int kPciDomain = 50;
inline constexpr int kComputeMajor = 75;
inline constexpr int kComputeMinor = 76;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostPortable = 1;
inline constexpr unsigned kRegisterPortable = 1;
inline constexpr int kCaptureRelaxed = 2;

// Of one end of a Copy3D.
inline constexpr unsigned kHostMemory = 1;

// CUDA_MEMCPY3D: what a node of a graph copies.
struct Copy3D {
  struct End {
    size_t x_bytes, y, z, level;
    unsigned memory_type;
    void* host;
    Address device;
    void* array;
    void* reserved;
    size_t pitch, height;
  };
  End from, to;
  size_t width_bytes, height, depth;
};

// The functions of libcuda.so.1 that are used.
struct Driver {
  Result (*Init)(unsigned flags);
  Result (*DriverGetVersion)(int* version);
  Result (*GetErrorName)(Result error, const char** name);
  Result (*GetErrorString)(Result error, const char** text);
  Result (*DeviceGetCount)(int* count);
  Result (*DeviceGet)(int* device, int ordinal);
  Result (*DeviceGetName)(char* name, int length, int device);
  Result (*DeviceGetAttribute)(int* value, int attribute, int device);
  Result (*DeviceTotalMem)(size_t* bytes, int device);
  Result (*DevicePrimaryCtxRetain)(Context* context, int device);
  Result (*CtxSetCurrent)(Context context);
  Result (*MemGetInfo)(size_t* free, size_t* total);
  Result (*MemAlloc)(Address* address, size_t bytes);
  Result (*MemFree)(Address address);
  Result (*MemHostAlloc)(void** memory, size_t bytes, unsigned flags);
  Result (*MemFreeHost)(void* memory);
  Result (*MemHostRegister)(void* memory, size_t bytes, unsigned flags);
  Result (*MemHostUnregister)(void* memory);
  Result (*MemcpyHtoDAsync)(Address to, const void* from, size_t bytes, StreamHandle stream);
  Result (*MemcpyDtoHAsync)(void* to, Address from, size_t bytes, StreamHandle stream);
  Result (*MemcpyDtoDAsync)(Address to, Address from, size_t bytes, StreamHandle stream);
  Result (*MemcpyPeerAsync)(Address to, Context to_context, Address from, Context from_context,
                            size_t bytes, StreamHandle stream);
  Result (*MemsetD8Async)(Address to, unsigned char value, size_t bytes, StreamHandle stream);
  Result (*StreamCreate)(StreamHandle* stream, unsigned flags);
  Result (*StreamSynchronize)(StreamHandle stream);
  Result (*StreamWaitEvent)(StreamHandle stream, Event event, unsigned flags);
  Result (*StreamBeginCapture)(StreamHandle stream, int mode);
  Result (*StreamEndCapture)(StreamHandle stream, Graph* graph);
  // `nodes`: those of the graph on which what is captured next depends.
  Result (*StreamGetCaptureInfo)(StreamHandle stream, int* status, unsigned long long* id,
                                 Graph* graph, const GraphNode** nodes, size_t* num_nodes);
  Result (*GraphMemcpyNodeGetParams)(GraphNode node, Copy3D* copy);
  Result (*GraphExecMemcpyNodeSetParams)(GraphExec exec, GraphNode node, const Copy3D* copy,
                                         Context context);
  Result (*GraphInstantiate)(GraphExec* exec, Graph graph, unsigned long long flags);
  Result (*GraphDestroy)(Graph graph);
  Result (*GraphLaunch)(GraphExec exec, StreamHandle stream);
  Result (*GraphExecDestroy)(GraphExec exec);
  Result (*EventCreate)(Event* event, unsigned flags);
  Result (*EventRecord)(Event event, StreamHandle stream);
  Result (*EventQuery)(Event event);
  Result (*EventSynchronize)(Event event);
  Result (*EventElapsedTime)(float* milliseconds, Event begin, Event end);
  Result (*ModuleLoadData)(Module* module, const void* image);
  Result (*ModuleGetFunction)(Function* function, Module module, const char* name);
  Result (*LaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, StreamHandle stream, void** arguments,
                         void** extra);
};

// The functions of NVRTC that are used.
struct Compiler {
  Result (*Version)(int* major, int* minor);
  const char* (*GetErrorString)(Result error);
  Result (*CreateProgram)(Program* program, const char* source, const char* name, int num_headers,
                          const char* const* headers, const char* const* include_names);
  Result (*DestroyProgram)(Program* program);
  Result (*AddNameExpression)(Program program, const char* expression);
  Result (*CompileProgram)(Program program, int num_options, const char* const* options);
  Result (*GetLoweredName)(Program program, const char* expression, const char** name);
  Result (*GetProgramLogSize)(Program program, size_t* bytes);
  Result (*GetProgramLog)(Program program, char* log);
  Result (*GetCUBINSize)(Program program, size_t* bytes);
  Result (*GetCUBIN)(Program program, char* cubin);
};

// Whether this machine has a card of NVIDIA's: its driver has made its devices under /dev.
bool MachineHasCards();

// Loaded once for the process. NotFound or FailedPrecondition that says what is missing: the
// driver, a library, or a function that an old version lacks.
absl::StatusOr<const Driver*> LoadDriver();
absl::StatusOr<const Compiler*> LoadCompiler();

// A library of NVIDIA's, such as "libcublas.so" in version 13 or 12, from where the loader looks,
// the folders of Python's packages beside ours, or a toolkit. A driver that stands for a GPU in
// tests may bring the library along: then it has the function `probe`.
absl::StatusOr<void*> OpenLibrary(const std::string& name, std::initializer_list<int> versions,
                                  const char* probe = nullptr);
// Sets `function` to what the library has under `name`.
absl::Status FindFunction(void* library, const char* name, void** function);

// Whether the process can use no card any more after this error, as after an access to memory that
// is not there.
bool EndsAllUse(Result result);

// Internal naming what was done, the error's name and its text; OK for 0.
absl::Status Check(Result result, const char* what);

}  // namespace muster::cuda
