// AudioSummary and AudioSummaryV2: clips as WAV files of 16 bits.
#include <algorithm>
#include <cmath>

#include "muster/ops/op.h"
#include "muster/ops/summary/summary_proto.h"

namespace muster {
namespace {

constexpr int64_t kBytesPerSample = 2;
constexpr int64_t kHeaderBytes = 44;

void AppendLittle(uint64_t value, int bytes, std::string& to) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i)));
}

int16_t Sample(float value) {
  if (std::isnan(value)) return 0;
  return static_cast<int16_t>(std::clamp(std::round(value * 32768.0f), -32768.0f, 32767.0f));
}

absl::StatusOr<std::string> EncodeWav(const float* samples, int64_t sample_rate, int64_t channels,
                                      int64_t frames) {
  constexpr int64_t kMost = int64_t{1} << 32;
  if (sample_rate <= 0 || sample_rate >= kMost) {
    return InvalidArgument("sample_rate must be in (0, 2^32), got: ", sample_rate);
  }
  if (channels <= 0 || channels >= 1 << 16) {
    return InvalidArgument("num_channels must be in (0, 2^16), got: ", channels);
  }
  const int64_t frame_bytes = kBytesPerSample * channels;
  if (frames > (kMost - 1 - kHeaderBytes) / frame_bytes) {
    return InvalidArgument("Provided channels and frames cannot be encoded as a WAV file: ",
                           channels, " channels of ", frames, " frames");
  }
  const int64_t data_bytes = frames * frame_bytes;
  std::string wav;
  wav.reserve(static_cast<size_t>(kHeaderBytes + data_bytes));
  wav.append("RIFF");
  AppendLittle(kHeaderBytes + data_bytes - 8, 4, wav);
  wav.append("WAVEfmt ");
  AppendLittle(16, 4, wav);
  AppendLittle(1, 2, wav);
  AppendLittle(channels, 2, wav);
  AppendLittle(sample_rate, 4, wav);
  AppendLittle(static_cast<uint64_t>(sample_rate) * static_cast<uint64_t>(frame_bytes), 4, wav);
  AppendLittle(frame_bytes, 2, wav);
  AppendLittle(8 * kBytesPerSample, 2, wav);
  wav.append("data");
  AppendLittle(data_bytes, 4, wav);
  for (int64_t i = 0; i < channels * frames; ++i) {
    AppendLittle(static_cast<uint16_t>(Sample(samples[i])), 2, wav);
  }
  return wav;
}

class AudioSummary : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(max_outputs_, s.Attr<int64_t>("max_outputs"));
    if (s.node().num_inputs() == 2) {
      ASSIGN_OR_RETURN(const float rate, s.Attr<float>("sample_rate"));
      if (!(rate > 0)) return InvalidArgument("sample_rate must be > 0");
      sample_rate_ = rate;
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& tag = c.input(0);
    const Tensor& clips = c.input(1);
    if (tag.rank() != 0) return InvalidArgument("Tag must be a scalar");
    if (clips.rank() != 2 && clips.rank() != 3) {
      return InvalidArgument("Tensor must be 3-D or 2-D, got: ", clips.shape().ToString());
    }
    float rate = sample_rate_;
    if (c.num_inputs() == 3) {
      if (c.input(2).num_elements() != 1) return InvalidArgument("sample_rate must be a scalar");
      rate = c.input(2).scalar<float>();
    }
    if (!(rate > 0)) return InvalidArgument("sample_rate must be > 0");
    // Rates that the file format cannot hold are refused below; the conversion must not overflow
    // here.
    const int64_t whole_rate = std::max<int64_t>(1, std::llrint(std::min(rate, 9.0e18f)));
    const int64_t frames = clips.dim(1);
    const int64_t channels = clips.rank() == 2 ? 1 : clips.dim(2);
    SummaryBuilder summary;
    for (int64_t i = 0; i < std::min(max_outputs_, clips.dim(0)); ++i) {
      ASSIGN_OR_RETURN(std::string wav, EncodeWav(clips.data<float>() + i * frames * channels,
                                                  whole_rate, channels, frames));
      const std::string& name = tag.scalar<std::string>();
      summary.AddAudio(
          max_outputs_ > 1 ? absl::StrCat(name, "/audio/", i) : absl::StrCat(name, "/audio"), rate,
          channels, frames, std::move(wav));
    }
    ASSIGN_OR_RETURN(std::string bytes, summary.Serialize());
    c.SetOutput(0, Tensor::Scalar(std::move(bytes)));
    return absl::OkStatus();
  }

 private:
  int64_t max_outputs_ = 3;
  float sample_rate_ = 0;
};

}  // namespace

DEFINE_OP(AudioSummary) {
  op.Attr("sample_rate: float")
      .Attr("max_outputs: int >= 1 = 3")
      .Input("tag: string")
      .Input("tensor: float")
      .Output("summary: string")
      .Deprecated(15, "Use AudioSummaryV2.")
      .Doc("A Summary with the first clips of a batch of sounds between -1 and 1.")
      .Shape(ScalarShape)
      .NoGradient("a summary is text")
      .Cpu(New<AudioSummary>());
}

DEFINE_OP(AudioSummaryV2) {
  op.Attr("max_outputs: int >= 1 = 3")
      .Input("tag: string")
      .Input("tensor: float")
      .Input("sample_rate: float")
      .Output("summary: string")
      .Doc("A Summary with the first clips of a batch of sounds between -1 and 1.")
      .Shape(ScalarShape)
      .NoGradient("a summary is text")
      .Cpu(New<AudioSummary>());
}

}  // namespace muster
