// Hand-made bad requests that were sent to real TensorFlow tasks get the same codes and texts here.
// The recordings are those of tests/golden/wire; what differs on purpose is in kDeviations.
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <regex>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"
#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "muster/server/server.h"
#include "muster/transport/api/local_address.h"

namespace muster {
namespace {

struct Deviation {
  absl::string_view version;  // empty: both
  absl::string_view scenario;
  int number;  // in that version's recording
  absl::string_view answer;
};

constexpr Deviation kDeviations[] = {
    // Of two wordings ours is that of 1.15.
    {"2.21", "n_register_graph", 8, "NOT_FOUND: Op type not registered 'NoSuchOp'"},
    {"2.21", "n_master_errors", 8, "NOT_FOUND: Op type not registered 'NoSuchOp'"},
    // Attributes are treated as in 2.21.
    {"1.15.5", "n_register_graph", 2, "OK"},
    {"1.15.5", "n_register_graph", 3, "OK"},
    // A receive in a step that was cancelled gets the text of 2.21.
    {"1.15.5", "n_register_graph", 16, "CANCELLED: RecvAsync is cancelled."},
    // Without ":0" real masters wait for ever.
    {"2.21", "n_master_errors", 39, "INVALID_ARGUMENT: Cannot fetch 'y'"},
    {"2.21", "n_master_errors", 40, "INVALID_ARGUMENT: Cannot feed 'x'"},
    {"1.15.5", "n_master_errors", 44, "INVALID_ARGUMENT: Cannot fetch 'y'"},
    {"1.15.5", "n_master_errors", 49, "INVALID_ARGUMENT: Cannot feed 'x'"},
    // A step that repeats an id, but asks for something else: its feeds are not quoted.
    {"2.21", "n_master_errors", 44,
     "ABORTED: The same RunStep (Master) request was received twice."},
    {"1.15.5", "n_master_errors", 65,
     "ABORTED: The same RunStep (Master) request was received twice."},
};

struct Event {
  int number = 0;
  std::string kind;  // request, reply, error, cancel
  std::string source, target, method, bytes, code, message;
  double deadline = 0;
};

std::vector<Event> Recording(const std::string& version, const std::string& scenario) {
  std::ifstream file(absl::StrCat(MUSTER_GOLDEN_WIRE, "/", version, "/raw/", scenario, ".jsonl"));
  std::vector<Event> events;
  for (std::string line; std::getline(file, line);) {
    google::protobuf::Struct json;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(line, &json).ok()) << line;
    auto& fields = *json.mutable_fields();
    Event event;
    event.number = static_cast<int>(fields["n"].number_value());
    event.kind = fields["ev"].string_value();
    event.source = fields["src"].string_value();
    event.target = fields["dst"].string_value();
    event.method = fields["method"].string_value();
    event.code = fields["code"].string_value();
    event.message = fields["message"].string_value();
    event.deadline = fields["deadline"].number_value();
    EXPECT_TRUE(absl::Base64Unescape(fields["b"].string_value(), &event.bytes));
    events.push_back(std::move(event));
  }
  EXPECT_FALSE(events.empty()) << scenario;
  return events;
}

// "CODE: text" of an answer, wherever the error is.
template <typename Reply>
std::string BodyText(const std::string& bytes) {
  Reply reply;
  EXPECT_TRUE(reply.ParseFromString(bytes));
  if (reply.status_code() == 0) return "OK";
  return absl::StrCat(absl::StatusCodeToString(static_cast<absl::StatusCode>(reply.status_code())),
                      ": ", reply.status_error_message());
}

std::string ReplyText(const std::string& method, const std::string& bytes) {
  if (method == "/tensorflow.MasterService/RunStep")
    return BodyText<tensorflow::RunStepResponse>(bytes);
  if (method == "/tensorflow.WorkerService/RunGraph")
    return BodyText<tensorflow::RunGraphResponse>(bytes);
  return "OK";
}

// Hosts differ, and so does the task on which nodes without a device end up. How errors are marked
// as derived, and how messages are printed, depends on the caller's version, which is neither here.
std::string WithoutPlaces(const std::string& text) {
  static const std::regex host("running on [^ ]+\\.");
  static const std::regex task("From /job:[a-z]+/");
  const std::string there = std::regex_replace(text, host, "running on HOST.");
  return absl::StrReplaceAll(std::regex_replace(there, task, "From /job:JOB/"),
                             {{"[_Derived_]", ""}, {"goo.gle/debugstr  ", ""}});
}

uint64_t IncarnationIn(const std::string& status_reply) {
  tensorflow::GetStatusResponse reply;
  EXPECT_TRUE(reply.ParseFromString(status_reply));
  return reply.device_attributes_size() > 0
             ? static_cast<uint64_t>(reply.device_attributes(0).incarnation())
             : 0;
}

// A call under way.
class RawCall {
 public:
  RawCall(grpc::GenericStub& stub, const std::string& method, double seconds,
          const std::string& bytes) {
    const grpc::Slice slice(bytes);
    request_ = grpc::ByteBuffer(&slice, 1);
    if (seconds > 0) {
      context_.set_deadline(std::chrono::system_clock::now() +
                            std::chrono::milliseconds(static_cast<int>(seconds * 1000)));
    }
    stub.UnaryCall(&context_, method, grpc::StubOptions(), &request_, &reply_,
                   [this](grpc::Status status) {
                     status_ = std::move(status);
                     done_.set_value();
                   });
  }
  void Cancel() { context_.TryCancel(); }
  const grpc::Status& Wait() {
    if (!waited_) done_.get_future().wait();
    waited_ = true;
    return status_;
  }
  std::string bytes() {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(reply_.Dump(&slices).ok());
    std::string text;
    for (const grpc::Slice& slice : slices)
      text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return text;
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, reply_;
  grpc::Status status_;
  std::promise<void> done_;
  bool waited_ = false;
};

class RecordedRequestsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::vector<ReservedPort> ports;
    for (int i = 0; i < 2; ++i) ports.push_back(ReservedPort::Take("127.0.0.1", 0).value());
    const std::string ps = absl::StrCat("127.0.0.1:", ports[0].port());
    const std::string worker = absl::StrCat("127.0.0.1:", ports[1].port());
    ports.clear();
    for (const char* job : {"ps", "worker"}) {
      ServerOptions options;
      options.cluster = ClusterSpec({{"ps", {{0, ps}}}, {"worker", {{0, worker}}}});
      options.job = job;
      options.task = 0;
      options.stop_grace = absl::ZeroDuration();
      servers_[job] = Server::Create(std::move(options)).value();
      ASSERT_TRUE(servers_[job]->Start().ok());
      stubs_[absl::StrCat(job, ":0")] = std::make_unique<grpc::GenericStub>(grpc::CreateChannel(
          servers_[job]->target().substr(strlen("grpc://")), grpc::InsecureChannelCredentials()));
    }
  }

