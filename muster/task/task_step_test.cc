#include "muster/task/task_step.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/place/partition.h"
#include "muster/runtime/vector_call_frame.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class TaskStepTest : public ::testing::Test {
 protected:
  static constexpr char kTask[] = "/job:w/replica:0/task:0";
  static std::string Cpu(int i = 0) { return absl::StrCat(kTask, "/device:CPU:", i); }

  // A graph whose nodes have devices, made by `build`.
  template <typename Build>
  std::shared_ptr<TaskGraph> Make(Build build, const std::string& device = Cpu()) {
    auto graph = std::make_unique<Graph>();
    const Scope scope = Scope(*graph).WithDevice(device);
    build(scope);
    EXPECT_EQ(scope.status(), absl::OkStatus());
    TaskSession::GraphOptions options;
    options.is_placed = true;
    options.partitions.optimize_graph = false;
    auto made = session_->MakeGraph(std::move(graph), std::move(options));
    EXPECT_EQ(made.status(), absl::OkStatus());
    return made.value_or(nullptr);
  }
  static void Return(const Scope& s, const Output& value) {
    s.Op("_Retval", {value}, {{"T", value.base_dtype()}, {"index", int64_t{0}}}, "result");
  }
  static AttrMap Transfer(absl::string_view name) {
    return {{"tensor_name", std::string(name)},
            {"send_device", Cpu()},
            {"send_device_incarnation", int64_t{1}},
            {"recv_device", Cpu()}};
  }
  static std::string Key(absl::string_view name) {
    return absl::StrCat(Cpu(), ";0000000000000001;", Cpu(), ";", name, ";0:0");
  }

  // What the graph gives through its _Retval.
  absl::StatusOr<Tensor> Run(const std::shared_ptr<TaskGraph>& graph) {
    TaskStep step(1, NewLocalRendezvous());
    step.Begin(session_, graph);
    VectorCallFrame frame({}, 1);
    step.Use(frame);
    std::optional<absl::Status> ended;
    step.Run([&ended](absl::Status status) { ended = std::move(status); });
    scheduler_->RunUntil([&ended] { return ended.has_value(); });
    if (!ended) return absl::UnknownError("not ended");
    RETURN_IF_ERROR(*ended);
    ASSIGN_OR_RETURN(std::vector<Tensor> results, frame.TakeResults());
    return results[0];
  }
  std::shared_ptr<TaskGraph> Random(const std::string& device = Cpu()) {
    return Make(
        [](const Scope& s) {
          const Output shape =
              s.Op("Const", {}, {{"dtype", DType::kInt32}, {"value", Tensor::Vector<int32_t>({})}});
          Return(s, s.Op("RandomUniform", {shape}, {{"dtype", DType::kFloat}, {"seed", int64_t{1}}},
                         "random"));
        },
        device);
  }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(7);
  const std::shared_ptr<const TaskDevices> devices_ =
      TaskDevices::Create(kTask, {2}, *scheduler_).value();
  std::shared_ptr<TaskSession> session_ =
      std::make_shared<TaskSession>(devices_, std::make_shared<ResourceManager>("w"), *scheduler_);
};

TEST_F(TaskStepTest, StatefulKernelsBelongToDeviceAndName) {
  const float first = Run(Random())->scalar<float>();
  const float second = Run(Random())->scalar<float>();
  EXPECT_NE(first, second) << "the second graph goes on where the first has stopped";
  EXPECT_EQ(Run(Random(Cpu(1)))->scalar<float>(), first) << "on another device it begins anew";
  session_ =
      std::make_shared<TaskSession>(devices_, std::make_shared<ResourceManager>("w"), *scheduler_);
  EXPECT_EQ(Run(Random())->scalar<float>(), first) << "and so it does in another session";
}

TEST_F(TaskStepTest, NodesAtTheBorderAreNotShared) {
  for (const char* op : {"_Send", "_HostSend"}) {
    for (const char* name : {"first", "second"}) {
      const auto graph = Make([&](const Scope& s) {
        AttrMap attrs = Transfer(name);
        attrs.emplace("T", DType::kFloat);
        s.Op(op, {s.ConstScalar<float>(3)}, std::move(attrs), "same_name");
      });
      TaskStep step(1, NewLocalRendezvous());
      step.Begin(session_, graph);
      step.Run([](const absl::Status& status) { EXPECT_EQ(status, absl::OkStatus()); });
      scheduler_->RunUntil([] { return false; });
      bool arrived = false;
      step.rendezvous().RecvAsync(
          Key(name), [&arrived](const absl::StatusOr<Rendezvous::Value>&) { arrived = true; });
      EXPECT_TRUE(arrived) << op << " " << name;
      step.rendezvous().Abort(absl::CancelledError("the test is over"));
    }
  }
}

