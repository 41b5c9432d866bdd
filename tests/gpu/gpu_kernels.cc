// What Muster has for GPUs, for tests/gpu/test_kernels.py.
//   gpu_kernels list               op|attribute=type;...|arguments in host memory, a line for each kernel
//   gpu_kernels ops                all ops, on whichever device
//   gpu_kernels compile 90         compiles all functions of all kernels for sm_90, with NVRTC or what stands for it
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/device/gpu/gpu_programs.h"
#include "muster/graph/op_registry.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/runtime/kernel.h"

namespace muster {
namespace {

std::vector<KernelRegistration> GpuKernels() {
  std::vector<KernelRegistration> kernels;
  for (const OpRegistration* const op : OpRegistry::Global().All()) {
    for (const KernelRegistration& kernel : KernelRegistry::Global().For(op->def.name)) {
      if (kernel.device_type == "GPU") kernels.push_back(kernel);
    }
  }
  return kernels;
}

int List() {
  for (const KernelRegistration& kernel : GpuKernels()) {
    std::vector<std::string> types, host = kernel.host_memory_args;
    for (const auto& [attr, dtype] : kernel.types) types.push_back(absl::StrCat(attr, "=", DTypeName(dtype)));
    std::sort(types.begin(), types.end());
    std::sort(host.begin(), host.end());
    printf("%s|%s|%s\n", kernel.op.c_str(), absl::StrJoin(types, ";").c_str(), absl::StrJoin(host, ",").c_str());
  }
  return 0;
}

int ListOps() {
  for (const OpRegistration* const op : OpRegistry::Global().All()) printf("%s\n", op->def.name.c_str());
  return 0;
}

int Compile(int compute_capability) {
  std::set<std::pair<std::string, std::string>> functions;
  for (const KernelRegistration& registered : GpuKernels()) {
    const std::unique_ptr<Kernel> kernel = registered.factory();
    const auto* const on_gpu = dynamic_cast<const GpuKernel*>(kernel.get());
    if (on_gpu == nullptr) continue;
    for (const GpuFunction* const function : on_gpu->functions()) functions.emplace(function->file(), function->expression());
  }
  // Each kind of step that functions of several nodes are made of.
  functions.emplace("fusion/fused.cu",
                    "Fused<4, FusedArguments<4, 2, 1>, In<0, float, kFlat>, In<1, float, 0>, In<2, Half, kFlat>, "
                    "In<3, float, kScalar>, Two<Mul, float, 0, 1>, One<Tanh, float, 4>, Converted<Half, float, 0, 2>, "
                    "Two<Greater, float, 5, 3>, Three<Select, float, 7, 5, 6>, Activation<Elu, float, 0u, 8>, "
                    "ActivationGrad<ReluGrad, float, 0u, 8, 9>, Total<float, 8, 9, 10>, Three<Clip, float, 11, 3, 5>, "
                    "As<uint32, 12>, Out<0, 13, kFlat>, Out<1, 7, 0>>");
  functions.emplace("fusion/fused_rows.cu",
                    "FusedRows<Rows<768, 64, 4>, FusedArguments<3, 2, 2>, RowIn<0, float, kFlat>, RowIn<1, float, 0>, "
                    "RowIn<2, float, kOfRow>, Reduced<Mean<float>, 0>, Two<Sub, float, 0, 3>, Two<Mul, float, 4, 1>, "
                    "Two<Add, float, 5, 2>, Reduced<Max<float>, 6>, One<Rsqrt, float, 7>, AllLoaded, RowOut<0, 6, kFlat>, "
                    "RowOut<1, 8, kOfRow>>");
  functions.emplace("fusion/fused_rows.cu",
                    "FusedRows<Rows<100, 32, 1>, FusedArguments<2, 1, 1>, RowIn<0, Half, kFlat>, RowIn<1, Half, kScalar>, "
                    "Two<Mul, Half, 0, 1>, Softmaxed<Half, false, 2>, AllLoaded, RowOut<0, 3, kFlat>>");
  functions.emplace("indexing/gather.cu", "Gathers<Word16, int64>");
  functions.emplace("state/sparse_apply.cu", "ApplyFews<Adagrad, float>");
  functions.emplace("state/apply.cu", "ApplyJoined<Adam, float>");
  const std::vector<std::pair<std::string, std::string>> all(functions.begin(), functions.end());
  std::atomic<size_t> next{0}, failed{0};
  std::mutex output;
  const auto compile = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      const auto binary = CompileGpuFunction(all[i].first, all[i].second, compute_capability);
      if (binary.ok()) continue;
      ++failed;
      const std::lock_guard lock(output);
      printf("%s\n", std::string(binary.status().message()).c_str());
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(compile);
  for (std::thread& thread : threads) thread.join();
  printf("%zu functions, %zu failed\n", all.size(), failed.load());
  return failed == 0 && !all.empty() ? 0 : 1;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "list") == 0) return muster::List();
  if (argc == 2 && strcmp(argv[1], "ops") == 0) return muster::ListOps();
  if (argc == 3 && strcmp(argv[1], "compile") == 0) return muster::Compile(atoi(argv[2]));
  fprintf(stderr, "usage: gpu_kernels list | gpu_kernels ops | gpu_kernels compile COMPUTE_CAPABILITY\n");
  return 2;
}
