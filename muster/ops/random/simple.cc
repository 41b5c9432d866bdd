// Random tensors of a given shape: uniform, integer, normal and truncated normal; from the kernel's
// own generator, or (stateless) from a seed that is an input.
#include "muster/ops/op.h"
#include "muster/ops/random/distributions.h"

namespace muster {
namespace {

absl::Status RequestedShapeRule(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(0));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status UniformIntShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  RETURN_IF_ERROR(c.WithRank(c.input(2), 0).status());
  return RequestedShapeRule(c);
}

absl::Status SeedShape(ShapeContext& c, int input) {
  ASSIGN_OR_RETURN(const PartialShape seed, c.WithRank(c.input(input), 1));
  if (seed.known_rank() && seed[0] >= 0 && seed[0] != 2)
    return InvalidArgument("seed must have shape [2], not [", seed[0], "]");
  return absl::OkStatus();
}

absl::Status StatelessShape(ShapeContext& c) {
  RETURN_IF_ERROR(SeedShape(c, 1));
  return RequestedShapeRule(c);
}

absl::Status StatelessUniformIntShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(2), 0).status());
  RETURN_IF_ERROR(c.WithRank(c.input(3), 0).status());
  return StatelessShape(c);
}

absl::StatusOr<Philox> FromSeedTensor(const Tensor& seed) {
  ASSIGN_OR_RETURN(const StatelessKey key, KeyFromSeed(seed));
  return Philox(key.key, key.counter);
}

// TensorFlow sets this many blocks aside for every value, enough for rejections.
constexpr uint64_t kBlocksPerValue = 256;

template <typename Distribution, typename T>
class RandomKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    const int64_t count = shape.num_elements();
    if (count == 0) return absl::OkStatus();
    FillRandom(c, generator_.Reserve(static_cast<uint64_t>(count) * kBlocksPerValue),
               output->data<T>(), count, Distribution());
    return absl::OkStatus();
  }

 private:
  KernelGenerator generator_;
};

template <typename Distribution, typename T>
absl::Status StatelessKernel(KernelContext& c) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  ASSIGN_OR_RETURN(const Philox start, FromSeedTensor(c.input(1)));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  FillRandom(c, start, output->data<T>(), shape.num_elements(), Distribution());
  return absl::OkStatus();
}

// The bounds in inputs `first` and `first` + 1.
template <typename T>
absl::StatusOr<UniformIntDistribution<T>> Bounds(const KernelContext& c, int first) {
  const Tensor& low = c.input(first);
  const Tensor& high = c.input(first + 1);
  if (!low.shape().is_scalar())
    return InvalidArgument("minval must be 0-D, got shape ", low.shape().ToString());
  if (!high.shape().is_scalar())
    return InvalidArgument("maxval must be 0-D, got shape ", high.shape().ToString());
  if (low.scalar<T>() >= high.scalar<T>()) {
    return InvalidArgument("Need minval < maxval, got ", low.scalar<T>(), " >= ", high.scalar<T>());
  }
  using Unsigned = std::make_unsigned_t<T>;
  const Unsigned from = static_cast<Unsigned>(low.scalar<T>());
  return UniformIntDistribution<T>{
      from, static_cast<Unsigned>(static_cast<Unsigned>(high.scalar<T>()) - from)};
}

template <typename T>
class RandomUniformIntKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    const int64_t count = shape.num_elements();
    if (count == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto distribution, Bounds<T>(c, 1));
    FillRandom(c, generator_.Reserve(static_cast<uint64_t>(count) * kBlocksPerValue),
               output->data<T>(), count, distribution);
    return absl::OkStatus();
  }

 private:
  KernelGenerator generator_;
};

template <typename T>
absl::Status StatelessUniformIntKernel(KernelContext& c) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  ASSIGN_OR_RETURN(const Philox start, FromSeedTensor(c.input(1)));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (shape.num_elements() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto distribution, Bounds<T>(c, 2));
  FillRandom(c, start, output->data<T>(), shape.num_elements(), distribution);
  return absl::OkStatus();
}

template <template <typename> typename Distribution>
void DefineStateful(OpBuilder& op) {
  op.Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Attr("dtype: {half, bfloat16, float, double}")
      .Attr("T: {int32, int64}");
  op.Input("shape: T")
      .Output("output: dtype")
      .Stateful()
      .Shape(RequestedShapeRule)
      .NoGradient("random values");
  op.HostMemory({"shape"});
  op.CpuTypes<Floats>("dtype",
                      []<typename T>() { return New<RandomKernel<Distribution<T>, T>>(); });
}

template <template <typename> typename Distribution>
void DefineStateless(OpBuilder& op) {
  op.Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT").Attr("T: {int32, int64} = DT_INT32");
  op.Attr("Tseed: {int32, int64} = DT_INT64");
  op.Input("shape: T")
      .Input("seed: Tseed")
      .Output("output: dtype")
      .Shape(StatelessShape)
      .NoGradient("random values");
  op.HostMemory({"shape", "seed"});
  op.CpuTypes<Floats>("dtype",
                      []<typename T>() { return Stateless(StatelessKernel<Distribution<T>, T>); });
}

}  // namespace

DEFINE_OP(RandomUniform) {
  DefineStateful<UniformDistribution>(op);
  op.Doc("Values spread evenly over [0, 1).");
}

DEFINE_OP(RandomStandardNormal) {
  DefineStateful<NormalDistribution>(op);
  op.Doc("Normal values with mean 0 and standard deviation 1.");
}

DEFINE_OP(TruncatedNormal) {
  DefineStateful<TruncatedNormalDistribution>(op);
  op.Doc("Standard normal values; those beyond two standard deviations are drawn again.");
}

DEFINE_OP(RandomUniformInt) {
  op.Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Attr("Tout: {int32, int64}")
      .Attr("T: {int32, int64}");
  op.Input("shape: T")
      .Input("minval: Tout")
      .Input("maxval: Tout")
      .Output("output: Tout")
      .Stateful();
  op.Doc("Integers spread evenly over [minval, maxval).")
      .Shape(UniformIntShape)
      .NoGradient("random values");
  op.HostMemory({"shape", "minval", "maxval"});
  op.CpuTypes<Indices>("Tout", []<typename T>() { return New<RandomUniformIntKernel<T>>(); });
}

DEFINE_OP(StatelessRandomUniform) {
  DefineStateless<UniformDistribution>(op);
  op.Doc("Values spread evenly over [0, 1), a function of the seed only.");
}

DEFINE_OP(StatelessRandomNormal) {
  DefineStateless<NormalDistribution>(op);
  op.Doc("Standard normal values, a function of the seed only.");
}

DEFINE_OP(StatelessTruncatedNormal) {
  DefineStateless<TruncatedNormalDistribution>(op);
  op.Doc("Standard normal values within two standard deviations, a function of the seed only.");
}

DEFINE_OP(StatelessRandomUniformInt) {
  op.Attr("dtype: {int32, int64}")
      .Attr("T: {int32, int64}")
      .Attr("Tseed: {int32, int64} = DT_INT64");
  op.Input("shape: T")
      .Input("seed: Tseed")
      .Input("minval: dtype")
      .Input("maxval: dtype")
      .Output("output: dtype");
  op.Doc("Integers spread evenly over [minval, maxval), a function of the seed only.");
  op.Shape(StatelessUniformIntShape)
      .NoGradient("random values")
      .HostMemory({"shape", "seed", "minval", "maxval"});
  op.CpuTypes<Indices>("dtype",
                       []<typename T>() { return Stateless(StatelessUniformIntKernel<T>); });
}

}  // namespace muster
