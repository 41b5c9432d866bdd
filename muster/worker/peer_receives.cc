#include "muster/worker/peer_receives.h"

#include "absl/hash/hash.h"
#include "absl/strings/match.h"

#include "muster/base/cancel_callback.h"
#include "muster/worker/batch_receive.h"
#include "muster/worker/transfer_key.h"

namespace muster {
namespace {

constexpr absl::Duration kGivenUpGrace = absl::Seconds(2);
// More than a step has: those that were forgotten are all looked at again.
constexpr size_t kRememberedKeys = 1 << 20;

using PeerReceive = AnswerOnce<absl::StatusOr<RecvTensorReply>>;
using PeerFetch = AnswerOnce<absl::StatusOr<RecvBufReply>>;

}  // namespace

// --- Tensors

std::shared_ptr<WorkerStep> PeerReceives::RecvTensor(CallOptions call, RecvTensorRequest request,
                                                     CallDone<RecvTensorReply> done) {
  if (cache_ != nullptr && request.request_id != 0) {
    // A reply that is kept is wanted even when the call that asked for it is gone.
    call.cancellation = nullptr;
    if (!cache_->Begin(request.request_id, request.step_id, std::move(done))) return nullptr;
    done = [cache = cache_, id = request.request_id](absl::StatusOr<RecvTensorReply> reply) {
      cache->Finish(id, std::move(reply));
    };
  }
  absl::StatusOr<std::shared_ptr<WorkerStep>> step = StepOf(request);
  if (!step.ok()) {
    std::move(done)(step.status());
    return nullptr;
  }
  Receive(*step, request.key, call.cancellation, std::move(done));
  return *std::move(step);
}

absl::StatusOr<std::shared_ptr<WorkerStep>> PeerReceives::StepOf(const RecvTensorRequest& request) {
  if (!options_.requests->IsNew(request.request_id)) {
    return absl::AbortedError(absl::StrCat(
        "The same RecvTensor (GrpcWorker) request was received twice. step_id: ", request.step_id,
        " rendezvous_key: \"", request.key, "\" request_id: ", request.request_id));
  }
  RETURN_IF_ERROR(CheckKey(request.key));
  return options_.steps->ForReceive(request.step_id);
}

void PeerReceives::Receive(const std::shared_ptr<WorkerStep>& step, const std::string& key,
                           const std::shared_ptr<Cancellation>& caller,
                           CallDone<RecvTensorReply> done) {
  auto receive = std::make_shared<PeerReceive>(std::move(done));
  const RemoteRendezvous::Token waiting = step->rendezvous->RecvForPeer(
      key, [receive, log = options_.log](absl::StatusOr<Rendezvous::Value> value) {
        if (value.ok()) {
          log->CountSent(value->tensor);
          receive->Answer(RecvTensorReply{*std::move(value), false});
        } else {
          receive->Answer(value.status());
        }
      });
  if (receive->answered()) return;
  receive->on_cancel.StartScheduled(
      caller, *options_.control, std::weak_ptr<PeerReceive>(receive),
      [steps = options_.steps, step, waiting, grace = options_.cancel_grace,
       control = options_.control](PeerReceive& call, const absl::Status& reason) {
        if (!step->rendezvous->StopWaiting(waiting)) return;
        // The step cannot go on without the receiver.
        if (steps->ReceiveStopped(step)) step->AbortAfter(grace, *control);
        call.Answer(reason);
      });
}

std::shared_ptr<WorkerStep> PeerReceives::RecvTensors(CallOptions call, RecvTensorsRequest request,
                                                      CallDone<RecvTensorsReply> done) {
  absl::StatusOr<std::shared_ptr<WorkerStep>> step = StepOf(request);
  if (!step.ok()) {
    std::move(done)(step.status());
    return nullptr;
  }
  BatchReceive::Options receive;
  receive.keys = std::move(request.keys);
  receive.done = std::move(done);
  receive.step = *step;
  receive.steps = options_.steps;
  receive.caller = std::move(call.cancellation);
  receive.cancel_grace = options_.cancel_grace;
  receive.control = options_.control;
  receive.log = options_.log;
  std::make_shared<BatchReceive>(std::move(receive))->Start();
  return *std::move(step);
}

absl::StatusOr<std::shared_ptr<WorkerStep>> PeerReceives::StepOf(
    const RecvTensorsRequest& request) {
  const size_t count = request.keys.size();
  if (count == 0 || count > RecvTensorsRequest::kMaxKeys) {
    return InvalidArgument("RecvTensors asks for ", count, " tensors; it may be 1 to ",
                           RecvTensorsRequest::kMaxKeys);
  }
  if (!options_.requests->IsNew(request.request_id)) {
    return absl::AbortedError(
        absl::StrCat("The same RecvTensors request was received twice. step_id: ", request.step_id,
                     " request_id: ", request.request_id));
  }
  RETURN_IF_ERROR(CheckKeys(request.keys));
  return options_.steps->ForReceive(request.step_id, static_cast<int64_t>(count));
}

// --- Keys

// Steps repeat themselves, and so do their keys.
absl::Status PeerReceives::CheckKeys(const KeyList& keys) {
  std::vector<size_t> unknown;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < keys.size(); ++i)
      if (!good_keys_.contains(absl::HashOf(keys[i]))) unknown.push_back(i);
  }
  for (const size_t i : unknown) RETURN_IF_ERROR(CheckNewKey(std::string(keys[i])));
  return absl::OkStatus();
}

