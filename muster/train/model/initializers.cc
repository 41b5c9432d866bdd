// The initial values that variables start from.
#include <cmath>

#include "muster/graph/build/emit.h"
#include "muster/train/model/operand.h"
#include "muster/train/model/variables.h"

namespace muster {
namespace {

// Filled tensors below this many elements are constants of the graph.
constexpr int64_t kSmall = 1000;

absl::StatusOr<Tensor> Filled(double value, const Shape& shape, DType dtype) {
  ASSIGN_OR_RETURN(const Tensor scalar, TryScalarTensor(dtype, value));
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, shape));
  const size_t size = DTypeSize(dtype);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    std::copy_n(scalar.raw(), size, tensor.raw() + static_cast<size_t>(i) * size);
  }
  return tensor;
}

Output DimsOf(const Scope& scope, const Shape& shape, absl::string_view name) {
  const std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  return scope.ConstVector(dims, name);
}

SeedPair SeedsOf(const Scope& scope, std::optional<int64_t> seed) {
  return SeedsFor(scope.graph(), seed);
}

InitialValueFunction Normal(std::string op, std::string name, Shape shape, double mean,
                            double stddev, DType dtype, std::optional<int64_t> seed) {
  return [=](const Scope& scope) -> absl::StatusOr<Output> {
    const Scope own = scope.NameScope(name);
    const Output dims = DimsOf(own, shape, "shape");
    const Output mean_tensor = EmitScalar(own, dtype, mean, "mean");
    const Output stddev_tensor = EmitScalar(own, dtype, stddev, "stddev");
    const SeedPair seeds = SeedsOf(own, seed);
    const Output noise =
        own.Op(op, {dims}, {{"dtype", dtype}, {"seed", seeds.seed}, {"seed2", seeds.seed2}});
    const Output scaled = own.Op("Mul", {noise, stddev_tensor}, {}, "mul");
    return OpNamed(own, "Add", {scaled, mean_tensor});
  };
}

}  // namespace

InitialValueFunction Zeros(Shape shape, DType dtype) {
  return
      [=](const Scope& scope) -> absl::StatusOr<Output> { return EmitZeros(scope, shape, dtype); };
}

InitialValueFunction Ones(Shape shape, DType dtype) {
  return [=](const Scope& scope) -> absl::StatusOr<Output> {
    const Scope own = scope.NameScope("ones");
    if (shape.num_elements() < kSmall) {
      ASSIGN_OR_RETURN(Tensor ones, Filled(1, shape, dtype));
      return OpNamed(own, "Const", {}, {{"value", std::move(ones)}, {"dtype", dtype}});
    }
    const Output dims = DimsOf(own, shape, "shape_as_tensor");
    const Output one = EmitScalar(own, dtype, 1);
    return OpNamed(own, "Fill", {dims, one});
  };
}

InitialValueFunction Constant(double value, Shape shape, DType dtype) {
  return [=](const Scope& scope) -> absl::StatusOr<Output> {
    ASSIGN_OR_RETURN(Tensor tensor, Filled(value, shape, dtype));
    return scope.Const(std::move(tensor));
  };
}

InitialValueFunction RandomUniform(Shape shape, double min, double max, DType dtype,
                                   std::optional<int64_t> seed) {
  return [=](const Scope& scope) -> absl::StatusOr<Output> {
    if (!IsFloating(dtype)) return InvalidArgument("RandomUniform is for floating point types");
    const Scope own = scope.NameScope("random_uniform");
    const Output dims = DimsOf(own, shape, "shape");
    const Output low = EmitScalar(own, dtype, min, "min");
    const Output high = EmitScalar(own, dtype, max, "max");
    const SeedPair seeds = SeedsOf(own, seed);
    const Output noise = own.Op("RandomUniform", {dims},
                                {{"dtype", dtype}, {"seed", seeds.seed}, {"seed2", seeds.seed2}});
    const Output range = own.Op("Sub", {high, low}, {}, "sub");
    const Output scaled = own.Op("Mul", {noise, range}, {}, "mul");
    return OpNamed(own, "Add", {scaled, low});
  };
}

InitialValueFunction RandomNormal(Shape shape, double mean, double stddev, DType dtype,
                                  std::optional<int64_t> seed) {
  return Normal("RandomStandardNormal", "random_normal", std::move(shape), mean, stddev, dtype,
                seed);
}

InitialValueFunction TruncatedNormal(Shape shape, double mean, double stddev, DType dtype,
                                     std::optional<int64_t> seed) {
  return Normal("TruncatedNormal", "truncated_normal", std::move(shape), mean, stddev, dtype, seed);
}

InitialValueFunction GlorotUniform(Shape shape, DType dtype, std::optional<int64_t> seed) {
  // Fans: the last two dimensions, times the receptive field in front of them.
  double fan_in = 1, fan_out = 1;
  const int rank = shape.rank();
  if (rank == 1) {
    fan_in = fan_out = static_cast<double>(shape.dim(0));
  } else if (rank > 1) {
    double field = 1;
    for (int i = 0; i < rank - 2; ++i) field *= static_cast<double>(shape.dim(i));
    fan_in = field * static_cast<double>(shape.dim(rank - 2));
    fan_out = field * static_cast<double>(shape.dim(rank - 1));
  }
  const double scale = 1.0 / std::max(1.0, (fan_in + fan_out) / 2.0);
  const double limit = std::sqrt(3.0 * scale);
  return RandomUniform(std::move(shape), -limit, limit, dtype, seed);
}

}  // namespace muster
