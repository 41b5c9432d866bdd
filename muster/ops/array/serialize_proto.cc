// Tensors as strings that hold a TensorProto: ParseTensor, SerializeTensor.
#include "absl/strings/escaping.h"
#include "tensorflow/core/framework/tensor.pb.h"

#include "muster/ops/op.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

absl::Status Parse(KernelContext& c) {
  const Tensor& serialized = c.input(0);
  if (serialized.rank() != 0) {
    return InvalidArgument("Expected `serialized` to be a scalar, got shape: ",
                           serialized.shape().ToString());
  }
  tensorflow::TensorProto proto;
  if (!proto.ParseFromString(serialized.scalar<std::string>())) {
    return InvalidArgument("Could not parse `serialized` as TensorProto, base64: ",
                           absl::Base64Escape(serialized.scalar<std::string>()));
  }
  ASSIGN_OR_RETURN(Tensor value, TensorFromProto(proto));
  if (value.dtype() != c.output_type(0)) {
    return InvalidArgument("Type mismatch between parsed tensor (", DTypeName(value.dtype()),
                           ") and dtype (", DTypeName(c.output_type(0)), ")");
  }
  c.SetOutput(0, std::move(value));
  return absl::OkStatus();
}

absl::Status Serialize(KernelContext& c) {
  tensorflow::TensorProto proto;
  // TensorFlow writes strings one by one.
  const TensorEncoding encoding =
      c.input_type(0) == DType::kString ? TensorEncoding::kTyped : TensorEncoding::kContent;
  RETURN_IF_ERROR(TensorToProto(c.input(0), encoding, proto));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape()));
  if (!proto.SerializeToString(&output->data<std::string>()[0])) {
    return InvalidArgument("A tensor of shape ", c.input(0).shape().ToString(),
                           " is too large for one message");
  }
  return absl::OkStatus();
}

DEFINE_OP(ParseTensor) {
  op.Attr("out_type: type")
      .Input("serialized: string")
      .Output("output: out_type")
      .Doc("The tensor that a serialized TensorProto describes.")
      .Shape(UnknownShape)
      .NoGradient("strings")
      .Cpu(Parse);
}

DEFINE_OP(SerializeTensor) {
  op.Attr("T: type")
      .Input("tensor: T")
      .Output("serialized: string")
      .Doc("The tensor as a serialized TensorProto.")
      .Shape(ScalarShape)
      .NoGradient("strings")
      .CpuDTypes("T", AllDTypes(), Stateless(Serialize));
}

}  // namespace
}  // namespace muster
