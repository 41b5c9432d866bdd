// From positions in a flattened array to coordinates.
#include <limits>

#include "absl/strings/str_join.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status UnravelIndexShape(ShapeContext& c) {
  const PartialShape& indices = c.input(0);
  ASSIGN_OR_RETURN(const PartialShape dims, c.WithRank(c.input(1), 1));
  const int64_t rank = dims.known_rank() ? dims.dim(0) : -1;
  if (!indices.known_rank()) {
    c.SetOutput(0, PartialShape());
  } else if (indices.rank() == 0) {
    c.SetOutput(0, PartialShape::Vector(rank));
  } else {
    c.SetOutput(0, PartialShape::Matrix(rank, indices.rank() == 1 ? indices.dim(0) : -1));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status UnravelIndex(KernelContext& c) {
  const Tensor& indices = c.input(0);
  const Tensor& dims_tensor = c.input(1);
  if (indices.rank() > 1) {
    return InvalidArgument("The indices can only be scalar or vector, got \"",
                           indices.shape().ToString(), "\"");
  }
  if (dims_tensor.rank() != 1) {
    return InvalidArgument("The indices can only be 1-D, got \"", dims_tensor.shape().ToString(),
                           "\"");
  }
  const T* const dims = dims_tensor.data<T>();
  const int64_t rank = dims_tensor.num_elements(), count = indices.num_elements();
  int64_t total = 1;
  for (int64_t i = 0; i < rank; ++i) {
    if (dims[i] == 0)
      return InvalidArgument(
          "Input dims cannot contain a dim of zero, but dims contains zero at index ", i);
    if (dims[i] < 0) return InvalidArgument("Dimension ", i, " must be positive, but is ", dims[i]);
    const std::optional<int64_t> product = MultiplyWithoutOverflow(total, dims[i]);
    if (!product || *product > std::numeric_limits<T>::max()) {
      return InvalidArgument("Input dims product is causing integer overflow: (",
                             absl::StrJoin(dims_tensor.values<T>(), ", "), ")");
    }
    total = *product;
  }
  const Shape shape = indices.rank() == 0 ? Shape({rank}) : Shape({rank, count});
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = indices.data<T>()[k];
    if (rest < 0 || rest >= total) return InvalidArgument("index is out of bound as with dims");
    for (int64_t i = rank - 1; i >= 0; --i) {
      output->data<T>()[i * count + k] = static_cast<T>(rest % dims[i]);
      rest /= dims[i];
    }
  }
  return absl::OkStatus();
}

DEFINE_OP(UnravelIndex) {
  op.Attr("Tidx: {int32, int64} = DT_INT32")
      .Input("indices: Tidx")
      .Input("dims: Tidx")
      .Output("output: Tidx")
      .Doc("Coordinates, one column each, of positions in a flattened array of the given dims.")
      .Shape(UnravelIndexShape)
      .CpuTypes<Indices>("Tidx", []<typename T>() { return Stateless(UnravelIndex<T>); });
}

}  // namespace
}  // namespace muster
