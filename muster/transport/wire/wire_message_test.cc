#include "muster/transport/wire/wire_message.h"

#include <random>

#include "google/protobuf/stubs/logging.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/tensor/memory_guard.h"
#include "muster/tensor/tensor_proto.h"
#include "muster/transport/wire/session_config_proto.h"
#include "muster/transport/wire/session_proto.h"
#include "muster/transport/wire/status_proto.h"
#include "muster/transport/wire/step_proto.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// `text` in pieces of `size` bytes, empty ones between them.
WireBytes InPieces(const std::string& text, size_t size) {
  auto owned = std::make_shared<const std::string>(text);
  WireBytes bytes;
  for (size_t at = 0; at < text.size(); at += size) {
    bytes.pieces.push_back(absl::string_view(*owned).substr(at, size));
    bytes.pieces.push_back(absl::string_view());
  }
  bytes.owner = std::move(owned);
  return bytes;
}

absl::StatusOr<Tensor> Read(const std::string& text) {
  const WireBytes bytes = WireBytes::Of(text);
  return ReadTensor(WireReader(bytes));
}

TEST(RecvTensorsReplyTest, EveryKindOfTensorComesAsItWas) {
  const std::vector<Tensor> sent = {Tensor::Scalar<float>(3), Tensor::Vector<int64_t>({1, 2, 3}),
                                    Tensor(DType::kFloat, Shape({0, 2})),
                                    Tensor::Zeros(DType::kDouble, Shape({3, 1, 200})),
                                    Tensor::Vector<std::string>({"a", ""})};
  WireMessage message;
  for (size_t i = 0; i < sent.size(); ++i)
    ASSERT_TRUE(AppendReceivedItem({i + 5, {sent[i], false}}, message).ok());
  const absl::StatusOr<ReceivedTensors> got = ReadRecvTensorsReply(WireBytes::Of(message.Text()));
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->reply.tensors.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(got->reply.tensors[i].index, i + 5);
    EXPECT_TRUE(SameTensor(got->reply.tensors[i].value.tensor, sent[i])) << i;
  }
  // One without a type is none.
  EXPECT_TRUE(absl::IsInvalidArgument(AppendReceivedItem({0, {Tensor(), false}}, message)));
}

TEST(WireMessageTest, TensorsOfEveryType) {
  for (int number = 1; number < kDTypeCount; ++number) {
    const DType dtype = static_cast<DType>(number);
    for (const Shape& shape :
         {Shape(), Shape({0}), Shape({3}), Shape({2, 0, 2}), Shape({2, 700})}) {
      SCOPED_TRACE(absl::StrCat(DTypeName(dtype), shape.ToString()));
      Tensor tensor = Tensor::Zeros(dtype, shape);
      if (dtype == DType::kString) {
        for (int64_t i = 0; i < tensor.num_elements(); ++i) {
          tensor.data<std::string>()[i] = std::string(static_cast<size_t>(i % 200), 'a');
        }
      } else if (dtype == DType::kResource) {
        for (int64_t i = 0; i < tensor.num_elements(); ++i) {
          tensor.data<ResourceHandle>()[i].name = absl::StrCat("v", i);
        }
      } else if (IsPlainData(dtype)) {
        for (size_t i = 0; i < tensor.size_bytes(); ++i) tensor.raw()[i] = static_cast<char>(i % 2);
      }
      const absl::StatusOr<WireMessage> message = WriteTensor(tensor);
      ASSERT_TRUE(message.ok()) << message.status();
      // What we write by hand is what protobuf would have written.
      tensorflow::TensorProto proto;
      ASSERT_TRUE(TensorToProto(tensor, TensorEncoding::kContent, proto).ok());
      EXPECT_EQ(message->Text(), proto.SerializeAsString());
      for (size_t size : {1, 7, 100000}) {
        const WireBytes bytes = InPieces(message->Text(), size);
        const absl::StatusOr<Tensor> again = ReadTensor(WireReader(bytes));
        ASSERT_TRUE(again.ok()) << again.status();
        if (dtype == DType::kResource) {
          ASSERT_EQ(again->num_elements(), tensor.num_elements());
        } else if (dtype != DType::kVariant) {
          EXPECT_TRUE(SameTensor(tensor, *again));
        }
      }
    }
  }
}

