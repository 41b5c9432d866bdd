// Attributes and op definitions as TensorFlow's messages.
#pragma once

#include <string>

#include "muster/graph/attr_value.h"
#include "muster/graph/op_def.h"

namespace tensorflow {
class AttrValue;
class NameAttrList;
class OpDef;
class OpList;
}  // namespace tensorflow

namespace muster {

// InvalidArgument for lists of mixed kinds, bad shapes and bad tensors. Data types are not checked
// here but against the op's definition. A value that is not set gives an AttrValue without a value.
absl::StatusOr<AttrValue> AttrValueFromProto(const tensorflow::AttrValue& proto);
// Replaces what `proto` holds. Fails where a tensor cannot be written (see tensor_proto.h).
absl::Status AttrValueToProto(const AttrValue& value, tensorflow::AttrValue& proto);

absl::StatusOr<FunctionRef> FunctionRefFromProto(const tensorflow::NameAttrList& proto);
absl::Status FunctionRefToProto(const FunctionRef& function, tensorflow::NameAttrList& proto);

absl::StatusOr<OpDef> OpDefFromProto(const tensorflow::OpDef& proto);
absl::Status OpDefToProto(const OpDef& op, tensorflow::OpDef& proto);

// Every op of the process, sorted by name, without documentation.
absl::Status RegistryToProto(tensorflow::OpList& proto);
// The same as the bytes of an OpList.
absl::StatusOr<std::string> SerializeRegistry();

}  // namespace muster