TEST_F(TaskStepTest, KnowsWhichGraphsHaveCollectives) {
  const auto has = [this](auto build) { return Make(build)->has_collectives; };
  EXPECT_FALSE(has([](const Scope& s) { s.Op("Neg", {s.ConstScalar<float>(1)}); }));
  EXPECT_FALSE(has([](const Scope& s) {
    AttrMap attrs = Transfer("x");
    attrs.emplace("tensor_type", DType::kFloat);
    s.Op("_Recv", {}, std::move(attrs));
  })) << "which communicates too, but through the rendezvous";
  EXPECT_TRUE(has([](const Scope& s) { s.Op("MusterEndpoint", {}); }));
  EXPECT_TRUE(has([](const Scope& s) {
    s.Op("CollectiveReduce", {s.ConstScalar<float>(1)},
         {{"group_size", int64_t{1}},
          {"group_key", int64_t{1}},
          {"instance_key", int64_t{1}},
          {"merge_op", "Add"},
          {"final_op", "Id"},
          {"subdiv_offsets", std::vector<int64_t>{0}}});
  }));
}

TEST_F(TaskStepTest, ACancelledStepLetsGoOfItsReceivesAndSaysWhy) {
  const auto graph = Make([&](const Scope& s) {
    AttrMap attrs = Transfer("never");
    attrs.emplace("tensor_type", DType::kFloat);
    s.Op("_Recv", {}, std::move(attrs), "recv");
  });
  TaskStep step(1, NewLocalRendezvous());
  step.Begin(session_, graph);
  step.AbortRendezvousWhenCancelled();
  std::optional<absl::Status> ended;
  step.Run([&ended](absl::Status status) { ended = std::move(status); });
  scheduler_->RunUntil([] { return false; });
  EXPECT_FALSE(ended.has_value());
  step.cancellation()->Cancel(absl::DeadlineExceededError("too late"));
  scheduler_->RunUntil([&ended] { return ended.has_value(); });
  EXPECT_EQ(*ended, absl::DeadlineExceededError("too late"));
}

// A CPU device on which work goes on after kernels have returned, until the test ends it.
class LateDevice : public Device {
 public:
  LateDevice(std::string name, Scheduler& scheduler)
      : Device({std::move(name), "CPU", 1 << 20, 7, ""}), scheduler_(scheduler) {}
  Allocator& allocator() override { return HostAllocator(); }
  Allocator& host_allocator() override { return HostAllocator(); }
  Scheduler& scheduler() override { return scheduler_; }
  Stream* stream() override { return &stream_; }
  void Copy(const Tensor& tensor, Device&, CopyDone done) override { std::move(done)(tensor); }
  bool is_awaited() const { return stream_.done != nullptr; }
  void End(absl::Status status) { std::exchange(stream_.done, nullptr)(std::move(status)); }

 private:
  struct LateStream : Stream {
    void WhenDone(Done when_done) override { done = std::move(when_done); }
    Done done;
  };
  Scheduler& scheduler_;
  LateStream stream_;
};

TEST_F(TaskStepTest, EndsWhenTheStreamsOfItsDevicesHaveEnded) {
  std::vector<std::unique_ptr<Device>> list;
  std::vector<LateDevice*> late;
  for (int i = 0; i < 3; ++i) {
    auto device = std::make_unique<LateDevice>(Cpu(i), *scheduler_);
    late.push_back(device.get());
    list.push_back(std::move(device));
  }
  session_ = std::make_shared<TaskSession>(TaskDevices::Of(kTask, std::move(list)),
                                           std::make_shared<ResourceManager>("w"), *scheduler_);
  const auto graph = Make([](const Scope& s) {
    s.Op("Neg", {s.ConstScalar<float>(1)});
    const Scope other = s.WithDevice(Cpu(1));
    other.Op("Neg", {other.ConstScalar<float>(2)});
  });
  const absl::Status broken = absl::InternalError("the device is broken");
  for (const absl::Status& result : {absl::OkStatus(), broken}) {
    TaskStep step(1, NewLocalRendezvous());
    step.Begin(session_, graph);
    std::optional<absl::Status> ended;
    step.Run([&ended](absl::Status status) { ended = std::move(status); });
    for (LateDevice* const device : {late[0], late[1]}) {
      scheduler_->RunUntil([] { return false; });
      EXPECT_FALSE(ended.has_value());
      ASSERT_TRUE(device->is_awaited());
      device->End(device == late[0] ? result : absl::OkStatus());
    }
    EXPECT_EQ(ended, result);
    EXPECT_FALSE(late[2]->is_awaited()) << "no node runs there";
  }
}

// A device whose order of work matters gets it in one order, in whatever order values come.
class EarlyValuesTest : public TaskStepTest {
 protected:
  static constexpr int kValues = 4;

