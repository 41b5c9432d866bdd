// Sockets, and the lack of descriptors, for tests.
#pragma once

#include <cerrno>
#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/base/net/descriptor.h"

namespace muster {

// Another soft limit while it lives.
class SoftLimit {
 public:
  explicit SoftLimit(int descriptors) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit other = before_;
    other.rlim_cur = static_cast<rlim_t>(descriptors);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &other), 0);
  }
  ~SoftLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// While it lives the process gets no new descriptors: all below the limit are taken.
class NoDescriptors {
 public:
  NoDescriptors() : limit_(Descriptor(dup(0)).get()) {}

 private:
  const SoftLimit limit_;
};

// A TCP socket that connects when it is told to. Every wait ends after a minute.
class TestClient {
 public:
  TestClient() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval minute = {.tv_sec = 60, .tv_usec = 0};
    for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO})
      EXPECT_EQ(setsockopt(fd(), SOL_SOCKET, direction, &minute, sizeof(minute)), 0);
  }
  explicit TestClient(int port, const char* from = "127.0.0.1") : TestClient() {
    Connect(port, from);
  }
  void Connect(int port, const char* from = "127.0.0.1") {
    const sockaddr_in own = Address(from, 0);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    const sockaddr_in to = Address("127.0.0.1", port);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  int fd() const { return socket_.get(); }
  // False: the other side has closed the connection.
  bool Send(const std::string& text) {
    return send(fd(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // Until the other side ends the connection.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    ssize_t got;
    while ((got = recv(fd(), bytes, sizeof(bytes), 0)) > 0)
      all.append(bytes, static_cast<size_t>(got));
    EXPECT_TRUE(got == 0 || errno != EAGAIN) << "the connection has not ended";
    return all;
  }
  // Whether it is still connected and nothing has come.
  bool IsSilent() const {
    char byte;
    return recv(fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
  }

 private:
  static sockaddr_in Address(const char* host, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
  }

  Descriptor socket_;
};

}  // namespace muster
