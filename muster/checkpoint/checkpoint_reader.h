// Looks into a checkpoint of either format.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "muster/base/status.h"
#include "muster/checkpoint/bundle_reader.h"
#include "muster/checkpoint/v1_proto.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Thread-safe.
class CheckpointReader {
 public:
  // NotFound when no checkpoint has that prefix, in TensorFlow's words.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(const std::string& prefix);

  struct Variable {
    DType dtype = DType::kInvalid;
    Shape shape;
    int slices = 0;  // 0: stored whole
  };
  // By name; partitioned ones with the shape of the whole.
  const std::map<std::string, Variable>& variables() const { return variables_; }
  bool HasTensor(const std::string& name) const { return variables_.contains(name); }
  // NotFound "Key <name> not found in checkpoint".
  absl::StatusOr<Tensor> GetTensor(const std::string& name) const;
  // One line per tensor: "name (DT_FLOAT) [2,3]".
  std::string DebugString() const;

 private:
  std::unique_ptr<BundleReader> bundle_;
  std::unique_ptr<V1Reader> v1_;  // where there is no bundle
  std::map<std::string, Variable> variables_;
};

}  // namespace muster
