#include <algorithm>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "muster/transport/grpc/grpc_bytes.h"
#include "muster/transport/grpc/grpc_connections.h"
#include "muster/transport/grpc/grpc_library.h"
#include "muster/transport/grpc/grpc_methods.h"
#include "muster/transport/grpc/grpc_security.h"
#include "muster/transport/grpc/grpc_transport.h"

namespace muster {
namespace {

// Smaller requests are read sooner than another thread could be woken for them.
constexpr size_t kLargeRequestBytes = 16 << 10;

absl::string_view View(grpc::string_ref text) {
  return absl::string_view(text.data(), text.size());
}

CallOptions::Peer PeerKind(const grpc::GenericCallbackServerContext& context) {
  const auto& headers = context.client_metadata();
  if (headers.find(kPeerHeader) != headers.end()) return CallOptions::Peer::kMuster;
  const auto agent = headers.find("user-agent");
  if (agent == headers.end()) return CallOptions::Peer::kUnknown;
  // TensorFlow 1.15 is built with gRPC 1.19.
  return absl::StartsWith(View(agent->second), "grpc-c++/1.19.") ? CallOptions::Peer::kTensorFlow1
                                                                 : CallOptions::Peer::kTensorFlow2;
}

// What all calls of a server share.
struct Service {
  GrpcServerOptions options;
  std::shared_ptr<MasterApi> master;
  std::shared_ptr<WorkerApi> worker;
  std::shared_ptr<GrpcConnections> connections;
  std::unique_ptr<PieceStore> pieces = std::make_unique<PieceStore>(Clock::Real());

  bool Allows(const grpc::GenericCallbackServerContext& context) const {
    if (options.security.token.empty()) return true;
    const auto& headers = context.client_metadata();
    const auto shown = headers.find(kTokenHeader);
    return shown != headers.end() &&
           SameSecret(TokenHeaderValue(options.security.token), View(shown->second));
  }
};

// One call: a message comes in, one goes out. Lives until gRPC says that it is over.
class ServerCall final : public grpc::ServerGenericBidiReactor {
 public:
  static grpc::ServerGenericBidiReactor* Start(const Service& service,
                                               grpc::GenericCallbackServerContext& context) {
    auto call = std::make_unique<ServerCall>(service, context);
    ServerCall& started = *call;
    started.self_ = std::move(call);
    started.Begin();
    return &started;
  }

  ServerCall(const Service& service, grpc::GenericCallbackServerContext& context)
      : service_(service),
        context_(context),
        peer_(PeerKind(context)),
        cancellation_(std::make_shared<Cancellation>()) {}

  void OnReadDone(bool ok) override {
    if (!ok) {
      return Reply(InvalidArgument("The call ", context_.method(), " came without a request"));
    }
    IncomingCall call;
    call.request = FromByteBuffer(request_);
    request_.Clear();
    call.options.cancellation = cancellation_;
    call.options.timeout = Deadline() - absl::Now();
    call.options.peer = peer_;
    if (method_->service == kMasterService)
      call.options.connection = service_.connections->Track(context_.peer());
    call.master = service_.master.get();
    call.worker = service_.worker.get();
    call.status = service_.options.status.get();
    call.capabilities = &service_.options.capabilities;
    call.pieces = service_.pieces.get();
    call.max_piece_bytes = service_.options.max_piece_bytes;
    call.reply = [this](absl::StatusOr<WireMessage> reply) { Reply(std::move(reply)); };
    Scheduler* scheduler = service_.options.scheduler;
    const bool is_heavy = method_->heavy && call.request.size_bytes() > kLargeRequestBytes;
    if (!is_heavy || scheduler == nullptr) return method_->serve(std::move(call));
    scheduler->Schedule(
        [serve = method_->serve, call = std::move(call)]() mutable { serve(std::move(call)); });
  }

  void OnCancel() override { cancellation_->Cancel(WhyCancelled()); }

