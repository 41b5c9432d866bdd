#include "muster/train/events/graph_text_proto.h"

#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"
#include "tensorflow/core/protobuf/saver.pb.h"

#include "muster/graph/proto/graph_proto.h"
#include "muster/graph/proto/message_text_proto.h"
#include "muster/tensor/message_proto.h"

namespace muster {
namespace {

absl::StatusOr<tensorflow::GraphDef> WithShapes(const Graph& graph) {
  tensorflow::GraphDef message;
  RETURN_IF_ERROR(GraphToProto(graph, {.add_shapes = true}, message));
  return message;
}

}  // namespace

absl::StatusOr<std::string> GraphText(const Graph& graph) {
  ASSIGN_OR_RETURN(const tensorflow::GraphDef message, WithShapes(graph));
  return MessageText(message);
}

absl::StatusOr<std::string> SerializeGraphWithShapes(const Graph& graph) {
  ASSIGN_OR_RETURN(const tensorflow::GraphDef message, WithShapes(graph));
  return MessageToBytes(message);
}

absl::StatusOr<std::string> SerializeMetaGraph(const Graph& graph, const SaverDef& saver) {
  tensorflow::MetaGraphDef message;
  ASSIGN_OR_RETURN(*message.mutable_graph_def(), WithShapes(graph));
  message.mutable_meta_info_def()->set_tensorflow_version("1.15.5");
  if (!saver.save_tensor_name.empty()) {
    tensorflow::SaverDef& def = *message.mutable_saver_def();
    def.set_filename_tensor_name(saver.filename_tensor_name);
    def.set_save_tensor_name(saver.save_tensor_name);
    def.set_restore_op_name(saver.restore_op_name);
    def.set_max_to_keep(saver.max_to_keep);
    def.set_sharded(saver.sharded);
    def.set_keep_checkpoint_every_n_hours(saver.keep_checkpoint_every_n_hours);
    def.set_version(static_cast<tensorflow::SaverDef::CheckpointFormatVersion>(
        static_cast<int>(saver.version)));
  }
  return MessageToBytes(message);
}

}  // namespace muster
