// Second derivatives of batch normalisation: the first ones expanded into smaller ops, and those
// differentiated.
#include "muster/graph/gradients/gradients.h"
#include "muster/ops/emit.h"
#include "muster/ops/nn/batch_norm.h"

namespace muster {
namespace {

class Builder {
 public:
  Builder(Scope scope, absl::string_view data_format, bool is_training)
      : scope_(std::move(scope)),
        is_training_(is_training),
        channels_last_(data_format == "NHWC" || data_format == "NDHWC"),
        rank_(data_format.size() == 5 ? 5 : 4) {}

  Output Op(absl::string_view op, std::vector<NodeInput> inputs,
            absl::string_view name = "") const {
    return scope_.Op(op, std::move(inputs), {}, name);
  }
  Output Sub(Output a, Output b) const { return Op("Sub", {a, b}, "sub"); }
  Output Mul(Output a, Output b) const { return Op("Mul", {a, b}, "mul"); }

  // Over all axes but that of the channels.
  Output Reduce(absl::string_view op, Output x, bool keep) const {
    std::vector<int32_t> axes;
    for (int i = 0; i < rank_; ++i) {
      if (i != (channels_last_ ? rank_ - 1 : 1)) axes.push_back(i);
    }
    const NamedOp reduction(scope_, op);
    const Output indices = reduction.inner().ConstVector(axes, "reduction_indices");
    return reduction.Op(op, {x, indices}, {{"keep_dims", keep}});
  }

  // A value per channel such that it broadcasts over the image.
  Output PerChannel(Output x) const {
    if (channels_last_) return x;
    const NamedOp reshape(scope_, "Reshape");
    std::vector<Output> sizes(rank_, scope_.ConstScalar<int32_t>(1));
    sizes[1] = EmitSize(scope_, x);
    const Output shape = reshape.inner().Op("Pack", {sizes}, {{"axis", 0}}, "shape");
    return reshape.Op("Reshape", {x, shape});
  }

  struct Derivatives {
    Output x;
    Output scale;
    Output offset;
  };

  Derivatives Training(Output dy, Output x, Output scale, float epsilon) const {
    const bool keep = !channels_last_;
    scale = PerChannel(scale);
    const Output mean_dy = Reduce("Mean", dy, keep);
    const Output mean_x = Reduce("Mean", x, keep);
    const Output fixed_mean = Op("StopGradient", {mean_x});
    const Output variance = Reduce("Mean", Op("SquaredDifference", {x, fixed_mean}), keep);
    const Output dy_offset = Sub(dy, mean_dy);
    const Output x_offset = Sub(x, mean_x);
    const Output mean = Reduce("Mean", Mul(dy, x_offset), keep);
    const auto shifted = [&] { return EmitBinary(scope_, "AddV2", "add", variance, epsilon); };
    const Output factor = Mul(scale, Op("Rsqrt", {shifted()}));
    const Output slope = Mul(Mul(Op("Reciprocal", {shifted()}), mean), x_offset);
    const Output dx = Mul(factor, Sub(dy_offset, slope));
    const Output sum = Reduce("Sum", Mul(dy, x_offset), keep);
    Output dscale = Mul(Op("Rsqrt", {shifted()}), sum);
    if (keep) dscale = Op("Squeeze", {dscale});
    return {dx, dscale, Reduce("Sum", dy, false)};
  }

  Derivatives Frozen(Output dy, Output x, Output scale, Output mean, Output variance,
                     float epsilon) const {
    mean = PerChannel(mean);
    variance = PerChannel(variance);
    scale = PerChannel(scale);
    const Output doffset = Reduce("Sum", dy, false);
    const Output deviation = Op("Rsqrt", {EmitBinary(scope_, "AddV2", "add", variance, epsilon)});
    const Output dscale = Reduce("Sum", Mul(Mul(dy, Sub(x, mean)), deviation), false);
    return {Mul(Mul(dy, scale), deviation), dscale, doffset};
  }

  bool is_training() const { return is_training_; }

 private:
  Scope scope_;
  bool is_training_;
  bool channels_last_;
  int rank_;
};

}  // namespace

absl::Status DifferentiateBatchNormGrad(GradientContext& c) {
  const std::string data_format = c.Attr<std::string>("data_format");
  const auto epsilon = c.Attr<float>("epsilon");
  const Builder build(c.scope(), data_format, c.Attr<bool>("is_training"));
  const DType dtype = c.input(1).base_dtype();
  // Short floats are too coarse for the sums.
  const Output dy = EmitCast(c.scope(), c.input(0), DType::kFloat);
  const Output x = EmitCast(c.scope(), c.input(1), DType::kFloat);
  Builder::Derivatives first =
      build.is_training() ? build.Training(dy, x, c.input(2), epsilon)
                          : build.Frozen(dy, x, c.input(2), c.input(3), c.input(4), epsilon);
  first.x = EmitCast(c.scope(), first.x, dtype);
  if (!c.scope().status().ok()) return c.scope().status();
  GradientOptions options;
  options.grad_ys = {c.gradient(0), c.gradient(1), c.gradient(2)};
  const std::vector<Output> ys = {first.x, first.scale, first.offset};
  const std::vector<Output> xs = {c.input(0), c.input(1), c.input(2)};
  ASSIGN_OR_RETURN(std::vector<Gradient> second, Gradients(c.scope(), ys, xs, std::move(options)));
  for (int i = 0; i < 3; ++i) c.SetDx(i, std::move(second[i]));
  return absl::OkStatus();
}

}  // namespace muster