TEST(WireMessageTest, TypedValues) {
  tensorflow::TensorProto proto;
  proto.set_dtype(tensorflow::DT_INT32);
  proto.mutable_tensor_shape()->add_dim()->set_size(4);
  proto.add_int_val(1);
  proto.add_int_val(-2);
  const absl::StatusOr<Tensor> tensor = Read(proto.SerializeAsString());
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_TRUE(SameTensor(*tensor, Tensor::Vector<int32_t>({1, -2, -2, -2})));
  // A few bytes must not become gigabytes, since a message may repeat them many times.
  proto.mutable_tensor_shape()->mutable_dim(0)->set_size(1 << 28);
  EXPECT_EQ(Read(proto.SerializeAsString()).status().code(), StatusCode::kResourceExhausted);
}

TEST(WireMessageTest, AlignedContentIsUsedWhereItLies) {
  Tensor tensor = Tensor::Zeros(DType::kFloat, Shape({1 << 14}));
  const std::string head = [&] {
    std::string text = WriteTensor(tensor)->Text();
    return text.substr(0, text.size() - tensor.size_bytes());
  }();
  auto storage = std::make_shared<Tensor>(DType::kInt8, Shape({(1 << 16) + 64}));
  std::memcpy(storage->raw() + 64 - head.size(), head.data(), head.size());
  std::memset(storage->raw() + 64, 1, tensor.size_bytes());
  WireBytes bytes;
  bytes.pieces = {
      absl::string_view(storage->raw() + 64 - head.size(), head.size() + tensor.size_bytes())};
  bytes.owner = storage;
  const absl::StatusOr<Tensor> adopted = ReadTensor(WireReader(bytes));
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(adopted->raw(), storage->raw() + 64);
  EXPECT_FALSE(adopted->exclusive());
  EXPECT_EQ(storage.use_count(), 3);
}

std::string DType1() {
  return std::string("\x08\x01", 2);
}

TEST(WireMessageTest, HostileTensors) {
  const std::string huge_dim("\x12\x0b\x12\x09\x08\xff\xff\xff\xff\xff\xff\xff\x7f", 13);
  const std::string two_huge_dims(
      "\x12\x16\x12\x09\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
      "\x12\x09\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
      24);
  const std::string content("\x22\x04\0\0\0\0", 6);
  const std::string cases[] = {
      std::string("\x08", 1),                                                   // no value
      std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11),          // over 64 bits
      std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13),  // longer still
      DType1() + std::string("\x22\x05\0\0\0\0", 6),                            // past the end
      DType1() + std::string("\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11),
      DType1() + huge_dim + content,
      DType1() + two_huge_dims + content,
      DType1() + std::string("\x12\x04\x12\x02\x08\x02", 6) + content,  // two elements, four bytes
      std::string("\x08\x00", 2) + content,                             // no type
      std::string("\x08\x65", 2) + content,                             // a reference type
      std::string("\x08\xff\x7f", 3) + content,                         // an unknown type
      std::string("\x08\x07\x22\x02\x05x", 6),                          // a string of five bytes
      std::string("\x08\x07\x12\x04\x12\x02\x08\x7f\x22\x01x", 11),     // 127 strings in a byte
      std::string("\x00", 1),                                           // field 0
      std::string("\x0b\x0c", 2),                                       // a group
      DType1() + std::string("\x12\x02\x18\x01", 4) + content,          // unknown rank
      DType1() + std::string("\x12\x0d\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 15) +
          content,  // a size of -1
  };
  for (const std::string& text : cases) {
    EXPECT_EQ(Read(text).status().code(), StatusCode::kInvalidArgument)
        << testing::PrintToString(text) << Read(text).status();
  }
  // Deep nesting inside a field that protobuf reads.
  std::string deep;
  for (int i = 0; i < 10000; ++i) {
    WireMessage outer;
    outer.AppendBytesField(3, deep.size() > 30000 ? "" : deep);
    deep = outer.Text();
  }
  WireMessage variant;
  variant.AppendVarintField(1, 21);
  variant.AppendBytesField(15, deep);
  EXPECT_FALSE(Read(variant.Text()).ok());
}

