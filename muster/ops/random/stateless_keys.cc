// Stateless random ops of TensorFlow 2: the seed becomes a key and a counter in a node of its own,
// and the ops that draw say which algorithm they want.
#include "muster/ops/op.h"
#include "muster/ops/random/distributions.h"

namespace muster {
namespace {

// Numbers of the algorithms; CPUs choose Philox when left to choose.
constexpr int kPhilox = 1;
constexpr int kThreefry = 2;
constexpr int kAutomatic = 3;

absl::Status CheckAlgorithm(const Tensor& algorithm) {
  ASSIGN_OR_RETURN(const int64_t number, ScalarInteger(algorithm, "alg"));
  if (number == kPhilox || number == kAutomatic) return absl::OkStatus();
  if (number == kThreefry)
    return absl::UnimplementedError("The ThreeFry algorithm is not supported on CPU.");
  return InvalidArgument("Unsupported algorithm id: ", number);
}

// The generator that inputs 1 (key), 2 (counter) and 3 (algorithm) describe.
absl::StatusOr<Philox> FromKey(const KernelContext& c) {
  RETURN_IF_ERROR(CheckAlgorithm(c.input(3)));
  const Tensor& key = c.input(1);
  const Tensor& counter = c.input(2);
  if (key.shape() != Shape({1})) {
    return InvalidArgument("key must have shape [1], not ", key.shape().ToString(),
                           ". (Note that batched keys are not supported yet.)");
  }
  if (!counter.shape().is_vector() || counter.num_elements() < 2) {
    return InvalidArgument("counter must be a vector of at least 2 numbers for Philox, not shape ",
                           counter.shape().ToString());
  }
  Philox generator(key.scalar<uint64_t>(), counter.values<uint64_t>()[1]);
  generator.Skip(counter.values<uint64_t>()[0]);
  return generator;
}

template <typename T, typename Distribution>
absl::Status Draw(KernelContext& c, const Shape& shape, const Distribution& distribution) {
  ASSIGN_OR_RETURN(const Philox start, FromKey(c));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  FillRandom(c, start, output->data<T>(), shape.num_elements(), distribution);
  return absl::OkStatus();
}

template <typename Distribution, typename T>
absl::Status DrawKernel(KernelContext& c) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  return Draw<T>(c, shape, Distribution());
}

// Every number that the type has.
template <typename T>
struct AnyIntDistribution {
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  static constexpr uint64_t kBlocks = 1;
  static constexpr double kNanosecondsPerGroup = 15;

  void operator()(Philox& generator, T* out) const {
    const Philox::Block w = generator();
    for (int i = 0; i < kGroup; ++i) {
      if constexpr (sizeof(T) == 8) {
        out[i] = static_cast<T>(w[2 * i] | uint64_t{w[2 * i + 1]} << 32);
      } else {
        out[i] = static_cast<T>(w[i]);
      }
    }
  }
};

template <typename T>
absl::Status DrawInts(KernelContext& c) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  const Tensor& low = c.input(4);
  const Tensor& high = c.input(5);
  if (!low.shape().is_scalar())
    return InvalidArgument("minval must be 0-D, got shape ", low.shape().ToString());
  if (!high.shape().is_scalar())
    return InvalidArgument("maxval must be 0-D, got shape ", high.shape().ToString());
  UniformIntDistribution<T> distribution{0, 1};
  if (shape.num_elements() > 0) {
    if (low.scalar<T>() >= high.scalar<T>()) {
      return InvalidArgument("Need minval < maxval, got ", low.scalar<T>(),
                             " >= ", high.scalar<T>());
    }
    using Unsigned = std::make_unsigned_t<T>;
    distribution.low = static_cast<Unsigned>(low.scalar<T>());
    distribution.range = static_cast<Unsigned>(high.scalar<T>()) - distribution.low;
  }
  return Draw<T>(c, shape, distribution);
}

template <typename T>
absl::Status DrawAnyFromSeed(KernelContext& c) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  ASSIGN_OR_RETURN(const StatelessKey key, KeyFromSeed(c.input(1)));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  FillRandom(c, Philox(key.key, key.counter), output->data<T>(), shape.num_elements(),
             AnyIntDistribution<T>());
  return absl::OkStatus();
}

absl::Status SetKey(KernelContext& c) {
  ASSIGN_OR_RETURN(const StatelessKey key, KeyFromSeed(c.input(0)));
  c.SetOutput(0, Tensor::Vector<uint64_t>({key.key}));
  c.SetOutput(1, Tensor::Vector<uint64_t>({0, key.counter}));
  if (c.num_outputs() > 2) c.SetOutput(2, Tensor::Scalar<int32_t>(kPhilox));
  return absl::OkStatus();
}

absl::Status SetAlgorithm(KernelContext& c) {
  c.SetOutput(0, Tensor::Scalar<int32_t>(kPhilox));
  return absl::OkStatus();
}

// --- Shapes and definitions --------------------------------------------------------------------

