// Binary search in sorted rows: LowerBound, UpperBound.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

template <typename T, bool kUpper, typename Out>
void Search(const Tensor& sorted, const Tensor& values, Tensor& output) {
  using A = Compute<T>;
  const int64_t width = sorted.dim(1);
  const int64_t count = values.dim(1);
  Out* to = output.data<Out>();
  for (int64_t row = 0; row < sorted.dim(0); ++row) {
    const T* begin = sorted.data<T>() + row * width;
    const T* end = begin + width;
    for (int64_t i = 0; i < count; ++i) {
      const A value = static_cast<A>(values.data<T>()[row * count + i]);
      const T* found =
          kUpper ? std::upper_bound(begin, end, value,
                                    [](A v, const T& x) { return v < static_cast<A>(x); })
                 : std::lower_bound(begin, end, value,
                                    [](const T& x, A v) { return static_cast<A>(x) < v; });
      to[row * count + i] = static_cast<Out>(found - begin);
    }
  }
}

absl::Status CheckRows(KernelContext& c) {
  const Tensor& sorted = c.input(0);
  const Tensor& values = c.input(1);
  if (sorted.rank() != 2) {
    return InvalidArgument("Shape must be rank 2 but is rank ", sorted.rank(),
                           " for `sorted_inputs` argument");
  }
  if (values.rank() != 2) {
    return InvalidArgument("Shape must be rank 2 but is rank ", values.rank(),
                           " for `values` argument");
  }
  if (sorted.dim(0) != values.dim(0))
    return InvalidArgument("Leading dim_size of both tensors must match.");
  if (c.output_type(0) == DType::kInt32 &&
      values.num_elements() >= std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("values tensor size must less than INT_MAX");
  }
  return absl::OkStatus();
}

template <typename T, bool kUpper>
absl::Status RunSearch(KernelContext& c) {
  RETURN_IF_ERROR(CheckRows(c));
  const Tensor& sorted = c.input(0);
  const Tensor& values = c.input(1);
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, values.shape()));
  if (output->num_elements() == 0) return absl::OkStatus();
  if (output->dtype() == DType::kInt32) {
    Search<T, kUpper, int32_t>(sorted, values, *output);
  } else {
    Search<T, kUpper, int64_t>(sorted, values, *output);
  }
  return absl::OkStatus();
}

class GpuSearch final : public GpuKernel {
 public:
  GpuSearch(DType dtype, bool upper, DType index)
      : run_(*this, "math/search_sorted.cu",
             absl::StrCat("SearchRows<", GpuTypeName(dtype), upper ? ", true, " : ", false, ",
                          GpuTypeName(index), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckRows(c));
    const Tensor& sorted = c.input(0);
    const Tensor& values = c.input(1);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, values.shape()));
    const int64_t count = values.num_elements();
    return run_.LaunchForEach(count, GpuIn(sorted), GpuIn(values), GpuOut(*output), count,
                              sorted.dim(1), GpuDivisor(values.dim(1)));
  }

 private:
  GpuFunction run_;
};
void AddSearchKernelsOnGpu(OpBuilder& op, bool upper) {
  const std::vector<DType> types = With(kGpuFloats, {DType::kUint8, DType::kUint16, DType::kInt8,
                                                     DType::kInt16, DType::kInt32, DType::kInt64});
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto make = [=](DType dtype) -> KernelFactory {
      return [=] { return std::make_unique<GpuSearch>(dtype, upper, index); };
    };
    op.GpuTypes("T", types, make, {}, {{"out_type", index}});
  }
}

absl::Status SearchShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 2).status());
  ASSIGN_OR_RETURN(PartialShape values, c.WithRank(c.input(1), 2));
  c.SetOutput(0, std::move(values));
  return absl::OkStatus();
}

void Define(OpBuilder& op) {
  op.Attr("T: type")
      .Attr("out_type: {int32, int64} = DT_INT32")
      .Input("sorted_inputs: T")
      .Input("values: T")
      .Output("output: out_type")
      .Shape(SearchShape);
}

}  // namespace

DEFINE_OP(LowerBound) {
  Define(op);
  op.Doc("For every value the first place in its sorted row where it could be inserted.")
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(RunSearch<T, false>); });
  AddSearchKernelsOnGpu(op, false);
}

DEFINE_OP(UpperBound) {
  Define(op);
  op.Doc("For every value the last place in its sorted row where it could be inserted.")
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(RunSearch<T, true>); });
  AddSearchKernelsOnGpu(op, true);
}

}  // namespace muster
