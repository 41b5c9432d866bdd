#include "muster/server/server_options_proto.h"

#include "tensorflow/core/protobuf/tensorflow_server.pb.h"
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "muster/tensor/message_proto.h"
#include "muster/transport/wire/cluster_proto.h"
#include "muster/transport/wire/session_config_proto.h"

namespace muster {
namespace {

absl::StatusOr<ServerOptions> FromProto(const tensorflow::ServerDef& proto) {
  if (!proto.protocol().empty() && proto.protocol() != "grpc") {
    return NotFound("No server factory registered for the given ServerDef: protocol \"",
                    proto.protocol(), "\". Registered factories are {GRPC_SERVER}.");
  }
  ServerOptions options;
  ASSIGN_OR_RETURN(options.cluster, ClusterFromProto(proto.cluster()));
  options.job = proto.job_name();
  options.task = proto.task_index();
  if (proto.port() != 0) options.port = proto.port();
  ASSIGN_OR_RETURN(options.config, SessionConfigFromProto(proto.default_session_config()));
  options.cache_rpc_response = proto.default_session_config().rpc_options().cache_rpc_response();
  return options;
}

// Keeps the first error; the parser would print it otherwise.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty())
      text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

absl::StatusOr<ServerOptions> ParseServerDef(absl::string_view serialized) {
  tensorflow::ServerDef proto;
  if (!MessageFromBytes(serialized, proto))
    return InvalidArgument("these ", serialized.size(), " bytes are not a ServerDef");
  return FromProto(proto);
}

absl::StatusOr<ServerOptions> ParseServerDefFile(const std::string& contents) {
  tensorflow::ServerDef proto;
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(contents, &proto)) return FromProto(proto);
  // A binary message starts with the tag of a field, which is not a letter.
  tensorflow::ServerDef binary;
  if (binary.ParseFromString(contents)) return FromProto(binary);
  return InvalidArgument("this is not a ServerDef, neither binary nor text: ", error.text());
}

}  // namespace muster
