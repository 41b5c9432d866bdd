// ExtractImagePatches: the windows of an image, each laid out along the channels.
#include "muster/ops/emit.h"
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/nn/packs.h"
#include "muster/ops/nn/window.h"

namespace muster {
namespace {

struct Patches {
  int64_t window_height, window_width;
  int64_t stride_height, stride_width;
  int64_t rate_height, rate_width;
  std::string padding;
};

absl::StatusOr<std::vector<int64_t>> ReadFour(const Node& node, const char* attr) {
  ASSIGN_OR_RETURN(std::vector<int64_t> sizes, ReadSizes(node, attr));
  if (sizes.size() != 4) {
    return InvalidArgument("ExtractImagePatches requires the ", attr,
                           " attribute to contain 4 values, but got: ", sizes.size());
  }
  return sizes;
}

absl::StatusOr<Patches> ReadPatches(const Node& node) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ksizes, ReadFour(node, "ksizes"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> strides, ReadFour(node, "strides"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> rates, ReadFour(node, "rates"));
  ASSIGN_OR_RETURN(std::string padding, node.Attr<std::string>("padding"));
  return Patches{ksizes[1], ksizes[2], strides[1],        strides[2],
                 rates[1],  rates[2],  std::move(padding)};
}

absl::Status CheckSizes(const Node& node, const char* attr) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReadFour(node, attr));
  if (sizes[0] != 1 || sizes[3] != 1) {
    return Unimplemented("Only support ", attr, " across space.");
  }
  if (sizes[1] < 1 || sizes[2] < 1)
    return OutOfRange(attr, " is out of range: ", sizes[1], "x", sizes[2]);
  return absl::OkStatus();
}

absl::Status InferShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(c.input(0), 4));
  ASSIGN_OR_RETURN(const Patches p, ReadPatches(c.node()));
  if (!input.known_rank()) {
    c.SetOutput(0, PartialShape::OfRank(4));
    return absl::OkStatus();
  }
  PartialShape output = PartialShape::OfRank(4);
  // Bad sizes are the kernel's to report.
  const bool has_strides = p.stride_height > 0 && p.stride_width > 0;
  const bool is_sized = input.dim(1) >= 0 && input.dim(2) >= 0;
  if (p.window_height < 1 || p.window_width < 1 || p.rate_height < 1 || p.rate_width < 1 ||
      (!has_strides && !is_sized)) {
    c.SetOutput(0, std::move(output));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      const int64_t rows,
      InferWindowedSize(input.dim(1), p.window_height, p.rate_height, p.stride_height, p.padding));
  ASSIGN_OR_RETURN(
      const int64_t columns,
      InferWindowedSize(input.dim(2), p.window_width, p.rate_width, p.stride_width, p.padding));
  const int64_t depth =
      c.MultiplyDims(c.MultiplyDims(input.dim(3), p.window_height), p.window_width);
  c.SetOutput(0, PartialShape({input.dim(0), rows, columns, depth}));
  return absl::OkStatus();
}

absl::StatusOr<Patches> CheckedPatches(const Node& node) {
  for (const char* attr : {"ksizes", "strides", "rates"}) RETURN_IF_ERROR(CheckSizes(node, attr));
  return ReadPatches(node);
}

// Where the windows of images are.
struct PatchGrid {
  WindowSize rows;
  WindowSize columns;
  Shape window;
  Shape output;
};
absl::StatusOr<PatchGrid> GridOf(const Patches& p, const Shape& input) {
  if (input.rank() != 4) return InvalidArgument("input must be 4-dimensional", input.ToString());
  PatchGrid grid;
  ASSIGN_OR_RETURN(grid.rows, WindowedOutputSize(input.dim(1), p.window_height, p.rate_height,
                                                 p.stride_height, p.padding));
  ASSIGN_OR_RETURN(grid.columns, WindowedOutputSize(input.dim(2), p.window_width, p.rate_width,
                                                    p.stride_width, p.padding));
  ASSIGN_OR_RETURN(grid.window, Shape::Make({p.window_height, p.window_width, input.dim(3)}));
  ASSIGN_OR_RETURN(grid.output, Shape::Make({input.dim(0), grid.rows.output, grid.columns.output,
                                             grid.window.num_elements()}));
  return grid;
}

class PatchesKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(p_, CheckedPatches(setup.node()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    ASSIGN_OR_RETURN(const PatchGrid grid, GridOf(p_, input.shape()));
    const WindowSize &rows = grid.rows, &columns = grid.columns;
    const int64_t height = input.dim(1), width = input.dim(2), channels = input.dim(3);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, grid.output));
    ZeroElements(output->dtype(), output->raw(), output->num_elements());
    const auto size = static_cast<int64_t>(DTypeSize(output->dtype()));
    const int64_t patches = channels == 0 ? 0 : input.dim(0) * rows.output * columns.output;
    const auto copy = [&](int64_t begin, int64_t end) {
      for (int64_t patch = begin; patch < end; ++patch) {
        const int64_t image = patch / (rows.output * columns.output);
        const int64_t top =
            patch / columns.output % rows.output * p_.stride_height - rows.padding_before;
        const int64_t left = patch % columns.output * p_.stride_width - columns.padding_before;
        for (int64_t i = 0; i < p_.window_height; ++i) {
          const int64_t y = top + i * p_.rate_height;
          if (y < 0 || y >= height) continue;
          for (int64_t j = 0; j < p_.window_width; ++j) {
            const int64_t x = left + j * p_.rate_width;
            if (x < 0 || x >= width) continue;
            const int64_t from = ((image * height + y) * width + x) * channels;
            const int64_t to = ((patch * p_.window_height + i) * p_.window_width + j) * channels;
            CopyElements(output->dtype(), input.raw() + from * size, output->raw() + to * size,
                         channels);
          }
        }
      }
    };
    c.ParallelFor(patches, 2.0 * static_cast<double>(grid.window.num_elements()), copy);
    return absl::OkStatus();
  }

 private:
  Patches p_;
};

// As in extract_patches.cu.
struct GpuPatches {
  int64_t height, width, channels;
  int64_t rows, columns;
  int64_t window_height, window_width;
  int64_t stride_height, stride_width;
  int64_t rate_height, rate_width;
  int64_t pad_top, pad_left;
};

class GpuPatchesKernel : public GpuKernel {
 public:
  explicit GpuPatchesKernel(DType dtype)
      : run_(*this, "nn/extract_patches.cu",
             absl::StrCat("ExtractPatches<", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(p_, CheckedPatches(setup.node()));
    return GpuKernel::Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(const PatchGrid grid, GridOf(p_, x.shape()));
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, grid.output));
    const GpuPatches patches = {x.dim(1),
                                x.dim(2),
                                x.dim(3),
                                grid.rows.output,
                                grid.columns.output,
                                p_.window_height,
                                p_.window_width,
                                p_.stride_height,
                                p_.stride_width,
                                p_.rate_height,
                                p_.rate_width,
                                grid.rows.padding_before,
                                grid.columns.padding_before};
    return run_.LaunchForEach(y->num_elements(), GpuIn(x), GpuOut(*y), y->num_elements(), patches);
  }

 private:
  GpuFunction run_;
  Patches p_;
};

// A vector of scalars: tensors and, where there is no tensor, numbers.
Output EmitDims(const Scope& scope, std::vector<std::pair<Output, int64_t>> dims) {
  const NamedOp reshape(scope, "shape");
  std::vector<Output> parts;
  for (const auto& [dim, number] : dims)
    parts.push_back(dim ? dim : reshape.inner().ConstScalar<int64_t>(number));
  return reshape.Op("Pack", {parts}, {{"axis", 0}});
}

