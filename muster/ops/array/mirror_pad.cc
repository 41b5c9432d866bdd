// Borders that mirror the tensor's own elements.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "muster/ops/array/paddings.h"
#include "muster/ops/array/wrapping.h"
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// Part of one dimension of the padded tensor and where its elements come from in the inner one.
struct Segment {
  int64_t size;
  int64_t padded_begin;
  int64_t inner_begin;
  int64_t inner_step;
};

// Border before, interior, border after; `skip` elements at the edge are not repeated (1 for
// REFLECT).
std::vector<Segment> SegmentsOf(int64_t inner_size, const Padding& padding, int64_t skip) {
  return {{padding.before, 0, padding.before - 1 + skip, -1},
          {inner_size, padding.before, 0, 1},
          {padding.after, padding.before + inner_size, inner_size - 1 - skip, -1}};
}

// Calls `visit(box)` for every combination of segments; in the box "from" is the inner tensor, "to"
// the padded one.
template <typename Visit>
void ForEachBox(const Shape& inner, const Shape& padded, const std::vector<Padding>& paddings,
                int64_t skip, Visit visit) {
  const int rank = inner.rank();
  const Dims from = RowMajorStrides(inner.dims()), to = RowMajorStrides(padded.dims());
  std::vector<std::vector<Segment>> segments;
  for (int i = 0; i < rank; ++i) {
    segments.push_back(SegmentsOf(inner.dim(i), paddings[i], skip));
    std::erase_if(segments.back(), [](const Segment& segment) { return segment.size == 0; });
    if (segments.back().empty()) return;
  }
  std::vector<size_t> choice(rank, 0);
  while (true) {
    StridedBox box;
    for (int i = 0; i < rank; ++i) {
      const Segment& segment = segments[i][choice[i]];
      box.Add(segment.size, segment.inner_step * from[i], to[i]);
      box.from_offset += segment.inner_begin * from[i];
      box.to_offset += segment.padded_begin * to[i];
    }
    visit(std::move(box));
    int i = rank - 1;
    while (i >= 0 && ++choice[i] == segments[i].size()) choice[i--] = 0;
    if (i < 0) return;
  }
}

class Mirror {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(const std::string mode, setup.Attr<std::string>("mode"));
    skip_ = mode == "REFLECT" ? 1 : 0;
    return absl::OkStatus();
  }
  int64_t skip() const { return skip_; }
  // A border can only be as wide as there are elements to mirror.
  absl::Status CheckWidths(const Shape& inner, const std::vector<Padding>& paddings) const {
    for (int i = 0; i < inner.rank(); ++i) {
      const int64_t widest = std::max(paddings[i].before, paddings[i].after);
      if (widest > inner.dim(i) - skip_ && widest > 0) {
        return InvalidArgument("paddings must be ", skip_ ? "less than" : "no greater than",
                               " the dimension size: ", paddings[i].before, ", ", paddings[i].after,
                               skip_ ? " not less than " : " greater than ", inner.dim(i));
      }
    }
    return absl::OkStatus();
  }

 private:
  int64_t skip_ = 0;
};

class MirrorPadMove : public Mirror {
 public:
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor input = c.input(0);
    ASSIGN_OR_RETURN(const std::vector<Padding> paddings, ReadPaddings(c.input(1), input.shape()));
    RETURN_IF_ERROR(CheckWidths(input.shape(), paddings));
    ASSIGN_OR_RETURN(const Shape shape, PaddedShape(input.shape(), paddings));
    if (shape == input.shape()) {
      c.SetOutput(0, c.TakeInput(0));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    std::vector<BoxCopy> copies;
    ForEachBox(input.shape(), shape, paddings, skip(), [&](StridedBox box) {
      copies.push_back({std::move(box), input.raw(), output->raw()});
    });
    return mover.Copy(c, input.dtype(), std::move(copies));
  }
};

// Adds each element of the padded tensor to where it came from.
template <typename T>
void AddBox(const StridedBox& box, const T* padded, Compute<T>* inner) {
  const int rank = static_cast<int>(box.dims.size());
  const int64_t count =
      std::accumulate(box.dims.begin(), box.dims.end(), int64_t{1}, std::multiplies<int64_t>());
  Dims index(rank, 0);
  const T* source = padded + box.to_offset;
  Compute<T>* target = inner + box.from_offset;
  for (int64_t n = 0; n < count; ++n) {
    *target = AddWrapping(*target, static_cast<Compute<T>>(*source));
    for (int i = rank - 1; i >= 0; --i) {
      source += box.to_strides[i];
      target += box.from_strides[i];
      if (++index[i] < box.dims[i]) break;
      source -= box.dims[i] * box.to_strides[i];
      target -= box.dims[i] * box.from_strides[i];
      index[i] = 0;
    }
  }
}

// The shape without its border.
absl::StatusOr<Shape> InnerShape(const Tensor& dy, const std::vector<Padding>& paddings,
                                 const Mirror& mirror) {
  Dims dims;
  for (int i = 0; i < dy.rank(); ++i) {
    const int64_t size = dy.dim(i), before = paddings[i].before, after = paddings[i].after;
    if (before > size || after > size - before) {
      return InvalidArgument("Total paddings must be less than the input dimension size: ",
                             static_cast<uint64_t>(before) + static_cast<uint64_t>(after),
                             " was not less than ", size);
    }
    dims.push_back(size - before - after);
  }
  const Shape shape{absl::Span<const int64_t>(dims)};
  RETURN_IF_ERROR(mirror.CheckWidths(shape, paddings));
  return shape;
}

