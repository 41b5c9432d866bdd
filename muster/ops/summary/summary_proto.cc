#include "muster/ops/summary/summary_proto.h"

#include "tensorflow/core/framework/summary.pb.h"

#include "muster/tensor/message_proto.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

absl::Status SetTensor(const Tensor& tensor, tensorflow::Summary::Value& value) {
  const TensorEncoding encoding =
      tensor.dtype() == DType::kString ? TensorEncoding::kTyped : TensorEncoding::kContent;
  return TensorToProto(tensor, encoding, *value.mutable_tensor());
}

}  // namespace

SummaryBuilder::SummaryBuilder() : summary_(std::make_unique<tensorflow::Summary>()) {}
SummaryBuilder::~SummaryBuilder() = default;

void SummaryBuilder::AddScalar(absl::string_view tag, float value) {
  tensorflow::Summary::Value* made = summary_->add_value();
  made->set_tag(std::string(tag));
  made->set_simple_value(value);
}

void SummaryBuilder::AddHistogram(absl::string_view tag, const Histogram& histogram) {
  tensorflow::Summary::Value* made = summary_->add_value();
  made->set_tag(std::string(tag));
  auto* proto = made->mutable_histo();
  proto->set_min(histogram.min());
  proto->set_max(histogram.max());
  proto->set_num(histogram.count());
  proto->set_sum(histogram.sum());
  proto->set_sum_squares(histogram.sum_of_squares());
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    proto->add_bucket_limit(bucket.limit);
    proto->add_bucket(bucket.count);
  }
}

void SummaryBuilder::AddImage(absl::string_view tag, int height, int width, int channels,
                              std::string png) {
  tensorflow::Summary::Value* made = summary_->add_value();
  made->set_tag(std::string(tag));
  tensorflow::Summary::Image* image = made->mutable_image();
  image->set_height(height);
  image->set_width(width);
  image->set_colorspace(channels);
  image->set_encoded_image_string(std::move(png));
}

void SummaryBuilder::AddAudio(absl::string_view tag, float sample_rate, int64_t channels,
                              int64_t frames, std::string wav) {
  tensorflow::Summary::Value* made = summary_->add_value();
  made->set_tag(std::string(tag));
  tensorflow::Summary::Audio* audio = made->mutable_audio();
  audio->set_sample_rate(sample_rate);
  audio->set_num_channels(channels);
  audio->set_length_frames(frames);
  audio->set_encoded_audio_string(std::move(wav));
  audio->set_content_type("audio/wav");
}

absl::Status SummaryBuilder::AddTensor(absl::string_view tag, const Tensor& tensor,
                                       absl::string_view metadata) {
  tensorflow::Summary::Value* made = summary_->add_value();
  made->set_tag(std::string(tag));
  if (!MessageFromBytes(metadata, *made->mutable_metadata())) made->mutable_metadata()->Clear();
  return SetTensor(tensor, *made);
}

absl::Status SummaryBuilder::AddTensorOfNode(absl::string_view node_name, const Tensor& tensor) {
  tensorflow::Summary::Value* made = summary_->add_value();
  made->set_node_name(std::string(node_name));
  return SetTensor(tensor, *made);
}

absl::Status SummaryBuilder::Merge(absl::string_view serialized) {
  tensorflow::Summary other;
  if (!MessageFromBytes(serialized, other)) {
    return InvalidArgument("Could not parse one of the summary inputs");
  }
  for (tensorflow::Summary::Value& value : *other.mutable_value()) {
    // Values without a tag are told apart by their nodes.
    if (!value.tag().empty() && !merged_tags_.insert(value.tag()).second) {
      return InvalidArgument("Duplicate tag ", value.tag(), " found in summary inputs");
    }
    summary_->add_value()->Swap(&value);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SummaryBuilder::Serialize() const {
  return MessageToBytes(*summary_);
}

}  // namespace muster