  void OnDone() override { const std::unique_ptr<ServerCall> self = std::move(self_); }

 private:
  void Begin() {
    method_ = FindMethod(context_.method());
    if (!service_.Allows(context_)) {
      return Reply(absl::UnauthenticatedError("The call does not show the token of this task"));
    }
    if (method_ == nullptr) return Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""));
    const bool served = method_->service == kMasterService ? service_.master != nullptr
                                                           : service_.worker != nullptr;
    if (!served) return Reply(Unimplemented("This task does not offer ", method_->service));
    StartRead(&request_);
  }

  absl::Time Deadline() const {
    const auto deadline = context_.deadline();
    return deadline == std::chrono::system_clock::time_point::max() ? absl::InfiniteFuture()
                                                                    : absl::FromChrono(deadline);
  }

  absl::Status WhyCancelled() const {
    // The caller's own clock may have run out a little before ours.
    if (absl::Now() + absl::Milliseconds(20) >= Deadline())
      return absl::DeadlineExceededError("Deadline Exceeded");
    // Only clients come back with the same request.
    if (method_ != nullptr && method_->service == kMasterService &&
        !service_.connections->IsOpen(context_.peer())) {
      return absl::UnavailableError("The connection of the caller has ended");
    }
    return absl::CancelledError("The call was cancelled by the caller");
  }

  // The call may be gone when this returns.
  void Reply(absl::StatusOr<WireMessage> reply) {
    if (!reply.ok()) return Finish(ToGrpcStatus(reply.status(), peer_));
    response_ = ToByteBuffer(*std::move(reply));
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }

  const Service& service_;
  grpc::GenericCallbackServerContext& context_;
  const CallOptions::Peer peer_;
  const Method* method_ = nullptr;
  std::shared_ptr<Cancellation> cancellation_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::unique_ptr<ServerCall> self_;
};

// "host:port" as gRPC takes it.
std::string ListenAddress(const GrpcServerOptions& options) {
  if (options.host.empty()) return absl::StrCat("0.0.0.0:", options.port);
  const bool bare_ipv6 =
      absl::StrContains(options.host, ':') && !absl::StartsWith(options.host, "[");
  return bare_ipv6 ? absl::StrCat("[", options.host, "]:", options.port)
                   : absl::StrCat(options.host, ":", options.port);
}

class GrpcServerImplementation final : public GrpcServer, public grpc::CallbackGenericService {
 public:
  explicit GrpcServerImplementation(Service service) : service_(std::move(service)) {}
  ~GrpcServerImplementation() override { Stop(absl::ZeroDuration()); }

  absl::Status Listen() {
    KeepGrpcRunning();
    ASSIGN_OR_RETURN(const auto credentials, ServerCredentialsFor(service_.options.security));
    const std::string address = ListenAddress(service_.options);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, credentials, &port_);
    builder.SetMaxReceiveMessageSize(service_.options.max_message_bytes);
    // A second server on the same port would take half of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
    // Callers whose machines vanish without a word are noticed.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 30'000);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnknownError(absl::StrCat("Could not start gRPC server: cannot listen on ",
                                             address, "; is the port in use?"));
    }
    service_.connections->set_port(port_);
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void Stop(absl::Duration grace) override {
    if (server_ == nullptr) return;
    // Longer ones would not fit into gRPC's clock.
    grace = std::clamp(grace, absl::ZeroDuration(), absl::Hours(24 * 365));
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
    server_->Wait();
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return ServerCall::Start(service_, *context);
  }

 private:
  const Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(GrpcServerOptions options,
                                                              std::shared_ptr<MasterApi> master,
                                                              std::shared_ptr<WorkerApi> worker) {
  auto connections = std::make_shared<GrpcConnections>(options.scheduler);
  auto server = std::make_unique<GrpcServerImplementation>(
      Service{std::move(options), std::move(master), std::move(worker), std::move(connections)});
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace muster
