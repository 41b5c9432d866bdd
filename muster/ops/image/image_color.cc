// Colours of images: contrast, hue, saturation and the change between RGB and HSV.
#include <cmath>

#include "muster/ops/nn/channel_sums.h"
#include "muster/ops/nn/packs.h"

namespace muster {
namespace {

template <typename V>
struct Pixel {
  V a, b, c;
};

template <typename V>
Pixel<V> ToHsv(Pixel<V> rgb) {
  const V value = std::max({rgb.a, rgb.b, rgb.c});
  const V range = value - std::min({rgb.a, rgb.b, rgb.c});
  const V saturation = value > V(0) ? range / value : V(0);
  if (!(range > V(0))) return {V(0), saturation, value};
  const V norm = V(1) / (V(6) * range);
  V hue = rgb.a == value   ? norm * (rgb.b - rgb.c)
          : rgb.b == value ? norm * (rgb.c - rgb.a) + V(2) / V(6)
                           : norm * (rgb.a - rgb.b) + V(4) / V(6);
  if (hue < V(0)) hue += V(1);
  return {hue, saturation, value};
}

template <typename V>
Pixel<V> ToRgb(Pixel<V> hsv) {
  const V h = hsv.a * V(6);
  const auto clip = [](V x) { return std::min(std::max(x, V(0)), V(1)); };
  const V red = clip(std::abs(h - V(3)) - V(1));
  const V green = clip(V(2) - std::abs(h - V(2)));
  const V blue = clip(V(2) - std::abs(h - V(4)));
  const V rest = V(1) - hsv.b;
  return {(rest + hsv.b * red) * hsv.c, (rest + hsv.b * green) * hsv.c,
          (rest + hsv.b * blue) * hsv.c};
}

template <typename T, typename F>
absl::Status MapPixels(KernelContext& c, F map) {
  using V = Compute<T>;
  const Shape shape = c.input(0).shape();
  const T* const in = c.input(0).data<T>();
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({0}, 0, shape));
  T* const out = output->data<T>();
  c.ParallelFor(shape.num_elements() / 3, 15, [=](int64_t begin, int64_t end) {
    for (int64_t i = 3 * begin; i < 3 * end; i += 3) {
      const Pixel<V> p = map(
          Pixel<V>{static_cast<V>(in[i]), static_cast<V>(in[i + 1]), static_cast<V>(in[i + 2])});
      out[i] = static_cast<T>(p.a);
      out[i + 1] = static_cast<T>(p.b);
      out[i + 2] = static_cast<T>(p.c);
    }
  });
  return absl::OkStatus();
}

absl::Status CheckColours(const Tensor& images) {
  if (images.rank() < 1)
    return InvalidArgument("input must be at least 1D", images.shape().ToString());
  if (images.dim(images.rank() - 1) != 3)
    return InvalidArgument("input must have 3 channels, but got shape ", images.shape().ToString());
  return absl::OkStatus();
}

template <typename T>
absl::Status RgbToHsv(KernelContext& c) {
  RETURN_IF_ERROR(CheckColours(c.input(0)));
  return MapPixels<T>(c, ToHsv<Compute<T>>);
}
template <typename T>
absl::Status HsvToRgb(KernelContext& c) {
  RETURN_IF_ERROR(CheckColours(c.input(0)));
  return MapPixels<T>(c, ToRgb<Compute<T>>);
}

absl::Status CheckAdjustment(const KernelContext& c, absl::string_view what) {
  const Tensor& images = c.input(0);
  const Tensor& amount = c.input(1);
  if (images.rank() < 3)
    return InvalidArgument("input must be at least 3-D, got shape", images.shape().ToString());
  if (amount.rank() != 0)
    return InvalidArgument(what, " must be scalar: ", amount.shape().ToString());
  return absl::OkStatus();
}
// The scalar argument of an adjustment, `what`, after the images were checked.
absl::StatusOr<float> Adjustment(const KernelContext& c, absl::string_view what) {
  RETURN_IF_ERROR(CheckAdjustment(c, what));
  return c.input(1).scalar<float>();
}
absl::Status CheckThreeChannels(const Tensor& images) {
  const int64_t channels = images.dim(images.rank() - 1);
  if (channels == 3) return absl::OkStatus();
  return InvalidArgument("input must have 3 channels but instead has ", channels, " channels.");
}

template <typename T>
absl::Status AdjustHue(KernelContext& c) {
  ASSIGN_OR_RETURN(const float delta, Adjustment(c, "delta"));
  RETURN_IF_ERROR(CheckThreeChannels(c.input(0)));
  return MapPixels<T>(c, [delta](Pixel<float> rgb) {
    const float largest = std::max({rgb.a, rgb.b, rgb.c});
    const float smallest = std::min({rgb.a, rgb.b, rgb.c});
    if (largest == smallest) return rgb;
    Pixel<float> hsv = ToHsv(rgb);
    hsv.a += delta;
    hsv.a -= std::floor(hsv.a);
    // Back from hue and range, so that values outside [0, 1] survive.
    const Pixel<float> pure = ToRgb(Pixel<float>{hsv.a, 1, 1});
    const float range = largest - smallest;
    return Pixel<float>{smallest + range * pure.a, smallest + range * pure.b,
                        smallest + range * pure.c};
  });
}

template <typename T>
absl::Status AdjustSaturation(KernelContext& c) {
  ASSIGN_OR_RETURN(const float scale, Adjustment(c, "scale"));
  RETURN_IF_ERROR(CheckThreeChannels(c.input(0)));
  return MapPixels<T>(c, [scale](Pixel<float> rgb) {
    Pixel<float> hsv = ToHsv(rgb);
    hsv.b = std::min(1.0f, std::max(0.0f, hsv.b * scale));
    return ToRgb(hsv);
  });
}

template <typename T>
absl::Status AdjustContrast(KernelContext& c) {
  ASSIGN_OR_RETURN(const float factor, Adjustment(c, "contrast_factor"));
  const Shape shape = c.input(0).shape();
  const T* const in = c.input(0).data<T>();
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({0}, 0, shape));
  if (shape.num_elements() == 0) return absl::OkStatus();
  const int rank = shape.rank();
  const int64_t channels = shape.dim(rank - 1);
  const int64_t cells = shape.dim(rank - 3) * shape.dim(rank - 2);
  const int64_t image = cells * channels;
  for (int64_t start = 0; start < shape.num_elements(); start += image) {
    const T* const from = in + start;
    T* const to = output->data<T>() + start;
    const ChannelView view{cells, channels, 1};
    const std::vector<double> sums =
        SumPerChannel(c, view, [from](int64_t i, int64_t) { return static_cast<float>(from[i]); });
    std::vector<float> means(static_cast<size_t>(channels));
    for (int64_t i = 0; i < channels; ++i)
      means[i] = static_cast<float>(sums[i] / static_cast<double>(cells));
    const float* const mean = means.data();
    ForEachElement(c, view, [=](int64_t i, int64_t channel) {
      to[i] =
          static_cast<T>((static_cast<float>(from[i]) - mean[channel]) * factor + mean[channel]);
    });
  }
  return absl::OkStatus();
}