TEST(WireMessageTest, AFeedWithoutMemoryIsNotABadOne) {
  RunStepRequest step;
  const auto large = static_cast<int64_t>(MemoryGuard::kLargeBytes);
  step.feeds = {{"a:0", Tensor::Make(DType::kBool, *Shape::Make({large})).value()}};
  const std::string text = WriteRunStep(step)->Text();
  MemoryGuard::Global().Limit(0);
  const absl::StatusOr<ReceivedRunStep> read = ReadRunStep(WireBytes::Of(text));
  MemoryGuard::Global().Limit(INT64_MAX);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->bad_feed.code(), StatusCode::kResourceExhausted) << read->bad_feed;
}

// Whatever the bytes are, readers return.
TEST(WireMessageTest, DamagedMessages) {
  const google::protobuf::LogSilencer silent;
  RunStepRequest step;
  step.session = "s";
  step.feeds = {{"a:0", Tensor::Vector<float>({1, 2, 3})},
                {"b:0", Tensor::Vector<std::string>({"x", "yy"})}};
  step.fetches = {"c:0"};
  const std::string good = WriteRunStep(step)->Text();
  for (size_t length = 0; length < good.size(); ++length) {
    ReadRunStep(WireBytes::Of(good.substr(0, length))).IgnoreError();
  }
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 1 + i % 4; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    const WireBytes bytes = InPieces(bad, 1 + i % 9);
    ReadRunStep(bytes).IgnoreError();
    ReadRunGraph(bytes).IgnoreError();
    ReadRunGraphReply(bytes).IgnoreError();
    ReadRunCallable(bytes).IgnoreError();
    ReadRecvTensorReply(bytes).IgnoreError();
    ReadRegisterGraph(bytes, CallOptions::Peer::kMuster).IgnoreError();
    ReadCreateSession(bytes).IgnoreError();
  }
}

TEST(WireMessageTest, FieldsThatComeTwiceMerge) {
  WireMessage named;
  named.AppendBytesField(1, "a");
  WireMessage first, second;
  first.AppendVarintField(1, 3);
  second.AppendBytesField(4, absl::string_view("\x05\0\0\0", 4));
  named.AppendBytesField(2, first.Text());
  named.AppendBytesField(2, second.Text());
  const WireBytes bytes = WireBytes::Of(named.Text());
  const absl::StatusOr<NamedTensor> tensor = ReadNamedTensor(WireReader(bytes));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_TRUE(SameTensor(tensor->tensor, Tensor::Scalar<int32_t>(5)));
}

TEST(StatusProtoTest, MarksOfDerivedErrors) {
  const absl::Status derived = Derived(absl::AbortedError("stopped"));
  using Peer = CallOptions::Peer;
  EXPECT_EQ(StatusTextFor(derived, Peer::kTensorFlow1, false), "[_Derived_]stopped");
  EXPECT_EQ(StatusTextFor(derived, Peer::kTensorFlow2, true), "stopped");
  EXPECT_EQ(StatusTextFor(derived, Peer::kMuster, false), "stopped");
  EXPECT_EQ(StatusTextFor(derived, Peer::kMuster, true), "[_Derived_]stopped");
  const absl::Status read = StatusFromWire(10, "From /job:a:\n[_Derived_]stopped");
  EXPECT_TRUE(IsDerived(read));
  EXPECT_EQ(read.message(), "From /job:a:\nstopped");
  EXPECT_EQ(StatusFromWire(77, "x").code(), StatusCode::kUnknown);
  EXPECT_EQ(StatusFromWire(-1, "x").code(), StatusCode::kUnknown);
  absl::Status status = absl::AbortedError("x");
  AddPayloadsFromWire("\xff\xff", status);
  EXPECT_THAT(status.ToString(), HasSubstr("GrpcPayloadsLost"));
  const absl::Status binary = absl::AbortedError("\xc3\xa4 \xff\xc0\x80 \xed\xa0\x80 \xe2\x82");
  EXPECT_EQ(StatusTextFor(binary, Peer::kTensorFlow2, true), "\xc3\xa4 ??? ??? ??");
  EXPECT_EQ(TruncatedStatusText(std::string(5000, 'x')).size(), 3088u);
}

