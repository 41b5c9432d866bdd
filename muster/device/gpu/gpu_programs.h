// The functions of a card: compiled for it when they are first used, by threads of their own, and
// kept in a cache on disk.
//
// A function is named by its file and an expression, such as "Unary<Tanh, float>": each choice of
// template arguments is compiled by itself, so that a model compiles what it uses and no more.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/device/gpu/cuda_api.h"

namespace muster {

class Gpu;

// One function. Lives as long as its card.
class GpuProgram {
 public:
  // Waits until it is compiled.
  absl::StatusOr<cuda::Function> Await();
  // It is compiled, or cannot be.
  bool is_over() const {
    MutexLock lock(mutex_);
    return is_over_;
  }
  // Null until it is compiled.
  cuda::Function function() const { return function_.load(std::memory_order_acquire); }

 private:
  friend class GpuPrograms;
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::atomic<cuda::Function> function_{nullptr};
};

// What the compiler gives for a function.
struct GpuBinary {
  std::string lowered_name;
  std::string cubin;
};

// Compiles a function for cards of this compute capability (90: 9.0). InvalidArgument with what the
// compiler says.
absl::StatusOr<GpuBinary> CompileGpuFunction(absl::string_view file, absl::string_view expression,
                                             int compute_capability);

// Thread-safe.
class GpuPrograms {
 public:
  explicit GpuPrograms(Gpu& gpu) : gpu_(gpu) {}

  // Starts to compile it, unless that was done before. `file` is below muster/ops, such as
  // "math/unary_arithmetic.cu".
  GpuProgram& Get(const std::string& file, const std::string& expression);
  // "math/unary_arithmetic.cu: Unary<Tanh, float>".
  std::string NameOf(cuda::Function function) const;
  // For the end of the program: nothing more is compiled for any card, and what is being compiled
  // is waited for. The libraries of the compiler and the driver are torn down while the program
  // ends, and a thread that is in one of them then would crash it. Python calls this before it
  // exits; for other programs the first function that is compiled registers it, which comes too
  // late for a program that ends during that.
  static void StopAll();

 private:
  struct Request {
    std::string file;
    std::string expression;
    GpuProgram* program;
  };

  void Stop();
  void RunCompiler();
  static void End(GpuProgram& program, absl::Status status);
  absl::StatusOr<cuda::Function> Load(const Request& request) const;

  Gpu& gpu_;
  mutable Mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<GpuProgram>> programs_
      ABSL_GUARDED_BY(mutex_);
  std::map<cuda::Function, std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::deque<Request> requests_ ABSL_GUARDED_BY(mutex_);
  int num_threads_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar thread_ended_;
};

}  // namespace muster
