#include "muster/ops/collective/collective_kernel.h"

#include <cmath>

namespace muster {
namespace {

absl::Status CheckGroupSize(int64_t size) {
  if (size > 0) return absl::OkStatus();
  return InvalidArgument("group_size must be positive integer but got ", size);
}

absl::StatusOr<int32_t> Key(int64_t value, absl::string_view what) {
  if (value < INT32_MIN || value > INT32_MAX)
    return InvalidArgument(what, " is ", value, ", which is not a 32-bit integer");
  return static_cast<int32_t>(value);
}

}  // namespace

absl::Status CollectiveKernel::Init(KernelSetup& s) {
  attributes_.type = type_;
  attributes_.node = s.node().name();
  ASSIGN_OR_RETURN(const float timeout, s.Attr<float>("timeout_seconds"));
  // An infinite timeout means none.
  if (timeout > 0 && std::isfinite(timeout)) attributes_.timeout = absl::Seconds(timeout);
  if (first_key_ != kAttributes) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t size, s.Attr<int64_t>("group_size"));
  ASSIGN_OR_RETURN(const int64_t group, s.Attr<int64_t>("group_key"));
  ASSIGN_OR_RETURN(const int64_t instance, s.Attr<int64_t>("instance_key"));
  RETURN_IF_ERROR(CheckGroupSize(size));
  ASSIGN_OR_RETURN(attributes_.group_size, Key(size, "group_size"));
  ASSIGN_OR_RETURN(attributes_.group_key, Key(group, "group_key"));
  ASSIGN_OR_RETURN(attributes_.instance_key, Key(instance, "instance_key"));
  return absl::OkStatus();
}

absl::Status CollectiveKernel::Compute(KernelContext& c) {
  return Internal(c.node().op(), " runs asynchronously");
}

absl::Status CollectiveKernel::ReadKeys(KernelContext& c, CollectiveParams& params) const {
  if (first_key_ == kAttributes) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t size, ScalarInteger(c.input(first_key_), "group_size"));
  ASSIGN_OR_RETURN(const int64_t group, ScalarInteger(c.input(first_key_ + 1), "group_key"));
  ASSIGN_OR_RETURN(const int64_t instance, ScalarInteger(c.input(first_key_ + 2), "instance_key"));
  RETURN_IF_ERROR(CheckGroupSize(size));
  ASSIGN_OR_RETURN(params.group_size, Key(size, "group_size"));
  ASSIGN_OR_RETURN(params.group_key, Key(group, "group_key"));
  ASSIGN_OR_RETURN(params.instance_key, Key(instance, "instance_key"));
  return absl::OkStatus();
}

void CollectiveKernel::ComputeAsync(KernelContext& c, Done done) {
  CollectiveCall call;
  call.params = attributes_;
  absl::Status status = ReadKeys(c, call.params);
  if (status.ok()) status = Prepare(c, call);
  absl::StatusOr<RefPtr<CollectiveExecutor>> executor = nullptr;
  if (status.ok()) {
    executor =
        c.step().step_resources->LookupAs<CollectiveExecutor>("", CollectiveExecutor::kStepName);
    if (!executor.ok()) {
      status = Internal("Failed to get CollectiveExecutor from OpKernelContext for Op ",
                        c.node().name());
    }
  }
  if (!status.ok()) return std::move(done)(std::move(status));
  call.params.dtype = c.output_type(0);
  call.params.device = c.device().attributes();
  call.params.frame_and_iteration = c.frame_and_iteration();
  call.params.step_id = c.step().id;
  call.cancellation = c.step().cancellation;
  (*executor)->Run(std::move(call), std::move(done));
}

OpBuilder& KeyAttributes(OpBuilder& op) {
  return op.Attr("group_size: int").Attr("group_key: int").Attr("instance_key: int");
}

OpBuilder& KeyInputs(OpBuilder& op) {
  return op.Input("group_size: int32")
      .Input("group_key: int32")
      .Input("instance_key: int32")
      .HostMemory({"group_size", "group_key", "instance_key"});
}

absl::StatusOr<Shape> GatheredShape(const Shape& shape, int group_size) {
  if (shape.rank() == 0)
    return InvalidArgument("A gather of scalars is not possible: the input must have a dimension");
  Dims dims(shape.dims().begin(), shape.dims().end());
  if (__builtin_mul_overflow(dims[0], int64_t{group_size}, &dims[0])) {
    return InvalidArgument("A gather of ", group_size, " tensors of shape ", shape.ToString(),
                           " is too large");
  }
  return Shape::Make(dims);
}

}  // namespace muster
