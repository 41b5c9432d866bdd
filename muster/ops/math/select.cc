// Select and SelectV2: elements of one tensor or the other.
#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

struct Bytes16 {
  uint64_t low;
  uint64_t high;
};

using SelectLoop = void (*)(const bool* condition, int64_t c_step, const void* then, int64_t t_step,
                            const void* other, int64_t e_step, void* out, int64_t count);

template <typename T>
void SelectRun(const bool* condition, int64_t c_step, const void* then, int64_t t_step,
               const void* other, int64_t e_step, void* out, int64_t count) {
  const T* t = static_cast<const T*>(then);
  const T* e = static_cast<const T*>(other);
  T* y = static_cast<T*>(out);
  if (c_step == 1 && t_step == 1 && e_step == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) y[i] = condition[i] ? t[i] : e[i];
    return;
  }
  for (int64_t i = 0; i < count; ++i) y[i] = condition[i * c_step] ? t[i * t_step] : e[i * e_step];
}

SelectLoop LoopFor(DType dtype) {
  switch (dtype) {
    case DType::kString:
      return SelectRun<std::string>;
    case DType::kResource:
      return SelectRun<ResourceHandle>;
    case DType::kVariant:
      return SelectRun<Variant>;
    default:
      break;
  }
  switch (DTypeSize(dtype)) {
    case 1:
      return SelectRun<uint8_t>;
    case 2:
      return SelectRun<uint16_t>;
    case 4:
      return SelectRun<uint32_t>;
    case 8:
      return SelectRun<uint64_t>;
    case 16:
      return SelectRun<Bytes16>;
    default:
      return nullptr;
  }
}

// Select's condition is a scalar, chooses rows, or has the shape of the others.
absl::Status CheckSelect(KernelContext& c) {
  const Tensor& condition = c.input(0);
  const Tensor& then = c.input(1);
  const Tensor& other = c.input(2);
  const bool by_rows = condition.rank() == 1 && then.rank() != 1;
  if (condition.rank() == 0 || by_rows) {
    if (by_rows && then.rank() < 1) {
      return InvalidArgument("'then' must be at least a vector, but saw shape: ",
                             then.shape().ToString());
    }
    if (by_rows && then.dim(0) != condition.num_elements()) {
      return InvalidArgument("Number of batches of 'then' must match size of 'cond', but saw: ",
                             then.dim(0), " vs. ", condition.num_elements());
    }
    if (!(then.shape() == other.shape())) {
      return InvalidArgument("'then' and 'else' must have the same size.  but received: ",
                             then.shape().ToString(), " vs. ", other.shape().ToString());
    }
    return absl::OkStatus();
  }
  for (int i = 1; i < 3; ++i) {
    if (!(c.input(i).shape() == condition.shape())) {
      return InvalidArgument(
          "Inputs to operation ", c.node().name(), " of type ", c.node().op(),
          " must have the same size and shape.  Input 0: ", condition.shape().ToString(),
          " != input ", i, ": ", c.input(i).shape().ToString());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BroadcastPlan> PlanSelectV2(KernelContext& c) {
  const Shape& condition = c.input(0).shape();
  const Shape& then = c.input(1).shape();
  const Shape& other = c.input(2).shape();
  const std::array<const Shape*, 3> shapes = {&condition, &then, &other};
  absl::StatusOr<BroadcastPlan> plan = BroadcastPlan::Make(shapes);
  if (!plan.ok()) {
    return InvalidArgument("condition ", condition.ToString(), ", then ", then.ToString(),
                           ", and else ", other.ToString(), " must be broadcastable");
  }
  return plan;
}

absl::Status SelectElements(KernelContext& c) {
  const Shape shape = c.input(1).shape();
  const DType dtype = c.input(1).dtype();
  const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
  const SelectLoop loop = LoopFor(dtype);
  const bool* condition = c.input(0).data<bool>();
  const char* then = c.input(1).raw();
  const char* other = c.input(2).raw();
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({1, 2}, 0, shape));
  char* out = output->raw();
  c.ParallelFor(shape.num_elements(), 0.4, [&](int64_t begin, int64_t end) {
    loop(condition + begin, 1, then + begin * size, 1, other + begin * size, 1, out + begin * size,
         end - begin);
  });
  return absl::OkStatus();
}

absl::Status SelectRows(KernelContext& c) {
  const Tensor& condition = c.input(0);
  const Tensor& then = c.input(1);
  const Tensor& other = c.input(2);
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, then.shape()));
  const int64_t rows = condition.num_elements();
  if (then.num_elements() == 0) return absl::OkStatus();
  const int64_t row = then.num_elements() / rows;
  const int64_t bytes = row * static_cast<int64_t>(DTypeSize(then.dtype()));
  const bool* chosen = condition.data<bool>();
  char* out = output->raw();
  c.ParallelFor(rows, static_cast<double>(row) * 0.4 + 5, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      CopyElements(then.dtype(), (chosen[i] ? then.raw() : other.raw()) + i * bytes,
                   out + i * bytes, row);
    }
  });
  return absl::OkStatus();
}

absl::Status RunSelect(KernelContext& c) {
  RETURN_IF_ERROR(CheckSelect(c));
  const Tensor& condition = c.input(0);
  if (condition.rank() == 0) {
    c.SetOutput(0, c.input(condition.scalar<bool>() ? 1 : 2));
    return absl::OkStatus();
  }
  if (condition.rank() == 1 && c.input(1).rank() != 1) return SelectRows(c);
  return SelectElements(c);
}

