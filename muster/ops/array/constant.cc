// Tensors made from a value or a shape.
#include "muster/device/device_copies.h"
#include "muster/ops/control/variant_math.h"
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status CheckType(const Tensor& value, DType dtype) {
  if (value.dtype() == dtype) return absl::OkStatus();
  return InvalidArgument("Type mismatch between value (", DTypeName(value.dtype()), ") and dtype (",
                         DTypeName(dtype), ")");
}

class ConstKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(value_, setup.Attr<Tensor>("value"));
    RETURN_IF_ERROR(CheckType(value_, setup.output_type(0)));
    if (setup.has_device_outputs()) {
      ASSIGN_OR_RETURN(value_, CopyFromHost(setup.device(), value_));
    }
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    c.SetOutput(0, value_);
    return absl::OkStatus();
  }

 private:
  Tensor value_;
};

// Checks the type too: passes that rewrite a graph read the value without running the node.
absl::Status ConstShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const Tensor value, c.Attr<Tensor>("value"));
  RETURN_IF_ERROR(CheckType(value, c.node().output_types()[0]));
  c.SetOutput(0, value.shape());
  return absl::OkStatus();
}

absl::Status FillShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  if (const std::optional<Tensor> dims = c.ConstantInput(0)) {
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(*dims));
    for (int64_t size : values) {
      if (size < 0) return InvalidArgument("Fill dimensions must be >= 0");
    }
  }
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(0));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// `fill` fills a tensor with a value.
template <typename FillBy>
absl::Status RunFill(KernelContext& c, FillBy fill) {
  const Tensor dims = c.input(0);
  const Tensor value = c.input(1);
  // A scalar passes for a vector of one, and the other way round.
  if (dims.rank() > 1)
    return InvalidArgument("dims must be a vector, got shape ", dims.shape().ToString());
  if (value.rank() > 1 || value.num_elements() != 1)
    return InvalidArgument("value must be a scalar, got shape ", value.shape().ToString());
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(dims));
  for (int64_t size : sizes) {
    if (size < 0) return InvalidArgument("Dimension ", size, " must be >= 0");
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(sizes));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  return fill(value, *output);
}

absl::Status Fill(KernelContext& c) {
  return RunFill(c, [&c](const Tensor& value, Tensor& to) {
    FillElements(c, value.dtype(), value.raw(), to.raw(), to.num_elements());
    return absl::OkStatus();
  });
}

class GpuFill : public GpuKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    return RunFill(c, [this](const Tensor& value, Tensor& to) { return filler_.Fill(value, to); });
  }

 private:
  const GpuFiller filler_{*this};
};

// Sum of all elements; which axes there are is known only when running if the rank is not.
absl::Status FillGradient(GradientContext& c) {
  const Output dy = c.dy();
  if (!c.scope().status().ok()) return c.scope().status();
  Output axes;
  if (dy.shape().known_rank()) {
    std::vector<int32_t> all(dy.shape().rank());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    axes = c.scope().ConstVector(all);
  } else {
    const Output rank = c.Op("Rank", {dy});
    const Output start = c.scope().ConstScalar<int32_t>(0, "range/start");
    const Output delta = c.scope().ConstScalar<int32_t>(1, "range/delta");
    axes = c.Op("Range", {start, rank, delta}, {}, "range");
  }
  c.SetDx(1, c.Op("Sum", {dy, axes}));
  return absl::OkStatus();
}

absl::Status ZerosLike(KernelContext& c) {
  const Shape shape = c.input(0).shape();
  ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, shape));
  ZeroElements(output->dtype(), output->raw(), output->num_elements());
  return absl::OkStatus();
}

class GpuZerosLike : public GpuKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, shape));
    return gpu().Fill(output->raw(), 0, output->size_bytes());
  }
};

template <typename T>
Tensor One() {
  return Tensor::Scalar<T>(static_cast<T>(static_cast<Compute<T>>(1)));
}

template <typename T>
absl::Status OnesLike(KernelContext& c) {
  const Shape shape = c.input(0).shape();
  ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, shape));
  FillElements(c, output->dtype(), One<T>().raw(), output->raw(), output->num_elements());
  return absl::OkStatus();
}

template <typename T>
class GpuOnesLike : public GpuKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, shape));
    return filler_.Fill(one_, *output);
  }

 private:
  const Tensor one_ = One<T>();
  const GpuFiller filler_{*this};
};

using GpuOnesTypes = Join<Join<Floats, Complexes>, Types<bool, int64_t>>;

template <typename... Ts>
KernelFactory GpuOnesLikeOf(Types<Ts...>, DType dtype) {
  KernelFactory factory;
  ((kDTypeOf<Ts> == dtype ? void(factory = New<GpuOnesLike<Ts>>()) : void()), ...);
  return factory;
}