absl::Status PeerReceives::CheckKey(absl::string_view key) {
  {
    MutexLock lock(mutex_);
    if (good_keys_.contains(absl::HashOf(key))) return absl::OkStatus();
  }
  return CheckNewKey(std::string(key));
}

absl::Status PeerReceives::CheckNewKey(const std::string& key) {
  RETURN_IF_ERROR(ParseKey(key));
  if (!absl::EndsWith(key, ";0:0")) return absl::OkStatus();  // loops do not
  MutexLock lock(mutex_);
  if (good_keys_.size() >= kRememberedKeys) good_keys_.clear();
  good_keys_.insert(absl::HashOf(absl::string_view(key)));
  return absl::OkStatus();
}

absl::Status PeerReceives::ParseKey(const std::string& text) const {
  ASSIGN_OR_RETURN(const TransferKey key, TransferKey::Parse(text));
  const Device* const device = options_.devices->FindNumber(key.source_device);
  if (device == nullptr) {
    return InvalidArgument("/device:", *key.source_device.type, ":", *key.source_device.index,
                           " unknown device.");
  }
  const uint64_t incarnation = device->attributes().incarnation;
  if (incarnation == key.incarnation) return absl::OkStatus();
  return PossiblyRestarted(absl::AbortedError(absl::StrCat(
      "RecvTensor expects a different device incarnation: ", key.incarnation, " vs. ", incarnation,
      ". Your worker job (\"", options_.devices->task(),
      "\") was probably restarted. Check your worker job for the reason why it was restarted.")));
}

// --- Bytes of collectives

std::shared_ptr<WorkerStep> PeerReceives::RecvBuf(CallOptions call, const RecvBufRequest& request,
                                                  CallDone<RecvBufReply> done) {
  absl::StatusOr<std::shared_ptr<WorkerStep>> step = StepOf(request);
  if (!step.ok()) {
    std::move(done)(step.status());
    return nullptr;
  }
  Fetch(*step, request, call.cancellation, std::move(done));
  return *std::move(step);
}

absl::StatusOr<std::shared_ptr<WorkerStep>> PeerReceives::StepOf(const RecvBufRequest& request) {
  if (!options_.requests->IsNew(request.request_id)) {
    return absl::AbortedError(absl::StrCat(
        "The same RecvBuf (GrpcWorker) request was received twice. step_id: ", request.step_id,
        " buf_rendezvous_key: \"", request.key, "\" request_id: ", request.request_id));
  }
  ASSIGN_OR_RETURN(const DeviceName source, DeviceName::Parse(request.src_device));
  const Device* const device = options_.devices->FindNumber(source);
  if (device == nullptr)
    return InvalidArgument("'", request.src_device, "' is not a device of ",
                           options_.devices->task());
  const uint64_t incarnation = device->attributes().incarnation;
  if (request.src_incarnation != 0 && request.src_incarnation != incarnation) {
    return PossiblyRestarted(FailedPrecondition(
        "RecvBuf expects a different device incarnation: ", request.src_incarnation, " vs. ",
        incarnation, ". Your worker job that contains the device (\"", request.src_device,
        "\") was probably restarted. Check your worker job for the reason why it was restarted."));
  }
  return options_.steps->ForBuffer(request.step_id);
}

void PeerReceives::Fetch(const std::shared_ptr<WorkerStep>& step, const RecvBufRequest& request,
                         const std::shared_ptr<Cancellation>& caller, CallDone<RecvBufReply> done) {
  auto fetch = std::make_shared<PeerFetch>(std::move(done));
  const CollectiveBuffers::Token waiting = step->buffers()->Consume(
      request.key, [fetch, log = options_.log](absl::StatusOr<Buffer> bytes) {
        if (bytes.ok()) {
          log->CountCollective(static_cast<int64_t>(bytes->length_bytes()), 0);
          fetch->Answer(RecvBufReply{*std::move(bytes), false});
        } else {
          fetch->Answer(bytes.status());
        }
      });
  if (fetch->answered()) return;
  fetch->on_cancel.StartScheduled(
      caller, *options_.control, std::weak_ptr<PeerFetch>(fetch),
      [self = shared_from_this(), step, waiting, taker = request.dst_device](
          PeerFetch& call, const absl::Status& reason) {
        if (!step->buffers()->StopWaiting(waiting)) return;
        // Those that only watch have no name.
        if (self->options_.steps->ReceiveStopped(step) && !taker.empty())
          self->GiveUp(*step, taker, reason);
        call.Answer(reason);
      });
}

void PeerReceives::GiveUp(WorkerStep& step, const std::string& taker,
                          const absl::Status& reason) const {
  // Delayed: the ranks that caused the failure report the reason themselves.
  const absl::Status given_up = Derived(absl::AbortedError(
      absl::StrCat("Collective rank ", taker, " has failed: ", reason.message())));
  options_.control->ScheduleAfter(
      kGivenUpGrace, [weak = std::weak_ptr<CollectiveBuffers>(step.buffers()), given_up] {
        if (const auto buffers = weak.lock()) buffers->Abort(given_up);
      });
}

}  // namespace muster
