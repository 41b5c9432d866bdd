#include "muster/dashboard/http_server.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/net/socket_fakes_test.h"

namespace muster {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

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
    TestClient client(server_->port());
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
  options.limits = {2, 2};
  Start(std::move(options));
  TestClient silent(server_->port());
  TestClient half(server_->port());
  half.Send("GET /page HT");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(half.ReadAll(), "");
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, TheOldestGoesForTheNewest) {
  HttpServerOptions options;
  options.limits = {4, 2};
  options.patience = absl::Minutes(1);
  Start(std::move(options));
  TestClient elsewhere(server_->port(), "127.0.0.2");
  TestClient first(server_->port()), second(server_->port()), third(server_->port());
  first.Send("GET /pa");
  EXPECT_EQ(first.ReadAll(), "");  // closed, long before its patience ends
  third.Send("GET /page HTTP/1.1\r\n\r\n");
  EXPECT_THAT(third.ReadAll(), StartsWith("HTTP/1.1 200"));
  second.Send("GET /page HTTP/1.1\r\n\r\n");
  EXPECT_THAT(second.ReadAll(), StartsWith("HTTP/1.1 200"));
  elsewhere.Send("GET /page HTTP/1.1\r\n\r\n");
  EXPECT_THAT(elsewhere.ReadAll(), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, SlowConnectionsKeepNobodyOut) {
  HttpServerOptions options;
  options.limits = {16, 12};
  options.patience = absl::Minutes(1);
  Start(std::move(options));
  std::vector<std::unique_ptr<TestClient>> slow;
  for (int i = 0; i < 64; ++i) {
    slow.push_back(std::make_unique<TestClient>(server_->port()));
    slow.back()->Send("GET /p");
    EXPECT_THAT(Ask("GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  }
}

TEST_F(HttpServerTest, AnswersWithoutDescriptors) {
  Start();
  TestClient first, second;
  const NoDescriptors none;
  first.Connect(server_->port());
  first.Send("GET /page HTTP/1.1\r\n\r\n");
  EXPECT_THAT(first.ReadAll(), StartsWith("HTTP/1.1 200"));
  second.Connect(server_->port());
  second.Send("GET /page HTTP/1.1\r\n\r\n");
  EXPECT_THAT(second.ReadAll(), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, ManyAtOnce) {
  Start();
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
  TestClient silent(server_->port());
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  server_.reset();
  EXPECT_EQ(silent.ReadAll(), "");
}

}  // namespace
}  // namespace muster