  // Live ids in the place of recorded ones, which have the same length as text.
  std::string Live(const Event& event) const {
    std::string bytes = absl::StrReplaceAll(event.bytes, live_);
    if (event.method == "/tensorflow.WorkerService/RegisterGraph") {
      tensorflow::RegisterGraphRequest request;
      EXPECT_TRUE(request.ParseFromString(bytes));
      for (auto& node : *request.mutable_graph_def()->mutable_node()) {
        const auto attr = node.mutable_attr()->find("send_device_incarnation");
        if (attr != node.mutable_attr()->end() &&
            static_cast<uint64_t>(attr->second.i()) == recorded_incarnation_)
          attr->second.set_i(static_cast<int64_t>(live_incarnation_));
      }
      bytes = request.SerializeAsString();
    } else if (event.method == "/tensorflow.WorkerService/RunGraph") {
      tensorflow::RunGraphRequest request;
      EXPECT_TRUE(request.ParseFromString(bytes));
      const auto graph = graphs_.find(request.graph_handle());
      if (graph != graphs_.end()) request.set_graph_handle(graph->second);
      bytes = request.SerializeAsString();
    }
    return bytes;
  }

  // Notes the ids in an answer.
  void Learn(const std::string& method, const std::string& recorded, const std::string& live) {
    if (method == "/tensorflow.MasterService/CreateSession") {
      tensorflow::CreateSessionResponse old, now;
      ASSERT_TRUE(old.ParseFromString(recorded) && now.ParseFromString(live));
      live_[old.session_handle()] = now.session_handle();
    } else if (method == "/tensorflow.WorkerService/RegisterGraph") {
      tensorflow::RegisterGraphResponse old, now;
      ASSERT_TRUE(old.ParseFromString(recorded) && now.ParseFromString(live));
      graphs_[old.graph_handle()] = now.graph_handle();
    } else if (method == "/tensorflow.WorkerService/GetStatus") {
      recorded_incarnation_ = IncarnationIn(recorded);
      live_incarnation_ = IncarnationIn(live);
      live_[absl::StrFormat("%016x", recorded_incarnation_)] =
          absl::StrFormat("%016x", live_incarnation_);
      live_[absl::StrCat(recorded_incarnation_)] = absl::StrCat(live_incarnation_);
    }
  }

