// The methods that a task answers: one table from a path to what reads the request, calls the
// master or worker and writes the reply. Knows nothing of how calls travel.
#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/types/span.h"

#include "muster/transport/api/master_api.h"
#include "muster/transport/api/peer.h"
#include "muster/transport/api/task_status.h"
#include "muster/transport/messages/message_parts.h"
#include "muster/transport/messages/piece_store.h"
#include "muster/transport/wire/wire_message.h"

namespace muster {

// The header by which our own callers are known; its value is a Caller's introduction.
inline constexpr char kPeerHeader[] = "muster-peer";
// The names of the services in paths.
inline constexpr char kMasterService[] = "tensorflow.MasterService";
inline constexpr char kWorkerService[] = "tensorflow.WorkerService";
inline constexpr char kPeerService[] = "muster.Peer";

struct IncomingCall {
  WireBytes request;
  CallOptions options;
  MasterApi* master = nullptr;  // may be null
  WorkerApi* worker = nullptr;
  StatusApi* status = nullptr;  // may be null
  const std::vector<std::string>* capabilities = nullptr;
  PieceStore* pieces = nullptr;
  UploadStore* uploads = nullptr;  // may be null
  // Tensors from there on stay here and are fetched in pieces of the other size: a piece is then
  // copied while it is still in the cache, and neither side holds the tensor twice.
  size_t piece_from_bytes = 4 << 20;
  size_t max_piece_bytes = size_t{1} << 30;
  // Called exactly once.
  absl::AnyInvocable<void(absl::StatusOr<WireMessage>) &&> reply;
};

struct Method {
  absl::string_view service;
  absl::string_view name;
  void (*serve)(IncomingCall call);
  bool heavy = false;  // reading a large request may take long
};

absl::Span<const Method> AllMethods();
// By "/service/name"; null for a path that is not served.
const Method* FindMethod(absl::string_view path);

}  // namespace muster
