// Messages as text, exactly as TensorFlow's front end writes graph.pbtxt.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

#include "muster/base/status.h"

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace muster {

// Two-space indents, maps sorted by key, floats as Python prints them widened to double (0.01f is
// 0.009999999776482582).
std::string MessageText(const google::protobuf::Message& message);
// The same from bytes of the message with that name ("tensorflow.GraphDef"). NotFound for an
// unknown name, InvalidArgument for bytes that cannot be parsed.
absl::StatusOr<std::string> MessageText(const std::string& full_name, absl::string_view bytes);
// What Python's repr() gives.
std::string PythonFloat(double value);

}  // namespace muster
