// Counting: Bincount, DenseBincount, HistogramFixedWidth.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// The number of bins.
absl::StatusOr<int64_t> CheckBincount(KernelContext& c) {
  const Tensor& weights = c.input(2);
  if (!c.input(1).shape().is_scalar()) {
    return InvalidArgument("Shape must be rank 0 but is rank ", c.input(1).rank());
  }
  ASSIGN_OR_RETURN(const int64_t size, ScalarInteger(c.input(1), "size"));
  if (size < 0) return InvalidArgument("size (", size, ") must be non-negative");
  if (weights.num_elements() > 0 && weights.num_elements() != c.input(0).num_elements()) {
    return InvalidArgument("Input indices and weights must have the same size.");
  }
  return size;
}

template <typename T>
absl::Status RunBincount(KernelContext& c) {
  const Tensor& numbers = c.input(0);
  const Tensor& weights = c.input(2);
  ASSIGN_OR_RETURN(const int64_t size, CheckBincount(c));
  const bool weighted = weights.num_elements() > 0;
  const absl::Span<const int32_t> values = numbers.values<int32_t>();
  for (int32_t value : values) {
    if (value < 0) return InvalidArgument("Input arr must be non-negative!");
  }
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, Shape({size})));
  T* bins = output->data<T>();
  std::fill(bins, bins + size, T(0));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= size) continue;
    const T weight = weighted ? weights.data<T>()[i] : T(1);
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      bins[values[i]] = static_cast<T>(static_cast<U>(bins[values[i]]) + static_cast<U>(weight));
    } else {
      bins[values[i]] += weight;
    }
  }
  return absl::OkStatus();
}

class GpuBincount final : public GpuKernel {
 public:
  explicit GpuBincount(DType dtype)
      : run_(*this, "math/bincount.cu", absl::StrCat("Bincount<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& numbers = c.input(0);
    const Tensor& weights = c.input(2);
    ASSIGN_OR_RETURN(const int64_t size, CheckBincount(c));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({size})));
    if (size == 0) return absl::OkStatus();
    RETURN_IF_ERROR(gpu().Fill(output->raw(), 0, output->size_bytes()));
    const int64_t count = numbers.num_elements();
    const void* const added = weights.num_elements() > 0 ? GpuIn(weights) : nullptr;
    return run_.LaunchForEach(count, GpuIn(numbers), added, GpuOut(*output), size, count);
  }

 private:
  GpuFunction run_;
};

// Rows of a matrix are counted apart.
template <typename T>
class DenseBincount : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(binary_, setup.Attr<bool>("binary_output"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& numbers = c.input(0);
    const Tensor& weights = c.input(2);
    if (numbers.rank() > 2)
      return InvalidArgument("Shape must be at most rank 2 but is rank ", numbers.rank());
    if (!c.input(1).shape().is_scalar())
      return InvalidArgument("Shape must be rank 0 but is rank ", c.input(1).rank());
    ASSIGN_OR_RETURN(const int64_t size, ScalarInteger(c.input(1), "size"));
    if (size < 0) return InvalidArgument("size (", size, ") must be non-negative");
    const bool weighted = weights.num_elements() > 0;
    if (weighted && weights.shape() != numbers.shape()) {
      return InvalidArgument(
          "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts "
          "as all weights equal to 1. Received ",
          weights.shape().ToString());
    }
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(numbers));
    for (const int64_t value : values) {
      if (value < 0) return InvalidArgument("Input must be non-negative!");
    }
    const bool is_matrix = numbers.rank() == 2;
    ASSIGN_OR_RETURN(const Shape shape,
                     is_matrix ? Shape::Make({numbers.dim(0), size}) : Shape::Make({size}));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    T* const bins = output->data<T>();
    std::fill_n(bins, output->num_elements(), T(0));
    const int64_t columns = is_matrix ? numbers.dim(1) : 1;
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      if (values[i] >= size) continue;
      T& bin = bins[(is_matrix ? i / columns * size : 0) + values[i]];
      if (binary_) {
        bin = T(1);
      } else {
        bin = Sum(bin, weighted ? weights.data<T>()[i] : T(1));
      }
    }
    return absl::OkStatus();
  }

 private:
  static T Sum(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }

  bool binary_ = false;
};

absl::Status DenseBincountShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape numbers, c.WithRankAtMost(c.input(0), 2));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> size, c.ScalarInput(1));
  if (size.has_value() && *size < 0)
    return InvalidArgument("size (", *size, ") must be non-negative");
  if (!numbers.known_rank()) {
    c.SetOutput(0, PartialShape());
  } else if (numbers.rank() == 2) {
    c.SetOutput(0, PartialShape::Matrix(numbers.dim(0), size.value_or(-1)));
  } else {
    c.SetOutput(0, PartialShape::Vector(size.value_or(-1)));
  }
  return absl::OkStatus();
}

absl::Status BincountShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> size, c.ScalarInput(1));
  if (size.has_value() && *size < 0)
    return InvalidArgument("size (", *size, ") must be non-negative");
  c.SetOutput(0, PartialShape::Vector(size.value_or(-1)));
  return absl::OkStatus();
}

// (high - low) without overflow of integers.
template <typename T>
double Width(T low, T high) {
  return static_cast<double>(high) - static_cast<double>(low);
}

template <typename T, typename Count>
absl::Status CountInto(absl::Span<const T> values, T low, double step, absl::Span<Count> counts) {
  std::fill(counts.begin(), counts.end(), Count(0));
  const auto last = static_cast<double>(counts.size() - 1);
  for (const T value : values) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) return InvalidArgument("Histogram values must not contain NaN");
    }
    double bin = 0;
    if (value > low) {
      const double distance =
          std::is_floating_point_v<T> ? static_cast<double>(value - low) : Width(low, value);
      bin = distance / step;
    }
    ++counts[static_cast<size_t>(bin < last ? bin : last)];
  }
  return absl::OkStatus();
}