absl::Status EmptyShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(0));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// Zeroes the memory whether or not `init` asks for it: data of another step must not leak.
template <typename ZeroBy>
absl::Status RunEmpty(KernelContext& c, ZeroBy zero) {
  const Tensor dims = c.input(0);
  if (dims.rank() != 1) {
    return InvalidArgument("shape must be a vector of int32, got shape ", dims.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(dims));
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(sizes));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  return zero(*output);
}

absl::Status Empty(KernelContext& c) {
  return RunEmpty(c, [](Tensor& to) {
    ZeroElements(to.dtype(), to.raw(), to.num_elements());
    return absl::OkStatus();
  });
}

class GpuEmpty : public GpuKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    return RunEmpty(c, [this](Tensor& to) { return gpu().Fill(to.raw(), 0, to.size_bytes()); });
  }
};

std::vector<DType> ZeroableDTypes() {
  std::vector<DType> dtypes = PlainDTypes();
  dtypes.push_back(DType::kString);
  return dtypes;
}

DEFINE_OP(Const) {
  op.Attr("value: tensor")
      .Attr("dtype: type")
      .Output("output: dtype")
      .Doc("A constant tensor.")
      .Shape(ConstShape)
      .NoGradient("a constant has no inputs")
      .Cpu(New<ConstKernel>())
      .GpuForwards(New<ConstKernel>(), "dtype", {"output"});
}

DEFINE_OP(Fill) {
  op.Attr("T: type")
      .Attr("index_type: {int32, int64} = DT_INT32")
      .Input("dims: index_type")
      .Input("value: T")
      .Output("output: T")
      .Doc("A tensor of the given shape with every element equal to `value`.")
      .Shape(FillShape)
      .Gradient(FillGradient)
      .HostMemory({"dims"})
      .Cpu(Fill)
      .Gpu(Fill, {{"T", DType::kInt32}}, {"value", "output"})
      .GpuTypes(
          "T",
          GpuFloatsAnd({DType::kBool, DType::kInt8, DType::kUint8, DType::kInt16, DType::kUint16,
                        DType::kInt64, DType::kComplex64, DType::kComplex128}),
          [](DType) { return New<GpuFill>(); });
}

DEFINE_OP(ZerosLike) {
  op.Attr("T: type")
      .Input("x: T")
      .Output("y: T")
      .Doc("Zeros with the type and shape of `x`.")
      .Shape(UnchangedShape)
      .NoGradient("the result does not depend on the values of x")
      .Cpu(ZerosLikeVariants, {{"T", DType::kVariant}})
      .CpuDTypes("T", ZeroableDTypes(), Stateless(ZerosLike))
      .Gpu(ZerosLike, {{"T", DType::kInt32}}, {"y"})
      .GpuTypes("T",
                GpuFloatsAnd({DType::kBool, DType::kInt64, DType::kComplex64, DType::kComplex128}),
                [](DType) { return New<GpuZerosLike>(); })
      .GpuTypes("T", {DType::kVariant}, [](DType) { return Stateless(ZerosLikeVariants); });
}

DEFINE_OP(OnesLike) {
  op.Attr(
        "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, "
        "uint64, complex64, "
        "complex128, bool}")
      .Input("x: T")
      .Output("y: T")
      .Doc("Ones with the type and shape of `x`.")
      .Shape(UnchangedShape)
      .NoGradient("the result does not depend on the values of x")
      .CpuTypes<Join<Numbers, Types<bool>>>("T",
                                            []<typename T>() { return Stateless(OnesLike<T>); })
      .Gpu(OnesLike<int32_t>, {{"T", DType::kInt32}}, {"y"})
      .GpuTypes("T",
                GpuFloatsAnd({DType::kBool, DType::kInt64, DType::kComplex64, DType::kComplex128}),
                [](DType dtype) { return GpuOnesLikeOf(GpuOnesTypes(), dtype); });
}

DEFINE_OP(Empty) {
  op.Attr("dtype: type")
      .Attr("init: bool = false")
      .Input("shape: int32")
      .Output("output: dtype")
      .Stateful()
      .Doc("A tensor of the given shape whose elements are not set.")
      .Shape(EmptyShape)
      .HostMemory({"shape"})
      .CpuDTypes("dtype", ZeroableDTypes(), Stateless(Empty))
      .GpuTypes("dtype", GpuFloatsAnd({DType::kInt32, DType::kInt64}),
                [](DType) { return New<GpuEmpty>(); });
}

}  // namespace
}  // namespace muster