// Numbers the pixels of the image, runs the op on the numbers, and sums the gradients that arrive
// at each.
absl::Status Differentiate(GradientContext& c) {
  Scope& scope = c.scope();
  const auto unstack = [&](Output vector, int count) {
    const Output parts = c.Op("Unpack", {vector}, {{"num", count}, {"axis", 0}}, "unstack");
    std::vector<Output> list;
    for (int i = 0; i < count; ++i) list.emplace_back(parts.node, i);
    return list;
  };
  const Output in_shape = c.ShapeOf(c.input(0), "Shape", DType::kInt64);
  const Output out_shape = c.ShapeOf(c.output(), "Shape_1", DType::kInt64);
  if (!scope.status().ok()) return scope.status();
  const std::vector<Output> in = unstack(in_shape, 4);
  const std::vector<Output> out = unstack(out_shape, 4);
  if (!scope.status().ok()) return scope.status();
  const std::vector<int64_t> ksizes = c.Attr<std::vector<int64_t>>("ksizes");
  const Output pixels = c.Op("Mul", {in[1], in[2]}, {}, "mul");
  const auto float_of = [&](Output x) { return c.Op("Cast", {x}, {{"DstT", DType::kFloat}}); };
  const Output limit = float_of(EmitWithScalar(scope, "Add", pixels, 1));
  const Output one = scope.ConstScalar<float>(1, "range/start");
  const Output step = scope.ConstScalar<float>(1, "range/delta");
  const Output numbers = c.Op("Range", {one, limit, step}, {}, "range");
  const Output image =
      c.Op("Reshape", {numbers, EmitDims(scope, {{{}, 1}, {in[1], 0}, {in[2], 0}, {{}, 1}})});
  AttrMap attrs;
  for (const char* name : {"ksizes", "strides", "rates", "padding"})
    attrs.emplace(name, *c.node().FindAttr(name));
  const Output patched =
      c.Op("Cast", {c.Op("ExtractImagePatches", {image}, attrs)}, {{"DstT", DType::kInt64}});
  const Output by_pixel = c.Op(
      "Reshape",
      {c.dy(),
       EmitDims(
           scope,
           {{in[0], 0}, {out[1], 0}, {out[2], 0}, {{}, ksizes[1]}, {{}, ksizes[2]}, {in[3], 0}})});
  const Output turned =
      c.Op("Transpose", {by_pixel, scope.ConstVector({1, 2, 3, 4, 0, 5}, "transpose/perm")}, {},
           "transpose");
  const Output per_pixel = c.Op("Mul", {in[0], in[3]}, {}, "mul");
  const Output flat = c.Op("Reshape", {turned, EmitDims(scope, {{{}, -1}, {per_pixel, 0}})});
  // Padding is pixel -1, which the sum leaves out.
  const Output segments = EmitWithScalar(scope, "Sub", EmitReshape(scope, patched, {-1}), 1);
  const Output sums = c.Op("UnsortedSegmentSum", {flat, segments, pixels});
  const Output shaped =
      c.Op("Reshape", {sums, EmitDims(scope, {{in[1], 0}, {in[2], 0}, {in[0], 0}, {in[3], 0}})});
  c.SetDx(0, c.Op("Transpose", {shaped, scope.ConstVector({2, 0, 1, 3}, "transpose/perm")}, {},
                  "transpose"));
  return absl::OkStatus();
}

DEFINE_OP(ExtractImagePatches) {
  op.Attr("ksizes: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("rates: list(int) >= 4")
      .Attr(
          "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, "
          "uint64, complex64, complex128, bool}")
      .Attr("padding: {'SAME', 'VALID'}")
      .Input("images: T")
      .Output("patches: T")
      .Doc("The windows of the images, each laid out along the channels.")
      .Shape(InferShape)
      .Gradient(Differentiate)
      .CpuDTypes("T", PlainDTypes(), New<PatchesKernel>())
      .GpuTypes("T", GpuFloats(), MakeGpu<GpuPatchesKernel>);
}

}  // namespace
}  // namespace muster
