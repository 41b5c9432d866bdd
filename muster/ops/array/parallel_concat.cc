// Joining tensors that arrive at different times: every input is one row of the result.
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status DeclaredShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape shape, c.Attr<PartialShape>("shape"));
  if (!shape.fully_known()) return InvalidArgument("shape attr must be fully defined.");
  c.SetOutput(0, shape);
  return absl::OkStatus();
}

absl::Status ParallelConcatShape(ShapeContext& c) {
  RETURN_IF_ERROR(DeclaredShape(c));
  ASSIGN_OR_RETURN(const PartialShape shape, c.Attr<PartialShape>("shape"));
  if (shape.rank() == 0) return InvalidArgument("ParallelConcat needs a shape of rank 1 or more");
  PartialShape row = shape;
  row.Set(0, 1);
  for (int i = 0; i < c.num_inputs(); ++i) {
    // A tensor of another task has no shape until it arrives.
    if (!c.input(i).known_rank()) continue;
    if (!c.input(i).fully_known())
      return InvalidArgument("All input shapes must be fully defined.");
    ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(c.input(i), shape.rank()));
    if (input.dim(0) != 1) return InvalidArgument("Size of first dimension must be 1.");
    if (input != row)
      return InvalidArgument("Expected an input of shape ", row.ToString(), ", but got ",
                             input.ToString());
  }
  return absl::OkStatus();
}

absl::Status CheckRow(const Shape& whole, const Shape& row) {
  bool fits = whole.rank() > 0 && whole.rank() == row.rank() && row.dim(0) == 1;
  for (int i = 1; fits && i < whole.rank(); ++i) fits = whole.dim(i) == row.dim(i);
  if (fits) return absl::OkStatus();
  return InvalidArgument("Expected one row of a tensor of shape ", whole.ToString(),
                         ", but got shape ", row.ToString());
}

class ParallelConcatMove {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(const PartialShape shape, setup.Attr<PartialShape>("shape"));
    if (!shape.fully_known()) return InvalidArgument("shape attr must be fully defined.");
    ASSIGN_OR_RETURN(shape_, Shape::Make(shape.dims()));
    return absl::OkStatus();
  }
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    if (shape_.rank() == 0 || shape_.dim(0) != c.num_inputs()) {
      return InvalidArgument("Expected as many rows as inputs (", c.num_inputs(),
                             "), but got shape ", shape_.ToString());
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape_));
    const int64_t row = shape_.ElementsIn(1, shape_.rank());
    std::vector<BoxCopy> copies;
    for (int i = 0; i < c.num_inputs(); ++i) {
      RETURN_IF_ERROR(CheckRow(shape_, c.input(i).shape()));
      StridedBox box;
      box.Add(row, 1, 1);
      box.to_offset = i * row;
      copies.push_back({std::move(box), c.input(i).raw(), output->raw()});
    }
    return mover.Copy(c, output->dtype(), std::move(copies));
  }

 private:
  Shape shape_;
};

class StartMove {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(const PartialShape shape, setup.Attr<PartialShape>("shape"));
    if (!shape.fully_known()) return InvalidArgument("shape attr must be fully defined.");
    ASSIGN_OR_RETURN(shape_, Shape::Make(shape.dims()));
    return absl::OkStatus();
  }
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape_));
    return mover.Zero(*output);
  }

 private:
  Shape shape_;
};

// Sets row `loc` of a tensor that was made by _ParallelConcatStart. Negative positions count from
// the end and all wrap around, as in TensorFlow.
class UpdateMove {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(loc_, setup.Attr<int64_t>("loc"));
    return absl::OkStatus();
  }
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor update = c.input(1);
    const Shape shape = c.input(0).shape();
    RETURN_IF_ERROR(CheckRow(shape, update.shape()));
    const int64_t rows = shape.dim(0);
    if (rows == 0)
      return InvalidArgument("_ParallelConcatUpdate needs a tensor with rows, but got ",
                             shape.ToString());
    Tensor value = c.TakeInput(0);
    // In place while the tensor has no other owner; updates of several rows then never copy it.
    if (!value.exclusive()) {
      const Tensor shared = value;
      ASSIGN_OR_RETURN(value, c.AllocateTemporary(shared.dtype(), shape));
      RETURN_IF_ERROR(mover.CopyAll(shared, value));
    }
    const int64_t row = shape.ElementsIn(1, shape.rank());
    StridedBox box;
    box.Add(row, 1, 1);
    box.to_offset = ((loc_ % rows) + rows) % rows * row;
    RETURN_IF_ERROR(mover.Copy(c, std::move(box), update, value));
    c.SetOutput(0, std::move(value));
    return absl::OkStatus();
  }

 private:
  int64_t loc_ = 0;
};

DEFINE_OP(ParallelConcat) {
  op.Attr("N: int >= 1")
      .Attr("T: type")
      .Attr("shape: shape")
      .Input("values: N * T")
      .Output("output: T")
      .Doc("Tensors with one row each, joined along dimension 0.")
      .Shape(ParallelConcatShape)
      .CpuDTypes("T", AllDTypes(), MovesOnHost<ParallelConcatMove>())
      .GpuTypes("T", GpuFloatsAnd({}), MovesOnGpu<ParallelConcatMove>);
}

DEFINE_OP(_ParallelConcatStart) {
  op.Attr("shape: shape")
      .Attr("dtype: type")
      .Output("output: dtype")
      .Stateful()
      .Doc("The empty result of a ParallelConcat, whose rows are set one by one.")
      .Shape(DeclaredShape)
      .CpuDTypes("dtype", AllDTypes(), MovesOnHost<StartMove>())
      .GpuTypes("dtype", GpuFloatsAnd({}), MovesOnGpu<StartMove>);
}

DEFINE_OP(_ParallelConcatUpdate) {
  op.Attr("T: type")
      .Attr("loc: int")
      .Input("value: T")
      .Input("update: T")
      .Output("output: T")
      .Doc("`value` with row `loc` replaced.")
      .Shape(UnchangedShape)
      .CpuDTypes("T", AllDTypes(), MovesOnHost<UpdateMove>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuFloatsAnd({}), MovesOnGpu<UpdateMove>);
}

}  // namespace
}  // namespace muster
