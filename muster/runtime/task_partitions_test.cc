// A graph cut by task, as a master does, and each part by device, as its worker does, runs as a
// whole.
#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/mutex.h"
#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/graph/place/partition.h"
#include "muster/graph/place/place.h"
#include "muster/runtime/executor.h"
#include "muster/runtime/executor_plan.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;
using Outputs = std::vector<Output>;
using Results = std::vector<BranchResult>;

constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0";

// Remembers what came by.
class Recorder : public Rendezvous {
 public:
  absl::Status Send(absl::string_view key, Value value) override {
    {
      MutexLock lock(mutex_);
      sent_.emplace_back(key);
      if (value.is_dead) dead_.emplace_back(key);
    }
    return inner_->Send(key, std::move(value));
  }
  void RecvAsync(absl::string_view key, RecvDone done) override {
    {
      MutexLock lock(mutex_);
      received_.emplace_back(key);
    }
    inner_->RecvAsync(key, std::move(done));
  }
  void Abort(absl::Status reason) override { inner_->Abort(std::move(reason)); }
  std::vector<std::string> sent() {
    MutexLock lock(mutex_);
    return sent_;
  }
  std::vector<std::string> received() {
    MutexLock lock(mutex_);
    return received_;
  }
  std::vector<std::string> dead() {
    MutexLock lock(mutex_);
    return dead_;
  }

 private:
  std::unique_ptr<Rendezvous> inner_ = NewLocalRendezvous();
  Mutex mutex_;
  std::vector<std::string> sent_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> received_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> dead_ ABSL_GUARDED_BY(mutex_);
};

// Where the client takes what it fetched.
const std::string kOutKey =
    absl::StrCat(kWorker, "/device:CPU:0;0000000000000001;", kWorker, "/device:CPU:0;out;0:0");

// "edge_3_x;5:0" without the number of the edge.
std::string NameAndFrame(absl::string_view key) {
  const std::vector<absl::string_view> parts = absl::StrSplit(key, ';');
  if (parts.size() != 5) return std::string(key);
  absl::string_view name = parts[3];
  name.remove_prefix(name.find('_', 5) + 1);
  return absl::StrCat(name, ";", parts[4]);
}

class TaskPartitionsTest : public ::testing::Test {
 protected:
  TaskPartitionsTest()
      : scope_(graph_), ps_(scope_.WithDevice(kPs)), worker_(scope_.WithDevice(kWorker)) {
    for (const char* task : {kPs, kWorker}) {
      for (int i = 0; i < 2; ++i) {
        devices_.push_back(NewCpuDevice(absl::StrCat(task, "/device:CPU:", i), DefaultScheduler()));
      }
    }
  }

  // Lets the client fetch `value` as "out".
  void Fetch(Output value) {
    const std::string device = absl::StrCat(kWorker, "/device:CPU:0");
    NodeSpec spec;
    spec.name = "_send_out_0";
    spec.op = "_Send";
    spec.inputs = {value};
    spec.attrs = {{"tensor_name", "out"},
                  {"send_device", device},
                  {"send_device_incarnation", int64_t{1}},
                  {"recv_device", device},
                  {"client_terminated", true}};
    spec.device = device;
    ASSERT_EQ(graph_.AddNode(std::move(spec)).status(), absl::OkStatus());
  }

