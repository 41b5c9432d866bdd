#include "muster/transport/grpc/grpc_channel.h"

#include <algorithm>
#include <climits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>

#include "muster/transport/grpc/grpc_bytes.h"
#include "muster/transport/grpc/grpc_library.h"
#include "muster/transport/grpc/grpc_security.h"
#include "muster/transport/messages/methods.h"

namespace muster {
namespace {

// Deadlines further away would not fit into gRPC's clock.
constexpr absl::Duration kLongestTimeout = absl::Hours(24 * 365);
// For a connection to a task that has been heard of.
constexpr absl::Duration kReconnectWithin = absl::Seconds(2);

// What tells renewed connections to one task apart.
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
  // Data that nobody acknowledges breaks the connection, so that a new one is tried. The pings
  // themselves are so rare that no server minds them: a connection that swallows what it
  // acknowledges is found by the heartbeats of those who wait for a call, and renewed.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 600'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 40'000);
  // Channels of different sessions share no connection, and so no failures.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Tasks reach each other directly, whatever the environment says about proxies.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  // Steps may go another way for hours; who hangs up loses its session.
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, INT_MAX);
  arguments.SetInt(kRenewalsArgument, renewals);
  // Brackets of IPv6 addresses are not allowed in the path of a URI.
  const std::string target =
      absl::StrCat("dns:///", absl::StrReplaceAll(address, {{"[", "%5B"}, {"]", "%5D"}}));
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

// Whether gRPC has ended the call at the other side, whose server is being shut down. It says so in
// these words, which no answer of a task consists of.
bool WasDropped(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::CANCELLED && status.error_details().empty() &&
         absl::AsciiStrToLower(status.error_message()) == "cancelled";
}

// One call under way; gRPC and the cancellation hold it.
struct OutgoingCall {
  grpc::ClientContext context;
  std::string method;
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
  std::shared_ptr<Cancellation> cancellation;
  Cancellation::Token token = 0;
  GrpcChannel::Done done;
  std::string who;  // "NAME (ADDRESS)"

  absl::Status Outcome(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
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
    // Once it is cancelled the callback has run or is running, perhaps below us on this thread.
    if (cancellation != nullptr && !cancellation->cancelled()) cancellation->Deregister(token);
    const absl::Status outcome = Outcome(status);
    if (!outcome.ok()) {
      std::move(done)(outcome);
    } else {
      std::move(done)(FromByteBuffer(response));
    }
  }
};

}  // namespace

GrpcChannel::GrpcChannel(std::string name, std::string address, const GrpcOptions& options)
    : name_(std::move(name)),
      address_(std::move(address)),
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
  const Connection channel = connection();
  if (!channel.ok()) return std::move(done)(channel.status());
  if (!request.ok()) return std::move(done)(request.status());
  auto call = std::make_shared<OutgoingCall>();
  call->method = absl::StrCat("/", service, "/", method);
  call->request = ToByteBuffer(*std::move(request));
  call->who = absl::StrCat(name_, " (", address_, ")");
  call->done = std::move(done);
  const int64_t reconnecting_until = reconnecting_until_.load(std::memory_order_relaxed);
  call->context.set_wait_for_ready(
      options.wait_for_ready ||
      (reconnecting_until != 0 && absl::GetCurrentTimeNanos() < reconnecting_until));
  call->context.AddMetadata(kPeerHeader, "1");
  const std::string& token = options_.security.token;
  if (!token.empty()) call->context.AddMetadata(kTokenHeader, TokenHeaderValue(token));
  if (options.timeout < kLongestTimeout) {
    call->context.set_deadline(
        absl::ToChronoTime(absl::Now() + std::max(options.timeout, absl::ZeroDuration())));
  }
  if (options.cancellation != nullptr) {
    call->cancellation = options.cancellation;
    call->token = options.cancellation->NewToken();
    if (!options.cancellation->Register(call->token, [call] { call->context.TryCancel(); })) {
      return std::move(call->done)(options.cancellation->reason());
    }
  }
  OutgoingCall& started = *call;
  grpc::GenericStub(*channel).UnaryCall(
      &started.context, started.method, grpc::StubOptions(), &started.request, &started.response,
      [call = std::move(call)](grpc::Status status) { call->Finish(status); });
}

}  // namespace muster
