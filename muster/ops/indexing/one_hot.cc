// Indices spread over a new axis: OneHot.
#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/indexing.h"
#include "muster/ops/indexing/moving.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// output is [outer, depth, inner], filled with the off value; position (o, indices[o, i], i) gets
// the on value.
template <typename Index>
void SetOn(const Index* indices, const Tensor& on, int64_t outer, int64_t depth, int64_t inner,
           Tensor& output) {
  const int64_t element = static_cast<int64_t>(DTypeSize(output.dtype()));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t index = static_cast<int64_t>(indices[o * inner + i]);
      if (index < 0 || index >= depth) continue;
      CopyElements(output.dtype(), on.raw(),
                   output.raw() + ((o * depth + index) * inner + i) * element, 1);
    }
  }
}

// The result as [outer, depth, inner].
struct OneHotSizes {
  int64_t outer, depth, inner;
};

// What both kernels do before they write.
class OneHotPlan {
 public:
  absl::Status Init(KernelSetup& s) {
    ASSIGN_OR_RETURN(axis_, s.Attr<int64_t>("axis"));
    return absl::OkStatus();
  }

  // `write(sizes, output)` does the rest.
  template <typename WriteBy>
  absl::Status Run(KernelContext& c, WriteBy write) const {
    const Tensor& indices = c.input(0);
    const Tensor& on = c.input(2);
    const Tensor& off = c.input(3);
    if (axis_ != -1 && (axis_ < 0 || axis_ > indices.rank())) {
      return InvalidArgument("Expected axis to be -1 or between [0, ", indices.rank() + 1,
                             ").  But received: ", axis_);
    }
    if (!c.input(1).shape().is_scalar()) {
      return InvalidArgument("depth must be a scalar, but got: ", c.input(1).shape().ToString());
    }
    if (!on.shape().is_scalar())
      return InvalidArgument("on_value must be a scalar, but got: ", on.shape().ToString());
    if (!off.shape().is_scalar()) {
      return InvalidArgument("off_value must be a scalar, but got: ", off.shape().ToString());
    }
    ASSIGN_OR_RETURN(const int64_t depth, ScalarInteger(c.input(1), "depth"));
    if (depth < 0) return InvalidArgument("depth must be non-negative, got: ", depth);
    const int axis = axis_ == -1 ? indices.rank() : static_cast<int>(axis_);
    Dims dims(indices.shape().dims());
    dims.insert(dims.begin() + axis, depth);
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const int64_t outer = indices.shape().ElementsIn(0, axis);
    const int64_t inner = indices.shape().ElementsIn(axis, indices.rank());
    return write(OneHotSizes{outer, depth, inner}, *output);
  }

 private:
  int64_t axis_ = -1;
};

class OneHotKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return plan_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return plan_.Run(c, [&c](const OneHotSizes& sizes, Tensor& output) {
      return Write(c.input(0), c.input(2), c.input(3), sizes, output);
    });
  }

 private:
  static absl::Status Write(const Tensor& indices, const Tensor& on, const Tensor& off,
                            const OneHotSizes& sizes, Tensor& output) {
    const auto [outer, depth, inner] = sizes;
    Fill(off, output);
    switch (indices.dtype()) {
      case DType::kUint8:
        SetOn(indices.data<uint8_t>(), on, outer, depth, inner, output);
        break;
      case DType::kInt8:
        SetOn(indices.data<int8_t>(), on, outer, depth, inner, output);
        break;
      case DType::kInt32:
        SetOn(indices.data<int32_t>(), on, outer, depth, inner, output);
        break;
      case DType::kInt64:
        SetOn(indices.data<int64_t>(), on, outer, depth, inner, output);
        break;
      default:
        return InvalidArgument("indices of type ", DTypeName(indices.dtype()),
                               " are not supported");
    }
    return absl::OkStatus();
  }

  static void Fill(const Tensor& value, Tensor& output) {
    const int64_t element = static_cast<int64_t>(DTypeSize(output.dtype()));
    if (IsPlainData(output.dtype())) {
      MoveRows(output.raw(), output.num_elements(), element, [&](int64_t) { return value.raw(); });
      return;
    }
    for (int64_t i = 0; i < output.num_elements(); ++i) {
      CopyElements(output.dtype(), value.raw(), output.raw() + i * element, 1);
    }
  }

  OneHotPlan plan_;
};

class GpuOneHot : public GpuKernel {
 public:
  GpuOneHot(DType dtype, DType index)
      : run_(
            *this, "indexing/one_hot.cu",
            absl::StrCat("OneHot<", GpuWordName(DTypeSize(dtype)), ", ", GpuTypeName(index), ">")) {
  }
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return plan_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    return plan_.Run(c, [&](const OneHotSizes& sizes, Tensor& output) {
      const bool is_last = sizes.inner == 1;
      const GpuGrid grid = GridForRows(run_, is_last ? sizes.outer : sizes.outer * sizes.depth,
                                       is_last ? sizes.depth : sizes.inner);
      return run_.Launch(grid, GpuIn(c.input(0)), GpuIn(c.input(2)), GpuIn(c.input(3)),
                         GpuOut(output), sizes.outer, sizes.depth, sizes.inner);
    });
  }

 private:
  OneHotPlan plan_;
  const GpuFunction run_;
};

absl::Status OneHotShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t axis, c.Attr<int64_t>("axis"));
  if (axis < -1) return InvalidArgument("axis must be >= -1");
  ASSIGN_OR_RETURN(const std::optional<int64_t> depth, c.ScalarInput(1));
  if (depth.has_value() && *depth < 0) {
    return InvalidArgument("Dimension size, given by scalar input 1, must be non-negative but is ",
                           *depth);
  }
  const PartialShape& indices = c.input(0);
  if (!indices.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  const int64_t at = axis == -1 ? indices.rank() : std::min<int64_t>(axis, indices.rank());
  Dims dims(indices.dims());
  dims.insert(dims.begin() + at, depth.value_or(-1));
  c.SetOutput(0, PartialShape(std::move(dims)));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(OneHot) {
  op.Attr("axis: int = -1")
      .Attr("T: type")
      .Attr("TI: {uint8, int8, int32, int64} = DT_INT64")
      .Input("indices: TI")
      .Input("depth: int32")
      .Input("on_value: T")
      .Input("off_value: T")
      .Output("output: T")
      .Doc("A new axis of size depth with on_value at each index and off_value elsewhere.")
      .Shape(OneHotShape)
      .NoGradient("Its value does not depend smoothly on the indices.")
      .HostMemory({"depth"})
      .CpuDTypes("T", AllDTypes(), New<OneHotKernel>());
  for (const DType index : {DType::kUint8, DType::kInt32, DType::kInt64}) {
    op.GpuTypes(
        "T",
        {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kBool, DType::kInt32,
         DType::kInt64},
        [index](DType dtype) { return [=] { return std::make_unique<GpuOneHot>(dtype, index); }; },
        {}, {{"TI", index}});
  }
}

}  // namespace muster