  const Deviation* FindDeviation(const std::string& scenario, int number) const {
    for (const Deviation& deviation : kDeviations) {
      if ((deviation.version.empty() || deviation.version == GetParam()) &&
          deviation.scenario == scenario && deviation.number == number)
        return &deviation;
    }
    return nullptr;
  }

  void Replay(const std::string& scenario) {
    std::map<int, Event> requests;
    std::map<int, std::unique_ptr<RawCall>> calls;
    for (const Event& event : Recording(GetParam(), scenario)) {
      const int n = event.number;
      if (event.kind == "request") {
        if (event.source != "client") continue;
        // What is still waited for must have arrived.
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        requests[n] = event;
        calls[n] = std::make_unique<RawCall>(*stubs_.at(event.target), event.method, event.deadline,
                                             Live(event));
        continue;
      }
      if (!calls.contains(n)) continue;
      const std::string& method = requests[n].method;
      SCOPED_TRACE(absl::StrCat(scenario, " [", n, "] ", method));
      const Deviation* deviation = FindDeviation(scenario, n);
      if (event.kind == "cancel" && deviation == nullptr) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it must have arrived
        calls[n]->Cancel();
        calls[n]->Wait();
        continue;
      }
      const grpc::Status& status = calls[n]->Wait();
      std::string answer;
      if (status.ok()) {
        const std::string bytes = calls[n]->bytes();
        if (event.kind == "reply") Learn(method, event.bytes, bytes);
        answer = ReplyText(method, bytes);
      } else {
        const auto code = static_cast<absl::StatusCode>(status.error_code());
        answer = absl::StrCat(absl::StatusCodeToString(code), ": ", status.error_message());
      }
      for (const auto& [old, now] : live_) answer = absl::StrReplaceAll(answer, {{now, old}});
      if (deviation != nullptr) {
        EXPECT_THAT(answer, testing::StartsWith(std::string(deviation->answer)));
        continue;
      }
      const std::string expected = event.kind == "reply"
                                       ? ReplyText(method, event.bytes)
                                       : absl::StrCat(event.code, ": ", event.message);
      EXPECT_EQ(WithoutPlaces(answer), WithoutPlaces(expected));
    }
  }

  std::map<std::string, std::unique_ptr<Server>> servers_;
  std::map<std::string, std::unique_ptr<grpc::GenericStub>> stubs_;
  std::map<std::string, std::string> live_, graphs_;
  uint64_t recorded_incarnation_ = 0, live_incarnation_ = 0;
};

TEST_P(RecordedRequestsTest, WorkerAnswersAsRecorded) {
  Replay("n_worker_errors");
  Replay("n_register_graph");  // in the session that the first has made
}

TEST_P(RecordedRequestsTest, MasterAnswersAsRecorded) {
  Replay("n_master_errors");
}

INSTANTIATE_TEST_SUITE_P(Versions, RecordedRequestsTest, testing::Values("1.15.5", "2.21"),
                         [](const auto& version) {
                           return "V" + absl::StrReplaceAll(version.param, {{".", "_"}});
                         });

}  // namespace
}  // namespace muster
