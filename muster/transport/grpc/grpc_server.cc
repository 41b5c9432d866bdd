#include <algorithm>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "muster/base/log.h"
#include "muster/tensor/shared_memory.h"
#include "muster/transport/fast/fast_server.h"
#include "muster/transport/fast/greeting.h"
#include "muster/transport/grpc/grpc_arrivals.h"
#include "muster/transport/grpc/grpc_bytes.h"
#include "muster/transport/grpc/grpc_connections.h"
#include "muster/transport/grpc/grpc_library.h"
#include "muster/transport/grpc/grpc_listener.h"
#include "muster/transport/grpc/grpc_security.h"
#include "muster/transport/grpc/grpc_transport.h"
#include "muster/transport/messages/message_parts.h"
#include "muster/transport/messages/methods.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

// Smaller requests are read sooner than another thread could be woken for them.
constexpr size_t kLargeRequestBytes = 16 << 10;
// Calls that wait for others to make progress must all be there: this bounds memory, not work.
constexpr int kMostStreams = 1 << 16;
// Calls whose request has not arrived. As long as there are few, their connections are not checked.
constexpr int kFewWaiting = 256;
constexpr int kManyWaiting = 8192;

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

// What all calls of a server share. Calls over links may outlive the server a little.
struct Service : std::enable_shared_from_this<Service> {
  Service(GrpcServerOptions given, std::shared_ptr<MasterApi> its_master,
          std::shared_ptr<WorkerApi> its_worker)
      : options(std::move(given)),
        master(std::move(its_master)),
        worker(std::move(its_worker)),
        acceptor(options.acceptor != nullptr
                     ? options.acceptor
                     : std::make_shared<Acceptor>(absl::StrCat("port ", options.port),
                                                  ConnectionLimitsFor(DescriptorLimit()))),
        connections(std::make_shared<GrpcConnections>(options.scheduler, acceptor)),
        capabilities(&options.capabilities) {}

  GrpcServerOptions options;
  std::shared_ptr<MasterApi> master;
  std::shared_ptr<WorkerApi> worker;
  std::shared_ptr<Acceptor> acceptor;
  std::shared_ptr<GrpcConnections> connections;
  mutable GrpcArrivals arrivals{connections, MemoryGuard::Global()};
  mutable std::atomic<int> waiting{0};  // calls whose request has not arrived, of all connections
  std::unique_ptr<PieceStore> pieces = std::make_unique<PieceStore>(Timers());
  std::unique_ptr<UploadStore> uploads =
      std::make_unique<UploadStore>(Timers(), NeighbourLimit(options.max_message_bytes));
  std::vector<std::string> all_capabilities;  // with what is known once the server listens
  std::atomic<const std::vector<std::string>*> capabilities;

  Scheduler& Timers() const {
    return options.scheduler != nullptr ? *options.scheduler : DefaultScheduler();
  }

  bool Offers(const Method& method) const {
    return method.service == kMasterService ? master != nullptr : worker != nullptr;
  }

  void Serve(const Method& method, IncomingCall call) const {
    call.master = master.get();
    call.worker = worker.get();
    call.status = options.status.get();
    call.capabilities = capabilities.load(std::memory_order_acquire);
    call.pieces = pieces.get();
    call.uploads = uploads.get();
    const bool is_heavy = method.heavy && call.request.size_bytes() > kLargeRequestBytes;
    if (!is_heavy || options.scheduler == nullptr) return method.serve(std::move(call));
    options.scheduler->Schedule(
        [serve = method.serve, call = std::move(call)]() mutable { serve(std::move(call)); });
  }

  // The same for a call over a link.
  void ServeOverLink(fast::FastCall from) const {
    const Method* const method = FindMethod(from.path);
    if (method == nullptr || !Offers(*method))
      return std::move(from.reply)(Unimplemented("This task does not offer ", from.path));
    IncomingCall call;
    call.request = std::move(from.request);
    call.options = std::move(from.options);
    call.reply = [self = shared_from_this(),
                  reply = std::move(from.reply)](absl::StatusOr<WireMessage> message) mutable {
      std::move(reply)(std::move(message));
    };
    // Nothing is copied on the way, whatever its size.
    call.piece_from_bytes = SIZE_MAX;
    call.max_piece_bytes = SIZE_MAX;
    Serve(*method, std::move(call));
  }

  bool Allows(const grpc::GenericCallbackServerContext& context) const {
    if (options.security.token.empty()) return true;
    const auto& headers = context.client_metadata();
    const auto shown = headers.find(kTokenHeader);
    return shown != headers.end() &&
           SameSecret(TokenHeaderValue(options.security.token), View(shown->second));
  }
};

