// Grayscale dilation: the largest sum of image and filter under a window. Dilation2D and its
// gradients with respect to both.
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/conv/conv_gpu.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/nn/window.h"

namespace muster {
namespace {

struct Plan {
  int64_t stride_rows = 1, stride_columns = 1;
  int64_t rate_rows = 1, rate_columns = 1;
  std::string padding;
};

absl::StatusOr<std::vector<int64_t>> ReadFour(const Node& node, const char* attr,
                                              absl::string_view what) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReadSizes(node, attr));
  if (sizes.size() != 4) {
    return InvalidArgument(
        what == "Stride" ? "Sliding window stride" : "Input stride (atrous rate)",
        " field must specify 4 dimensions");
  }
  if (sizes[0] != 1 || sizes[3] != 1)
    return Unimplemented(what, " is only supported across spatial dimensions.");
  return sizes;
}

absl::StatusOr<Plan> ReadPlan(const Node& node) {
  Plan plan;
  ASSIGN_OR_RETURN(const std::vector<int64_t> strides, ReadFour(node, "strides", "Stride"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> rates, ReadFour(node, "rates", "Rate"));
  plan.stride_rows = strides[1];
  plan.stride_columns = strides[2];
  plan.rate_rows = rates[1];
  plan.rate_columns = rates[2];
  ASSIGN_OR_RETURN(plan.padding, node.Attr<std::string>("padding"));
  return plan;
}

// The sizes of one run.
struct Geometry {
  int64_t batch, rows, columns, depth;
  int64_t filter_rows, filter_columns;
  WindowSize out_rows, out_columns;

  int64_t InputAt(int64_t b, int64_t y, int64_t x, int64_t d) const {
    return ((b * rows + y) * columns + x) * depth + d;
  }
  int64_t FilterAt(int64_t y, int64_t x, int64_t d) const {
    return (y * filter_columns + x) * depth + d;
  }
  Dims output() const { return {batch, out_rows.output, out_columns.output, depth}; }
};

// The windows of `filter` cells, `rate` apart.
absl::StatusOr<WindowSize> SpreadWindows(int64_t size, int64_t filter, int64_t rate, int64_t stride,
                                         absl::string_view padding) {
  const int64_t reach = filter + (filter - 1) * (rate - 1);
  const int64_t beyond = padding == "SAME" ? 0 : std::max<int64_t>(-reach, 0);
  return WindowedOutputSize(size + beyond, std::max<int64_t>(reach, 0), 1, stride, padding);
}

absl::StatusOr<Geometry> Measure(const Tensor& input, const Tensor& filter, const Plan& plan) {
  if (input.rank() != 4)
    return InvalidArgument("input must be 4-dimensional", input.shape().ToString());
  if (filter.rank() != 3)
    return InvalidArgument("filter must be 3-dimensional: ", filter.shape().ToString());
  if (input.dim(3) != filter.dim(2)) {
    return InvalidArgument("input and filter must have the same depth: ", input.dim(3), " vs ",
                           filter.dim(2));
  }
  if (plan.stride_rows <= 0 || plan.stride_columns <= 0) {
    return InvalidArgument("Stride must be > 0, but got ",
                           plan.stride_rows <= 0 ? plan.stride_rows : plan.stride_columns);
  }
  for (const int64_t size : filter.shape().dims()) {
    if (size > std::numeric_limits<int32_t>::max())
      return InvalidArgument("filter is too large: ", filter.shape().ToString());
  }
  Geometry g{input.dim(0),  input.dim(1),  input.dim(2), input.dim(3),
             filter.dim(0), filter.dim(1), {},           {}};
  ASSIGN_OR_RETURN(g.out_rows, SpreadWindows(g.rows, g.filter_rows, plan.rate_rows,
                                             plan.stride_rows, plan.padding));
  ASSIGN_OR_RETURN(g.out_columns, SpreadWindows(g.columns, g.filter_columns, plan.rate_columns,
                                                plan.stride_columns, plan.padding));
  return g;
}

// TensorFlow compares the sizes of windows with rates of any sign before anything can go wrong.
absl::Status CheckRates(const Plan& plan) {
  if (plan.rate_rows > 0 && plan.rate_columns > 0) return absl::OkStatus();
  return InvalidArgument("Dilated rates should be larger than 0.");
}

// The sizes of one run of the op.
absl::StatusOr<Geometry> MeasureForward(const Tensor& input, const Tensor& filter,
                                        const Plan& plan) {
  ASSIGN_OR_RETURN(const Geometry g, Measure(input, filter, plan));
  RETURN_IF_ERROR(CheckRates(plan));
  RETURN_IF_ERROR(Shape::Make(g.output()).status());
  return g;
}
absl::StatusOr<Geometry> MeasureGradient(const Tensor& input, const Tensor& filter,
                                         const Tensor& dy, const Plan& plan) {
  ASSIGN_OR_RETURN(const Geometry g, Measure(input, filter, plan));
  if (dy.rank() != 4)
    return InvalidArgument("out_backprop must be 4-dimensional", dy.shape().ToString());
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(g.output()));
  if (dy.shape() != shape) return InvalidArgument("out_backprop has incompatible size.");
  RETURN_IF_ERROR(CheckRates(plan));
  return g;
}