absl::Status RunSelectV2(KernelContext& c) {
  const Shape& shape = c.input(0).shape();
  if (shape == c.input(1).shape() && shape == c.input(2).shape()) return SelectElements(c);
  ASSIGN_OR_RETURN(const BroadcastPlan plan, PlanSelectV2(c));
  const DType dtype = c.input(1).dtype();
  const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
  const SelectLoop loop = LoopFor(dtype);
  const bool* condition = c.input(0).data<bool>();
  const char* then = c.input(1).raw();
  const char* other = c.input(2).raw();
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({1, 2}, 0, plan.output()));
  char* out = output->raw();
  const int64_t inner = plan.inner();
  c.ParallelFor(plan.rows(), static_cast<double>(inner) + 5, [&](int64_t begin, int64_t end) {
    plan.ForEachRow(begin, end, [&](int64_t at, const BroadcastOffsets& offsets) {
      loop(condition + offsets[0], plan.steps(0) ? 1 : 0, then + offsets[1] * size,
           plan.steps(1) ? 1 : 0, other + offsets[2] * size, plan.steps(2) ? 1 : 0, out + at * size,
           inner);
    });
  });
  return absl::OkStatus();
}

// Both ops: the condition is broadcast in any case, also where it is a scalar or chooses rows.
class GpuSelect final : public GpuKernel {
 public:
  GpuSelect(DType dtype, bool is_v2)
      : is_v2_(is_v2),
        run_(*this, "math/binary.cu", absl::StrCat("Ternary<Select, bool, ", GpuWord(dtype), ">")) {
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const BroadcastPlan plan, is_v2_ ? PlanSelectV2(c) : PlanSelect(c));
    ASSIGN_OR_RETURN(const GpuBroadcast<3> broadcast, MakeGpuBroadcast<3>(plan));
    const void* const condition = GpuIn(c.input(0));
    const void* const then = GpuIn(c.input(1));
    const void* const other = GpuIn(c.input(2));
    ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({1, 2}, 0, plan.output()));
    return run_.LaunchForEach(GpuPacks(broadcast.count, output->dtype()), condition, then, other,
                              GpuOut(*output), broadcast);
  }

 private:
  static absl::StatusOr<BroadcastPlan> PlanSelect(KernelContext& c) {
    RETURN_IF_ERROR(CheckSelect(c));
    const Shape& data = c.input(1).shape();
    Dims condition(c.input(0).shape().dims());
    if (condition.size() == 1) condition.resize(data.rank(), 1);
    const Shape shape(condition);
    const std::array<const Shape*, 3> shapes = {&shape, &data, &data};
    return BroadcastPlan::Make(shapes);
  }

  const bool is_v2_;
  GpuFunction run_;
};

absl::Status SelectShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape data, ShapeContext::Merge(c.input(1), c.input(2)));
  const PartialShape& condition = c.input(0);
  if (condition.known_rank() && data.known_rank() && condition.rank() != 0) {
    if (condition.rank() != 1 || data.rank() == 0) {
      ASSIGN_OR_RETURN(data, ShapeContext::Merge(data, condition));
    } else {
      RETURN_IF_ERROR(ShapeContext::Merge(condition, PartialShape::Vector(data.dim(0))).status());
    }
  }
  c.SetOutput(0, std::move(data));
  return absl::OkStatus();
}

absl::Status SelectV2Shape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape data, BroadcastShapes(c.input(1), c.input(2)));
  ASSIGN_OR_RETURN(PartialShape output, BroadcastShapes(c.input(0), data));
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

absl::Status SelectGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output zeros = EmitZerosLike(c.scope(), c.input(1));
  c.SetDx(1, c.Op("Select", {c.input(0), dy, zeros}));
  c.SetDx(2, c.Op("Select", {c.input(0), zeros, dy}));
  return c.scope().status();
}

absl::Status SelectV2Gradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output zeros = ConstOf(c.scope(), dy.base_dtype(), 0, "zeros");
  const auto reduced = [&](Output gradient, Output shape, Output output_shape) {
    const Output axes = c.Op("BroadcastGradientArgs", {shape, output_shape});
    const Output sum = c.Op("Sum", {gradient, axes}, {{"keep_dims", true}});
    return c.Op("Reshape", {sum, shape});
  };
  const Output gx = c.Op("SelectV2", {c.input(0), dy, zeros});
  const Output x_shape = c.ShapeOf(c.input(1));
  const Output output_shape = c.ShapeOf(c.output());
  c.SetDx(1, reduced(gx, x_shape, output_shape));
  const Output gy = c.Op("SelectV2", {c.input(0), zeros, dy});
  const Output y_shape = c.ShapeOf(c.input(2));
  c.SetDx(2, reduced(gy, y_shape, output_shape));
  return c.scope().status();
}

OpBuilder& SelectDef(OpBuilder& op, const char* doc, KernelFunction kernel, bool is_v2) {
  op.Attr("T: type")
      .Input("condition: bool")
      .Input("t: T")
      .Input("e: T")
      .Output("output: T")
      .Doc(doc);
  return op.CpuDTypes("T", AllDTypes(), Stateless(kernel))
      .GpuTypes("T", With(kGpuFields, {DType::kBool, DType::kInt32, DType::kInt64}),
                [=](DType dtype) -> KernelFactory {
                  return [=] { return std::make_unique<GpuSelect>(dtype, is_v2); };
                });
}

DEFINE_OP(Select) {
  SelectDef(op, "Elements of t where the condition holds, of e elsewhere; a vector chooses rows.",
            RunSelect, false)
      .Shape(SelectShape)
      .Gradient(SelectGradient);
}
DEFINE_OP(SelectV2) {
  SelectDef(op, "Elements of t where the condition holds, of e elsewhere, with broadcasting.",
            RunSelectV2, true)
      .Shape(SelectV2Shape)
      .Gradient(SelectV2Gradient);
}

}  // namespace
}  // namespace muster
