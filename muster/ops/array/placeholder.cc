// Places where values are fed into a graph.
#include "muster/ops/op.h"

namespace muster {
namespace {

// Graphs older than this wrote a scalar shape where they meant an unknown one.
constexpr int kFirstVersionWithScalarShapes = 24;

absl::StatusOr<PartialShape> DeclaredShape(ShapeContext& c) {
  return c.Attr<PartialShape>("shape");
}

absl::Status PlaceholderShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, DeclaredShape(c));
  const bool old_graph = c.node().graph().versions().producer < kFirstVersionWithScalarShapes;
  if (old_graph && shape.known_rank() && shape.rank() == 0) shape = PartialShape();
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status PlaceholderV2Shape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, DeclaredShape(c));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// The declared shape stands even where the default is known better: what is fed may differ from the
// default.
absl::Status DefaultShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, DeclaredShape(c));
  RETURN_IF_ERROR(c.Merge(c.input(0), shape).status());
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

class UnfedPlaceholder : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(shape_, setup.Attr<PartialShape>("shape"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    std::string text = absl::StrCat("You must feed a value for placeholder tensor '",
                                    c.node().name(), "' with dtype ", DTypeName(c.output_type(0)));
    if (shape_.known_rank() && shape_.rank() > 0)
      absl::StrAppend(&text, " and shape ", shape_.ToString());
    return absl::InvalidArgumentError(text);
  }

 private:
  PartialShape shape_;
};

absl::Status Forward(KernelContext& c) {
  c.SetOutput(0, c.TakeInput(0));
  return absl::OkStatus();
}

absl::Status PassGradient(GradientContext& c) {
  c.SetDx(0, c.gradient(0));
  return absl::OkStatus();
}

DEFINE_OP(Placeholder) {
  op.Attr("dtype: type")
      .Attr("shape: shape = { unknown_rank: true }")
      .Output("output: dtype")
      .Doc("A tensor that must be fed.")
      .Shape(PlaceholderShape)
      .Cpu(New<UnfedPlaceholder>())
      .Gpu(New<UnfedPlaceholder>());
}

DEFINE_OP(PlaceholderV2) {
  op.Attr("dtype: type")
      .Attr("shape: shape")
      .Output("output: dtype")
      .Deprecated(23, "Placeholder now behaves the same as PlaceholderV2.")
      .Doc("A tensor that must be fed.")
      .Shape(PlaceholderV2Shape)
      .Cpu(New<UnfedPlaceholder>())
      .Gpu(New<UnfedPlaceholder>());
}

DEFINE_OP(PlaceholderWithDefault) {
  op.Attr("dtype: type")
      .Attr("shape: shape")
      .Input("input: dtype")
      .Output("output: dtype")
      .Doc("Its input, unless another value is fed.")
      .Shape(DefaultShape)
      .Gradient(PassGradient)
      .Cpu(Forward)
      .GpuForwards(Forward, "dtype", {"input", "output"}, {DType::kInt32, DType::kBool});
}

}  // namespace
}  // namespace muster
