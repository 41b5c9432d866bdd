// Bucketize: the number of the interval between sorted boundaries that contains each value.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::StatusOr<std::vector<float>> Boundaries(KernelSetup& setup) {
  ASSIGN_OR_RETURN(std::vector<float> boundaries, setup.Attr<std::vector<float>>("boundaries"));
  if (!std::is_sorted(boundaries.begin(), boundaries.end()))
    return InvalidArgument("Expected sorted boundaries");
  return boundaries;
}

template <typename T>
class BucketizeKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(boundaries_, Boundaries(setup));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    const T* const from = input.data<T>();
    int32_t* const to = output->data<int32_t>();
    c.ParallelFor(input.num_elements(), 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto first_beyond = std::upper_bound(
            boundaries_.begin(), boundaries_.end(), from[i],
            [](T value, float boundary) { return value < static_cast<Wide>(boundary); });
        to[i] = static_cast<int32_t>(first_beyond - boundaries_.begin());
      }
    });
    return absl::OkStatus();
  }

 private:
  // Integers are compared as floats, as the language does it for `int < float`.
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<float> boundaries_;
};

class GpuBucketize final : public GpuKernel {
 public:
  explicit GpuBucketize(DType dtype)
      : run_(*this, "math/bucketize.cu", absl::StrCat("Bucketize<", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(const std::vector<float> boundaries, Boundaries(setup));
    ASSIGN_OR_RETURN(boundaries_, setup.device().CopyFromHost(Tensor::Vector<float>(boundaries)));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    return run_.LaunchForEach(input.num_elements(), GpuIn(input), GpuIn(boundaries_),
                              GpuOut(*output), input.num_elements(), boundaries_.num_elements());
  }

 private:
  GpuFunction run_;
  Tensor boundaries_;  // in the card's memory
};

DEFINE_OP(Bucketize) {
  op.Attr("T: {int32, int64, float, double}")
      .Attr("boundaries: list(float)")
      .Input("input: T")
      .Output("output: int32")
      .Doc("For every value the number of boundaries that do not exceed it.")
      .Shape(UnchangedShape)
      .CpuTypes<Types<int32_t, int64_t, float, double>>(
          "T", []<typename T>() { return New<BucketizeKernel<T>>(); })
      .GpuTypes("T", {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64},
                KernelOnGpu<GpuBucketize>());
}

}  // namespace
}  // namespace muster