absl::Status KeyShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape seed, c.WithRank(c.input(0), 1));
  if (seed.known_rank()) RETURN_IF_ERROR(ShapeContext::MergeDims(seed.dim(0), 2).status());
  c.SetOutput(0, PartialShape::Vector(1));
  c.SetOutput(1, PartialShape::Vector(2));
  if (c.num_outputs() > 2) c.SetOutput(2, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status DrawnShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  if (c.num_inputs() > 2) {
    RETURN_IF_ERROR(c.WithRank(c.input(2), 1).status());
    RETURN_IF_ERROR(c.WithRank(c.input(3), 0).status());
  }
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(0));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status DrawnIntShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(4), 0).status());
  RETURN_IF_ERROR(c.WithRank(c.input(5), 0).status());
  return DrawnShape(c);
}

void DefineInputs(OpBuilder& op) {
  op.Attr("Tshape: {int32, int64} = DT_INT32")
      .Input("shape: Tshape")
      .Input("key: uint64")
      .Input("counter: uint64")
      .Input("alg: int32")
      .NoGradient("random values");
}

template <template <typename> typename Distribution>
void DefineDraw(OpBuilder& op, const char* doc) {
  op.Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT");
  DefineInputs(op);
  op.Output("output: dtype").Doc(doc).Shape(DrawnShape);
  op.HostMemory({"shape", "alg"});
  op.CpuTypes<Floats>("dtype",
                      []<typename T>() { return Stateless(DrawKernel<Distribution<T>, T>); });
}

using AnyInts = Types<int32_t, int64_t, uint32_t, uint64_t>;

}  // namespace

DEFINE_OP(StatelessRandomGetKeyCounter) {
  op.Attr("Tseed: {int32, int64} = DT_INT64")
      .Input("seed: Tseed")
      .Output("key: uint64")
      .Output("counter: uint64")
      .Doc("Scrambles a seed into a key and a counter for Philox.")
      .Shape(KeyShapes)
      .NoGradient("random values")
      .HostMemory({"seed"})
      .Cpu(SetKey);
}

DEFINE_OP(StatelessRandomGetKeyCounterAlg) {
  op.Attr("Tseed: {int32, int64} = DT_INT64")
      .Input("seed: Tseed")
      .Output("key: uint64")
      .Output("counter: uint64")
      .Output("alg: int32")
      .Doc("Scrambles a seed and says which algorithm the device prefers.")
      .Shape(KeyShapes)
      .NoGradient("random values")
      .HostMemory({"seed", "alg"})
      .Cpu(SetKey);
}

DEFINE_OP(StatelessRandomGetAlg) {
  op.Output("alg: int32")
      .Stateful()
      .Doc("The algorithm that the device prefers.")
      .Shape(ScalarShape)
      .NoGradient("random values")
      .HostMemory({"alg"})
      .Cpu(SetAlgorithm);
}

DEFINE_OP(StatelessRandomUniformV2) {
  DefineDraw<UniformDistribution>(op,
                                  "Values spread evenly over [0, 1), a function of the key only.");
}

DEFINE_OP(StatelessRandomNormalV2) {
  DefineDraw<NormalDistribution>(op, "Standard normal values, a function of the key only.");
}

DEFINE_OP(StatelessTruncatedNormalV2) {
  DefineDraw<TruncatedNormalDistribution>(
      op, "Standard normal values within two standard deviations, a function of the key only.");
}

DEFINE_OP(StatelessRandomUniformIntV2) {
  op.Attr("dtype: {int32, int64, uint32, uint64}");
  DefineInputs(op);
  op.Input("minval: dtype")
      .Input("maxval: dtype")
      .Output("output: dtype")
      .Doc("Integers spread evenly over [minval, maxval), a function of the key only.")
      .Shape(DrawnIntShape)
      .HostMemory({"shape", "alg", "minval", "maxval"});
  op.CpuTypes<Indices>("dtype", []<typename T>() { return Stateless(DrawInts<T>); });
}

DEFINE_OP(StatelessRandomUniformFullIntV2) {
  op.Attr("dtype: {int32, int64, uint32, uint64} = DT_UINT64");
  DefineInputs(op);
  op.Output("output: dtype")
      .Doc("Integers of the type's whole range, a function of the key only.")
      .Shape(DrawnShape)
      .HostMemory({"shape", "alg"});
  op.CpuTypes<AnyInts>(
      "dtype", []<typename T>() { return Stateless(DrawKernel<AnyIntDistribution<T>, T>); });
}

DEFINE_OP(StatelessRandomUniformFullInt) {
  op.Attr("dtype: {int32, int64, uint32, uint64} = DT_UINT64")
      .Attr("T: {int32, int64} = DT_INT32")
      .Attr("Tseed: {int32, int64, uint32, uint64} = DT_INT64")
      .Input("shape: T")
      .Input("seed: Tseed")
      .Output("output: dtype")
      .Doc("Integers of the type's whole range, a function of the seed only.")
      .Shape(DrawnShape)
      .NoGradient("random values")
      .HostMemory({"shape", "seed"});
  op.CpuTypes<AnyInts>("dtype", []<typename T>() { return Stateless(DrawAnyFromSeed<T>); });
}

}  // namespace muster
