#include "muster/master/run_metadata_proto.h"

#include "absl/container/flat_hash_map.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace muster {

std::string MergeRunMetadata(const std::vector<std::string>& step_stats,
                             const std::vector<std::string>& partition_graphs) {
  tensorflow::RunMetadata metadata;
  absl::flat_hash_map<std::string, int> place_of_device;
  for (const std::string& bytes : step_stats) {
    tensorflow::StepStats one;
    if (bytes.empty() || !one.ParseFromString(bytes)) continue;
    tensorflow::StepStats& all = *metadata.mutable_step_stats();
    for (tensorflow::DeviceStepStats& device : *one.mutable_dev_stats()) {
      const auto [place, is_new] =
          place_of_device.try_emplace(device.device(), all.dev_stats_size());
      if (is_new) {
        all.add_dev_stats()->Swap(&device);
      } else {
        all.mutable_dev_stats(place->second)->MergeFrom(device);
      }
    }
  }
  for (const std::string& bytes : partition_graphs) {
    if (!metadata.add_partition_graphs()->ParseFromString(bytes)) {
      metadata.mutable_partition_graphs()->RemoveLast();
    }
  }
  return metadata.SerializeAsString();
}

}  // namespace muster