template <typename T>
class MirrorPadGradKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return mirror_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(0);
    ASSIGN_OR_RETURN(const std::vector<Padding> paddings, ReadPaddings(c.input(1), dy.shape()));
    ASSIGN_OR_RETURN(const Shape shape, InnerShape(dy, paddings, mirror_));
    std::vector<muster::Compute<T>> sums(static_cast<size_t>(shape.num_elements()),
                                         muster::Compute<T>{});
    if (shape.num_elements() > 0) {
      ForEachBox(shape, dy.shape(), paddings, mirror_.skip(),
                 [&](const StridedBox& box) { AddBox<T>(box, dy.data<T>(), sums.data()); });
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    std::transform(sums.begin(), sums.end(), output->template data<T>(),
                   [](muster::Compute<T> sum) { return static_cast<T>(sum); });
    return absl::OkStatus();
  }

 private:
  Mirror mirror_;
};

// The structs of mirror_pad.cu.
constexpr int kMostMirrorAxes = 8;
struct MirrorAxis {
  int64_t size, before, after, stride;
};
struct MirrorAxes {
  int rank;
  int64_t skip;
  MirrorAxis axes[kMostMirrorAxes];
};

class GpuMirrorPadGrad : public GpuKernel {
 public:
  explicit GpuMirrorPadGrad(DType dtype)
      : run_(*this, "array/mirror_pad.cu",
             absl::StrCat("MirrorPadGrad<", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return mirror_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(0);
    ASSIGN_OR_RETURN(const std::vector<Padding> paddings, ReadPaddings(c.input(1), dy.shape()));
    ASSIGN_OR_RETURN(const Shape shape, InnerShape(dy, paddings, mirror_));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    MirrorAxes mirrored{};
    mirrored.skip = mirror_.skip();
    const Dims strides = RowMajorStrides(dy.shape().dims());
    bool last_is_whole = false;
    for (int i = 0; i < dy.rank(); ++i) {
      const bool is_whole = paddings[i].before == 0 && paddings[i].after == 0;
      if (is_whole && last_is_whole) {
        MirrorAxis& last = mirrored.axes[mirrored.rank - 1];
        last.size *= shape.dim(i);
        last.stride = strides[i];
        continue;
      }
      if (mirrored.rank == kMostMirrorAxes)
        return Unimplemented("MirrorPadGrad of more than ", kMostMirrorAxes, " axes on a GPU");
      mirrored.axes[mirrored.rank++] = {shape.dim(i), paddings[i].before, paddings[i].after,
                                        strides[i]};
      last_is_whole = is_whole;
    }
    const int64_t count = shape.num_elements();
    return run_.LaunchForEach(count, GpuIn(dy), GpuOut(*output), mirrored, count);
  }

 private:
  Mirror mirror_;
  const GpuFunction run_;
};

absl::Status PadShape(ShapeContext& c) {
  return PaddedShapeRule(c, 1);
}
absl::Status CutShape(ShapeContext& c) {
  return PaddedShapeRule(c, -1);
}

absl::Status MirrorPadGradient(GradientContext& c) {
  c.SetDx(0, c.Op("MirrorPadGrad", {c.dy(), c.input(1)}, {{"mode", c.Attr<std::string>("mode")}}));
  return absl::OkStatus();
}

absl::Status MirrorPadGradGradient(GradientContext& c) {
  c.SetDx(0, c.Op("MirrorPad", {c.dy(), c.input(1)}, {{"mode", c.Attr<std::string>("mode")}}));
  return absl::OkStatus();
}

DEFINE_OP(MirrorPad) {
  op.Attr("T: type")
      .Attr("Tpaddings: {int32, int64} = DT_INT32")
      .Attr("mode: {'REFLECT', 'SYMMETRIC'}")
      .Input("input: T")
      .Input("paddings: Tpaddings")
      .Output("output: T")
      .Doc(
          "A tensor with a border that mirrors it, with (SYMMETRIC) or without (REFLECT) the edge "
          "itself.")
      .Shape(PadShape)
      .Gradient(MirrorPadGradient)
      .HostMemory({"paddings"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MirrorPadMove>())
      .GpuTypes("T", GpuFloatsAnd({}), MovesOnGpu<MirrorPadMove>);
}

DEFINE_OP(MirrorPadGrad) {
  op.Attr("T: type")
      .Attr("Tpaddings: {int32, int64} = DT_INT32")
      .Attr("mode: {'REFLECT', 'SYMMETRIC'}")
      .Input("input: T")
      .Input("paddings: Tpaddings")
      .Output("output: T")
      .Doc("Adds the border that MirrorPad made back to the elements it mirrors.")
      .Shape(CutShape)
      .Gradient(MirrorPadGradGradient)
      .HostMemory({"paddings"})
      .CpuTypes<Numbers>("T", []<typename T>() { return New<MirrorPadGradKernel<T>>(); })
      .GpuTypes("T", GpuFloatsAnd({}), [](DType dtype) {
        return [dtype] { return std::make_unique<GpuMirrorPadGrad>(dtype); };
      });
}

}  // namespace
}  // namespace muster
