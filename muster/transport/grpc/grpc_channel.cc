#include "muster/transport/grpc/grpc_channel.h"

#include <algorithm>
#include <climits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>

#include "muster/base/cancel_callback.h"
#include "muster/transport/grpc/grpc_bytes.h"
#include "muster/transport/grpc/grpc_library.h"
#include "muster/transport/grpc/grpc_replies.h"
#include "muster/transport/grpc/grpc_security.h"
#include "muster/transport/messages/message_parts.h"
#include "muster/transport/messages/methods.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

// Deadlines further away would not fit into gRPC's clock.
constexpr absl::Duration kLongestTimeout = absl::Hours(24 * 365);
// For a connection to a task that is known to be alive.
constexpr absl::Duration kReconnectWithin = absl::Seconds(2);

// Distinguishes renewed connections to one task.
constexpr char kRenewalsArgument[] = "muster.renewals";

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const GrpcOptions& options,
                                                           int renewals) {
  KeepGrpcRunning();
  ASSIGN_OR_RETURN(const auto credentials, ChannelCredentialsFor(options.security));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A task that comes back is found soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // An attempt to connect that is not answered is given up, and the next one may take another
  // route. gRPC's 20 s would leave room for one attempt only before the silence counts as death.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // Data that is not acknowledged breaks the connection, so that a new one is tried. The pings
  // themselves are so rare that no server minds them: a connection that acknowledges data but loses
  // it is found by the heartbeats of pending calls, and renewed.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 600'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 40'000);
  // Connections are shared by sharing a channel; a global pool would also share failures.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Tasks reach each other directly, whatever the environment says about proxies.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  // Steps may use another path for hours; a client that disconnects loses its session.
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, INT_MAX);
  arguments.SetInt(kRenewalsArgument, renewals);
  // Brackets of IPv6 addresses are not allowed in the path of a URI.
  const std::string target =
      absl::StrCat("dns:///", absl::StrReplaceAll(address, {{"[", "%5B"}, {"]", "%5D"}}));
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

// Whether gRPC has ended the call at the other side, whose server is being shut down. It uses
// this text, which no answer of a task consists of.
bool WasDropped(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::CANCELLED && status.error_details().empty() &&
         absl::AsciiStrToLower(status.error_message()) == "cancelled";
}

// One call under way; gRPC holds it.
struct OutgoingCall : GrpcReplies::Call, std::enable_shared_from_this<OutgoingCall> {
  grpc::ClientContext context;
  std::string method;
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
  GrpcChannel::Done done;
  std::string who;  // "NAME (ADDRESS)"
  std::shared_ptr<const GrpcChannel> channel;
  bool is_of_peer_service = false;
  CallOptions options;
  CancelCallback on_cancel;
  Mutex mutex;
  bool is_watched ABSL_GUARDED_BY(mutex) = false;
  bool is_over ABSL_GUARDED_BY(mutex) = false;                // for gRPC
  absl::Status refusal ABSL_GUARDED_BY(mutex);                // for lack of memory; OK: none
  std::shared_ptr<OutgoingCall> kept ABSL_GUARDED_BY(mutex);  // until the refusal has come

  std::string peer_name() const override { return context.peer(); }
  // Once gRPC has the call.
  void Watch() {
    MutexLock lock(mutex);
    if (is_over) return;
    is_watched = true;
    GrpcReplies::Global().Begin(*this);
  }
  void Refuse(absl::Status why) override {
    std::shared_ptr<OutgoingCall> self;
    bool was_over;
    {
      MutexLock lock(mutex);
      self = shared_from_this();
      refusal = why;
      was_over = is_over;
      kept = nullptr;
    }
    if (was_over) return std::move(done)(std::move(why));
    context.TryCancel();
  }
  // What becomes of a call that gRPC has ended. Nothing: it is refused, and soon told so.
  std::optional<absl::Status> StopWatching() {
    MutexLock lock(mutex);
    is_over = true;
    if (!is_watched || GrpcReplies::Global().End(*this)) return absl::OkStatus();
    if (!refusal.ok()) return refusal;
    kept = shared_from_this();
    return std::nullopt;
  }

  absl::Status Outcome(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    const auto& cancellation = options.cancellation;
    const bool cancelled = cancellation != nullptr && cancellation->cancelled();
    if (cancelled && status.error_code() == grpc::StatusCode::CANCELLED) {
      return cancellation->reason();
    }
    absl::Status result = FromGrpcStatus(status);
    // What old peers call a broken connection.
    if (absl::IsUnknown(result) && result.message() == "Stream removed") {
      result = absl::UnavailableError(result.message());
    }
    if (WasDropped(status)) {
      result = absl::UnavailableError("The other side has dropped the call: it is being stopped");
    }
    if (absl::IsCancelled(result)) result = Derived(std::move(result));
    return absl::IsUnavailable(result) ? CallFailed(result, who, method) : result;
  }

  void Finish(const grpc::Status& status) {
    // gRPC finishes calls inside of TryCancel, also those that other threads are cancelling.
    on_cancel.TryRelease();
    GrpcReplies::Global().NoteReply(*this,
                                    status.ok() ? response.Length() : GrpcReplies::kUnknownBytes);
    std::optional<absl::Status> refused = StopWatching();
    if (!refused) return;
    if (!refused->ok()) return std::move(done)(*std::move(refused));
    const absl::Status outcome = Outcome(status);
    if (is_of_peer_service) channel->NoteAnswerOfPeer(outcome);
    if (!outcome.ok()) return std::move(done)(outcome);
    absl::StatusOr<WireBytes> reply = FromByteBuffer(response);
    response.Clear();
    if (reply.ok() && context.GetServerInitialMetadata().contains(kPartsHeader))
      return FetchReply(*reply);
    std::move(done)(std::move(reply));
  }