// The best cell of every window, in the order of the output; `best` takes the sum and the places
// in image and filter, -1 when the window has no cell.
template <typename T, typename Best>
void ForEachWindow(const Geometry& g, const Plan& plan, const T* input, const T* filter,
                   int64_t first, int64_t last, Best best) {
  using Wide = Compute<T>;
  for (int64_t b = first; b < last; ++b) {
    for (int64_t y = 0; y < g.out_rows.output; ++y) {
      const int64_t top = y * plan.stride_rows - g.out_rows.padding_before;
      for (int64_t x = 0; x < g.out_columns.output; ++x) {
        const int64_t left = x * plan.stride_columns - g.out_columns.padding_before;
        for (int64_t d = 0; d < g.depth; ++d) {
          Wide largest = std::numeric_limits<Wide>::lowest();
          int64_t at = -1;
          int64_t under = -1;
          for (int64_t fy = 0; fy < g.filter_rows; ++fy) {
            const int64_t row = top + fy * plan.rate_rows;
            if (row < 0 || row >= g.rows) continue;
            for (int64_t fx = 0; fx < g.filter_columns; ++fx) {
              const int64_t column = left + fx * plan.rate_columns;
              if (column < 0 || column >= g.columns) continue;
              const int64_t cell = g.InputAt(b, row, column, d);
              const int64_t weight = g.FilterAt(fy, fx, d);
              const Wide sum = static_cast<Wide>(static_cast<T>(static_cast<Wide>(input[cell]) +
                                                                static_cast<Wide>(filter[weight])));
              if (at >= 0 && !(sum > largest)) continue;
              largest = sum;
              at = cell;
              under = weight;
            }
          }
          best(largest, at, under);
        }
      }
    }
  }
}

class DilationKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(plan_, ReadPlan(setup.node()));
    return absl::OkStatus();
  }

 protected:
  Plan plan_;
};

template <typename T>
class Dilation : public DilationKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& filter = c.input(1);
    ASSIGN_OR_RETURN(const Geometry g, MeasureForward(input, filter, plan_));
    const Shape shape(g.output());
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const int64_t one = shape.num_elements() / g.batch;
    const auto cost = static_cast<double>(one * g.filter_rows * g.filter_columns + one);
    c.ParallelFor(g.batch, cost, [&](int64_t begin, int64_t end) {
      T* to = output->data<T>() + begin * one;
      ForEachWindow(g, plan_, input.data<T>(), filter.data<T>(), begin, end,
                    [&to](auto largest, int64_t, int64_t) { *to++ = static_cast<T>(largest); });
    });
    return absl::OkStatus();
  }
};

template <typename T, bool kOfFilter>
class DilationGradient : public DilationKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& filter = c.input(1);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Geometry g, MeasureGradient(input, filter, dy, plan_));
    ASSIGN_OR_RETURN(Tensor* const output,
                     c.AllocateOutput(0, kOfFilter ? filter.shape() : input.shape()));
    using Wide = muster::Compute<T>;
    T* const to = output->data<T>();
    std::fill_n(to, output->num_elements(), T(0));
    const T* from = dy.data<T>();
    ForEachWindow(g, plan_, input.data<T>(), filter.data<T>(), 0, g.batch,
                  [&](auto, int64_t at, int64_t under) {
                    const T gradient = *from++;
                    if (at < 0) return;
                    T& sum = to[kOfFilter ? under : at];
                    sum = static_cast<T>(static_cast<Wide>(sum) + static_cast<Wide>(gradient));
                  });
    return absl::OkStatus();
  }
};

