// Every request of one service (MUSTER_FUZZED_SERVICE) against a real master and real workers on
// the virtual clock. The first byte chooses the method, the rest is the request as it would arrive.
// Every call must end by itself or soon after it was cancelled.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "fuzz_input.h"
#include "message_mutator.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/base/log.h"
#include "muster/graph/build/scope.h"
#include "muster/master/master.h"
#include "muster/transport/inproc/in_process_transport.h"
#include "muster/transport/messages/methods.h"
#include "muster/worker/worker.h"

namespace muster {
namespace {

constexpr int kTasks = 2;
// In the place of what differs from run to run, so that inputs keep their meaning.
constexpr absl::string_view kSessionMark = "SESSIONSESSIONSE";
constexpr absl::string_view kIncarnationMarks[kTasks] = {"INCARNATION-CPU0", "INCARNATION-CPU1"};

const std::vector<const Method*>& FuzzedMethods() {
  static const auto& methods = *[] {
    auto list = std::make_unique<std::vector<const Method*>>();
    for (const Method& method : AllMethods()) {
      if (method.service == MUSTER_FUZZED_SERVICE) list->push_back(&method);
    }
    return list.release();
  }();
  return methods;
}

const Method& MethodOf(uint8_t choice) {
  return *FuzzedMethods()[choice % FuzzedMethods().size()];
}

// On task 0 x, y = x * x and a variable; on task 1 z = y + w; a target without outputs.
absl::Status BuildGraph(Graph& graph) {
  const Scope scope(graph);
  const Scope first = scope.WithDevice("/job:w/task:0");
  const Scope second = scope.WithDevice("/job:w/task:1");
  const Output x = first.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
  const Output y = first.Op("Mul", {x, x}, {}, "y");
  const Output v = first.Op("VariableV2", {},
                            {{"shape", PartialShape::Vector(2)}, {"dtype", DType::kFloat}}, "v");
  const float zeros[] = {0, 0};
  const Output init =
      first.Op("Assign", {v, first.Const(Tensor::Vector<float>(zeros), "zeros")}, {}, "init");
  first.Op("AssignAdd", {v, x}, {}, "inc");
  const Output w = second.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "w");
  second.Op("Add", {y, w}, {}, "z");
  const Output text = second.Op("Placeholder", {}, {{"dtype", DType::kString}}, "text");
  second.Op("StringJoin", {std::vector<Output>{text, text}}, {}, "joined");
  scope.WithControlDependencies({init.node}).Add("NoOp", {}, {}, "go");
  return scope.status();
}

// Two tasks in this process. Thread-compatible.
class FuzzCluster {
 public:
  FuzzCluster() : transport_(InProcessTransport::Create(*scheduler_)) {
    SeedIds(7);
    std::map<std::string, ClusterSpec::Tasks> jobs;
    for (int i = 0; i < kTasks; ++i) jobs["w"][i] = absl::StrCat("t", i, ":1");
    for (int i = 0; i < kTasks; ++i) {
      WorkerOptions options;
      options.self = TaskName{"w", i};
      options.cluster = ClusterSpec(jobs);
      options.scheduler = scheduler_.get();
      options.transport = transport_.get();
      workers_.push_back(Worker::Create(std::move(options)).value());
    }
    MasterOptions options;
    options.self = TaskName{"w", 0};
    options.port = 1;
    options.scheduler = scheduler_.get();
    options.transport = transport_.get();
    options.peers = workers_[0]->peers();
    options.local_worker = workers_[0];
    master_ = Master::Create(std::move(options));
    for (int i = 0; i < kTasks; ++i) {
      transport_->Listen(jobs["w"][i], {workers_[i], i == 0 ? master_ : nullptr});
    }
    MakeSession();
    before_ = State();
  }

  ~FuzzCluster() {
    const absl::Status reason = absl::CancelledError("over");
    bool stopped = false;
    master_->Stop(reason, [&stopped](const absl::Status&) { stopped = true; });
    for (const auto& worker : workers_) worker->Stop(reason);
    FuzzCheck(RunUntil([&] { return stopped; }, absl::Seconds(60)), "the master stops");
    RunUntil([] { return false; }, absl::Seconds(60));
    // The transport holds the tasks, which hold their peers, which hold the transport's part.
    for (int i = 0; i < kTasks; ++i) transport_->Close(absl::StrCat("t", i, ":1"));
  }

  void Serve(const Method& method, std::string request) {
    auto answered = std::make_shared<bool>(false);
    IncomingCall call;
    call.request = InPieces(WithMarksReplaced(std::move(request)), 0);
    call.options.cancellation = std::make_shared<Cancellation>();
    call.master = master_.get();
    call.worker = workers_[0].get();
    call.capabilities = &capabilities_;
    call.reply = [answered](const absl::StatusOr<WireMessage>& reply) {
      FuzzCheck(!*answered, "one answer");
      *answered = true;
      if (reply.ok()) (void)reply->Text();
    };
    const std::shared_ptr<Cancellation> cancellation = call.options.cancellation;
    method.serve(std::move(call));
    const auto done = [answered] { return *answered; };
    if (!RunUntil(done, absl::Seconds(3))) {
      cancellation->Cancel(absl::CancelledError("enough"));
      FuzzCheck(RunUntil(done, absl::Seconds(60)), "a cancelled call ends");
    }
    RunReady();
    ++served_;
  }

