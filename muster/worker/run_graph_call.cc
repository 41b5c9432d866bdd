#include "muster/worker/run_graph_call.h"

#include <atomic>

#include "muster/runtime/trace_proto.h"

namespace muster {
namespace {

absl::Status DeadFetch(int64_t step, absl::string_view key) {
  return Internal("Failed to fetch outputs for step ", step,
                  ". (Original error message: The tensor returned for ", key, " was not valid.)");
}

}  // namespace

void RunGraphCall::Start() {
  on_cancel_.StartScheduled(
      options_.caller, *options_.control, options_.step->weak_from_this(),
      [grace = options_.cancel_grace, control = options_.control](
          WorkerStep& step, const absl::Status&) { step.Cancel(grace, *control); });
  absl::Status sent;
  for (NamedTensor& value : options_.request.send) {
    sent = options_.step->rendezvous->Send(value.name, {std::move(value.tensor), false});
    if (!sent.ok()) break;
  }
  options_.request.send.clear();
  if (!sent.ok() && !options_.request.is_partial) {
    Answer(std::move(sent));
    return;
  }
  // A partial run whose rendezvous is closed ends by itself, and says why.
  if (options_.starts_step) options_.step->Start();
  options_.request.is_partial ? RunPart() : RunWhole();
}

void RunGraphCall::RunWhole() {
  options_.step->WhenDone([self = shared_from_this()](absl::Status status) {
    if (!status.ok()) {
      self->Answer(std::move(status));
      return;
    }
    self->Receive([self](absl::StatusOr<std::vector<NamedTensor>> tensors) {
      self->AnswerWhole(std::move(tensors));
    });
  });
}

void RunGraphCall::AnswerWhole(absl::StatusOr<std::vector<NamedTensor>> tensors) {
  if (!tensors.ok()) {
    Answer(tensors.status());
    return;
  }
  RunGraphReply reply;
  reply.recv = *std::move(tensors);
  const auto graphs = options_.step->graph().partitions->graphs();
  if (options_.request.record_timeline) {
    reply.step_stats =
        SerializeStepStats(options_.step->TakeTraces(), graphs, options_.control->clock());
  }
  if (options_.request.record_partition_graphs) {
    for (const auto& graph : graphs) {
      absl::StatusOr<std::string> serialized = SerializeGraph(*graph);
      if (!serialized.ok()) {
        Answer(serialized.status());
        return;
      }
      reply.partition_graphs.push_back(*std::move(serialized));
    }
  }
  Answer(std::move(reply));
}

void RunGraphCall::RunPart() {
  Receive([self = shared_from_this()](absl::StatusOr<std::vector<NamedTensor>> tensors) mutable {
    const bool waits_for_end =
        tensors.ok() ? self->options_.request.is_last_partial : IsDerived(tensors.status());
    if (!waits_for_end) {
      if (!tensors.ok()) {
        self->Answer(tensors.status());
        return;
      }
      RunGraphReply reply;
      reply.recv = *std::move(tensors);
      self->Answer(std::move(reply));
      return;
    }
    // A receive that failed has failed because the step did: the executors know why.
    WorkerStep& step = *self->options_.step;
    step.WhenDone([self, tensors = std::move(tensors)](absl::Status status) mutable {
      if (status.ok()) status = tensors.status();
      if (!status.ok()) {
        self->Answer(std::move(status));
        return;
      }
      RunGraphReply reply;
      reply.recv = *std::move(tensors);
      self->Answer(std::move(reply));
    });
  });
}

void RunGraphCall::Receive(Received done) {
  struct Gathered {
    Mutex mutex;
    absl::Status status ABSL_GUARDED_BY(mutex);
    std::vector<NamedTensor> tensors;  // each slot written once, before `left` goes down
    std::atomic<size_t> left;
    Received done;
  };
  const std::vector<std::string>& keys = options_.request.recv_keys;
  if (keys.empty()) {
    std::move(done)(std::vector<NamedTensor>());
    return;
  }
  auto gathered = std::make_shared<Gathered>();
  gathered->tensors.resize(keys.size());
  gathered->left = keys.size();
  gathered->done = std::move(done);
  for (size_t i = 0; i < keys.size(); ++i) {
    gathered->tensors[i].name = keys[i];
    options_.step->rendezvous->RecvAsync(keys[i], [gathered, i, step = options_.step->id()](
                                                      absl::StatusOr<Rendezvous::Value> value) {
      absl::Status status = value.status();
      if (value.ok() && value->is_dead) status = DeadFetch(step, gathered->tensors[i].name);
      if (status.ok()) gathered->tensors[i].tensor = std::move(value->tensor);
      if (!status.ok()) {
        MutexLock lock(gathered->mutex);
        if (gathered->status.ok()) gathered->status = std::move(status);
      }
      if (gathered->left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      absl::Status result;
      {
        MutexLock lock(gathered->mutex);
        result = gathered->status;
      }
      if (!result.ok()) {
        std::move(gathered->done)(std::move(result));
      } else {
        std::move(gathered->done)(std::move(gathered->tensors));
      }
    });
  }
}

void RunGraphCall::Answer(absl::StatusOr<RunGraphReply> reply) {
  on_cancel_.Release();
  options_.steps->EndRun(options_.step);
  std::move(options_.done)(std::move(reply));
}

}  // namespace muster
