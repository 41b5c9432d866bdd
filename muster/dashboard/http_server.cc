#include "muster/dashboard/http_server.h"

#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster {
namespace {

constexpr absl::Duration kFullPause = absl::Milliseconds(100);
constexpr int kMaxDrained = 64;  // reads of what comes after a request

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

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
  Socket socket;
  absl::Time end;  // it is closed then, whatever it does
  std::string request;
  std::string reply;
  size_t sent = 0;
  bool answered = false;  // the reply is complete; the rest of what comes is not read
};

class PollingServer : public HttpServer {
 public:
  PollingServer(HttpServerOptions options, Socket listener, Socket wake, int port)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        port_(port),
        thread_([this] { Run(); }) {}

  ~PollingServer() override {
    const uint64_t one = 1;
    (void)!write(wake_.fd(), &one, sizeof(one));
    thread_.join();
  }

  int port() const override { return port_; }

 private:
  void Run() {
    std::list<Connection> connections;
    for (;;) {
      std::vector<pollfd> waiting = {{wake_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      absl::Time end = absl::InfiniteFuture();
      for (const Connection& connection : connections) {
        const short events = connection.answered ? POLLOUT : POLLIN;
        waiting.push_back({connection.socket.fd(), events, 0});
        end = std::min(end, connection.end);
      }
      const int64_t wait =
          end == absl::InfiniteFuture()
              ? -1
              : std::max<int64_t>(0, absl::ToInt64Milliseconds(end - absl::Now())) + 1;
      (void)poll(waiting.data(), waiting.size(), static_cast<int>(wait));
      if (waiting[0].revents != 0) return;
      size_t i = 2;
      for (auto at = connections.begin(); at != connections.end(); ++i) {
        const bool goes_on = waiting[i].revents == 0 ? absl::Now() < at->end : Serve(*at);
        at = goes_on ? std::next(at) : connections.erase(at);
      }
      if (waiting[1].revents != 0) Accept(connections);
    }
  }

  void Accept(std::list<Connection>& connections) const {
    Socket accepted(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.fd() < 0) {
      // Out of descriptors: the connection stays in the queue, and asking again at once is no use.
      if (errno == EMFILE || errno == ENFILE) absl::SleepFor(kFullPause);
      return;
    }
    if (connections.size() >= static_cast<size_t>(options_.max_connections)) return;
    connections.push_back({std::move(accepted), absl::Now() + options_.patience, "", "", 0, false});
  }

  // False: the connection is over.
  bool Serve(Connection& connection) const {
    if (!connection.answered) {
      if (!Read(connection)) return false;
      if (!connection.answered) return true;
    }
    const ssize_t sent =
        send(connection.socket.fd(), connection.reply.data() + connection.sent,
             connection.reply.size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(sent);
    if (connection.sent < connection.reply.size()) return true;
    // What was not read would make the system take the reply back.
    shutdown(connection.socket.fd(), SHUT_WR);
    char rest[4096];
    for (int i = 0; i < kMaxDrained; ++i) {
      if (recv(connection.socket.fd(), rest, sizeof(rest), MSG_DONTWAIT) <= 0) break;
    }
    return false;
  }

  bool Read(Connection& connection) const {
    char bytes[4096];
    const ssize_t got = recv(connection.socket.fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
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
  const Socket listener_;
  const Socket wake_;
  const int port_;
  std::thread thread_;  // last: it uses the others
};

absl::StatusOr<Socket> Listen(const std::string& host, int port) {
  const std::string where = absl::StrCat(host.empty() ? "all interfaces" : host, ", port ", port);
  addrinfo hints{};
  hints.ai_family = host.empty() ? AF_INET : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
  if (error != 0)
    return absl::UnknownError(absl::StrCat("cannot listen on ", where, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  int last_error = 0;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (socket.fd() >= 0 &&
        setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0 && listen(socket.fd(), 64) == 0) {
      return socket;
    }
    last_error = errno;
  }
  return absl::UnknownError(
      absl::StrCat("cannot listen on ", where, ": ", std::strerror(last_error)));
}

int PortOf(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options) {
  ASSIGN_OR_RETURN(Socket listener, Listen(options.host, options.port));
  Socket wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.fd() < 0) return absl::UnknownError(absl::StrCat("eventfd: ", std::strerror(errno)));
  const int port = PortOf(listener);
  return std::make_unique<PollingServer>(std::move(options), std::move(listener), std::move(wake),
                                         port);
}

}  // namespace muster