// One call: a message comes in, one goes out. Lives until gRPC says that it is over.
class ServerCall final : public grpc::ServerGenericBidiReactor, private GrpcArrivals::Call {
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
    std::shared_ptr<const Caller> caller = ok ? LetIn() : nullptr;
    if (!service_.arrivals.End(*this)) return request_.Clear();
    if (!ok) {
      service_.connections->NoteEmpty(context_.peer());
      return Reply(InvalidArgument("The call ", context_.method(), " came without a request"));
    }
    StopWaiting();
    IncomingCall call;
    absl::StatusOr<WireBytes> request = FromByteBuffer(request_);
    request_.Clear();
    if (!request.ok()) return Reply(request.status());
    call.request = *std::move(request);
    if (context_.client_metadata().find(kPartsHeader) != context_.client_metadata().end()) {
      absl::StatusOr<WireBytes> joined = TakeUpload(call.request);
      if (!joined.ok()) return Reply(joined.status());
      call.request = *std::move(joined);
    }
    call.options.cancellation = cancellation_;
    call.options.timeout = Deadline() - absl::Now();
    call.options.peer = peer_;
    call.options.caller = std::move(caller);
    call.max_piece_bytes = service_.options.max_piece_bytes;
    call.piece_from_bytes = std::min(call.piece_from_bytes, call.max_piece_bytes);
    call.reply = [this](absl::StatusOr<WireMessage> reply) { Reply(std::move(reply)); };
    service_.Serve(*method_, std::move(call));
  }

  void OnCancel() override { cancellation_->Cancel(WhyCancelled()); }

  void OnDone() override {
    StopWaiting();
    const std::unique_ptr<ServerCall> self = std::move(self_);
  }

 private:
  std::shared_ptr<const Caller> LetIn() {
    const auto& headers = context_.client_metadata();
    const auto said = headers.find(kPeerHeader);
    return service_.connections->Serve(
        context_.peer(), request_.Length(),
        said == headers.end() ? absl::string_view() : View(said->second),
        /*tracked=*/method_->service == kMasterService, [this](Caller& caller) {
          caller.has_token = !service_.options.security.token.empty();
          caller.subject = SubjectOf(context_.auth_context().get());
        });
  }

  // A call that has not sent its request, perhaps because it lacks the token, costs memory all the
  // same.
  void NoteWaiting() {
    const int in_all = service_.waiting.load(std::memory_order_relaxed);
    if (in_all < kFewWaiting) return;
    is_noted_ = true;
    service_.connections->NoteWaiting(context_.peer(), 1, in_all);
  }
  void StopWaiting() {
    if (!std::exchange(is_waiting_, false)) return;
    const int in_all = service_.waiting.fetch_sub(1, std::memory_order_relaxed);
    if (is_noted_) service_.connections->NoteWaiting(context_.peer(), -1, in_all);
  }

  void Begin() {
    NoteWaiting();
    method_ = FindMethod(context_.method());
    if (!service_.Allows(context_)) {
      return Reply(absl::UnauthenticatedError("The call does not show the token of this task"));
    }
    if (method_ == nullptr) return Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""));
    if (!service_.Offers(*method_))
      return Reply(Unimplemented("This task does not offer ", method_->service));
    service_.arrivals.Begin(*this);
    StartRead(&request_);
  }

  std::string peer_name() const override { return context_.peer(); }
  void Refuse(absl::Status why) override { Reply(std::move(why)); }

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

  absl::StatusOr<WireBytes> TakeUpload(const WireBytes& list_bytes) const {
    ASSIGN_OR_RETURN(const PartList list, PartList::Read(list_bytes));
    return service_.uploads->Take(list.id);
  }

  // The list that stands for the message.
  WireMessage InParts(WireMessage reply) {
    Parts parts = PartsOf(std::move(reply));
    PartList list{0, SizesOf(parts)};
    list.id = service_.pieces->Add(std::move(parts));
    context_.AddInitialMetadata(kPartsHeader, "1");
    return list.Write();
  }

  // The call may be gone when this returns.
  void Reply(absl::StatusOr<WireMessage> reply) {
    const GrpcServerOptions& options = service_.options;
    if (reply.ok() && peer_ == CallOptions::Peer::kMuster) {
      if (reply->size_bytes() > options.max_whole_bytes) reply = InParts(*std::move(reply));
    } else if (reply.ok()) {
      if (absl::Status size = CheckSize(*reply, options.max_sent_bytes); !size.ok())
        reply = std::move(size);
    }
    if (!reply.ok()) return Finish(ToGrpcStatus(reply.status(), peer_));
    response_ = ToByteBuffer(*std::move(reply));
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }

  const Service& service_;
  grpc::GenericCallbackServerContext& context_;
  const CallOptions::Peer peer_;
  const Method* method_ = nullptr;
  std::shared_ptr<Cancellation> cancellation_;
  bool is_waiting_ = true;  // for the request
  bool is_noted_ = false;   // that it waits, with its connection
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::unique_ptr<ServerCall> self_;
};

