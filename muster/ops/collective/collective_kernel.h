// What the kernels of collective ops share: keys of group and instance, and the way to the step's
// executor.
#pragma once

#include "muster/ops/op.h"
#include "muster/runtime/collectives.h"

namespace muster {

// The first versions of the ops have their keys as attributes, the second ones as the inputs from
// `first_key` on: group_size, group_key, instance_key.
class CollectiveKernel : public Kernel {
 public:
  static constexpr int kAttributes = -1;

  absl::Status Init(KernelSetup& s) override;
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override;
  void ComputeAsync(KernelContext& c, Done done) override;

 protected:
  CollectiveKernel(CollectiveType type, int first_key) : type_(type), first_key_(first_key) {}
  // Fills in shape, tensors and what else the kind needs; keys are there already.
  virtual absl::Status Prepare(KernelContext& c, CollectiveCall& call) = 0;

 private:
  absl::Status ReadKeys(KernelContext& c, CollectiveParams& params) const;

  const CollectiveType type_;
  const int first_key_;
  CollectiveParams attributes_;
};

// Arguments of kernels for GPUs: ranks exchange the memory of hosts, and the copies around the node
// use memory that the card reaches by itself.
inline const std::vector<std::string> kThroughHost = {"input", "data"};

// `op` with the attributes and inputs of the keys, in TensorFlow's order.
OpBuilder& KeyAttributes(OpBuilder& op);
OpBuilder& KeyInputs(OpBuilder& op);

// The shape with its first dimension multiplied by the size of the group; InvalidArgument for
// scalars and for what is too large.
absl::StatusOr<Shape> GatheredShape(const Shape& shape, int group_size);

}  // namespace muster
