// Grayscale dilation: the largest sum of image and filter under a window. Dilation2D and its
// gradients with respect to both.
#include <limits>

#include "muster/ops/nn/window.h"
#include "muster/ops/op.h"

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
  if (plan.stride_rows <= 0 || plan.stride_columns <= 0) {
    return InvalidArgument("Stride must be > 0, but got ",
                           std::min(plan.stride_rows, plan.stride_columns));
  }
  if (input.dim(3) != filter.dim(2)) {
    return InvalidArgument("input and filter must have the same depth: ", input.dim(3), " vs ",
                           filter.dim(2));
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
    ASSIGN_OR_RETURN(const Geometry g, Measure(input, filter, plan_));
    RETURN_IF_ERROR(CheckRates(plan_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(g.output()));
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
    ASSIGN_OR_RETURN(const Geometry g, Measure(input, filter, plan_));
    if (dy.rank() != 4)
      return InvalidArgument("out_backprop must be 4-dimensional", dy.shape().ToString());
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(g.output()));
    if (dy.shape() != shape) return InvalidArgument("out_backprop has incompatible size.");
    RETURN_IF_ERROR(CheckRates(plan_));
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
  PartialShape output = PartialShape::OfRank(4);
  const bool known = input.known_rank() && filter.known_rank();
  if (known && strides[1] > 0 && strides[2] > 0 && rates[1] > 0 && rates[2] > 0) {
    ASSIGN_OR_RETURN(const std::string padding, c.Attr<std::string>("padding"));
    ASSIGN_OR_RETURN(const int64_t depth, ShapeContext::MergeDims(input.dim(3), filter.dim(2)));
    ASSIGN_OR_RETURN(const WindowSize rows, WindowedOutputSize(input.dim(1), filter.dim(0),
                                                               rates[1], strides[1], padding));
    ASSIGN_OR_RETURN(const WindowSize columns, WindowedOutputSize(input.dim(2), filter.dim(1),
                                                                  rates[2], strides[2], padding));
    output = PartialShape(Dims{input.dim(0), rows.output, columns.output, depth});
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
}

DEFINE_OP(Dilation2DBackpropInput) {
  DilationAttrs(op)
      .Input("out_backprop: T")
      .Output("in_backprop: T")
      .Doc("The gradient of Dilation2D with respect to its image.")
      .Shape(UnchangedShape)
      .CpuTypes<Reals>("T", []<typename T>() { return New<DilationGradient<T, false>>(); });
}

DEFINE_OP(Dilation2DBackpropFilter) {
  DilationAttrs(op)
      .Input("out_backprop: T")
      .Output("filter_backprop: T")
      .Doc("The gradient of Dilation2D with respect to its filter.")
      .Shape(FilterShape)
      .CpuTypes<Reals>("T", []<typename T>() { return New<DilationGradient<T, true>>(); });
}

}  // namespace muster
