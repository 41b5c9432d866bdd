// Random tensors of a given shape: uniform, integer, normal and truncated normal; from the kernel's
// own generator, or (stateless) from a seed that is an input.
#include "absl/strings/str_cat.h"

#include "muster/ops/gpu_kernel.h"
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

// `fill` fills the output with values from where a generator is, which `reserve` says.
template <typename FillBy>
absl::Status RunStateful(KernelContext& c, KernelGenerator& generator, FillBy fill) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  const int64_t count = shape.num_elements();
  if (count == 0) return absl::OkStatus();
  const auto reserve = [&] {
    return generator.Reserve(static_cast<uint64_t>(count) * kBlocksPerValue);
  };
  return fill(reserve, *output);
}
template <typename FillBy>
absl::Status RunStateless(KernelContext& c, FillBy fill) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  ASSIGN_OR_RETURN(const Philox start, FromSeedTensor(c.input(1)));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (shape.num_elements() == 0) return absl::OkStatus();
  return fill([&start] { return start; }, *output);
}

template <typename Distribution, typename T>
class RandomKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return RunStateful(c, generator_, [&c](auto reserve, Tensor& output) {
      FillRandom(c, reserve(), output.data<T>(), output.num_elements(), Distribution());
      return absl::OkStatus();
    });
  }

 private:
  KernelGenerator generator_;
};

template <typename Distribution, typename T>
absl::Status StatelessKernel(KernelContext& c) {
  return RunStateless(c, [&c](auto reserve, Tensor& output) {
    FillRandom(c, reserve(), output.data<T>(), output.num_elements(), Distribution());
    return absl::OkStatus();
  });
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

// Fills with integers between the bounds in inputs `first` and `first` + 1.
template <typename T>
auto FillInts(KernelContext& c, int first) {
  return [&c, first](auto reserve, Tensor& output) -> absl::Status {
    ASSIGN_OR_RETURN(const auto distribution, Bounds<T>(c, first));
    FillRandom(c, reserve(), output.data<T>(), output.num_elements(), distribution);
    return absl::OkStatus();
  };
}

template <typename T>
class RandomUniformIntKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return RunStateful(c, generator_, FillInts<T>(c, 1));
  }

 private:
  KernelGenerator generator_;
};

template <typename T>
absl::Status StatelessUniformIntKernel(KernelContext& c) {
  return RunStateless(c, FillInts<T>(c, 2));
}

// --- On a card

// A function of simple.cu; a member of the kernel that uses it.
class GpuRandomFiller {
 public:
  GpuRandomFiller(GpuKernel& kernel, const char* distribution, DType dtype)
      : fill_(kernel, "random/simple.cu",
              absl::StrCat("FillRandom<", distribution, ", ", GpuTypeName(dtype), ">")) {}
  absl::Status Fill(const Philox& start, Tensor& output, uint64_t low = 0,
                    uint64_t range = 1) const {
    const int64_t count = output.num_elements();
    const int64_t group = DTypeSize(output.dtype()) == 8 ? 2 : 4;
    return fill_.LaunchForEach((count + group - 1) / group, start.position(), GpuOut(output), count,
                               low, range);
  }
  auto By() const {
    return [this](auto reserve, Tensor& output) { return Fill(reserve(), output); };
  }
  // Integers between the bounds in inputs `first` and `first` + 1.
  template <typename T>
  auto ByInts(const KernelContext& c, int first) const {
    return [this, &c, first](auto reserve, Tensor& output) -> absl::Status {
      ASSIGN_OR_RETURN(const auto distribution, Bounds<T>(c, first));
      return Fill(reserve(), output, distribution.low, distribution.range);
    };
  }

 private:
  const GpuFunction fill_;
};

class GpuRandom : public GpuKernel {
 public:
  GpuRandom(const char* distribution, DType dtype) : filler_(*this, distribution, dtype) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return generator_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    return RunStateful(c, generator_, filler_.By());
  }

 protected:
  const GpuRandomFiller filler_;
  KernelGenerator generator_;
};

class GpuStateless : public GpuKernel {
 public:
  GpuStateless(const char* distribution, DType dtype) : filler_(*this, distribution, dtype) {}
  absl::Status Compute(KernelContext& c) override { return RunStateless(c, filler_.By()); }

 protected:
  const GpuRandomFiller filler_;
};

template <typename T>
class GpuRandomInt : public GpuRandom {
 public:
  GpuRandomInt() : GpuRandom("UniformInt", kDTypeOf<T>) {}
  absl::Status Compute(KernelContext& c) override {
    return RunStateful(c, generator_, filler_.ByInts<T>(c, 1));
  }
};

template <typename T>
class GpuStatelessInt : public GpuStateless {
 public:
  GpuStatelessInt() : GpuStateless("UniformInt", kDTypeOf<T>) {}
  absl::Status Compute(KernelContext& c) override {
    return RunStateless(c, filler_.ByInts<T>(c, 2));
  }
};

template <typename K>
void DefineOnGpu(OpBuilder& op, const char* distribution) {
  op.GpuTypes("dtype", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble},
              [distribution](DType dtype) {
                return [=] { return std::make_unique<K>(distribution, dtype); };
              });
}

template <template <typename> typename Distribution>
void DefineStateful(OpBuilder& op, const char* gpu_distribution) {
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
  DefineOnGpu<GpuRandom>(op, gpu_distribution);
}

template <template <typename> typename Distribution>
void DefineStateless(OpBuilder& op, const char* gpu_distribution) {
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
  DefineOnGpu<GpuStateless>(op, gpu_distribution);
}

}  // namespace

DEFINE_OP(RandomUniform) {
  DefineStateful<UniformDistribution>(op, "Uniform");
  op.Doc("Values spread evenly over [0, 1).");
}

DEFINE_OP(RandomStandardNormal) {
  DefineStateful<NormalDistribution>(op, "Normal");
  op.Doc("Normal values with mean 0 and standard deviation 1.");
}

DEFINE_OP(TruncatedNormal) {
  DefineStateful<TruncatedNormalDistribution>(op, "TruncatedNormal");
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
  op.GpuTypes("Tout", {DType::kInt32}, [](DType) { return New<GpuRandomInt<int32_t>>(); });
  op.GpuTypes("Tout", {DType::kInt64}, [](DType) { return New<GpuRandomInt<int64_t>>(); });
}

DEFINE_OP(StatelessRandomUniform) {
  DefineStateless<UniformDistribution>(op, "Uniform");
  op.Doc("Values spread evenly over [0, 1), a function of the seed only.");
}

DEFINE_OP(StatelessRandomNormal) {
  DefineStateless<NormalDistribution>(op, "Normal");
  op.Doc("Standard normal values, a function of the seed only.");
}

DEFINE_OP(StatelessTruncatedNormal) {
  DefineStateless<TruncatedNormalDistribution>(op, "TruncatedNormal");
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
  op.GpuTypes("dtype", {DType::kInt32}, [](DType) { return New<GpuStatelessInt<int32_t>>(); });
  op.GpuTypes("dtype", {DType::kInt64}, [](DType) { return New<GpuStatelessInt<int64_t>>(); });
}

}  // namespace muster