constexpr char kColourFile[] = "image/image_color.cu";

// Maps pixels by a struct of that file; with an amount where `amount` names it.
class GpuColours : public GpuKernel {
 public:
  GpuColours(const char* function, const char* amount, DType dtype)
      : run_(*this, kColourFile,
             absl::StrCat("MapColours<", function, ", ", GpuTypeName(dtype), ">")),
        amount_(amount) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (amount_ == nullptr) {
      RETURN_IF_ERROR(CheckColours(x));
    } else {
      RETURN_IF_ERROR(CheckAdjustment(c, amount_));
      RETURN_IF_ERROR(CheckThreeChannels(x));
    }
    const void* const amount = amount_ == nullptr ? nullptr : GpuIn(c.input(1));
    ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, x.shape()));
    const int64_t pixels = x.num_elements() / 3;
    return run_.LaunchForEach(pixels, GpuIn(x), amount, GpuOut(*y), pixels);
  }

 private:
  GpuFunction run_;
  const char* const amount_;
};
std::function<KernelFactory(DType)> MakeGpuColours(const char* function,
                                                   const char* amount = nullptr) {
  return [=](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuColours>(function, amount, dtype); };
  };
}

class GpuAdjustContrast : public GpuKernel {
 public:
  explicit GpuAdjustContrast(DType dtype)
      : run_(*this, kColourFile, absl::StrCat("AdjustContrast<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    RETURN_IF_ERROR(CheckAdjustment(c, "contrast_factor"));
    ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, x.shape()));
    if (x.num_elements() == 0) return absl::OkStatus();
    const int rank = x.rank();
    const int64_t channels = x.dim(rank - 1);
    const int64_t cells = x.dim(rank - 3) * x.dim(rank - 2);
    GpuGrid grid;
    grid.blocks_x = static_cast<unsigned>(x.num_elements() / cells);
    grid.threads_x = 512;
    return run_.Launch(grid, GpuIn(x), GpuIn(c.input(1)), GpuOut(*y), cells, channels);
  }

 private:
  GpuFunction run_;
};

