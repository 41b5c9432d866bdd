// The files of sharded checkpoints: MergeV2Checkpoints, ShardedFilename, ShardedFilespec.
#include "absl/strings/str_format.h"

#include "muster/checkpoint/merge.h"
#include "muster/ops/file_kernel.h"

namespace muster {
namespace {

struct Merge {
  absl::Status Init(KernelSetup& s) {
    ASSIGN_OR_RETURN(options.delete_old_dirs, s.Attr<bool>("delete_old_dirs"));
    ASSIGN_OR_RETURN(options.allow_missing_files, s.Attr<bool>("allow_missing_files"));
    return absl::OkStatus();
  }

  absl::Status Run(FileCall& c) const {
    const Tensor& prefixes = c.input(0);
    const Tensor& destination = c.input(1);
    if (prefixes.rank() != 1) {
      return InvalidArgument("Input checkpoint_prefixes should be an 1-D tensor, got ",
                             prefixes.shape().ToString(), " instead.");
    }
    if (!destination.shape().is_scalar()) {
      return InvalidArgument("Input destination_prefix should be a scalar tensor, got ",
                             destination.shape().ToString(), " instead.");
    }
    const absl::Span<const std::string> list = prefixes.values<std::string>();
    return MergeCheckpoints({list.begin(), list.end()}, destination.scalar<std::string>(), options);
  }

  MergeOptions options;
};

absl::Status CheckScalars(KernelContext& c) {
  static constexpr const char* kNames[] = {"basename", "shard", "num_shards"};
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input(i).shape().is_scalar()) continue;
    return InvalidArgument(c.num_inputs() == 2 && i == 1 ? "num_shards" : kNames[i],
                           " must be a scalar, got shape ", c.input(i).shape().ToString());
  }
  return absl::OkStatus();
}

absl::Status RunFilename(KernelContext& c) {
  RETURN_IF_ERROR(CheckScalars(c));
  c.SetOutput(0, Tensor::Scalar(absl::StrFormat("%s-%05d-of-%05d", c.input(0).scalar<std::string>(),
                                                c.input(1).scalar<int32_t>(),
                                                c.input(2).scalar<int32_t>())));
  return absl::OkStatus();
}

absl::Status RunFilespec(KernelContext& c) {
  RETURN_IF_ERROR(CheckScalars(c));
  c.SetOutput(0, Tensor::Scalar(absl::StrFormat("%s-?????"
                                                "-of-%05d",
                                                c.input(0).scalar<std::string>(),
                                                c.input(1).scalar<int32_t>())));
  return absl::OkStatus();
}

absl::Status MergeShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
  return c.WithRank(c.input(1), 0).status();
}

absl::Status NameShape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) RETURN_IF_ERROR(c.WithRank(c.input(i), 0).status());
  return ScalarShape(c);
}

}  // namespace

DEFINE_OP(MergeV2Checkpoints) {
  op.Attr("delete_old_dirs: bool = true")
      .Attr2x("allow_missing_files: bool = false")
      .Input("checkpoint_prefixes: string")
      .Input("destination_prefix: string")
      .Stateful()
      .Doc("Makes one checkpoint of several, whose data files are renamed.")
      .Shape(MergeShape)
      .Cpu(New<FileKernel<Merge>>());
}

DEFINE_OP(ShardedFilename) {
  op.Input("basename: string")
      .Input("shard: int32")
      .Input("num_shards: int32")
      .Output("filename: string")
      .Doc("The name of one shard: basename-00001-of-00003.")
      .Shape(NameShape)
      .Cpu(RunFilename);
}

DEFINE_OP(ShardedFilespec) {
  op.Input("basename: string")
      .Input("num_shards: int32")
      .Output("filename: string")
      .Doc("The pattern that matches all shards of a name.")
      .Shape(NameShape)
      .Cpu(RunFilespec);
}

}  // namespace muster