TEST(SessionConfigProtoTest, RoundTrip) {
  tensorflow::ConfigProto proto;
  proto.add_device_filters("/job:ps");
  proto.set_allow_soft_placement(true);
  proto.set_operation_timeout_in_ms(1500);
  proto.mutable_graph_options()->mutable_rewrite_options()->set_disable_meta_optimizer(true);
  proto.mutable_experimental()->set_executor_type("muster.lazy_tasks");
  proto.mutable_gpu_options()->set_allow_growth(true);
  (*proto.mutable_device_count())["CPU"] = 3;
  auto& job = *proto.mutable_cluster_def()->add_job();
  job.set_name("ps");
  (*job.mutable_tasks())[2] = "a:1";
  const absl::StatusOr<SessionConfig> config = SessionConfigFromProto(proto);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->operation_timeout, absl::Milliseconds(1500));
  EXPECT_FALSE(config->optimize_graph);
  EXPECT_TRUE(config->lazy_tasks);
  EXPECT_EQ(config->devices.cpu_devices, 3);
  EXPECT_EQ(config->cluster.jobs().at("ps").at(2), "a:1");
  tensorflow::ConfigProto again;
  SessionConfigToProto(*config, again);
  EXPECT_EQ(again.DebugString(), proto.DebugString());
  SessionConfig changed = *config;
  changed.optimize_graph = true;
  changed.operation_timeout = absl::InfiniteDuration();
  const absl::StatusOr<SessionConfig> read = ParseSessionConfig(SerializeSessionConfig(changed));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->optimize_graph);
  EXPECT_EQ(read->operation_timeout, absl::ZeroDuration());
  EXPECT_FALSE(ParseSessionConfig("\xff").ok());
  proto.mutable_cluster_def()->add_job()->set_name("ps");
  EXPECT_EQ(SessionConfigFromProto(proto).status().code(), StatusCode::kInvalidArgument);
}

TEST(MasterProtoTest, ExtensionsReadNodesThatAreThere) {
  tensorflow::CreateSessionRequest create;
  const auto add = [](tensorflow::GraphDef& graph, const std::string& name, const std::string& op,
                      std::vector<std::string> inputs) {
    auto& node = *graph.add_node();
    node.set_name(name);
    node.set_op(op);
    *node.mutable_input() = {inputs.begin(), inputs.end()};
    if (op != "NoOp") (*node.mutable_attr())["T"].set_type(tensorflow::DT_FLOAT);
    return &node;
  };
  auto& placeholder = *create.mutable_graph_def()->add_node();
  placeholder.set_name("x");
  placeholder.set_op("Placeholder");
  (*placeholder.mutable_attr())["dtype"].set_type(tensorflow::DT_FLOAT);
  Graph graph;
  absl::StatusOr<CreateSessionRequest> request =
      ReadCreateSession(WireBytes::Of(create.SerializeAsString()));
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_TRUE(std::move(request->graph)(graph).ok());

  tensorflow::ExtendSessionRequest extend;
  add(*extend.mutable_graph_def(), "y", "Identity", {"x", "^x"});
  add(*extend.mutable_graph_def(), "z", "Identity", {"y"});
  absl::StatusOr<ExtendSessionRequest> extension =
      ReadExtendSession(WireBytes::Of(extend.SerializeAsString()));
  ASSERT_TRUE(extension.ok()) << extension.status();
  const absl::Status status = std::move(extension->graph)(graph);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(graph.num_nodes(), 3);
  // Only what is new is sent.
  tensorflow::ExtendSessionRequest sent;
  ASSERT_TRUE(sent.ParseFromString(WriteExtendSession(*extension, graph, 1)->Text()));
  EXPECT_EQ(sent.graph_def().node_size(), 2);

  tensorflow::ExtendSessionRequest bad;
  add(*bad.mutable_graph_def(), "w", "Identity", {"x:1"});
  extension = ReadExtendSession(WireBytes::Of(bad.SerializeAsString()));
  EXPECT_EQ(std::move(extension->graph)(graph).message(),
            "Node 'w': Connecting to invalid output 1 of source node x which has 1 outputs.");
  EXPECT_EQ(graph.num_nodes(), 3);
}

TEST(MasterProto, WatchesThatAreSentNowhereChangeNothing) {
  tensorflow::RunOptions proto;
  auto& watch = *proto.mutable_debug_options()->add_debug_tensor_watch_opts();
  watch.add_debug_ops("DebugIdentity");
  EXPECT_FALSE(StepOptionsFromProto(proto).has_debug_watches);
  watch.add_debug_urls("file:///somewhere");
  const StepOptions options = StepOptionsFromProto(proto);
  EXPECT_TRUE(options.has_debug_watches);
  StepOptionsToProto(options, proto);
  EXPECT_TRUE(StepOptionsFromProto(proto).has_debug_watches);
}

}  // namespace
}  // namespace muster