absl::Status InferColours(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), 1));
  if (shape.known_rank()) {
    const int64_t channels = shape.dim(shape.rank() - 1);
    if (channels >= 0 && channels != 3)
      return InvalidArgument("Dimension must be 3 but is ", channels);
    shape.Set(shape.rank() - 1, 3);
  }
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferAdjusted(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), 3));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferContrast(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), 3));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(RGBToHSV) {
  op.Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
      .Input("images: T")
      .Output("output: T")
      .Doc("Red, green and blue in [0, 1] as hue, saturation and value.")
      .Shape(InferColours)
      .NoGradient("TensorFlow 1.15 does not differentiate changes of colour space")
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(RgbToHsv<T>); })
      .GpuTypes("T", {DType::kFloat, DType::kDouble}, MakeGpuColours("RgbToHsv"));
}

DEFINE_OP(HSVToRGB) {
  op.Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
      .Input("images: T")
      .Output("output: T")
      .Doc("Hue, saturation and value as red, green and blue.")
      .Shape(InferColours)
      .NoGradient("TensorFlow 1.15 does not differentiate changes of colour space")
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(HsvToRgb<T>); })
      .GpuTypes("T", {DType::kFloat, DType::kDouble}, MakeGpuColours("HsvToRgb"));
}

DEFINE_OP(AdjustContrastv2) {
  op.Attr("T: {half, float} = DT_FLOAT")
      .Input("images: T")
      .Input("contrast_factor: float")
      .Output("output: T")
      .Doc("Distances from the mean of each channel of each image, times a factor.")
      .Shape(InferContrast)
      .CpuTypes<Types<Half, float>>("T", []<typename T>() { return Stateless(AdjustContrast<T>); })
      .GpuTypes("T", {DType::kHalf, DType::kFloat}, MakeGpu<GpuAdjustContrast>);
}

DEFINE_OP(AdjustHue) {
  op.Attr("T: {half, float} = DT_FLOAT")
      .Input("images: T")
      .Input("delta: float")
      .Output("output: T")
      .Doc("Turns the hue of RGB images by delta (1 is a full turn).")
      .Shape(InferAdjusted)
      .CpuTypes<Types<Half, float>>("T", []<typename T>() { return Stateless(AdjustHue<T>); })
      .GpuTypes("T", {DType::kHalf, DType::kFloat}, MakeGpuColours("AdjustHue", "delta"));
}

DEFINE_OP(AdjustSaturation) {
  op.Attr("T: {half, float} = DT_FLOAT")
      .Input("images: T")
      .Input("scale: float")
      .Output("output: T")
      .Doc("Multiplies the saturation of RGB images, up to 1.")
      .Shape(InferAdjusted)
      .CpuTypes<Types<Half, float>>("T",
                                    []<typename T>() { return Stateless(AdjustSaturation<T>); })
      .GpuTypes("T", {DType::kHalf, DType::kFloat}, MakeGpuColours("AdjustSaturation", "scale"));
}

}  // namespace muster