// --- GPUs

// As DilationSize of dilation2d.cu.
struct GpuDilationSize {
  int32_t batch, rows, columns, depth;
  int32_t filter_rows, filter_columns;
  int32_t out_rows, out_columns;
  int32_t stride_rows, stride_columns;
  int32_t rate_rows, rate_columns;
  int32_t pad_rows, pad_columns;
};

class GpuDilationKernel : public GpuKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(plan_, ReadPlan(setup.node()));
    return GpuKernel::Init(setup);
  }

 protected:
  static constexpr char kFile[] = "conv/dilation2d.cu";
  static std::string OfType(const char* function, DType dtype) {
    return absl::StrCat(function, "<", GpuTypeName(dtype), ">");
  }

  absl::StatusOr<GpuDilationSize> SizeOf(const Geometry& g) const {
    const int64_t reach_rows = g.filter_rows * plan_.rate_rows;
    const int64_t reach_columns = g.filter_columns * plan_.rate_columns;
    // The function counts these in 32 bits.
    for (const int64_t size : {g.batch, g.rows, g.columns, g.depth, reach_rows, reach_columns,
                               g.filter_rows * g.filter_columns}) {
      if (size > std::numeric_limits<int32_t>::max() / 4)
        return Unimplemented("Dilation2D with a size of ", size, " has no kernel for GPUs");
    }
    const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
    return GpuDilationSize{narrow(g.batch),
                           narrow(g.rows),
                           narrow(g.columns),
                           narrow(g.depth),
                           narrow(g.filter_rows),
                           narrow(g.filter_columns),
                           narrow(g.out_rows.output),
                           narrow(g.out_columns.output),
                           narrow(plan_.stride_rows),
                           narrow(plan_.stride_columns),
                           narrow(plan_.rate_rows),
                           narrow(plan_.rate_columns),
                           narrow(g.out_rows.padding_before),
                           narrow(g.out_columns.padding_before)};
  }

  Plan plan_;
};

class GpuDilation : public GpuDilationKernel {
 public:
  explicit GpuDilation(DType dtype) : run_(*this, kFile, OfType("Dilation", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& filter = c.input(1);
    ASSIGN_OR_RETURN(const Geometry g, MeasureForward(input, filter, plan_));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape(g.output())));
    const int64_t count = output->num_elements();
    if (count == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const GpuDilationSize size, SizeOf(g));
    return run_.LaunchForEach(count, GpuIn(input), GpuIn(filter), GpuOut(*output), count, size);
  }

 private:
  const GpuFunction run_;
};

class GpuDilationGradient : public GpuDilationKernel {
 public:
  GpuDilationGradient(DType dtype, bool of_filter)
      : of_filter_(of_filter),
        taps_(*this, kFile, OfType("DilationTaps", dtype)),
        run_(*this, kFile,
             OfType(of_filter ? "DilationBackwardFilter" : "DilationBackwardInput", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& filter = c.input(1);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Geometry g, MeasureGradient(input, filter, dy, plan_));
    ASSIGN_OR_RETURN(Tensor* const output,
                     c.AllocateOutput(0, of_filter_ ? filter.shape() : input.shape()));
    const int64_t count = output->num_elements(), windows = dy.num_elements();
    if (count == 0) return absl::OkStatus();
    if (windows == 0) return gpu().Fill(output->raw(), 0, output->size_bytes());
    ASSIGN_OR_RETURN(const GpuDilationSize size, SizeOf(g));
    ASSIGN_OR_RETURN(Tensor taps, c.AllocateTemporary(DType::kInt32, dy.shape()));
    RETURN_IF_ERROR(
        taps_.LaunchForEach(windows, GpuIn(input), GpuIn(filter), GpuOut(taps), windows, size));
    GpuGrid grid = run_.GridForEach(count);
    if (of_filter_) grid.blocks_x = static_cast<unsigned>(std::min<int64_t>(count, kMostBlocks));
    return run_.Launch(grid, GpuIn(taps), GpuIn(dy), GpuOut(*output), count, size);
  }