  // The call has left nothing behind that could change how the next one goes.
  bool AsBefore() const { return served_ < 200 && State() == before_; }

 private:
  void MakeSession() {
    CreateSessionRequest request;
    request.graph = BuildGraph;
    request.target = "grpc://t0:1";
    const auto session = Wait<CreateSessionReply>(
        [&](auto done) { master_->CreateSession({}, std::move(request), std::move(done)); });
    FuzzCheck(session.ok(), session.status().ToString());
    session_ = session->session;
    // Makes graph 0000000000000001 on both tasks.
    const float pair[] = {1, 2};
    RunStepRequest step;
    step.session = session_;
    step.feeds = {{"x:0", Tensor::Vector<float>(pair)}, {"w:0", Tensor::Scalar<float>(1)}};
    step.fetches = {"z:0"};
    step.targets = {"go"};
    const auto ran = Wait<RunStepReply>(
        [&](auto done) { master_->RunStep({}, std::move(step), std::move(done)); });
    FuzzCheck(ran.ok(), ran.status().ToString());
    MakeCallableRequest callable;
    callable.session = session_;
    callable.feeds = {"x:0"};
    callable.fetches = {"y:0"};
    const auto made = Wait<int64_t>(
        [&](auto done) { master_->MakeCallable({}, std::move(callable), std::move(done)); });
    FuzzCheck(made.ok(), made.status().ToString());
    PartialRunSetupRequest partial;
    partial.session = session_;
    partial.feeds = {"x:0", "w:0"};
    partial.fetches = {"y:0", "z:0"};
    const auto set_up = Wait<std::string>(
        [&](auto done) { master_->PartialRunSetup({}, std::move(partial), std::move(done)); });
    FuzzCheck(set_up.ok(), set_up.status().ToString());
  }

  template <typename Reply, typename Start>
  absl::StatusOr<Reply> Wait(Start start) {
    auto reply = std::make_shared<std::optional<absl::StatusOr<Reply>>>();
    start([reply](absl::StatusOr<Reply> r) { *reply = std::move(r); });
    RunUntil([&] { return reply->has_value(); }, absl::Seconds(60));
    if (!*reply) return absl::UnknownError("no answer");
    return **std::move(reply);
  }

  void RunReady() {
    while (scheduler_->RunOne()) {
    }
  }
  template <typename Condition>
  bool RunUntil(Condition condition, absl::Duration limit) {
    const absl::Time end = scheduler_->clock().Now() + limit;
    scheduler_->RunUntil([&] { return condition() || scheduler_->clock().Now() > end; });
    return condition();
  }

  std::string WithMarksReplaced(std::string text) const {
    Replace(text, kSessionMark, session_);
    for (int i = 0; i < kTasks; ++i) {
      const uint64_t incarnation = workers_[i]->devices()[0]->attributes().incarnation;
      Replace(text, kIncarnationMarks[i], absl::StrFormat("%016x", incarnation));
    }
    return text;
  }
  static void Replace(std::string& text, absl::string_view mark, absl::string_view by) {
    FuzzCheck(mark.size() == by.size(), "lengths stay");
    text = absl::StrReplaceAll(text, {{mark, by}});
  }

  std::vector<int64_t> State() const {
    const Master::Counts master = master_->counts();
    std::vector<int64_t> state = {master.sessions, master.steps, master.steps_run};
    for (const auto& worker : workers_) {
      const Worker::Counts counts = worker->counts();
      state.insert(state.end(), {counts.sessions, counts.graphs, counts.steps, counts.steps_run});
    }
    return state;
  }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(7);
  std::unique_ptr<InProcessTransport> transport_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::shared_ptr<Master> master_;
  std::string session_;
  std::vector<std::string> capabilities_;
  std::vector<int64_t> before_;
  int served_ = 0;
};

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto& cluster = *new std::unique_ptr<muster::FuzzCluster>;
  muster::SetLogLevel(static_cast<muster::LogLevel>(3));
  muster::FuzzInput input(data, size);
  const muster::Method& method = muster::MethodOf(input.Byte());
  if (cluster == nullptr) cluster = std::make_unique<muster::FuzzCluster>();
  cluster->Serve(method, std::string(input.rest()));
  if (!cluster->AsBefore()) cluster.reset();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::unique_ptr<google::protobuf::Message> message;
  return muster::MutateInput(
      data, size, max_size, seed, 1, [&](uint8_t choice) -> google::protobuf::Message* {
        const auto* type =
            tensorflow::RunStepRequest::descriptor()->file()->pool()->FindMessageTypeByName(
                absl::StrCat("tensorflow.", std::string(muster::MethodOf(choice).name), "Request"));
        if (type == nullptr) return nullptr;
        message.reset(
            google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
        return message.get();
      });
}
