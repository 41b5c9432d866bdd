#include "muster/worker/batch_receive.h"

#include "muster/transport/inproc/in_process_transport.h"
#include "muster/worker/worker_test.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class BatchReceiveTest : public WorkerTest {
 protected:
  Transport* transport() override { return network_.get(); }
  void Listen(int i, std::shared_ptr<Worker> worker) override {
    network_->Listen(Address(i), {worker, nullptr});
  }

  Answered<RecvTensorsReply> AskForAll(int64_t step, std::vector<std::string> names,
                                       CallOptions options = {}, int64_t id = NewRequestId()) {
    RecvTensorsRequest request;
    request.step_id = step;
    request.request_id = id;
    for (const std::string& name : names) request.keys.push_back(Key(0, 1, name));
    Answered<RecvTensorsReply> answer;
    workers_[0]->RecvTensors(std::move(options), std::move(request), answer.done());
    return answer;
  }
  static std::vector<size_t> Indices(const Answered<RecvTensorsReply>& answer) {
    std::vector<size_t> indices;
    if (answer.status().ok()) {
      for (const auto& tensor : (*answer)->tensors) indices.push_back(tensor.index);
    }
    return indices;
  }
  // Sends "a", "b" and, once "c" is fed, its negative.
  std::string Producer() {
    return RegisterOn(0, [&](const Scope& s) {
      Send(s, Number(s, 1, "one"), 0, 1, "a");
      Send(s, Number(s, 2, "two"), 0, 1, "b");
      Send(s, s.Op("Neg", {Recv(s, 0, 0, "x:0", true)}, {}, "neg"), 0, 1, "c");
    });
  }
  Answered<RunGraphReply> Start(const std::string& graph, int64_t step) {
    RunGraphRequest request = Request(graph, step);
    request.is_partial = true;
    return Run(0, std::move(request));
  }
  Answered<RunGraphReply> Feed(const std::string& graph, int64_t step) {
    RunGraphRequest request = Request(graph, step);
    request.is_partial = request.is_last_partial = true;
    request.send = {{Key(0, 0, "x:0"), Tensor::Scalar<float>(3)}};
    return Run(0, std::move(request));
  }

  std::unique_ptr<InProcessTransport> network_ = InProcessTransport::Create(*scheduler_);
};

TEST_F(BatchReceiveTest, WhatIsThereFirstIsAnswered) {
  StartCluster(2);
  const std::string graph = Producer();
  const auto early = AskForAll(1, {"a", "c", "b"});
  RunReady();
  EXPECT_FALSE(early.has_value());
  Start(graph, 1);
  RunReady();
  EXPECT_THAT(Indices(early), UnorderedElementsAre(0, 2));
  const auto rest = AskForAll(1, {"c"});
  RunReady();
  EXPECT_FALSE(rest.has_value());
  const auto end = Feed(graph, 1);
  RunReady();
  EXPECT_EQ(end.status(), absl::OkStatus());
  ASSERT_THAT(Indices(rest), ElementsAre(0));
  EXPECT_EQ((*rest)->tensors[0].value.tensor.scalar<float>(), -3);
}

TEST_F(BatchReceiveTest, WhatHasBeenThereIsAnsweredAtOnce) {
  StartCluster(2);
  const std::string graph = Producer();
  Start(graph, 1);
  RunReady();
  EXPECT_THAT(Indices(AskForAll(1, {"c", "b"})), ElementsAre(1));
  // "c" is not lost: it was taken out again.
  Feed(graph, 1);
  RunReady();
  EXPECT_THAT(Indices(AskForAll(1, {"a", "c"})), ElementsAre(0, 1));
}

TEST_F(BatchReceiveTest, TheEndOfTheStepIsTheEndOfTheCall) {
  StartCluster(2);
  const std::string graph = Producer();
  const auto waiting = AskForAll(1, {"c", "d"});
  Start(graph, 1);
  RunReady();
  EXPECT_FALSE(waiting.has_value());
  Cleanup(0, 1);
  RunReady();
  EXPECT_EQ(waiting.status(), Derived(absl::AbortedError("Cleanup 1")));
  EXPECT_EQ(AskForAll(1, {"a", "b"}).status(), Derived(absl::AbortedError("Cleanup 1")));
}