// Counts calls when gRPC reads their first bytes. gRPC starts them later, and not at all while all
// its threads read connections that are full of calls: then those connections must be closed first.
class CallCounter final : public grpc::ContextAllocator {
 public:
  explicit CallCounter(std::shared_ptr<const Service> service) : service_(std::move(service)) {}
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override {
    if (service_->waiting.fetch_add(1, std::memory_order_relaxed) >= kManyWaiting)
      service_->connections->DropStrangers();
    return nullptr;  // gRPC makes one itself
  }

 private:
  const std::shared_ptr<const Service> service_;
};

constexpr absl::string_view kCannotStart = "Could not start gRPC server";

class GrpcServerImplementation final : public GrpcServer, public grpc::CallbackGenericService {
 public:
  explicit GrpcServerImplementation(std::shared_ptr<Service> service)
      : service_(std::move(service)) {}
  ~GrpcServerImplementation() override { Stop(absl::ZeroDuration()); }

  absl::Status Listen() {
    KeepGrpcRunning();
    GrpcServerOptions& options = service_->options;
    ASSIGN_OR_RETURN(const auto credentials, ServerCredentialsFor(options.security));
    ListeningSockets sockets;
    if (options.sockets != nullptr) sockets = std::move(*options.sockets);
    if (sockets.empty()) {
      absl::StatusOr<ListeningSockets> bound = ListeningSockets::Bind(options.host, options.port);
      if (!bound.ok()) return Prefixed(bound.status(), absl::StrCat(kCannotStart, ": "));
      sockets = *std::move(bound);
    }
    port_ = sockets.port();
    grpc::ServerBuilder builder;
    std::unique_ptr<GrpcListener::Server> connect =
        builder.experimental().AddExternalConnectionAcceptor(
            grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    builder.SetMaxReceiveMessageSize(options.max_message_bytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
    // A peer must begin the handshake soon, of TLS or HTTP/2.
    builder.AddChannelArgument(
        GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
        static_cast<int>(absl::ToInt64Milliseconds(options.handshake_timeout)));
    // Detects callers whose machines vanish without closing the connection.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kServerKeepaliveTimeoutMillis);
    builder.SetContextAllocator(std::make_unique<CallCounter>(service_));
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnknownError(kCannotStart);
    ServeLinks();
    GrpcListener::TakeLink take_link;
    if (links_ != nullptr) {
      take_link = [links = links_](Descriptor socket, std::shared_ptr<const Caller> caller) {
        links->Add(std::move(socket), std::move(caller));
      };
    }
    auto listener = GrpcListener::Start(std::move(sockets), std::move(connect), service_->acceptor,
                                        service_->connections, std::move(take_link));
    if (!listener.ok()) return Prefixed(listener.status(), absl::StrCat(kCannotStart, ": "));
    listener_ = *std::move(listener);
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void Stop(absl::Duration grace) override {
    if (server_ == nullptr) return;
    // Longer ones would not fit into gRPC's clock.
    grace = std::clamp(grace, absl::ZeroDuration(), absl::Hours(24 * 365));
    const absl::Time end = absl::Now() + grace;
    if (links_ != nullptr) links_->Refuse();
    listener_.reset();
    server_->Shutdown(absl::ToChronoTime(end));
    server_->Wait();
    if (links_ != nullptr) links_->Stop(std::max(end - absl::Now(), absl::ZeroDuration()));
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return ServerCall::Start(*service_, *context);
  }

 private:
  // Links from this machine need no network, others come to the port. Neither has certificates or a
  // token to show.
  void ServeLinks() {
    const GrpcServerOptions& options = service_->options;
    if (options.links == Links::kNone || options.security.enabled() || options.scheduler == nullptr)
      return;
    auto started = fast::FastServer::Start(
        [service = service_](fast::FastCall call) { service->ServeOverLink(std::move(call)); },
        *options.scheduler, NeighbourLimit(options.max_message_bytes));
    if (!started.ok()) {
      LOG(WARNING) << "other tasks reach this one over gRPC only: " << started.status();
      return;
    }
    links_ = *std::move(started);
    service_->all_capabilities = options.capabilities;
    if (options.links == Links::kAll) {
      ShareLargeBuffers();
      service_->all_capabilities.push_back(fast::CapabilityOf(port_, links_->name()));
    }
    service_->all_capabilities.emplace_back(fast::kLinkCapability);
    service_->capabilities.store(&service_->all_capabilities, std::memory_order_release);
  }

  const std::shared_ptr<Service> service_;
  int port_ = 0;
  std::shared_ptr<fast::FastServer> links_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<GrpcListener> listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(GrpcServerOptions options,
                                                              std::shared_ptr<MasterApi> master,
                                                              std::shared_ptr<WorkerApi> worker) {
  if (options.batches)
    options.capabilities.insert(options.capabilities.begin(), kBatchesCapability);
  auto server = std::make_unique<GrpcServerImplementation>(
      std::make_shared<Service>(std::move(options), std::move(master), std::move(worker)));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace muster