  EarlyValuesTest() {
    std::vector<std::unique_ptr<Device>> list;
    list.push_back(std::make_unique<LateDevice>(Cpu(), *scheduler_));
    device_ = static_cast<LateDevice*>(list.back().get());
    session_ = std::make_shared<TaskSession>(TaskDevices::Of(kTask, std::move(list)),
                                             std::make_shared<ResourceManager>("w"), *scheduler_);
    graph_ = Make([](const Scope& s) {
      for (int i = 0; i < kValues; ++i) {
        AttrMap attrs = Transfer(absl::StrCat("v", i));
        attrs.emplace("tensor_type", DType::kFloat);
        attrs.emplace(kEarlyAttr, true);
        const Output value = s.Op("_Recv", {}, std::move(attrs), absl::StrCat("v", i));
        s.Op("Neg", {s.Op("Exp", {value}, {}, absl::StrCat("exp", i))}, {}, absl::StrCat("neg", i));
      }
      s.Op("Neg",
           {s.Op("RandomUniform", {s.ConstVector({2})}, {{"dtype", DType::kFloat}}, "other")}, {},
           "neg_of_other");
    });
  }
  void Start(TaskStep& step) {
    step.Begin(session_, graph_);
    step.AbortRendezvousWhenCancelled();
    step.RecordTrace();
    step.Run([this](absl::Status status) { ended_ = std::move(status); });
    RunAll();
  }
  void Send(TaskStep& step, int i, int64_t elements = 1) {
    const Tensor value(DType::kFloat, Shape({elements}));
    EXPECT_EQ(step.rendezvous().Send(Key(absl::StrCat("v", i)), {value, false}), absl::OkStatus());
    RunAll();
  }
  void RunAll() {
    scheduler_->RunUntil([] { return false; });
  }
  // Names of the nodes that have computed, in their order.
  static std::vector<std::string> Computed(TaskStep& step) {
    std::vector<std::string> names;
    for (const NodeTrace& node : step.TakeTraces())
      if (node.op == "Exp" || node.op == "Neg") names.push_back(node.node);
    return names;
  }

  LateDevice* device_ = nullptr;
  std::shared_ptr<TaskGraph> graph_;
  std::optional<absl::Status> ended_;
};

TEST_F(EarlyValuesTest, TheOrderOfArrivalIsNotThatOfTheWork) {
  std::optional<std::vector<std::string>> first;
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}}) {
    TaskStep step(1, NewLocalRendezvous());
    Start(step);
    for (const int i : order) Send(step, i);
    const std::vector<std::string> computed = Computed(step);
    EXPECT_EQ(computed.size(), 2u * kValues + 1);
    if (!first) first = computed;
    EXPECT_EQ(computed, *first);
    ASSERT_TRUE(device_->is_awaited());
    device_->End(absl::OkStatus());
    EXPECT_EQ(ended_, absl::OkStatus());
  }
}

TEST_F(EarlyValuesTest, MuchIsNotWaitedFor) {
  TaskStep step(1, NewLocalRendezvous());
  Start(step);
  Send(step, 1);
  EXPECT_THAT(Computed(step), ElementsAre("neg_of_other"));
  Send(step, 2, (int64_t{32} << 20) / 4);
  EXPECT_THAT(Computed(step), UnorderedElementsAre("exp1", "neg1", "exp2", "neg2"));
  Send(step, 0);
  EXPECT_THAT(Computed(step), ElementsAre("exp0", "neg0"));
  Send(step, 3);
  device_->End(absl::OkStatus());
  EXPECT_EQ(ended_, absl::OkStatus());
}

TEST_F(EarlyValuesTest, ACancelledStepEndsWithoutTheValues) {
  TaskStep step(1, NewLocalRendezvous());
  Start(step);
  Send(step, 2);
  EXPECT_FALSE(ended_.has_value());
  step.cancellation()->Cancel(absl::CancelledError("enough"));
  RunAll();
  ASSERT_TRUE(device_->is_awaited());
  device_->End(absl::OkStatus());
  EXPECT_EQ(ended_, absl::CancelledError("enough"));
  EXPECT_THAT(Computed(step), ElementsAre("neg_of_other"));
}

TEST_F(TaskStepTest, TheFirstErrorIsWhyItEnds) {
  const auto graph = Make([&](const Scope& s) {
    AttrMap attrs = Transfer("never");
    attrs.emplace("tensor_type", DType::kFloat);
    s.Op("_Recv", {}, std::move(attrs), "recv");
    const Output v =
        s.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}}, "bad");
    s.Op("Identity", {v}, {}, "bad/read");
  });
  TaskStep step(1, NewLocalRendezvous());
  step.Begin(session_, graph);
  step.RecordTrace();
  std::optional<absl::Status> ended;
  step.Run([&ended](absl::Status status) { ended = std::move(status); });
  scheduler_->RunUntil([&ended] { return ended.has_value(); });
  ASSERT_TRUE(ended.has_value());
  EXPECT_THAT(std::string(ended->message()), HasSubstr("uninitialized value bad"));
  EXPECT_TRUE(step.cancellation()->cancelled());
}

}  // namespace
}  // namespace muster
