#include "muster/dashboard/http_server.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(fd_); }
  void Send(const std::string& text) { (void)!send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Until the other side ends the connection.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    for (ssize_t got; (got = recv(fd_, bytes, sizeof(bytes), 0)) > 0;)
      all.append(bytes, static_cast<size_t>(got));
    return all;
  }

 private:
  const int fd_;
};

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    options.host = "127.0.0.1";
    options.pages["/page"] = [this] { return HttpPage{code_, "text/plain; charset=utf-8", body_}; };
    auto server = HttpServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string Ask(const std::string& request) {
    Client client(server_->port());
    client.Send(request);
    return client.ReadAll();
  }

  std::atomic<int> code_{200};
  std::string body_ = "hello\n";
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesPages) {
  Start();
  const std::string reply = Ask("GET /page HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\nhello\n"));
  EXPECT_THAT(Ask("GET /page?x=1 HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("HEAD /page HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n"));
  code_ = 503;
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503 Service Unavailable"));
}

TEST_F(HttpServerTest, LargePagesArriveWhole) {
  body_ = std::string(20 << 20, 'x');
  Start();
  EXPECT_GT(Ask("GET /page HTTP/1.1\r\n\r\n").size(), body_.size());
}

TEST_F(HttpServerTest, WhatIsNoRequestGetsAnError) {
  Start();
  EXPECT_THAT(Ask("GET /other HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("POST /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask("GET /page HTTP/2.0\r\n\r\n"), StartsWith("HTTP/1.1 505"));
  for (const char* line : {"", "GET", "GET /page", "GET page HTTP/1.1", " / HTTP/1.1",
                           "GET  /page HTTP/1.1", "GET /page FTP/1.1", "\x01\xff\xfe"}) {
    EXPECT_THAT(Ask(absl::StrCat(line, "\r\n\r\n")), StartsWith("HTTP/1.1 400")) << line;
  }
  EXPECT_THAT(Ask(std::string(HttpServer::kMaxRequestBytes + 4097, 'a')),
              testing::AnyOf(StartsWith("HTTP/1.1 431"), ""));
}

TEST_F(HttpServerTest, WhoSaysNothingIsNotWaitedFor) {
  HttpServerOptions options;
  options.patience = absl::Milliseconds(200);
  options.max_connections = 2;
  Start(std::move(options));
  Client silent(server_->port());
  Client half(server_->port());
  half.Send("GET /page HT");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(half.ReadAll(), "");
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, ConnectionsAreFew) {
  HttpServerOptions options;
  options.max_connections = 2;
  options.patience = absl::Minutes(1);
  Start(std::move(options));
  Client first(server_->port());
  Client second(server_->port());
  Client third(server_->port());
  EXPECT_EQ(third.ReadAll(), "");  // closed, long before the patience of the others ends
  first.Send("GET /page HTTP/1.1\r\n\r\n");
  EXPECT_THAT(first.ReadAll(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, ManyAtOnce) {
  HttpServerOptions options;
  options.max_connections = 100;
  Start(std::move(options));
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        if (Ask("GET /page HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200")) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 160);
}

TEST_F(HttpServerTest, ATakenPortIsNamed) {
  Start();
  HttpServerOptions options;
  options.host = "127.0.0.1";
  options.port = server_->port();
  const absl::Status status = HttpServer::Start(std::move(options)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("cannot listen on 127.0.0.1, port ", server_->port())));
}

TEST_F(HttpServerTest, EndsWithOpenConnections) {
  Start();
  Client silent(server_->port());
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  server_.reset();
  EXPECT_EQ(silent.ReadAll(), "");
}

}  // namespace
}  // namespace muster
