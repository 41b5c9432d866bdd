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

// `fill(reserved, output)` fills the output from a generator, which moves on by `reserved` blocks.
template <typename FillBy>
absl::Status RunStateful(KernelContext& c, FillBy fill) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  const int64_t count = shape.num_elements();
  if (count == 0) return absl::OkStatus();
  return fill(static_cast<uint64_t>(count) * kBlocksPerValue, *output);
}
// `fill(start, output)` fills it from where the seed leads.
template <typename FillBy>
absl::Status RunStateless(KernelContext& c, FillBy fill) {
  ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
  ASSIGN_OR_RETURN(const Philox start, FromSeedTensor(c.input(1)));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (shape.num_elements() == 0) return absl::OkStatus();
  return fill(start, *output);
}

template <typename Distribution, typename T>
class RandomKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return RunStateful(c, [&](uint64_t reserved, Tensor& output) {
      FillRandom(c, generator_.Reserve(reserved), output.data<T>(), output.num_elements(),
                 Distribution());
      return absl::OkStatus();
    });
  }

 private:
  KernelGenerator generator_;
};

template <typename Distribution, typename T>
absl::Status StatelessKernel(KernelContext& c) {
  return RunStateless(c, [&c](const Philox& start, Tensor& output) {
    FillRandom(c, start, output.data<T>(), output.num_elements(), Distribution());
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

template <typename T>
class RandomUniformIntKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return RunStateful(c, [&](uint64_t reserved, Tensor& output) -> absl::Status {
      ASSIGN_OR_RETURN(const auto distribution, Bounds<T>(c, 1));
      FillRandom(c, generator_.Reserve(reserved), output.data<T>(), output.num_elements(),
                 distribution);
      return absl::OkStatus();
    });
  }

 private:
  KernelGenerator generator_;
};

template <typename T>
absl::Status StatelessUniformIntKernel(KernelContext& c) {
  return RunStateless(c, [&c](const Philox& start, Tensor& output) -> absl::Status {
    ASSIGN_OR_RETURN(const auto distribution, Bounds<T>(c, 2));
    FillRandom(c, start, output.data<T>(), output.num_elements(), distribution);
    return absl::OkStatus();
  });
}

// --- On a card

// A function of simple.cu; a member of the kernel that uses it.
class GpuRandomFiller {
 public:
  GpuRandomFiller(GpuKernel& kernel, const char* distribution, DType dtype)
      : fill_(kernel, "random/simple.cu",
              absl::StrCat("FillRandom<", distribution, ", ", GpuTypeName(dtype), ">")) {}
  Gpu& gpu() const { return fill_.gpu(); }
  // From `card_generator`, which moves on by `reserved`, or from `start` where that is null.
  absl::Status Fill(void* card_generator, uint64_t reserved, const Philox& start, Tensor& output,
                    uint64_t low, uint64_t range) const {
    const int64_t count = output.num_elements();
    const int64_t group = DTypeSize(output.dtype()) == 8 ? 2 : 4;
    return fill_.LaunchForEach((count + group - 1) / group, card_generator, reserved,
                               start.position(), GpuOut(output), count, low, range);
  }

 private:
  const GpuFunction fill_;
};

// A generator that the card has as well as the host, so that a step that draws gives the card the
// same work each time, which may then be replayed.
class GpuGenerator {
 public:
  absl::Status Init(KernelSetup& setup) { return generator_.Init(setup); }
  absl::Status Fill(const GpuRandomFiller& filler, uint64_t reserved, Tensor& output,
                    uint64_t low = 0, uint64_t range = 1) {
    // Launches come in the order in which the generator moves on.
    MutexLock lock(mutex_);
    const Philox start = generator_.Reserve(reserved);
    if (!on_card_.valid() || start.position() != card_position_)
      RETURN_IF_ERROR(CopyToCard(filler.gpu(), start));
    Philox after = start;
    after.Skip(reserved);
    card_position_ = after.position();
    return filler.Fill(on_card_.raw(), reserved, Philox(), output, low, range);
  }

 private:
  // CardGenerator of simple.cu.
  struct CardGenerator {
    Philox::Position at;
    uint32_t blocks_begun = 0;
  };

  absl::Status CopyToCard(Gpu& gpu, const Philox& start) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    constexpr auto kWords = static_cast<int64_t>(sizeof(CardGenerator) / sizeof(uint32_t));
    ASSIGN_OR_RETURN(Tensor pinned, Tensor::Make(DType::kUint32, Shape({kWords}), gpu.pinned()));
    *reinterpret_cast<CardGenerator*>(pinned.raw()) = {start.position()};
    if (!on_card_.valid()) {
      ASSIGN_OR_RETURN(on_card_, Tensor::Make(DType::kUint32, Shape({kWords}), gpu.memory()));
    }
    RETURN_IF_ERROR(gpu.CopyIn(on_card_.raw(), pinned.raw(), pinned.size_bytes()));
    gpu.KeepUntilDone(pinned.buffer());
    return absl::OkStatus();
  }

  KernelGenerator generator_;
  Mutex mutex_;
  Tensor on_card_ ABSL_GUARDED_BY(mutex_);
  Philox::Position card_position_ ABSL_GUARDED_BY(mutex_){};
};

class GpuRandom : public GpuKernel {
 public:
  GpuRandom(const char* distribution, DType dtype) : filler_(*this, distribution, dtype) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return generator_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    return RunStateful(c, [this](uint64_t reserved, Tensor& output) {
      return generator_.Fill(filler_, reserved, output);
    });
  }

 protected:
  const GpuRandomFiller filler_;
  GpuGenerator generator_;
};

template <typename T>
class GpuRandomInt : public GpuRandom {
 public:
  GpuRandomInt() : GpuRandom("UniformInt", kDTypeOf<T>) {}
  absl::Status Compute(KernelContext& c) override {
    return RunStateful(c, [&](uint64_t reserved, Tensor& output) -> absl::Status {
      ASSIGN_OR_RETURN(const auto bounds, Bounds<T>(c, 1));
      return generator_.Fill(filler_, reserved, output, bounds.low, bounds.range);
    });
  }
};

class GpuStateless : public GpuKernel {
 public:
  GpuStateless(const char* distribution, DType dtype) : filler_(*this, distribution, dtype) {}
  absl::Status Compute(KernelContext& c) override {
    return RunStateless(c, [this](const Philox& start, Tensor& output) {
      return filler_.Fill(nullptr, 0, start, output, 0, 1);
    });
  }

 protected:
  const GpuRandomFiller filler_;
};

template <typename T>
class GpuStatelessInt : public GpuStateless {
 public:
  GpuStatelessInt() : GpuStateless("UniformInt", kDTypeOf<T>) {}
  absl::Status Compute(KernelContext& c) override {
    return RunStateless(c, [&](const Philox& start, Tensor& output) -> absl::Status {
      ASSIGN_OR_RETURN(const auto bounds, Bounds<T>(c, 2));
      return filler_.Fill(nullptr, 0, start, output, bounds.low, bounds.range);
    });
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
