// Evenly spaced numbers.
#include <cmath>
#include <limits>

#include "muster/ops/op.h"

namespace muster {
namespace {

// One rounding per operation, as if T had arithmetic of its own.
template <typename T>
T Rounded(Compute<T> value) {
  return static_cast<T>(value);
}

template <typename T>
absl::StatusOr<int64_t> RangeSize(T start, T limit, T delta) {
  using C = Compute<T>;
  const C from = static_cast<C>(start), to = static_cast<C>(limit), step = static_cast<C>(delta);
  if (step == C{0}) return InvalidArgument("Requires delta != 0: ", step);
  if (step > C{0}) {
    if (!(from <= to))
      return InvalidArgument("Requires start <= limit when delta > 0: ", from, "/", to);
  } else if (!(from >= to)) {
    return InvalidArgument("Requires start >= limit when delta < 0: ", from, "/", to);
  }
  if constexpr (std::is_integral_v<C>) {
    const uint64_t distance = from <= to ? static_cast<uint64_t>(to) - static_cast<uint64_t>(from)
                                         : static_cast<uint64_t>(from) - static_cast<uint64_t>(to);
    const uint64_t stride =
        step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
    const uint64_t size = distance / stride + (distance % stride != 0 ? 1 : 0);
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return InvalidArgument("Requires ((limit - start) / delta) <= ",
                             std::numeric_limits<int64_t>::max());
    }
    return static_cast<int64_t>(size);
  } else {
    const C distance = static_cast<C>(Rounded<T>(to - from));
    const double size =
        std::ceil(std::abs(static_cast<double>(static_cast<C>(Rounded<T>(distance / step)))));
    if (!(size <= 9.2e18)) {
      return InvalidArgument("Requires ((limit - start) / delta) <= ",
                             std::numeric_limits<int64_t>::max());
    }
    return static_cast<int64_t>(size);
  }
}

template <typename T>
absl::StatusOr<int64_t> SizeOfConstants(const Tensor& start, const Tensor& limit,
                                        const Tensor& delta) {
  return RangeSize<T>(start.scalar<T>(), limit.scalar<T>(), delta.scalar<T>());
}

absl::StatusOr<int64_t> SizeOfConstants(const Tensor& start, const Tensor& limit,
                                        const Tensor& delta) {
  switch (start.dtype()) {
    case DType::kInt32:
      return SizeOfConstants<int32_t>(start, limit, delta);
    case DType::kInt64:
      return SizeOfConstants<int64_t>(start, limit, delta);
    case DType::kFloat:
      return SizeOfConstants<float>(start, limit, delta);
    case DType::kDouble:
      return SizeOfConstants<double>(start, limit, delta);
    default:
      return -1;  // left to the kernel
  }
}

absl::Status RangeShape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<PartialShape> scalar = c.WithRank(c.input(i), 0);
    if (!scalar.ok()) {
      const char* const names[] = {"start", "limit", "delta"};
      return Suffixed(scalar.status(), absl::StrCat("\n\t for '", names[i], "'"));
    }
  }
  const std::optional<Tensor> start = c.ConstantInput(0), limit = c.ConstantInput(1),
                              delta = c.ConstantInput(2);
  int64_t size = -1;
  if (start && limit && delta) {
    ASSIGN_OR_RETURN(size, SizeOfConstants(*start, *limit, *delta));
  }
  c.SetOutput(0, PartialShape::Vector(size));
  return absl::OkStatus();
}

template <typename T>
absl::Status Range(KernelContext& c) {
  const char* const names[] = {"start", "limit", "delta"};
  for (int i = 0; i < 3; ++i) {
    // A vector of one passes for a scalar.
    if (c.input(i).rank() > 1 || c.input(i).num_elements() != 1) {
      return InvalidArgument(names[i], " must be a scalar, not shape ",
                             c.input(i).shape().ToString());
    }
  }
  const T start = c.input(0).scalar<T>(), delta = c.input(2).scalar<T>();
  ASSIGN_OR_RETURN(const int64_t size, RangeSize<T>(start, c.input(1).scalar<T>(), delta));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({size})));
  T* const values = output->data<T>();
  T value = start;
  for (int64_t i = 0; i < size; ++i) {
    values[i] = value;
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(static_cast<uint64_t>(value) + static_cast<uint64_t>(delta));
    } else {
      value = Rounded<T>(static_cast<Compute<T>>(value) + static_cast<Compute<T>>(delta));
    }
  }
  return absl::OkStatus();
}

absl::Status LinSpaceShape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<PartialShape> scalar = c.WithRank(c.input(i), 0);
    if (!scalar.ok()) {
      const char* const names[] = {"start", "stop", "num"};
      return Suffixed(scalar.status(), absl::StrCat("\n\t for '", names[i], "'"));
    }
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> num, c.ScalarInput(2));
  if (num && *num <= 0) return InvalidArgument("Requires num > 0: ", *num);
  c.SetOutput(0, PartialShape::Vector(num.value_or(-1)));
  return absl::OkStatus();
}

template <typename T>
absl::Status LinSpace(KernelContext& c) {
  const char* const names[] = {"start", "stop", "num"};
  for (int i = 0; i < 3; ++i) {
    if (c.input(i).rank() != 0) {
      return InvalidArgument(names[i], " must be a scalar, not shape ",
                             c.input(i).shape().ToString());
    }
  }
  using C = Compute<T>;
  const C start = static_cast<C>(c.input(0).scalar<T>()),
          stop = static_cast<C>(c.input(1).scalar<T>());
  ASSIGN_OR_RETURN(const int64_t num, ScalarInteger(c.input(2), "num"));
  if (num <= 0) return InvalidArgument("Requires num > 0: ", num);
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({num})));
  T* const values = output->data<T>();
  values[0] = Rounded<T>(start);
  if (num == 1) return absl::OkStatus();
  const C step = (stop - start) / static_cast<C>(num - 1);
  for (int64_t i = 1; i < num - 1; ++i) values[i] = Rounded<T>(start + step * static_cast<C>(i));
  values[num - 1] = Rounded<T>(stop);
  return absl::OkStatus();
}

DEFINE_OP(Range) {
  op.Attr(
        "Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, uint64} "
        "= DT_INT32")
      .Input("start: Tidx")
      .Input("limit: Tidx")
      .Input("delta: Tidx")
      .Output("output: Tidx")
      .Doc("The numbers from `start` in steps of `delta`, up to but without `limit`.")
      .Shape(RangeShape)
      .NoGradient("the number of elements depends on the inputs")
      .HostMemory({"start", "limit", "delta", "output"})
      .CpuTypes<
          Join<Floats, Types<int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t>>>(
          "Tidx", []<typename T>() { return Stateless(Range<T>); })
      .GpuOnHost("Tidx", {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64});
}

DEFINE_OP(LinSpace) {
  op.Attr("T: {bfloat16, half, float, double}")
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Input("start: T")
      .Input("stop: T")
      .Input("num: Tidx")
      .Output("output: T")
      .Doc("`num` evenly spaced numbers from `start` to `stop`, both included.")
      .Shape(LinSpaceShape)
      .NoGradient("TensorFlow defines none")
      .HostMemory({"start", "stop", "num", "output"})
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(LinSpace<T>); })
      .GpuOnHost("T", {DType::kFloat, DType::kDouble});
}

}  // namespace
}  // namespace muster
