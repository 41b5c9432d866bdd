// Ops that give the same elements another shape or type; the result shares the input's memory.
#include <limits>

#include "absl/strings/str_join.h"

#include "muster/ops/array/gradients.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// --- Reshape -----------------------------------------------------------------------------------

absl::Status ReshapeShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(1));
  const int64_t elements = input.num_elements();
  if (shape.known_rank() && elements >= 0) {
    int unknown = -1, unknowns = 0;
    int64_t known = 1;
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape.dim(i) < 0) {
        unknown = i;
        ++unknowns;
      } else {
        known = c.MultiplyDims(known, shape.dim(i));
      }
    }
    if (unknowns == 0 && known != elements) {
      return InvalidArgument("Cannot reshape a tensor with ", elements, " elements to shape ",
                             shape.ToString(), " (", known, " elements)");
    }
    if (unknowns == 1 && known > 0) {
      if (elements % known != 0) {
        return InvalidArgument("Dimension size must be evenly divisible by ", known, " but is ",
                               elements);
      }
      shape.Set(unknown, elements / known);
    }
  }
  c.SetOutput(0, std::move(shape));
  c.SetOutputHandle(0, c.input_handle(0));
  return absl::OkStatus();
}

// Saturates instead of overflowing.
int64_t NonZeroProduct(const Dims& dims) {
  int64_t product = 1;
  for (int64_t size : dims) {
    if (size != 0)
      product =
          MultiplyWithoutOverflow(product, size).value_or(std::numeric_limits<int64_t>::max());
  }
  return product;
}

absl::Status Reshape(KernelContext& c) {
  const Tensor& sizes = c.input(1);
  if (sizes.rank() > 1)  // a scalar passes for a vector of one
    return InvalidArgument("sizes input must be 1-D, not ", sizes.shape().ToString());
  constexpr int64_t kMaxDims = 254;
  if (sizes.num_elements() >= kMaxDims) {
    return InvalidArgument("too many dimensions: must be < ", kMaxDims, ", but received ",
                           sizes.num_elements());
  }
  ASSIGN_OR_RETURN(Dims dims, IntegerValues(sizes));
  const int64_t elements = c.input(0).num_elements();
  int unknown = -1;
  Dims known;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (dims[i] == -1) {
      if (unknown >= 0)
        return InvalidArgument("Only one input size may be -1, not both ", unknown, " and ", i);
      unknown = i;
    } else if (dims[i] < 0) {
      return InvalidArgument("Size ", i, " must be non-negative, not ", dims[i]);
    } else {
      known.push_back(dims[i]);
    }
  }
  const absl::StatusOr<muster::Shape> known_shape = muster::Shape::Make(known);
  if (!known_shape.ok()) {
    return InvalidArgument("Shape [", absl::StrJoin(dims, ", "), "] has too many elements");
  }
  const int64_t product = known_shape->num_elements();
  if (unknown >= 0) {
    if (product == 0 && elements == 0) {
      // The size is ambiguous; the quotient over the non-zero dims keeps [0,3] -> [0,-1] unchanged.
      dims[unknown] = NonZeroProduct(c.input(0).shape().dims()) / NonZeroProduct(known);
    } else if (product == 0) {
      return InvalidArgument("Input to reshape is a tensor with ", elements,
                             " values, but the requested shape has 0");
    } else if (elements % product != 0) {
      return InvalidArgument("Input to reshape is a tensor with ", elements,
                             " values, but the requested shape requires a multiple of ", product);
    } else {
      dims[unknown] = elements / product;
    }
  } else if (product != elements) {
    return InvalidArgument("Input to reshape is a tensor with ", elements,
                           " values, but the requested shape has ", product);
  }
  ASSIGN_OR_RETURN(muster::Shape shape, muster::Shape::Make(dims));
  c.SetOutput(0, c.TakeInput(0).Reshaped(std::move(shape)));
  return absl::OkStatus();
}

