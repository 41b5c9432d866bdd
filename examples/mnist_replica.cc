// One task of a cluster that trains a network on handwritten digits: the C++ twin of
// mnist_replica.py.
//
//   muster launch --ps 1 --workers 2 build/release/bin/mnist_replica_cc --logdir FOLDER
//
// starts all tasks on this machine. On several machines each runs this program with --ps_hosts,
// --worker_hosts, --job_name and --task_index of its own. Parameter servers keep the variables;
// every worker computes gradients on batches of its own. Without --sync each applies them at once,
// with --sync one update takes the mean of all workers' gradients. With --allreduce there are no
// parameter servers (--ps 0): every worker has the whole network, and gradients are averaged
// over all. Variables have the names of the Python program, so that either goes on from the other's
// checkpoints.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "idx_reader.h"

#include "muster/muster.h"

ABSL_FLAG(std::vector<std::string>, ps_hosts, {}, "addresses of the parameter servers");
ABSL_FLAG(std::vector<std::string>, worker_hosts, {}, "addresses of the workers");
ABSL_FLAG(std::string, job_name, "", "ps or worker");
ABSL_FLAG(int, task_index, 0, "which of them this process is; worker 0 is the chief");
ABSL_FLAG(std::string, data_dir, "data/digits", "the four files of MNIST, gzipped");
ABSL_FLAG(std::string, logdir, "", "for checkpoints and TensorBoard events");
ABSL_FLAG(int64_t, train_steps, 1500, "of all workers together");
ABSL_FLAG(int64_t, batch_size, 100, "images in one step of one worker");
ABSL_FLAG(double, learning_rate, 0.002, "of Adam");
ABSL_FLAG(bool, sync, false, "average the gradients of all workers for each step");
ABSL_FLAG(bool, allreduce, false, "the same without parameter servers: all workers have the model");

namespace {

using muster::DType;
using muster::Node;
using muster::Output;
using muster::PartialShape;
using muster::Scope;
using muster::Session;
using muster::Tensor;
namespace ops = muster::ops;

using Feeds = std::vector<std::pair<Output, Tensor>>;

// --- The network: two convolutions and a hidden layer; small enough for a laptop.

// Activations of `filters` 5x5 windows at every second pixel. The model keeps the variables.
Output Convolution(const Scope& scope, muster::Model& model, Output input, int64_t filters) {
  const int64_t channels = input.shape().dim(3);
  const auto kernel =
      model.AddVariable(scope, "kernel", muster::GlorotUniform({5, 5, channels, filters}));
  const auto bias = model.AddVariable(scope, "bias", muster::Zeros({filters}));
  const Output sums = ops::Conv2D(scope, input, Value(scope, kernel), {1, 2, 2, 1}, "SAME");
  return ops::Relu(scope, ops::BiasAdd(scope, sums, Value(scope, bias)));
}

// input * kernel + bias.
Output Dense(const Scope& scope, muster::Model& model, Output input, int64_t units) {
  const auto kernel =
      model.AddVariable(scope, "kernel", muster::GlorotUniform({input.shape().dim(1), units}));
  const auto bias = model.AddVariable(scope, "bias", muster::Zeros({units}));
  return ops::BiasAdd(scope, ops::MatMul(scope, input, Value(scope, kernel)), Value(scope, bias));
}

Output Logits(const Scope& scope, muster::Model& model, Output images) {
  const Output pixels = ops::Reshape(scope, images, scope.ConstVector({-1, 28, 28, 1}));
  const Output first = Convolution(scope.NameScope("conv1"), model, pixels, 8);
  const Output second = Convolution(scope.NameScope("conv2"), model, first, 16);
  const Output flat = ops::Reshape(scope, second, scope.ConstVector({-1, 7 * 7 * 16}));
  const Output hidden = ops::Relu(scope, Dense(scope.NameScope("hidden"), model, flat, 128));
  return Dense(scope.NameScope("logits"), model, hidden, 10);
}

struct Network {
  Output images, labels, loss, accuracy;
  Node* train = nullptr;
  muster::Model model;  // variables, summaries, the global step
};

// The scope keeps errors of single nodes; they are returned at the end.
absl::StatusOr<Network> Build(const Scope& scope, int num_workers) {
  Network net;
  net.model.AddGlobalStep(scope);
  net.images =
      ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape({-1, 784}), .name = "images"});
  net.labels =
      ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape({-1, 10}), .name = "labels"});
  const Output logits = Logits(scope, net.model, net.images);
  const Output losses = ops::SoftmaxCrossEntropyWithLogits(scope, logits, net.labels).loss;
  net.loss = ops::Mean(scope, losses, scope.ConstVector({0}));
  const Output axis = scope.ConstScalar<int32_t>(1);
  const Output right =
      ops::Equal(scope, ops::ArgMax(scope, logits, axis), ops::ArgMax(scope, net.labels, axis));
  net.accuracy = ops::Mean(scope, ops::Cast(scope, right, DType::kFloat), scope.ConstVector({0}));
  net.model.AddScalarSummary(scope, "loss", net.loss);
  net.model.AddScalarSummary(scope, "accuracy", net.accuracy);

  muster::AdamOptimizer optimizer(absl::GetFlag(FLAGS_learning_rate));
  muster::MinimizeOptions options;
  if (absl::GetFlag(FLAGS_sync)) {
    options.sync = muster::SyncReplicasOptions{.replicas_to_aggregate = num_workers};
  }
  if (absl::GetFlag(FLAGS_allreduce)) options.all_reduce = muster::AllReduceOptions{};
  ASSIGN_OR_RETURN(net.train, net.model.Minimize(scope, net.loss, optimizer, options));
  RETURN_IF_ERROR(scope.status());
  return net;
}

