// Messages that real TensorFlow tasks sent, byte for byte.
#include <fstream>
#include <sstream>

#include "tensorflow/core/protobuf/worker.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/transport/wire/device_proto.h"
#include "muster/transport/wire/session_proto.h"
#include "muster/transport/wire/status_proto.h"
#include "muster/transport/wire/step_proto.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

std::string Golden(const std::string& name) {
  std::ifstream file(std::string(MUSTER_GOLDEN_WIRE) + "/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

class WireGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  std::string File(const std::string& name) { return Golden(GetParam() + "/" + name + ".bin"); }

  // Reads the golden reply, compares the tensor, and writes it again.
  void Check(const std::string& name, const Tensor& expected, bool dead = false) {
    SCOPED_TRACE(name);
    const std::string golden = File("RecvTensorResponse_" + name);
    const absl::StatusOr<RecvTensorReply> reply = ReadRecvTensorReply(WireBytes::Of(golden));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->value.is_dead, dead);
    EXPECT_TRUE(SameTensor(reply->value.tensor, expected)) << reply->value.tensor.ToString();
    EXPECT_FALSE(reply->require_ack);
    tensorflow::RecvTensorResponse proto;
    ASSERT_TRUE(proto.ParseFromString(golden));
    const absl::StatusOr<WireMessage> again =
        WriteRecvTensorReply(*reply, proto.send_start_micros());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->Text(), golden);
  }
};

Tensor Counting(int64_t count) {
  Tensor tensor(DType::kFloat, Shape({count}));
  for (int64_t i = 0; i < count; ++i) tensor.data<float>()[i] = static_cast<float>(i);
  return tensor;
}

TEST_P(WireGoldenTest, RecvTensorReplies) {
  Check("f32", Tensor::Vector<float>({1.5f, -2, 3}));
  Check("f32_scalar", Tensor::Scalar<float>(7));
  Check("i32_scalar", Tensor::Scalar<int32_t>(-5));
  Check("i64_2x3", Tensor::Of<int64_t>(Shape({2, 3}), {0, 1, 2, 3, 4, 5}));
  Check("f64", Tensor::Of<double>(Shape({2, 2}), {1, 2, 3, 4}));
  Check("bool", Tensor::Vector<bool>({true, false, true}));
  Check("u8", Tensor::Vector<uint8_t>({0, 1, 2, 3, 4}));
  Check("half", Tensor::Vector<Half>({Half(1.0f), Half(2.0f)}));
  Check("bf16", Tensor::Vector<Bfloat16>({Bfloat16(1.5f), Bfloat16(-2.0f), Bfloat16(3.0f)}));
  Check("c64", Tensor::Vector<Complex64>({Complex64(1, 2)}));
  Check("f32_1k", Counting(256));
  Check("f32_1500", Counting(375));
  Check("empty", Tensor(DType::kFloat, Shape({0, 3})));
  Check("string",
        Tensor::Vector<std::string>({"abc", "", std::string("\0\xff", 2), std::string(200, 'x')}));
  Check("string_scalar", Tensor::Scalar<std::string>("hello"));
  Check("string_empty", Tensor(DType::kString, Shape({0})));
  Check("control_edge", Tensor(DType::kFloat, Shape({0})));
  Check("dead", Tensor(DType::kFloat, Shape({0})), /*dead=*/true);
}

TEST_P(WireGoldenTest, HeadOfALargeReply) {
  const std::string head = File("RecvTensorResponse_f32_1mb.head64");
  RecvTensorReply reply;
  reply.value.tensor = Counting(262144);
  const WireBytes bytes = WireBytes::Of(head);
  WireReader reader(bytes);
  ASSERT_TRUE(reader.NextTag().ok());
  const int64_t micros = static_cast<int64_t>(*reader.Varint());
  const absl::StatusOr<WireMessage> message = WriteRecvTensorReply(reply, micros);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->Text().substr(0, head.size()), head);
  EXPECT_EQ(message->size_bytes(), 1048603u);
  // The elements are attached, not copied.
  EXPECT_EQ(message->pieces().back().buffer.data(), reply.value.tensor.raw());
}

