#include "muster/collective/mesh/tls_channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

namespace muster::collective {
namespace {

constexpr char kIdentity[] = "muster";

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

// OpenSSL's own socket BIO would raise SIGPIPE when the peer is gone.
int WriteToSocket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  int socket = -1;
  BIO_get_fd(bio, &socket);
  const ssize_t sent = send(socket, bytes, static_cast<size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_TYPE_SOCKET, "muster socket");
    const BIO_METHOD* const stock = BIO_s_socket();
    BIO_meth_set_write(made, WriteToSocket);
    BIO_meth_set_read(made, BIO_meth_get_read(stock));
    BIO_meth_set_ctrl(made, BIO_meth_get_ctrl(stock));
    BIO_meth_set_create(made, BIO_meth_get_create(stock));
    BIO_meth_set_destroy(made, BIO_meth_get_destroy(stock));
    return made;
  }();
  return method;
}

// The secret, where it fits.
unsigned CopySecret(SSL* ssl, unsigned char* key, unsigned room) {
  const auto* const secret = static_cast<const std::string*>(SSL_get_app_data(ssl));
  if (secret == nullptr || secret->size() > room) return 0;
  std::memcpy(key, secret->data(), secret->size());
  return static_cast<unsigned>(secret->size());
}

unsigned ClientSecret(SSL* ssl, const char* /*hint*/, char* identity, unsigned identity_room,
                      unsigned char* key, unsigned key_room) {
  if (identity_room < sizeof(kIdentity)) return 0;
  std::memcpy(identity, kIdentity, sizeof(kIdentity));
  return CopySecret(ssl, key, key_room);
}

unsigned ServerSecret(SSL* ssl, const char* /*identity*/, unsigned char* key, unsigned key_room) {
  return CopySecret(ssl, key, key_room);
}

// Null when OpenSSL is configured not to allow it.
SSL_CTX* NewContext(TlsSide side) {
  SSL_CTX* const context =
      SSL_CTX_new(side == TlsSide::kConnects ? TLS_client_method() : TLS_server_method());
  if (context == nullptr) return nullptr;
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  if (side == TlsSide::kConnects) {
    SSL_CTX_set_psk_client_callback(context, ClientSecret);
  } else {
    SSL_CTX_set_psk_server_callback(context, ServerSecret);
    SSL_CTX_set_num_tickets(context, 0);
  }
  // The hash of a secret that comes from a callback is SHA-256.
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1) {
    SSL_CTX_free(context);
    return nullptr;
  }
  return context;
}

SSL_CTX* Context(TlsSide side) {
  static SSL_CTX* const client = NewContext(TlsSide::kConnects);
  static SSL_CTX* const server = NewContext(TlsSide::kAccepts);
  return side == TlsSide::kConnects ? client : server;
}

class TlsChannel : public Channel {
 public:
  TlsChannel(Descriptor socket, std::string secret)
      : socket_(std::move(socket)), secret_(std::move(secret)) {}

  absl::Status Start(TlsSide side) {
    SSL_CTX* const context = Context(side);
    ssl_.reset(context == nullptr ? nullptr : SSL_new(context));
    BIO* const bio = ssl_ == nullptr ? nullptr : BIO_new(SocketMethod());
    if (bio == nullptr) return absl::InternalError("OpenSSL offers no TLS 1.3");
    BIO_set_fd(bio, fd(), BIO_NOCLOSE);
    SSL_set_bio(ssl_.get(), bio, bio);
    SSL_set_app_data(ssl_.get(), &secret_);
    side == TlsSide::kConnects ? SSL_set_connect_state(ssl_.get())
                               : SSL_set_accept_state(ssl_.get());
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces) override {
    return Move(pieces, write_failure_, [this](const iovec& piece, size_t offset, size_t* moved) {
      return SSL_write_ex(ssl_.get(), static_cast<const char*>(piece.iov_base) + offset,
                          piece.iov_len - offset, moved);
    });
  }
  absl::StatusOr<size_t> Read(absl::Span<const iovec> pieces) override {
    return Move(pieces, read_failure_, [this](const iovec& piece, size_t offset, size_t* moved) {
      return SSL_read_ex(ssl_.get(), static_cast<char*>(piece.iov_base) + offset,
                         piece.iov_len - offset, moved);
    });
  }
  int fd() const override { return socket_.get(); }
  bool HoldsBytes() const override { return SSL_has_pending(ssl_.get()) != 0; }
  void CloseWriting() override {
    if (std::exchange(closed_, true)) return;
    ERR_clear_error();
    if (SSL_is_init_finished(ssl_.get()) && write_failure_.ok() && read_failure_.ok())
      SSL_shutdown(ssl_.get());
    shutdown(fd(), SHUT_WR);
  }
  bool Flushed() const override { return SocketIsFlushed(fd()); }

 private:
  // Moves until the pieces are done or the socket does not go on. `step` moves a part of one.
  template <typename Step>
  absl::StatusOr<size_t> Move(absl::Span<const iovec> pieces, absl::Status& failure, Step step) {
    size_t total = 0;
    for (const iovec& piece : pieces) {
      for (size_t done = 0; done < piece.iov_len;) {
        if (!failure.ok()) return failure;
        size_t moved = 0;
        ERR_clear_error();
        if (const int result = step(piece, done, &moved); result <= 0) {
          Note(SSL_get_error(ssl_.get(), result), failure);
          // Bytes that have been moved are returned first; the next call returns the failure.
          if (total > 0 || failure.ok()) return total;
          return failure;
        }
        done += moved;
        total += moved;
      }
    }
    return total;
  }

  // Nothing more goes this way. What the peer has sent before it closed can still be read when
  // writing has failed.
  static void Note(int error, absl::Status& failure) {
    switch (error) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return;
      case SSL_ERROR_ZERO_RETURN:
        failure = absl::UnavailableError("closed its connection");
        return;
      default: {
        const unsigned long code = ERR_peek_error();  // OpenSSL's type
        const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
        failure = absl::UnavailableError(
            absl::StrCat("connection lost (", reason != nullptr ? reason : "TLS", ")"));
        ERR_clear_error();
      }
    }
  }

  const Descriptor socket_;
  const std::string secret_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  absl::Status read_failure_;
  absl::Status write_failure_;
  bool closed_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Channel>> NewTlsChannel(Descriptor socket, TlsSide side,
                                                       absl::string_view secret) {
  SetUpSocket(socket.get());
  auto channel = std::make_unique<TlsChannel>(std::move(socket), std::string(secret));
  RETURN_IF_ERROR(channel->Start(side));
  return channel;
}

}  // namespace muster::collective