// --- The images

struct Examples {
  Tensor images, labels;
  Feeds FeedsFor(const Network& net) const { return {{net.images, images}, {net.labels, labels}}; }
};

absl::StatusOr<Examples> ReadExamples(const std::string& prefix) {
  Examples examples;
  ASSIGN_OR_RETURN(examples.images, ReadImages(prefix + "-images-idx3-ubyte.gz"));
  ASSIGN_OR_RETURN(examples.labels, ReadLabels(prefix + "-labels-idx1-ubyte.gz"));
  return examples;
}

// Goes through the examples in a random order, another one each time.
class Batches {
 public:
  Batches(Examples all, int64_t size, int seed)
      : all_(std::move(all)),
        order_(static_cast<size_t>(all_.images.dim(0))),
        size_(std::min(size, all_.images.dim(0))),
        random_(static_cast<unsigned>(seed)) {
    std::iota(order_.begin(), order_.end(), 0);
    next_ = order_.size();
  }

  Examples Next() {
    if (next_ + static_cast<size_t>(size_) > order_.size()) {
      std::shuffle(order_.begin(), order_.end(), random_);
      next_ = 0;
    }
    Examples batch = {Pick(all_.images), Pick(all_.labels)};
    next_ += static_cast<size_t>(size_);
    return batch;
  }

 private:
  Tensor Pick(const Tensor& rows) const {
    const int64_t width = rows.dim(1);
    Tensor picked(DType::kFloat, {size_, width});
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t row = order_[next_ + static_cast<size_t>(i)];
      std::copy_n(rows.data<float>() + row * width, width, picked.data<float>() + i * width);
    }
    return picked;
  }

  const Examples all_;
  std::vector<int64_t> order_;
  const int64_t size_;
  std::mt19937 random_;
  size_t next_ = 0;
};

// --- A hook of one's own: prints now and then how the model does on the test images.
class Progress : public muster::SessionRunHook {
 public:
  Progress(const Network& net, const Examples& test, int64_t every_steps)
      : step_(net.model.global_step->snapshot),
        loss_(net.loss),
        accuracy_(net.accuracy),
        test_(test.FeedsFor(net)),
        timer_(muster::Interval::Steps(every_steps)) {}

  absl::Status Begin() override {
    started_ = absl::Now();
    return absl::OkStatus();
  }
  // What every step of the loop fetches for this hook.
  absl::StatusOr<std::optional<muster::RunArgs>> BeforeRun(muster::RunContext&) override {
    return muster::RunArgs{.fetches = {step_, loss_}};
  }
  absl::Status AfterRun(muster::RunContext& context, const muster::RunValues& values) override {
    const int64_t step = values.results[0].scalar<int64_t>();
    if (!timer_.Due(step)) return absl::OkStatus();
    timer_.Happened(step);
    return Print(context.session(), step, values.results[1].scalar<float>());
  }
  absl::Status End(Session& session) override {
    ASSIGN_OR_RETURN(const std::vector<Tensor> last, session.Run(test_, {step_, loss_}));
    RETURN_IF_ERROR(Print(session, last[0].scalar<int64_t>(), last[1].scalar<float>()));
    std::printf("test accuracy %.4f\n", last_accuracy_);
    return absl::OkStatus();
  }

 private:
  absl::Status Print(Session& session, int64_t step, double loss) {
    ASSIGN_OR_RETURN(const std::vector<Tensor> result, session.Run(test_, {accuracy_}));
    last_accuracy_ = result[0].scalar<float>();
    std::printf("step %5ld  loss %.4f  test accuracy %.4f  after %.1f s\n", step, loss,
                last_accuracy_, absl::ToDoubleSeconds(absl::Now() - started_));
    return absl::OkStatus();
  }

  const Output step_, loss_, accuracy_;
  const Feeds test_;
  muster::StepTimer timer_;
  absl::Time started_;
  double last_accuracy_ = 0;
};

