// RandomShuffle and Multinomial.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/op.h"
#include "muster/ops/random/generator.h"

namespace muster {
namespace {

class RandomShuffleKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    if (input.num_elements() <= 1 || input.dim(0) <= 1) {
      c.SetOutput(0, input);
      return absl::OkStatus();
    }
    const int64_t rows = input.dim(0);
    const int64_t row_elements = input.num_elements() / rows;
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    PhiloxWords words(generator_.Reserve(static_cast<uint64_t>(rows - 1 + 3) / 4));
    std::vector<int64_t> order(rows);
    std::iota(order.begin(), order.end(), int64_t{0});
    for (int64_t i = 0; i < rows - 1; ++i) {
      // TensorFlow draws 32 bits whatever the number of rows.
      std::swap(order[i], order[i + words.Next() % static_cast<uint32_t>(rows - i)]);
    }
    const size_t row_bytes = DTypeSize(input.dtype()) * row_elements;
    c.ParallelFor(rows, 5 + 0.1 * static_cast<double>(row_bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        CopyElements(input.dtype(), input.raw() + order[i] * row_bytes,
                     output->raw() + i * row_bytes, row_elements);
      }
    });
    return absl::OkStatus();
  }

 private:
  KernelGenerator generator_;
};

absl::Status MultinomialShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape logits, c.WithRank(c.input(0), 2));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> samples, c.ScalarInput(1));
  if (samples && *samples < 0)
    return InvalidArgument("Dimension size, given by scalar input 1, must be non-negative but is ",
                           *samples);
  c.SetOutput(0, PartialShape::Matrix(logits.known_rank() ? logits[0] : -1, samples.value_or(-1)));
  return absl::OkStatus();
}

// Draws classes of one row: `cumulative` (room for all classes) is filled with running sums of
// exp(logit - max).
template <typename T, typename Out>
void DrawRow(const T* logits, int64_t classes, PhiloxWords words, double* cumulative, Out* out,
             int64_t samples) {
  double max = std::numeric_limits<double>::lowest();
  for (int64_t j = 0; j < classes; ++j) {
    const double logit = static_cast<double>(static_cast<Compute<T>>(logits[j]));
    if (std::isfinite(logit)) max = std::max(max, logit);
  }
  double total = 0;
  for (int64_t j = 0; j < classes; ++j) {
    const double logit = static_cast<double>(static_cast<Compute<T>>(logits[j]));
    if (std::isfinite(logit)) total += std::exp(logit - max);
    cumulative[j] = total;
  }
  for (int64_t j = 0; j < samples; ++j) {
    const double wanted = words.Double() * total;
    out[j] =
        static_cast<Out>(std::upper_bound(cumulative, cumulative + classes, wanted) - cumulative);
  }
}

// `draw(start, output)` does the rest.
template <typename DrawBy>
absl::Status RunMultinomial(KernelContext& c, KernelGenerator& generator, DrawBy draw) {
  const Tensor& logits = c.input(0);
  const Tensor& wanted = c.input(1);
  if (!logits.shape().is_matrix())
    return InvalidArgument("logits should be a matrix, got shape ", logits.shape().ToString());
  if (!wanted.shape().is_scalar()) {
    return InvalidArgument("num_samples should be a scalar, got shape ", wanted.shape().ToString());
  }
  const int64_t samples = wanted.scalar<int32_t>();
  if (samples < 0) return InvalidArgument("num_samples should be nonnegative, got ", samples);
  const int64_t rows = logits.dim(0);
  const int64_t classes = logits.dim(1);
  if (classes <= 0) return InvalidArgument("num_classes should be positive, got ", classes);
  if (classes > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("num_classes should fit in int32, got ", classes);
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make({rows, samples}));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (shape.num_elements() == 0) return absl::OkStatus();
  const uint64_t rounded = static_cast<uint64_t>(samples + 3) / 4 * 4;
  return draw(generator.Reserve(static_cast<uint64_t>(rows) * rounded * 2 * 256), *output);
}