 private:
  static constexpr int64_t kMostBlocks = int64_t{1} << 16;
  const bool of_filter_;
  const GpuFunction taps_, run_;
};

// --- Shapes, gradients, definitions

absl::Status DilationShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(c.input(0), 4));
  ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(c.input(1), 3));
  ASSIGN_OR_RETURN(const std::vector<int64_t> strides, ReadSizes(c.node(), "strides"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> rates, ReadSizes(c.node(), "rates"));
  if (strides.size() != 4) {
    return InvalidArgument(
        "Dilation2D requires the stride attribute to contain 4 values, but got: ", strides.size());
  }
  if (rates.size() != 4) {
    return InvalidArgument("Dilation2D requires the rates attribute to contain 4 values, but got: ",
                           rates.size());
  }
  ASSIGN_OR_RETURN(const std::string padding, c.Attr<std::string>("padding"));
  ASSIGN_OR_RETURN(const int64_t depth, ShapeContext::MergeDims(input.dim(3), filter.dim(2)));
  PartialShape output = PartialShape::OfRank(4);
  output.Set(0, input.dim(0));
  output.Set(3, depth);
  for (const int axis : {1, 2}) {
    const int64_t size = input.dim(axis), window = filter.dim(axis - 1);
    // The kernel refuses rates that make no sense.
    if (size < 0 || window < 0 || rates[axis] <= 0) continue;
    ASSIGN_OR_RETURN(const WindowSize windows,
                     WindowedOutputSize(size, window, rates[axis], strides[axis], padding));
    output.Set(axis, windows.output);
  }
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

absl::Status FilterShape(ShapeContext& c) {
  c.SetOutput(0, c.input(1));
  return absl::OkStatus();
}

absl::Status Differentiate(GradientContext& g) {
  const AttrMap attrs = {{"strides", g.Attr<std::vector<int64_t>>("strides")},
                         {"rates", g.Attr<std::vector<int64_t>>("rates")},
                         {"padding", g.Attr<std::string>("padding")}};
  const Output dy = g.dy();
  g.SetDx(0, g.Op("Dilation2DBackpropInput", {g.input(0), g.input(1), dy}, attrs));
  g.SetDx(1, g.Op("Dilation2DBackpropFilter", {g.input(0), g.input(1), dy}, attrs));
  return g.scope().status();
}

OpBuilder& DilationAttrs(OpBuilder& op) {
  return op
      .Attr(
          "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
          "uint64}")
      .Attr("strides: list(int) >= 4")
      .Attr("rates: list(int) >= 4")
      .Attr("padding: {'SAME', 'VALID'}")
      .Input("input: T")
      .Input("filter: T");
}

}  // namespace

DEFINE_OP(Dilation2D) {
  DilationAttrs(op)
      .Output("output: T")
      .Doc("The largest sums of an image and a filter, window by window.")
      .Shape(DilationShape)
      .Gradient(Differentiate)
      .CpuTypes<Reals>("T", []<typename T>() { return New<Dilation<T>>(); });
  AddGpuFloats<GpuDilation>(op);
}

DEFINE_OP(Dilation2DBackpropInput) {
  DilationAttrs(op)
      .Input("out_backprop: T")
      .Output("in_backprop: T")
      .Doc("The gradient of Dilation2D with respect to its image.")
      .Shape(UnchangedShape)
      .CpuTypes<Reals>("T", []<typename T>() { return New<DilationGradient<T, false>>(); });
  AddGpuFloats<GpuDilationGradient>(op, false);
}

DEFINE_OP(Dilation2DBackpropFilter) {
  DilationAttrs(op)
      .Input("out_backprop: T")
      .Output("filter_backprop: T")
      .Doc("The gradient of Dilation2D with respect to its filter.")
      .Shape(FilterShape)
      .CpuTypes<Reals>("T", []<typename T>() { return New<DilationGradient<T, true>>(); });
  AddGpuFloats<GpuDilationGradient>(op, true);
}

}  // namespace muster
