// One thread that polls, instead of a library: cpp-httplib 0.11 gives each connection a thread of a
// pool for as long as it sends. With 64 connections that each send half a request again and again,
// it answered 28 of 60 requests for /healthz within 3 s where this server answers all; nor has it
// limits by address, a place for the newest connection instead of the oldest, or a descriptor in
// reserve (base/net/acceptor.h).
#include "muster/dashboard/http_server.h"

#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/base/net/listening_sockets.h"
#include "muster/base/threads/thread_name.h"

namespace muster {
namespace {

constexpr int kMaxDrained = 64;  // reads of data that follows a request
// Accepted between two polls, so that requests of existing connections are answered first.
constexpr int kMostAtOnce = 16;

absl::string_view Reason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

HttpPage ErrorPage(int code) {
  return {code, "text/plain; charset=utf-8", absl::StrCat(Reason(code), "\n")};
}

std::string ReplyText(const HttpPage& page, bool with_body) {
  return absl::StrCat(
      "HTTP/1.1 ", page.code, " ", Reason(page.code), "\r\nContent-Type: ", page.content_type,
      "\r\nContent-Length: ", page.body.size(), page.code == 405 ? "\r\nAllow: GET, HEAD" : "",
      "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n", with_body ? page.body : "");
}

struct Connection {
  Acceptor::Connection accepted;
  absl::Time end;  // it is closed then, whatever it does
  std::string request;
  std::string reply;
  size_t sent = 0;
  bool answered = false;  // the reply is complete; further data is not read

  int fd() const { return accepted.socket.get(); }
};

class PollingServer : public HttpServer {
 public:
  PollingServer(HttpServerOptions options, ListeningSockets listeners, Descriptor wake)
      : options_(std::move(options)),
        listeners_(std::move(listeners)),
        wake_(std::move(wake)),
        acceptor_(absl::StrCat("the pages on port ", listeners_.port()), options_.limits,
                  /*keeps_spares=*/true),
        thread_([this] {
          NameThread("muster-http");
          Run();
        }) {}

  ~PollingServer() override {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }

  int port() const override { return listeners_.port(); }

 private:
  using Connections = std::list<Connection>;  // in the order of their coming

  void Run() {
    for (;;) {
      const absl::Duration pause = acceptor_.pause();
      const bool is_paused = pause > absl::ZeroDuration();
      std::vector<pollfd> waiting = {{wake_.get(), POLLIN, 0}};
      absl::Time end = is_paused ? absl::Now() + pause : absl::InfiniteFuture();
      for (const Descriptor& listener : listeners_.sockets())
        waiting.push_back({is_paused ? -1 : listener.get(), POLLIN, 0});
      for (const Connection& connection : connections_) {
        const short events = connection.answered ? POLLOUT : POLLIN;
        waiting.push_back({connection.fd(), events, 0});
        end = std::min(end, connection.end);
      }
      const int64_t wait =
          end == absl::InfiniteFuture()
              ? -1
              : std::max<int64_t>(0, absl::ToInt64Milliseconds(end - absl::Now())) + 1;
      (void)poll(waiting.data(), waiting.size(), static_cast<int>(wait));
      if (waiting[0].revents != 0) return;
      const size_t num_listeners = listeners_.sockets().size();
      size_t i = 1 + num_listeners;
      for (auto at = connections_.begin(); at != connections_.end(); ++i) {
        const auto connection = at++;
        const bool goes_on =
            waiting[i].revents == 0 ? absl::Now() < connection->end : Serve(*connection);
        if (!goes_on) End(connection, Acceptor::End::kClosed);
      }
      for (i = 0; i < num_listeners; ++i)
        if (is_paused || waiting[1 + i].revents != 0) Accept(listeners_.sockets()[i].get());
    }
  }

  void End(Connections::iterator connection, Acceptor::End how) {
    acceptor_.Close(std::move(connection->accepted), how);
    connections_.erase(connection);
  }

  bool EndOldest(const std::string* peer) {
    for (auto at = connections_.begin(); at != connections_.end(); ++at) {
      if (peer != nullptr && at->accepted.peer != *peer) continue;
      End(at, Acceptor::End::kDropped);
      return true;
    }
    return false;
  }

  void Accept(int listener) {
    const auto make_room = [this](const std::string* peer) { return EndOldest(peer); };
    for (int i = 0; i < kMostAtOnce; ++i) {
      std::optional<Acceptor::Connection> accepted = acceptor_.Accept(listener, make_room);
      if (!accepted) return;
      connections_.push_back(
          {*std::move(accepted), absl::Now() + options_.patience, "", "", 0, false});
    }
  }

  // False: the connection is over.
  bool Serve(Connection& connection) const {
    if (!connection.answered) {
      if (!Read(connection)) return false;
      if (!connection.answered) return true;
    }
    const ssize_t sent =
        send(connection.fd(), connection.reply.data() + connection.sent,
             connection.reply.size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(sent);
    if (connection.sent < connection.reply.size()) return true;
    // Closing a socket with unread data would reset the connection and lose the reply.
    shutdown(connection.fd(), SHUT_WR);
    char rest[4096];
    for (int i = 0; i < kMaxDrained; ++i) {
      if (recv(connection.fd(), rest, sizeof(rest), MSG_DONTWAIT) <= 0) break;
    }
    return false;
  }

  bool Read(Connection& connection) const {
    char bytes[4096];
    const ssize_t got = recv(connection.fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    connection.request.append(bytes, static_cast<size_t>(got));
    const size_t head = connection.request.find("\r\n\r\n");
    if (head != std::string::npos && head <= kMaxRequestBytes) {
      Answer(connection, connection.request.substr(0, connection.request.find("\r\n")));
    } else if (connection.request.size() > kMaxRequestBytes) {
      connection.reply = ReplyText(ErrorPage(431), true);
      connection.answered = true;
    }
    return true;
  }

  void Answer(Connection& connection, absl::string_view line) const {
    connection.answered = true;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    const bool is_request = words.size() == 3 && !words[0].empty() &&
                            absl::StartsWith(words[1], "/") && absl::StartsWith(words[2], "HTTP/");
    if (!is_request) {
      connection.reply = ReplyText(ErrorPage(400), true);
      return;
    }
    const bool is_head = words[0] == "HEAD";
    connection.reply = ReplyText(PageFor(words[0], words[1], words[2]), !is_head);
  }

  HttpPage PageFor(absl::string_view method, absl::string_view path,
                   absl::string_view version) const {
    if (!absl::StartsWith(version, "HTTP/1.")) return ErrorPage(505);
    const auto page = options_.pages.find(std::string(path.substr(0, path.find('?'))));
    if (page == options_.pages.end()) return ErrorPage(404);
    if (method != "GET" && method != "HEAD") return ErrorPage(405);
    return page->second();
  }

  const HttpServerOptions options_;
  const ListeningSockets listeners_;
  const Descriptor wake_;
  Acceptor acceptor_;
  Connections connections_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options) {
  ASSIGN_OR_RETURN(ListeningSockets listeners, ListeningSockets::Bind(options.host, options.port));
  RETURN_IF_ERROR(listeners.Listen());
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return absl::UnknownError(absl::StrCat("eventfd: ", std::strerror(errno)));
  return std::make_unique<PollingServer>(std::move(options), std::move(listeners), std::move(wake));
}

}  // namespace muster