template <typename T>
class MultinomialKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return RunMultinomial(c, generator_, [&c](const Philox& start, Tensor& output) {
      Draw(c, c.input(0), start, output);
      return absl::OkStatus();
    });
  }

 private:
  static void Draw(const KernelContext& c, const Tensor& logits, const Philox& start,
                   Tensor& output) {
    const int64_t rows = logits.dim(0), classes = logits.dim(1), samples = output.dim(1);
    const double cost = 20.0 * static_cast<double>(classes) + 50.0 * static_cast<double>(samples);
    c.ParallelFor(rows, cost, [&](int64_t begin, int64_t end) {
      std::vector<double> cumulative(classes);
      for (int64_t row = begin; row < end; ++row) {
        const PhiloxWords words(start, static_cast<uint64_t>(row) * samples * 2);
        const T* row_logits = logits.data<T>() + row * classes;
        if (output.dtype() == DType::kInt32) {
          DrawRow(row_logits, classes, words, cumulative.data(),
                  output.data<int32_t>() + row * samples, samples);
        } else {
          DrawRow(row_logits, classes, words, cumulative.data(),
                  output.data<int64_t>() + row * samples, samples);
        }
      }
    });
  }

  KernelGenerator generator_;
};

class GpuMultinomial : public GpuKernel {
 public:
  GpuMultinomial(DType dtype, DType output)
      : sum_(*this, kFile, absl::StrCat("SumLogits<", GpuTypeName(dtype), ">")),
        draw_(*this, kFile, absl::StrCat("DrawClasses<", GpuTypeName(output), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return generator_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    return RunMultinomial(c, generator_, [&](const Philox& start, Tensor& output) -> absl::Status {
      const Tensor& logits = c.input(0);
      const int64_t rows = logits.dim(0), classes = logits.dim(1), samples = output.dim(1);
      ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemporary(DType::kDouble, logits.shape()));
      RETURN_IF_ERROR(sum_.Launch(sum_.GridForEach(rows * kThreads), GpuIn(logits), GpuOut(sums),
                                  rows, classes));
      return draw_.LaunchForEach(rows * samples, GpuIn(sums), start.position(), GpuOut(output),
                                 rows, classes, samples);
    });
  }

 private:
  static constexpr char kFile[] = "random/shuffle.cu";
  static constexpr int64_t kThreads = 256;  // a row is summed by a block
  const GpuFunction sum_;
  const GpuFunction draw_;
  KernelGenerator generator_;
};

}  // namespace

DEFINE_OP(RandomShuffle) {
  op.Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Attr("T: type")
      .Input("value: T")
      .Output("output: T")
      .Stateful();
  op.Doc("The rows of the first dimension in random order.").Shape(UnchangedShape);
  op.CpuDTypes("T", AllDTypes(), New<RandomShuffleKernel>());
}

DEFINE_OP(Multinomial) {
  op.Attr("seed: int = 0").Attr("seed2: int = 0");
  op.Attr(
      "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
      "uint64}");
  op.Attr("output_dtype: {int32, int64} = DT_INT64");
  op.Input("logits: T").Input("num_samples: int32").Output("output: output_dtype").Stateful();
  op.Doc("Classes drawn per row, with probabilities given by unnormalised logarithms.");
  op.Shape(MultinomialShape).NoGradient("random values").HostMemory({"num_samples"});
  op.CpuTypes<Floats>("T", []<typename T>() { return New<MultinomialKernel<T>>(); });
  for (const DType output : {DType::kInt32, DType::kInt64}) {
    op.GpuTypes("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble},
                [output](DType dtype) {
                  return [=] { return std::make_unique<GpuMultinomial>(dtype, output); };
                },
                {}, {{"output_dtype", output}});
  }
}

}  // namespace muster