// --- ExpandDims and Squeeze --------------------------------------------------------------------

absl::Status ExpandDimsShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  const std::optional<Tensor> dim = c.ConstantInput(1);
  if (!dim) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(*dim));
  if (values.size() != 1)
    return InvalidArgument("'dim' input must be a tensor with a single value");
  const int64_t at = values[0];
  if (!input.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  if (at < -1 - input.rank() || at > input.rank()) {
    return InvalidArgument("dim ", at, " not in the interval [", -1 - input.rank(), ", ",
                           input.rank(), "].");
  }
  Dims dims = input.dims();
  dims.insert(dims.begin() + (at < 0 ? at + input.rank() + 1 : at), 1);
  c.SetOutput(0, PartialShape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status ExpandDims(KernelContext& c) {
  const Tensor& dim = c.input(1);
  if (dim.num_elements() != 1) return InvalidArgument("'dim' must be a tensor with a single value");
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(dim));
  const int64_t at = values[0];
  muster::Shape shape = c.input(0).shape();
  if (at < -1 - shape.rank() || at > shape.rank()) {
    return InvalidArgument("Tried to expand dim index ", at, " for tensor with ", shape.rank(),
                           " dimensions.");
  }
  if (shape.rank() >= muster::Shape::kMaxRank) {
    return InvalidArgument("Cannot expand a tensor with ", shape.rank(), " dimensions");
  }
  shape.Insert(static_cast<int>(at < 0 ? at + shape.rank() + 1 : at), 1);
  c.SetOutput(0, c.TakeInput(0).Reshaped(std::move(shape)));
  return absl::OkStatus();
}

// Which dims of a tensor of this rank the attribute names. Empty: every dim of size 1.
absl::StatusOr<std::vector<bool>> SqueezedDims(absl::Span<const int32_t> squeeze_dims, int rank) {
  std::vector<bool> squeezed(rank, false);
  for (int32_t dim : squeeze_dims) {
    if (dim < -rank || dim >= rank) {
      return InvalidArgument("Tried to squeeze dim index ", dim, " for tensor with ", rank,
                             " dimensions.");
    }
    squeezed[dim < 0 ? dim + rank : dim] = true;
  }
  return squeezed;
}

absl::StatusOr<Dims> SqueezeDims(const Dims& dims, absl::Span<const int32_t> squeeze_dims) {
  ASSIGN_OR_RETURN(const std::vector<bool> named,
                   SqueezedDims(squeeze_dims, static_cast<int>(dims.size())));
  Dims result;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool removed = squeeze_dims.empty() ? dims[i] == 1 : named[i];
    if (!removed) {
      result.push_back(dims[i]);
    } else if (dims[i] >= 0 && dims[i] != 1) {
      return InvalidArgument("Can not squeeze dim[", i, "], expected a dimension of 1, got ",
                             dims[i]);
    }
  }
  return result;
}

absl::Status SqueezeShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  if (!input.known_rank()) return UnknownShape(c);
  ASSIGN_OR_RETURN(const std::vector<int32_t> squeeze_dims,
                   c.Attr<std::vector<int32_t>>("squeeze_dims"));
  // Without a list, an unknown dim may or may not go away.
  if (squeeze_dims.empty() && !input.fully_known()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  for (size_t i = 0; i < squeeze_dims.size(); ++i) {
    if (squeeze_dims[i] < -input.rank() || squeeze_dims[i] >= input.rank()) {
      return InvalidArgument("squeeze_dims[", i, "] not in [", -input.rank(), ",", input.rank(),
                             ").");
    }
  }
  ASSIGN_OR_RETURN(Dims dims, SqueezeDims(input.dims(), squeeze_dims));
  c.SetOutput(0, PartialShape(std::move(dims)));
  return absl::OkStatus();
}

class SqueezeKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(squeeze_dims_, setup.Attr<std::vector<int32_t>>("squeeze_dims"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Dims dims, SqueezeDims(c.input(0).shape().dims(), squeeze_dims_));
    ASSIGN_OR_RETURN(Shape shape, Shape::Make(dims));
    c.SetOutput(0, c.TakeInput(0).Reshaped(std::move(shape)));
    return absl::OkStatus();
  }

 private:
  std::vector<int32_t> squeeze_dims_;
};

// --- Bitcast -----------------------------------------------------------------------------------

absl::StatusOr<PartialShape> BitcastDims(const PartialShape& input, DType from, DType to) {
  if (!input.known_rank()) return PartialShape();
  const int64_t from_size = static_cast<int64_t>(DTypeSize(from)),
                to_size = static_cast<int64_t>(DTypeSize(to));
  if (from_size == 0 || to_size == 0) {
    return InvalidArgument("Cannot bitcast from ", DTypeName(from), " to ", DTypeName(to));
  }
  Dims dims = input.dims();
  if (from_size > to_size) {
    dims.push_back(from_size / to_size);
  } else if (from_size < to_size) {
    const int64_t ratio = to_size / from_size;
    if (dims.empty() || (dims.back() >= 0 && dims.back() != ratio)) {
      return InvalidArgument("Cannot bitcast from ", DTypeName(from), " to ", DTypeName(to),
                             ": the last dimension must be ", ratio, ", but the shape is ",
                             input.ToString());
    }
    dims.pop_back();
  }
  return PartialShape(std::move(dims));
}

absl::Status BitcastShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, BitcastDims(c.input(0), c.input_type(0), c.output_type(0)));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status Bitcast(KernelContext& c) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(const PartialShape dims,
                   BitcastDims(PartialShape(input.shape()), input.dtype(), c.output_type(0)));
  ASSIGN_OR_RETURN(Shape shape, Shape::Make(dims.dims()));
  c.SetOutput(0, c.TakeInput(0).Bitcast(c.output_type(0), std::move(shape)));
  return absl::OkStatus();
}

constexpr char kBitcastTypes[] =
    "{bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, "
    "complex64, complex128, "
    "qint8, quint8, qint16, quint16, qint32}";

DEFINE_OP(Reshape) {
  op.Attr("T: type")
      .Attr("Tshape: {int32, int64} = DT_INT32")
      .Input("tensor: T")
      .Input("shape: Tshape")
      .Output("output: T")
      .Doc("The same elements in row-major order under another shape; one size may be -1.")
      .Shape(ReshapeShape)
      .Gradient(ReshapeToInput)
      .HostMemory({"shape"})
      .Cpu(Reshape)
      .GpuForwards(Reshape, "T", {"tensor", "output"});
}

DEFINE_OP(ExpandDims) {
  op.Attr("T: type")
      .Attr("Tdim: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("dim: Tdim")
      .Output("output: T")
      .Doc("The same elements with a dimension of size 1 put in.")
      .Shape(ExpandDimsShape)
      .Gradient(ReshapeToInput)
      .HostMemory({"dim"})
      .Cpu(ExpandDims)
      .GpuForwards(ExpandDims, "T", {"input", "output"});
}

DEFINE_OP(Squeeze) {
  op.Attr("T: type")
      .Attr("squeeze_dims: list(int) >= 0 = []")
      .Input("input: T")
      .Output("output: T")
      .Doc("The same elements without dimensions of size 1.")
      .Shape(SqueezeShape)
      .Gradient(ReshapeToInput)
      .Cpu(New<SqueezeKernel>())
      .GpuForwards(New<SqueezeKernel>(), "T", {"input", "output"});
}

DEFINE_OP(Bitcast) {
  op.Attr(absl::StrCat("T: ", kBitcastTypes))
      .Attr(absl::StrCat("type: ", kBitcastTypes))
      .Input("input: T")
      .Output("output: type")
      .Doc("The same bytes read as another type.")
      .Shape(BitcastShape)
      .Cpu(Bitcast)
      .Gpu(Bitcast);
}

}  // namespace
}  // namespace muster
