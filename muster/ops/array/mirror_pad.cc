// Borders that mirror the tensor's own elements.
#include <algorithm>
#include <numeric>

#include "muster/ops/array/paddings.h"
#include "muster/ops/array/wrapping.h"
#include "muster/ops/indexing/strided_copy.h"
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

class MirrorKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string mode, setup.Attr<std::string>("mode"));
    skip_ = mode == "REFLECT" ? 1 : 0;
    return absl::OkStatus();
  }

 protected:
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
  int64_t skip_ = 0;
};

class MirrorPadKernel : public MirrorKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    ASSIGN_OR_RETURN(const std::vector<Padding> paddings, ReadPaddings(c.input(1), input.shape()));
    RETURN_IF_ERROR(CheckWidths(input.shape(), paddings));
    ASSIGN_OR_RETURN(const Shape shape, PaddedShape(input.shape(), paddings));
    if (shape == input.shape()) {
      c.SetOutput(0, c.TakeInput(0));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    ForEachBox(input.shape(), shape, paddings, skip_, [&](StridedBox box) {
      CopyBox(c, input.dtype(), std::move(box), input.raw(), output->raw());
    });
    return absl::OkStatus();
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

template <typename T>
class MirrorPadGradKernel : public MirrorKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(0);
    ASSIGN_OR_RETURN(const std::vector<Padding> paddings, ReadPaddings(c.input(1), dy.shape()));
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
    RETURN_IF_ERROR(CheckWidths(shape, paddings));
    std::vector<muster::Compute<T>> sums(static_cast<size_t>(shape.num_elements()),
                                         muster::Compute<T>{});
    if (shape.num_elements() > 0) {
      ForEachBox(shape, dy.shape(), paddings, this->skip_,
                 [&](const StridedBox& box) { AddBox<T>(box, dy.data<T>(), sums.data()); });
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    std::transform(sums.begin(), sums.end(), output->template data<T>(),
                   [](muster::Compute<T> sum) { return static_cast<T>(sum); });
    return absl::OkStatus();
  }
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
      .CpuDTypes("T", AllDTypes(), New<MirrorPadKernel>());
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
      .CpuTypes<Numbers>("T", []<typename T>() { return New<MirrorPadGradKernel<T>>(); });
}

}  // namespace
}  // namespace muster
