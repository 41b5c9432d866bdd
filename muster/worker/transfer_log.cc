#include "muster/worker/transfer_log.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "muster/runtime/trace_proto.h"
#include "muster/worker/transfer_key.h"

namespace muster {

void TransferLog::Record(int64_t step_id, absl::string_view key, const Tensor& tensor,
                         int64_t start_nanos, int64_t end_nanos) {
  const absl::StatusOr<TransferKey> parsed = TransferKey::Parse(key);
  if (!parsed.ok()) return;
  const auto bytes = static_cast<int64_t>(tensor.valid() ? tensor.size_bytes() : 0);
  const double micros = static_cast<double>(std::max<int64_t>(end_nanos - start_nanos, 1)) / 1000;
  NodeTrace trace;
  trace.device = std::string(parsed->destination);
  trace.node = "RecvTensor";
  trace.op = absl::StrFormat("[%dB] [%.1fMb/s] %s from %s to %s", bytes,
                             8.0 * static_cast<double>(bytes) / micros, parsed->name,
                             parsed->source, parsed->destination);
  trace.scheduled_nanos = trace.start_nanos = start_nanos;
  trace.end_nanos = end_nanos;
  MutexLock lock(mutex_);
  const auto [at, is_new] = steps_.try_emplace(step_id);
  if (is_new) {
    order_.push_back(step_id);
    if (order_.size() > kSteps) {
      steps_.erase(order_.front());
      order_.erase(order_.begin());
    }
  }
  if (at->second.size() < kTransfersPerStep) at->second.push_back(std::move(trace));
}

LoggingReply TransferLog::Answer(const LoggingRequest& request, const Clock& clock) {
  if (request.enable) {
    enabled_ = true;
  } else if (request.disable || request.fetch_steps.empty()) {
    enabled_ = false;
  }
  std::vector<std::pair<int64_t, std::vector<NodeTrace>>> wanted;
  {
    MutexLock lock(mutex_);
    for (int64_t step : request.fetch_steps) {
      const auto found = steps_.find(step);
      if (found == steps_.end()) continue;
      wanted.emplace_back(step, std::move(found->second));
      steps_.erase(found);
      order_.erase(std::find(order_.begin(), order_.end(), step));
    }
    if (request.clear) {
      steps_.clear();
      order_.clear();
    }
  }
  LoggingReply reply;
  for (auto& [step, traces] : wanted) {
    reply.steps.push_back(
        {step, SerializeStepStats(
                   std::move(traces), [](const NodeTrace& trace) { return trace.op; }, clock)});
  }
  return reply;
}

}  // namespace muster