TEST_F(BatchReceiveTest, ACancelledCallTakesNothing) {
  StartCluster(2);
  const std::string graph = Producer();
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  const auto gone = AskForAll(1, {"a", "b"}, options);
  options.cancellation->Cancel(absl::CancelledError("gone"));
  RunReady();
  EXPECT_EQ(gone.status(), absl::CancelledError("gone"));
  const auto late = AskForAll(1, {"a"}, options);
  RunReady();
  EXPECT_EQ(late.status(), absl::CancelledError("gone"));
  Start(graph, 1);
  RunReady();
  EXPECT_THAT(Indices(AskForAll(1, {"a", "b"})), ElementsAre(0, 1));
  // One that leaves a step under way ends it after a while.
  CallOptions later;
  later.cancellation = std::make_shared<Cancellation>();
  const auto left = AskForAll(1, {"c", "d"}, later);
  later.cancellation->Cancel(absl::CancelledError("left"));
  const auto other = AskForAll(1, {"d", "e"});
  RunAll();
  EXPECT_EQ(left.status(), absl::CancelledError("left"));
  EXPECT_TRUE(absl::IsAborted(other.status())) << other.status();
}

TEST_F(BatchReceiveTest, CallsAreChecked) {
  StartCluster(2);
  EXPECT_THAT(std::string(AskForAll(1, {}).status().message()), HasSubstr("asks for 0 tensors"));
  EXPECT_THAT(std::string(AskForAll(1, std::vector<std::string>(257, "a")).status().message()),
              HasSubstr("asks for 257 tensors; it may be 1 to 256"));
  const auto first = AskForAll(1, {"a"}, {}, 42);
  EXPECT_FALSE(first.has_value());
  EXPECT_THAT(std::string(AskForAll(1, {"a"}, {}, 42).status().message()),
              HasSubstr("The same RecvTensors request was received twice"));
  RecvTensorsRequest bad;
  bad.step_id = 1;
  bad.keys.push_back(Key(0, 1, "a"));
  bad.keys.push_back("abc");
  Answered<RecvTensorsReply> answer;
  workers_[0]->RecvTensors({}, std::move(bad), answer.done());
  EXPECT_EQ(answer.status(), InvalidArgument("Invalid  rendezvous key: abc"));
}

TEST_F(BatchReceiveTest, FinishedStepsComeWithTheNextOne) {
  StartCluster(2);
  const std::string graph = Producer();
  Start(graph, 1);
  const auto waiting = AskForAll(1, {"c", "d"});
  RunReady();
  RunGraphRequest next = Request(graph, 2);
  next.finished_steps = {1, 77};
  next.is_partial = true;
  Run(0, std::move(next));
  RunReady();
  EXPECT_EQ(waiting.status(), Derived(absl::AbortedError("Cleanup 1")));
}

// Counts the calls that reach a worker.
class Counted : public ForwardingWorker<Counted> {
 public:
  explicit Counted(std::shared_ptr<WorkerApi> to) : to_(std::move(to)) {}
  void RecvTensor(CallOptions options, RecvTensorRequest request,
                  CallDone<RecvTensorReply> done) override {
    ++single;
    to_->RecvTensor(std::move(options), std::move(request), std::move(done));
  }
  void RecvTensors(CallOptions options, RecvTensorsRequest request,
                   CallDone<RecvTensorsReply> done) override {
    ++several;
    if (knows_several) {
      to_->RecvTensors(std::move(options), std::move(request), std::move(done));
    } else {
      std::move(done)(absl::UnimplementedError(""));
    }
  }
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    call(*to_, std::move(options), std::move(done));
  }
  bool knows_several = true;
  int single = 0;
  int several = 0;

 private:
  const std::shared_ptr<WorkerApi> to_;
};

TEST_F(BatchReceiveTest, NodesThatStartTogetherAskTogether) {
  constexpr int kValues = 300;
  StartCluster(2);
  const auto counted = std::make_shared<Counted>(workers_[0]);
  network_->Listen(Address(0), {counted, nullptr});
  const std::string producer = RegisterOn(0, [&](const Scope& s) {
    for (int i = 0; i < kValues; ++i) {
      Send(s, Number(s, static_cast<float>(i), absl::StrCat("n", i)), 0, 1, absl::StrCat("v", i));
    }
  });
  const std::string consumer = RegisterOn(1, [&](const Scope& s) {
    std::vector<Output> values;
    for (int i = 0; i < kValues; ++i) values.push_back(Recv(s, 0, 1, absl::StrCat("v", i)));
    Send(s, s.Op("AddN", {values}, {}, "sum"), 1, 1, "sum:0", true);
  });
  int64_t step = 0;
  for (const bool knows_several : {true, false}) {
    counted->knows_several = knows_several;
    counted->single = counted->several = 0;
    ++step;
    RunGraphRequest request = Request(consumer, step);
    request.recv_keys = {Key(1, 1, "sum:0")};
    const auto received = Run(1, std::move(request));
    RunReady();
    const auto sent = Run(0, Request(producer, step));
    RunReady();
    EXPECT_EQ(Only(received), kValues * (kValues - 1) / 2);
    EXPECT_EQ(counted->several, 2);  // 256 at a time
    EXPECT_EQ(counted->single, knows_several ? 0 : kValues);
  }
}

}  // namespace
}  // namespace muster