// --- One task

// "a:1", "b:1" as tasks 0 and 1.
muster::ClusterSpec::Tasks Numbered(const std::vector<std::string>& hosts) {
  muster::ClusterSpec::Tasks tasks;
  for (const std::string& host : hosts) tasks.emplace(static_cast<int>(tasks.size()), host);
  return tasks;
}

absl::Status Train(muster::Server& server, int index, int num_ps, int num_workers) {
  const std::string data = absl::GetFlag(FLAGS_data_dir);
  ASSIGN_OR_RETURN(Examples train, ReadExamples(data + "/train"));
  ASSIGN_OR_RETURN(const Examples test, ReadExamples(data + "/t10k"));
  Batches batches(std::move(train), absl::GetFlag(FLAGS_batch_size), index);
  const int64_t steps = absl::GetFlag(FLAGS_train_steps);

  // Variables go to the parameter servers in turn, all other nodes to this worker; everything does
  // where gradients are averaged over all workers.
  const std::string own = absl::StrCat("/job:worker/task:", index);
  muster::Graph graph;
  graph.seed = 1;
  const Scope scope = absl::GetFlag(FLAGS_allreduce)
                          ? Scope(graph).WithDevice(own)
                          : Scope(graph).WithDeviceFunction(
                                muster::ReplicaDeviceSetter(num_ps, {.worker_device = own}));
  ASSIGN_OR_RETURN(const Network net, Build(scope, num_workers));

  muster::MonitoredTrainingSessionOptions options;
  options.graph = &graph;
  // Workers need the parameter servers, not each other: the death of one does not stop the others.
  muster::SessionConfig config;
  config.device_filters = {"/job:ps", own};
  ASSIGN_OR_RETURN(options.session, muster::OptionsForTarget(server.target(), config));
  // Ctrl-C and SIGTERM end the loop below, and the chief saves.
  options.session.interrupted = muster::CatchInterruptions();
  options.is_chief = index == 0;
  options.checkpoint_dir = absl::GetFlag(FLAGS_logdir);
  options.save_checkpoint = muster::Interval::Every(absl::Seconds(10));
  options.model = net.model;
  options.all_reduce.members = muster::AllReduceMembers(server.cluster(), "worker");
  options.all_reduce.index = index;
  options.last_step = steps;
  options.chief_only_hooks = {
      std::make_shared<Progress>(net, test, std::max<int64_t>(1, steps / 15))};
  // Initializes the variables or restores them, saves, writes summaries, and starts over from the
  // last checkpoint when a task was lost.
  ASSIGN_OR_RETURN(const std::unique_ptr<muster::MonitoredSession> session,
                   muster::MonitoredTrainingSession(std::move(options)));
  int64_t own_steps = 0;
  absl::Status status;
  while (status.ok() && !session->ShouldStop()) {
    status = session->Run(batches.Next().FeedsFor(net), {}, {net.train}).status();
    ++own_steps;
  }
  RETURN_IF_ERROR(session->CloseAfter(status));
  std::printf("worker %d made %ld steps\n", index, own_steps);
  return absl::OkStatus();
}

absl::Status RunTask() {
  const std::vector<std::string> ps = absl::GetFlag(FLAGS_ps_hosts);
  const std::vector<std::string> workers = absl::GetFlag(FLAGS_worker_hosts);
  muster::ServerOptions options;
  std::map<std::string, muster::ClusterSpec::Tasks> jobs = {{"worker", Numbered(workers)}};
  if (!ps.empty()) jobs["ps"] = Numbered(ps);
  options.cluster = muster::ClusterSpec(jobs);
  options.job = absl::GetFlag(FLAGS_job_name);
  options.task = absl::GetFlag(FLAGS_task_index);
  ASSIGN_OR_RETURN(const std::unique_ptr<muster::Server> server,
                   muster::Server::Create(std::move(options)));
  RETURN_IF_ERROR(server->Start());
  if (server->self().job == "ps") {
    server->Join();  // serves until it is killed
    return absl::OkStatus();
  }
  return Train(*server, server->self().task, static_cast<int>(ps.size()),
               static_cast<int>(workers.size()));
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("One task of a cluster that trains on handwritten digits.");
  absl::FlagsUsageConfig help;  // --help lists the flags above
  help.contains_help_flags = [](absl::string_view file) {
    return absl::EndsWith(file, "mnist_replica.cc");
  };
  absl::SetFlagsUsageConfig(help);
  absl::ParseCommandLine(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // progress is seen at once, also through a pipe
  const absl::Status status = RunTask();
  if (!status.ok()) {
    const std::string line =
        muster::IsInterruption(status) ? std::string(status.message()) : status.ToString();
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  return muster::ExitStatus(status);
}
