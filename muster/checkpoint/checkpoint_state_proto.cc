#include <charconv>

#include "absl/strings/escaping.h"
#include "tensorflow/python/training/checkpoint_state.pb.h"
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "muster/checkpoint/checkpoint_state.h"

namespace muster {
namespace {

// The first complaint of the parser, as a sentence.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty())
      text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

tensorflow::CheckpointState ToProto(const CheckpointState& state) {
  tensorflow::CheckpointState proto;
  proto.set_model_checkpoint_path(state.model_checkpoint_path);
  for (const std::string& path : state.all_model_checkpoint_paths)
    proto.add_all_model_checkpoint_paths(path);
  for (double time : state.all_model_checkpoint_timestamps)
    proto.add_all_model_checkpoint_timestamps(time);
  if (state.last_preserved_timestamp)
    proto.set_last_preserved_timestamp(*state.last_preserved_timestamp);
  return proto;
}

// The shortest text that reads as the same number; whole numbers as "5.0".
std::string ShortestText(double value) {
  char digits[64];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
  std::string text(digits, end.ptr);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string CheckpointStateToText(const CheckpointState& state) {
  // By hand: the library's printer gives times digits that Python's does not.
  std::string text;
  const auto add_path = [&](absl::string_view field, absl::string_view path) {
    absl::StrAppend(&text, field, ": \"", absl::CEscape(path), "\"\n");
  };
  const auto add_time = [&](absl::string_view field, double time) {
    absl::StrAppend(&text, field, ": ", ShortestText(time), "\n");
  };
  if (!state.model_checkpoint_path.empty())
    add_path("model_checkpoint_path", state.model_checkpoint_path);
  for (const std::string& path : state.all_model_checkpoint_paths)
    add_path("all_model_checkpoint_paths", path);
  for (double time : state.all_model_checkpoint_timestamps)
    add_time("all_model_checkpoint_timestamps", time);
  if (state.last_preserved_timestamp)
    add_time("last_preserved_timestamp", *state.last_preserved_timestamp);
  return text;
}

std::string SerializeCheckpointState(const CheckpointState& state) {
  return ToProto(state).SerializeAsString();
}

absl::StatusOr<CheckpointState> CheckpointStateFromText(absl::string_view text) {
  tensorflow::CheckpointState proto;
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string(text), &proto)) {
    return InvalidArgument("This is not a checkpoint state (", error.text(), ")");
  }
  CheckpointState state;
  state.model_checkpoint_path = proto.model_checkpoint_path();
  state.all_model_checkpoint_paths.assign(proto.all_model_checkpoint_paths().begin(),
                                          proto.all_model_checkpoint_paths().end());
  state.all_model_checkpoint_timestamps.assign(proto.all_model_checkpoint_timestamps().begin(),
                                               proto.all_model_checkpoint_timestamps().end());
  if (proto.last_preserved_timestamp() != 0)
    state.last_preserved_timestamp = proto.last_preserved_timestamp();
  return state;
}

}  // namespace muster