  absl::Status Cut(bool is_prepared = true) {
    RETURN_IF_ERROR(scope_.status());
    parts_.clear();
    std::vector<std::string> names;
    std::vector<DeviceAttributes> attributes;
    for (const auto& device : devices_) {
      names.push_back(device->name());
      attributes.push_back(device->attributes());
    }
    ASSIGN_OR_RETURN(const Placement placement, PlaceGraph(graph_, names));
    for (const auto& node : graph_.nodes()) node->set_device(names[placement.devices[node->id()]]);
    PartitionOptions by_task;
    by_task.by = PartitionOptions::By::kTask;
    by_task.counter = &counter_;
    ASSIGN_OR_RETURN(tasks_, PartitionGraph(graph_, attributes, by_task));
    for (const GraphPart& task : tasks_) {
      std::vector<DeviceAttributes> own;
      for (const DeviceAttributes& device : attributes) {
        if (absl::StartsWith(device.name, task.task)) own.push_back(device);
      }
      PartitionOptions by_device;
      by_device.is_prepared = is_prepared;
      ASSIGN_OR_RETURN(std::vector<GraphPart> parts, PartitionGraph(*task.graph, own, by_device));
      for (GraphPart& part : parts) parts_.push_back(std::move(part));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> Run(Recorder& recorder, FrameIds frame_ids = FrameIds::kSince23) {
    ResourceManager resources;
    ResourceManager step_resources("step");
    Cancellation cancellation;
    Step step;
    step.rendezvous = &recorder;
    step.cancellation = &cancellation;
    step.resources = &resources;
    step.step_resources = &step_resources;
    step.scheduler = &DefaultScheduler();
    step.frame_ids = frame_ids;
    std::vector<std::unique_ptr<Executor>> executors;
    for (const GraphPart& part : parts_) {
      Device* own = nullptr;
      for (const auto& device : devices_) {
        if (device->name() == part.device) own = device.get();
      }
      ASSIGN_OR_RETURN(
          auto executor,
          Executor::Create(*part.graph, *own,
                           [&](const Node& node) -> absl::StatusOr<std::shared_ptr<Kernel>> {
                             return MakeKernel(node, *own, resources);
                           }));
      executors.push_back(std::move(executor));
    }
    Mutex mutex;
    CondVar changed;
    size_t left = executors.size();
    absl::Status status;
    for (const auto& executor : executors) {
      executor->Run(step, [&](absl::Status result) {
        MutexLock lock(mutex);
        if (status.ok()) status = std::move(result);
        --left;
        changed.NotifyAll();
      });
    }
    {
      MutexLock lock(mutex);
      const absl::Time end = absl::Now() + absl::Seconds(20);
      while (left > 0 && absl::Now() < end) changed.WaitFor(mutex, absl::Seconds(1));
      if (left > 0) recorder.Abort(absl::DeadlineExceededError("the parts wait for each other"));
      while (left > 0) changed.Wait(mutex);
    }
    RETURN_IF_ERROR(status);
    absl::StatusOr<Rendezvous::Value> out = absl::InternalError("nothing was sent");
    recorder.RecvAsync(kOutKey,
                       [&](absl::StatusOr<Rendezvous::Value> value) { out = std::move(value); });
    RETURN_IF_ERROR(out.status());
    return out->tensor;
  }

  Graph graph_;
  Scope scope_, ps_, worker_;
  std::vector<std::unique_ptr<Device>> devices_;
  int64_t counter_ = 0;
  std::vector<GraphPart> tasks_, parts_;
};

// The program of which there is a recording: what passes between tasks, in which frames and
// iterations, is the same here.
TEST_F(TaskPartitionsTest, FramesAndKeysOfARecordedLoop) {
  const Output n = worker_.ConstScalar<int32_t>(2, "n");
  const auto outer_loop = WhileLoop(
      worker_, {worker_.ConstScalar<int32_t>(0), worker_.ConstScalar<int32_t>(0)},
      [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Output> {
        return s.Op("Less", {v[0], n});
      },
      [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        WhileOptions options;
        options.name = "inner";
        ASSIGN_OR_RETURN(const Outputs inner,
                         WhileLoop(
                             s, {s.ConstScalar<int32_t>(0), v[1]},
                             [&](const Scope& i, const Outputs& w) -> absl::StatusOr<Output> {
                               return i.Op("Less", {w[0], i.ConstScalar<int32_t>(2)});
                             },
                             [&](const Scope& i, const Outputs& w) -> absl::StatusOr<Outputs> {
                               const Scope there = i.WithDevice(kPs);
                               const Output one = there.ConstScalar<int32_t>(1, "jinc/y");
                               return Outputs{there.Op("Add", {w[0], one}, {}, "jinc"),
                                              there.Op("Add", {w[1], v[0]}, {}, "ainc")};
                             },
                             options));
        return Outputs{s.Op("Add", {v[0], s.ConstScalar<int32_t>(1)}), inner[1]};
      },
      [] {
        WhileOptions options;
        options.name = "outer";
        return options;
      }());
  ASSERT_EQ(outer_loop.status(), absl::OkStatus());
  Fetch((*outer_loop)[1]);
  ASSERT_EQ(Cut(), absl::OkStatus());
  ASSERT_EQ(tasks_.size(), 2u);
  for (const FrameIds rule : {FrameIds::kBefore23, FrameIds::kSince23}) {
    const bool before = rule == FrameIds::kBefore23;
    const std::string outer = before ? "5715046779186176251" : "16151483404557480959";
    const std::vector<std::string> inner =
        before ? std::vector<std::string>{"140884546250854884", "16880042919920538082",
                                          "10086980682422227154"}
               : std::vector<std::string>{"10647713286725882191", "10647713286725883216",
                                          "10647713286725884237"};
    std::vector<std::string> expected;
    for (const char* name : {"outer/Identity", "outer/LoopCond"}) {
      for (int i : {0, 1, 2}) expected.push_back(absl::StrCat(name, ";", outer, ":", i));
    }
    // A value and the end of the node that makes it.
    for (const char* name :
         {"outer/inner/Identity", "outer/inner/Identity", "outer/inner/Identity_1",
          "outer/inner/ainc", "outer/inner/jinc", "outer/inner/LoopCond"}) {
      for (int i : {0, 1, 2}) {
        expected.push_back(absl::StrCat(name, ";", inner[0], ":", i));
        expected.push_back(absl::StrCat(name, ";", inner[1], ":", i));
      }
      expected.push_back(absl::StrCat(name, ";", inner[2], ":0"));  // the dead last pass
    }
    Recorder recorder;
    const auto result = Run(recorder, rule);
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(result->scalar<int32_t>(), 2);
    std::vector<std::string> received;
    for (const std::string& key : recorder.received()) {
      if (key != kOutKey) received.push_back(NameAndFrame(key));
    }
    EXPECT_THAT(received, UnorderedElementsAreArray(expected));
    std::vector<std::string> dead;
    for (const std::string& key : recorder.dead()) dead.push_back(NameAndFrame(key));
    EXPECT_THAT(dead, Contains(absl::StrCat("outer/inner/LoopCond;", inner[2], ":0")));
    EXPECT_THAT(dead, Contains(absl::StrCat("outer/Identity;", outer, ":2")));
  }
}

TEST_F(TaskPartitionsTest, TheControlLoopsOfARecordedLoop) {
  const auto loop = WhileLoop(
      worker_, {worker_.ConstScalar<int32_t>(0)},
      [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Output> {
        return s.Op("Less", {v[0], s.ConstScalar<int32_t>(3)});
      },
      [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        const Scope there = s.WithDevice(kPs);
        const Output one = there.ConstScalar<int32_t>(1, "inc/y");
        return Outputs{there.Op("Add", {v[0], one}, {}, "inc")};
      },
      [] {
        WhileOptions options;
        options.name = "loop";
        return options;
      }());
  ASSERT_EQ(loop.status(), absl::OkStatus());
  Fetch((*loop)[0]);
  ASSERT_EQ(Cut(), absl::OkStatus());
  ASSERT_EQ(tasks_.size(), 2u);
  EXPECT_THAT(
      NodeList(*tasks_[0].graph),
      UnorderedElementsAreArray(
          {"loop/Identity_S12 _Recv ^_clooploop/inc/y_S2",
           "loop/Identity_S13 Identity loop/Identity_S12", "loop/inc/y Const ^loop/Identity_S13",
           "loop/Identity_S15 _Recv ^_clooploop/inc/y_S2",
           "loop/inc Add loop/Identity_S15,loop/inc/y", "loop/inc/y_S0 Const",
           "_clooploop/inc/y_S1 Enter loop/inc/y_S0",
           "_clooploop/inc/y_S2 Merge _clooploop/inc/y_S1,_clooploop/inc/y_S4",
           "_clooploop/inc/y_S3 Switch _clooploop/inc/y_S2,loop/LoopCond_S19",
           "loop/LoopCond_S19 _Recv ^_clooploop/inc/y_S2",
           "_clooploop/inc/y_S4 NextIteration _clooploop/inc/y_S3:1",
           "loop/inc_S16 _Send loop/inc"}));
  Recorder recorder;
  const auto result = Run(recorder);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->scalar<int32_t>(), 3);
}

// One value per task crosses, and is handed on inside the task.
TEST_F(TaskPartitionsTest, DevicesOfATaskShareWhatComes) {
  const Output x = ps_.ConstScalar<float>(3, "x");
  const Output y = ps_.Op("Neg", {x}, {}, "y");
  const Output a = worker_.WithDevice("/cpu:0").Op("Exp", {y}, {}, "a");
  const Output b = worker_.WithDevice("/cpu:1").Op("Abs", {y}, {}, "b");
  Fetch(worker_.Op("AddV2", {a, b}, {}, "sum"));
  ASSERT_EQ(Cut(), absl::OkStatus());
  ASSERT_EQ(tasks_.size(), 2u);
  EXPECT_EQ(tasks_[0].task, kPs);
  EXPECT_EQ(tasks_[1].task, kWorker);
  EXPECT_THAT(NodeList(*tasks_[0].graph), ElementsAre("x Const", "y Neg x", "y_S0 _Send y"));
  EXPECT_EQ(parts_.size(), 3u);
  EXPECT_EQ(counter_, 2);
  Recorder recorder;
  const auto result = Run(recorder);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_FLOAT_EQ(result->scalar<float>(), 3.0497870f);
  std::vector<std::string> sent;
  for (const std::string& key : recorder.sent()) sent.push_back(NameAndFrame(key));
  EXPECT_THAT(sent, UnorderedElementsAreArray({"y;0:0", "y_S1;0:0", "b;0:0", "out;0:0"}));
}

// The first roots of each part request tensors of other tasks, unless it has something to send to
// others before.
TEST_F(TaskPartitionsTest, WhatOthersHaveIsAskedForFirst) {
  const auto asked_first = [&](absl::string_view task) -> std::vector<std::string> {
    std::vector<std::string> names;
    for (const GraphPart& part : parts_) {
      if (part.task != task) continue;
      ResourceManager resources;
      const auto plan = ExecutorPlan::Make(*part.graph, *devices_[0], [&](const Node& node) {
        return absl::StatusOr<std::shared_ptr<Kernel>>(MakeKernel(node, *devices_[0], resources));
      });
      EXPECT_EQ(plan.status(), absl::OkStatus());
      for (int i = 0; plan.ok() && i < plan->num_asking_roots; ++i) {
        const Node& root = *plan->nodes[plan->roots[i]].node;
        names.push_back(
            NameAndFrame(absl::StrCat(";;;", *root.Attr<std::string>("tensor_name"), ";")));
      }
    }
    return names;
  };
  const auto random = [](const Scope& scope, absl::string_view name) {
    return scope.Op("RandomUniform", {scope.Const(Tensor::Vector<int32_t>({2}))},
                    {{"dtype", DType::kFloat}}, name);
  };
  const Output of_ps = random(ps_, "of_ps");
  const Output of_worker = random(worker_, "of_worker");
  Fetch(worker_.Op("Add", {of_worker, of_ps}));
  ASSERT_EQ(Cut(), absl::OkStatus());
  EXPECT_THAT(asked_first(kWorker), ElementsAre("of_ps;"));
  EXPECT_THAT(asked_first(kPs), ElementsAre());
  // The ps needs a part of what the worker has at once, and can wait for the rest.
  ps_.Op("Neg", {of_worker}, {}, "wants_it");
  ASSERT_EQ(Cut(), absl::OkStatus());
  EXPECT_THAT(asked_first(kWorker), ElementsAre());
}

TEST_F(TaskPartitionsTest, DevicesOfATaskShareALoop) {
  const auto loop = WhileLoop(
      worker_, {worker_.ConstScalar<float>(0), worker_.ConstScalar<float>(1)},
      [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Output> {
        return s.Op("Less", {v[0], s.ConstScalar<float>(4)});
      },
      [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        const Scope a = s.WithDevice(absl::StrCat(kPs, "/device:CPU:0"));
        const Scope b = s.WithDevice(absl::StrCat(kPs, "/device:CPU:1"));
        const Output one = a.ConstScalar<float>(1, "one");
        return Outputs{a.Op("AddV2", {v[0], one}), b.Op("AddV2", {v[1], a.Op("Neg", {v[1]})})};
      });
  ASSERT_EQ(loop.status(), absl::OkStatus());
  Fetch(worker_.Op("AddV2", {(*loop)[0], (*loop)[1]}));
  // Existing control loops are found even if the caller does not mention them.
  for (bool is_prepared : {true, false}) {
    ASSERT_EQ(Cut(is_prepared), absl::OkStatus());
    EXPECT_EQ(parts_.size(), 3u);
    Recorder recorder;
    const auto result = Run(recorder);
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(result->scalar<float>(), 4);
  }
}

}  // namespace
}  // namespace muster