TEST_P(WireGoldenTest, StepsAndGraphs) {
  const absl::StatusOr<ReceivedRunStep> step =
      ReadRunStep(WireBytes::Of(File("RunStepRequest_feed_fetch")));
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_TRUE(step->errors_in_body);
  EXPECT_THAT(step->request.fetches, testing::ElementsAre("inc:0"));
  ASSERT_EQ(step->request.feeds.size(), 1u);
  EXPECT_EQ(step->request.feeds[0].name, "delta:0");
  EXPECT_TRUE(SameTensor(step->request.feeds[0].tensor, Tensor::Vector<float>({10, 20})));

  const std::string reply_bytes = File("RunStepResponse_feed_fetch");
  const absl::StatusOr<RunStepReply> reply = ReadRunStepReply(WireBytes::Of(reply_bytes));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(WriteRunStepReply(*reply)->Text(), reply_bytes);

  const std::string error = File("RunGraphResponse_error");
  const absl::Status status = ReadRunGraphReply(WireBytes::Of(error)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteRunGraphError(status, CallOptions::Peer::kTensorFlow2).Text(), error);
  EXPECT_EQ(WriteRunGraphReply(RunGraphReply())->Text(), File("RunGraphResponse_first"));
  EXPECT_FALSE(ReadRunStepReply(WireBytes::Of(File("RunStepResponse_error"))).ok());

  const bool before_23 = GetParam() == "1.15.5";
  absl::StatusOr<RegisterGraphRequest> graph = ReadRegisterGraph(
      WireBytes::Of(File("RegisterGraphRequest_first")),
      before_23 ? CallOptions::Peer::kTensorFlow1 : CallOptions::Peer::kTensorFlow2);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->frame_ids, before_23 ? FrameIds::kBefore23 : FrameIds::kSince23);
  const absl::StatusOr<std::unique_ptr<Graph>> made = std::move(graph->graph)();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_GT((*made)->num_nodes(), 0);
}

TEST_P(WireGoldenTest, SessionsWithoutAClusterKeepTheirIdentity) {
  tensorflow::CreateWorkerSessionRequest proto;
  ASSERT_TRUE(proto.ParseFromString(File("CreateWorkerSessionRequest_first")));
  const absl::StatusOr<CreateWorkerSessionRequest> request = CreateWorkerSessionFromProto(proto);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->session.size(), 16u);
  EXPECT_FALSE(request->identity.has_value());
  EXPECT_EQ(request->master_task, GetParam() == "1.15.5" ? "" : "/job:worker/replica:0/task:0");
}

INSTANTIATE_TEST_SUITE_P(Versions, WireGoldenTest, testing::Values("1.15.5", "2.21"),
                         [](const auto& parameter) {
                           return parameter.param == "2.21" ? std::string("Two")
                                                            : std::string("One");
                         });

TEST(WireGolden, DevicesAreDescribedAsTensorFlowDoes) {
  const std::string golden = Golden("2.21/GetStatusResponse_first.bin");
  tensorflow::GetStatusResponse proto;
  ASSERT_TRUE(proto.ParseFromString(golden));
  tensorflow::GetStatusResponse again;
  DeviceToProto(DeviceFromProto(proto.device_attributes(0)), *again.add_device_attributes());
  EXPECT_EQ(again.SerializeAsString(), golden);
}

TEST(WireGolden, PayloadsOfStatuses) {
  EXPECT_EQ(PayloadsToWire(Derived(absl::CancelledError("x"))),
            Golden("2.21/status_details_derived.bin"));
  EXPECT_EQ(PayloadsToWire(PossiblyRestarted(absl::AbortedError("x"))),
            Golden("2.21/status_details_restarted.bin"));
  absl::Status status = absl::AbortedError("x");
  AddPayloadsFromWire(Golden("2.21/status_details_derived.bin"), status);
  EXPECT_TRUE(IsDerived(status));
}

}  // namespace
}  // namespace muster