  // The reply was longer than a message.
  void FetchReply(const WireBytes& response_list) {
    const absl::StatusOr<PartList> list = PartList::Read(response_list);
    if (!list.ok()) return std::move(done)(list.status());
    const absl::StatusOr<Parts> parts = AllocateParts(list->part_bytes);
    if (!parts.ok()) return std::move(done)(parts.status());
    FetchParts(channel, options, list->id, *parts,
               [parts = *parts, done = std::move(done)](const absl::Status& fetched) mutable {
                 if (!fetched.ok()) return std::move(done)(fetched);
                 std::move(done)(JoinParts(std::move(parts)));
               });
  }
};

}  // namespace

GrpcChannel::GrpcChannel(std::string name, std::string address, std::string introduction,
                         const GrpcOptions& options)
    : name_(std::move(name)),
      address_(std::move(address)),
      introduction_(std::move(introduction)),
      options_(options),
      connection_(MakeChannel(address_, options, 0)) {}

void GrpcChannel::Reconnect() const {
  const Connection channel = connection();
  if (!channel.ok() || (*channel)->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE) return;
  // Calls that do not wait would fail with the old error until the connection stands.
  reconnecting_until_ = absl::ToUnixNanos(absl::Now() + kReconnectWithin);
  grpc::experimental::ChannelResetConnectionBackoff(channel->get());
}

void GrpcChannel::Renew() const {
  Connection old;  // goes without the lock
  MutexLock lock(mutex_);
  old = std::exchange(connection_, MakeChannel(address_, options_, ++renewals_));
}

void GrpcChannel::Call(absl::string_view service, absl::string_view method, CallOptions options,
                       absl::StatusOr<WireMessage> request, Done done) const {
  if (!request.ok()) return std::move(done)(request.status());
  const size_t size = request->size_bytes();
  const bool in_parts =
      size > options_.max_whole_bytes && request->pieces().size() <= UploadStore::kMaxParts;
  if (size > options_.max_sent_bytes || (in_parts && peer_kind_ != PeerKind::kOther)) {
    return CallInParts(service, method, std::move(options), *std::move(request), std::move(done));
  }
  Start(service, method, std::move(options), *std::move(request), /*is_list=*/false,
        std::move(done));
}

void GrpcChannel::CallInParts(absl::string_view service, absl::string_view method,
                              CallOptions options, WireMessage request, Done done) const {
  const absl::Status size = CheckSize(request, options_.max_sent_bytes);
  Parts parts = PartsOf(std::move(request));
  UploadParts(
      shared_from_this(), options, parts,
      [self = shared_from_this(), service = std::string(service), method = std::string(method),
       options, size, parts, done = std::move(done)](absl::StatusOr<PartList> list) mutable {
        if (list.ok()) {
          return self->Start(service, method, std::move(options), list->Write(), /*is_list=*/true,
                             std::move(done));
        }
        if (!absl::IsUnimplemented(list.status())) return std::move(done)(list.status());
        // Stock tasks do not know of parts.
        if (!size.ok()) return std::move(done)(size);
        WireMessage whole;
        for (const Buffer& part : parts) whole.Attach(part);
        self->Start(service, method, std::move(options), std::move(whole), /*is_list=*/false,
                    std::move(done));
      });
}

void GrpcChannel::Start(absl::string_view service, absl::string_view method, CallOptions options,
                        WireMessage request, bool is_list, Done done) const {
  const Connection channel = connection();
  if (!channel.ok()) return std::move(done)(channel.status());
  auto call = std::make_shared<OutgoingCall>();
  call->channel = shared_from_this();
  call->options = options;
  call->is_of_peer_service = service == kPeerService;
  if (is_list) call->context.AddMetadata(kPartsHeader, "1");
  call->method = absl::StrCat("/", service, "/", method);
  call->request = ToByteBuffer(std::move(request));
  call->who = absl::StrCat(name_, " (", address_, ")");
  call->done = std::move(done);
  const int64_t reconnecting_until = reconnecting_until_.load(std::memory_order_relaxed);
  call->context.set_wait_for_ready(
      options.wait_for_ready ||
      (reconnecting_until != 0 && absl::GetCurrentTimeNanos() < reconnecting_until));
  call->context.AddMetadata(kPeerHeader, introduction_);
  const std::string& token = options_.security.token;
  if (!token.empty()) call->context.AddMetadata(kTokenHeader, TokenHeaderValue(token));
  if (options.timeout < kLongestTimeout) {
    call->context.set_deadline(
        absl::ToChronoTime(absl::Now() + std::max(options.timeout, absl::ZeroDuration())));
  }
  const bool is_wanted = call->on_cancel.Start(
      options.cancellation, [weak = std::weak_ptr<OutgoingCall>(call)](const absl::Status&) {
        if (const auto held = weak.lock()) held->context.TryCancel();
      });
  if (!is_wanted) return std::move(call->done)(options.cancellation->reason());
  OutgoingCall& started = *call;
  grpc::GenericStub(*channel).UnaryCall(&started.context, started.method, grpc::StubOptions(),
                                        &started.request, &started.response,
                                        [call](grpc::Status status) { call->Finish(status); });
  // Tasks of Muster send large replies in parts.
  if (!call->is_of_peer_service && peer_kind_.load(std::memory_order_relaxed) != PeerKind::kMuster)
    call->Watch();
}

void GrpcChannel::NoteAnswerOfPeer(const absl::Status& answer) const {
  if (answer.ok()) peer_kind_ = PeerKind::kMuster;
  if (absl::IsUnimplemented(answer)) peer_kind_ = PeerKind::kOther;
}

}  // namespace muster
