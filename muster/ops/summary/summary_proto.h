// Summaries as messages: what the ops of this folder give out.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"

#include "muster/base/status.h"
#include "muster/ops/summary/histogram.h"
#include "muster/tensor/tensor.h"

namespace tensorflow {
class Summary;
}  // namespace tensorflow

namespace muster {

class SummaryBuilder {
 public:
  SummaryBuilder();
  ~SummaryBuilder();

  void AddScalar(absl::string_view tag, float value);
  void AddHistogram(absl::string_view tag, const Histogram& histogram);
  void AddImage(absl::string_view tag, int height, int width, int channels, std::string png);
  void AddAudio(absl::string_view tag, float sample_rate, int64_t channels, int64_t frames,
                std::string wav);
  // `metadata` is a serialized SummaryMetadata; bytes that cannot be parsed count as an empty one.
  absl::Status AddTensor(absl::string_view tag, const Tensor& tensor, absl::string_view metadata);
  // The old form, which names the node that made it.
  absl::Status AddTensorOfNode(absl::string_view node_name, const Tensor& tensor);
  // The values of another serialized summary. InvalidArgument when it cannot be parsed, or when a
  // tag was merged before.
  absl::Status Merge(absl::string_view serialized);

  absl::StatusOr<std::string> Serialize() const;

 private:
  std::unique_ptr<tensorflow::Summary> summary_;
  absl::flat_hash_set<std::string> merged_tags_;
};

}  // namespace muster
