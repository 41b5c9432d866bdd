// SparseToDense: values at index tuples, one value everywhere else.
#include <numeric>

#include "absl/strings/str_join.h"

#include "muster/ops/emit.h"
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status InferShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(1));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

class SparseToDenseKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(validate_, setup.Attr<bool>("validate_indices"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& indices = c.input(0);
    const Tensor& values = c.input(2);
    if (indices.rank() > 2) {
      return InvalidArgument("sparse_indices should be a scalar, vector, or matrix, got shape ",
                             indices.shape().ToString());
    }
    const int64_t count = indices.rank() > 0 ? indices.dim(0) : 1;
    const int64_t depth = indices.rank() > 1 ? indices.dim(1) : 1;
    if (c.input(1).rank() != 1) {
      return InvalidArgument("output_shape must be rank 1, got shape ",
                             c.input(1).shape().ToString());
    }
    if (c.input(1).num_elements() != depth) {
      return InvalidArgument("output_shape has incorrect number of elements: ",
                             c.input(1).num_elements(), " should be: ", depth);
    }
    if (values.rank() > 1 || (values.rank() == 1 && values.dim(0) != count)) {
      return InvalidArgument("sparse_values has incorrect shape ", values.shape().ToString(),
                             ", should be [] or [", count, "]");
    }
    if (c.input(3).rank() != 0) return InvalidArgument("default_value should be a scalar.");
    ASSIGN_OR_RETURN(const Dims dims, IntegerValues(c.input(1)));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(const Dims flat, IntegerValues(indices));
    ASSIGN_OR_RETURN(const std::vector<int64_t> places, Places(flat, count, shape));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    FillElements(c, output->dtype(), c.input(3).raw(), output->raw(), output->num_elements());
    const auto size = static_cast<int64_t>(DTypeSize(output->dtype()));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = values.rank() == 0 ? 0 : i;
      CopyElements(output->dtype(), values.raw() + from * size, output->raw() + places[i] * size,
                   1);
    }
    return absl::OkStatus();
  }

 private:
  // The flat place of every index tuple in a tensor of this shape.
  absl::StatusOr<std::vector<int64_t>> Places(absl::Span<const int64_t> indices, int64_t count,
                                              const Shape& shape) const {
    const auto depth = static_cast<size_t>(shape.rank());
    std::vector<int64_t> places(count);
    for (int64_t i = 0; i < count; ++i) {
      const absl::Span<const int64_t> tuple =
          indices.subspan(static_cast<size_t>(i) * depth, depth);
      const auto where = [&] {
        return absl::StrCat("indices[", i, "] = [", absl::StrJoin(tuple, ","), "]");
      };
      int64_t place = 0;
      for (size_t axis = 0; axis < depth; ++axis) {
        const int64_t size = shape.dim(static_cast<int>(axis));
        if (tuple[axis] < 0 || tuple[axis] >= size) {
          return InvalidArgument(where(), " is out of bounds: need 0 <= index < [",
                                 absl::StrJoin(shape.dims(), ","), "]");
        }
        place = place * size + tuple[axis];
      }
      places[i] = place;
      if (!validate_ || i == 0 || places[i - 1] < place) continue;
      if (places[i - 1] == place) return InvalidArgument(where(), " is repeated");
      return InvalidArgument(where(),
                             " is out of order. Many sparse ops require sorted indices.\n    Use "
                             "`tf.sparse.reorder` to create a correctly ordered copy.\n\n");
    }
    return places;
  }

  bool validate_ = true;
};

// tf.reduce_sum(x).
Output SumOfAll(GradientContext& c, Output x) {
  if (!x.shape().known_rank()) {
    const Output rank = EmitRank(c.scope(), x);
    return c.Op("Sum", {x, EmitRange(c.scope(), 0, rank)});
  }
  std::vector<int32_t> axes(x.shape().rank());
  std::iota(axes.begin(), axes.end(), 0);
  const Output all = c.scope().ConstVector(axes);
  return c.Op("Sum", {x, all});
}

absl::Status Differentiate(GradientContext& c) {
  const Output dy = c.dy();
  const Output values = c.Op("GatherNd", {dy, c.input(0)});
  const Output all = SumOfAll(c, dy);
  const Output given = SumOfAll(c, values);
  const Output rest = c.Op("Sub", {all, given}, {}, "sub");
  c.SetDx(0, EmitZerosLike(c.scope(), c.input(0)));
  c.SetDx(1, EmitZerosLike(c.scope(), c.input(1)));
  c.SetDx(2, values);
  c.SetDx(3, rest);
  return absl::OkStatus();
}

DEFINE_OP(SparseToDense) {
  op.Attr("validate_indices: bool = true")
      .Attr("T: type")
      .Attr("Tindices: {int32, int64}")
      .Input("sparse_indices: Tindices")
      .Input("output_shape: Tindices")
      .Input("sparse_values: T")
      .Input("default_value: T")
      .Output("dense: T")
      .Doc("A tensor with the given values at the given indices and one value everywhere else.")
      .Shape(InferShape)
      .Gradient(Differentiate)
      .HostMemory({"output_shape"})
      .CpuDTypes("T", AllDTypes(), New<SparseToDenseKernel>());
}

}  // namespace
}  // namespace muster