template <typename T>
struct Bins {
  int64_t count;
  T low;
  double width;
};
template <typename T>
absl::StatusOr<Bins<T>> CheckHistogram(KernelContext& c) {
  const Tensor& range = c.input(1);
  if (!range.shape().is_vector()) return InvalidArgument("value_range should be a vector.");
  if (range.num_elements() != 2)
    return InvalidArgument("value_range should be a vector of 2 elements.");
  if (!c.input(2).shape().is_scalar()) return InvalidArgument("nbins should be a scalar.");
  ASSIGN_OR_RETURN(const int64_t bins, ScalarInteger(c.input(2), "nbins"));
  const T low = range.data<T>()[0];
  const T high = range.data<T>()[1];
  if (!(low < high)) {
    return InvalidArgument("value_range should satisfy value_range[0] < value_range[1], but got '[",
                           low, ", ", high, "]'");
  }
  if (bins <= 0) return InvalidArgument("nbins should be a positive number, but got '", bins, "'");
  if (bins == std::numeric_limits<int32_t>::max())
    return InvalidArgument("nbins + 1 must not exceed the maximum of int32, but nbins is ", bins);
  const double step = Width(low, high) / static_cast<double>(bins);
  if (!(step > 0)) {
    return InvalidArgument("Step size in histogram computation must be positive, but got ", step);
  }
  return Bins<T>{bins, low, step};
}

template <typename T>
absl::Status RunHistogram(KernelContext& c) {
  ASSIGN_OR_RETURN(const Bins<T> bins, CheckHistogram<T>(c));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, Shape({bins.count})));
  const absl::Span<const T> values = c.input(0).values<T>();
  const auto size = static_cast<size_t>(bins.count);
  const auto count = [&]<typename Count>(Count* counts) {
    return CountInto(values, bins.low, bins.width, absl::MakeSpan(counts, size));
  };
  if (output->dtype() == DType::kInt64) return count(output->data<int64_t>());
  return count(output->data<int32_t>());
}

template <typename T>
class GpuHistogram final : public GpuKernel {
 public:
  GpuHistogram()
      : run_(*this, "math/bincount.cu", absl::StrCat("Histogram<", GpuTypeName(kDTypeOf<T>), ">")) {
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Bins<T> bins, CheckHistogram<T>(c));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({bins.count})));
    RETURN_IF_ERROR(gpu().Fill(output->raw(), 0, output->size_bytes()));
    const int64_t count = c.input(0).num_elements();
    return run_.LaunchForEach(count, GpuIn(c.input(0)), GpuOut(*output), bins.count, count,
                              bins.low, bins.width);
  }

 private:
  GpuFunction run_;
};

absl::Status HistogramShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape range, c.WithRank(c.input(1), 1));
  RETURN_IF_ERROR(range.Merge(PartialShape::Vector(2)).status());
  RETURN_IF_ERROR(c.WithRank(c.input(2), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> bins, c.ScalarInput(2));
  if (bins.has_value() && *bins <= 0) {
    return InvalidArgument("Requires nbins > 0, got ", *bins);
  }
  if (bins.has_value() && *bins == std::numeric_limits<int32_t>::max())
    return InvalidArgument("Requires nbins < ", *bins);
  c.SetOutput(0, PartialShape::Vector(bins.value_or(-1)));
  return absl::OkStatus();
}

using CountTypes = Types<int32_t, int64_t, float, double>;

}  // namespace

DEFINE_OP(Bincount) {
  op.Attr("T: {int32, int64, float, double}")
      .Input("arr: int32")
      .Input("size: int32")
      .Input("weights: T")
      .Output("bins: T")
      .Doc(
          "How often each number below size occurs, or the sums of the weights of its occurrences.")
      .Shape(BincountShape)
      .HostMemory({"size"})
      .CpuTypes<CountTypes>("T", []<typename T>() { return Stateless(RunBincount<T>); })
      .GpuTypes("T", {DType::kInt32, DType::kFloat}, KernelOnGpu<GpuBincount>());
}

DEFINE_OP(DenseBincount) {
  op.Attr("Tidx: {int32, int64}")
      .Attr("T: {int32, int64, float, double}")
      .Attr("binary_output: bool = false")
      .Input("input: Tidx")
      .Input("size: Tidx")
      .Input("weights: T")
      .Output("output: T")
      .Doc("Bincount of a vector, or of every row of a matrix.")
      .Shape(DenseBincountShape)
      .HostMemory({"size"})
      .CpuTypes<CountTypes>("T", []<typename T>() { return New<DenseBincount<T>>(); });
}

DEFINE_OP(HistogramFixedWidth) {
  op.Attr("T: {int32, int64, float, double}")
      .Attr("dtype: {int32, int64} = DT_INT32")
      .Input("values: T")
      .Input("value_range: T")
      .Input("nbins: int32")
      .Output("out: dtype")
      .Doc(
          "How many values are in each of nbins bins of equal width; the outer bins take what is "
          "outside.")
      .Shape(HistogramShape)
      .HostMemory({"value_range", "nbins"})
      .CpuTypes<CountTypes>("T", []<typename T>() { return Stateless(RunHistogram<T>); })
      .GpuTypes("T", {DType::kFloat}, [](DType) { return New<GpuHistogram<float>>(); }, {},
                {{"dtype", DType::kInt32}})
      .GpuTypes("T", {DType::kDouble}, [](DType) { return New<GpuHistogram<double>>(); }, {},
                {{"dtype", DType::kInt32}});
}

}  // namespace muster
