// Pages over HTTP/1.1, for machines that look after tasks: metrics and probes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"

#include "muster/base/net/acceptor.h"
#include "muster/base/status.h"

namespace muster {

struct HttpPage {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpServerOptions {
  std::string host;  // numeric or a name; empty: all interfaces
  int port = 0;      // 0: any free one
  // By path, "/metrics". Called on the thread of the server: they must not wait.
  std::map<std::string, std::function<HttpPage()>> pages;
  // When more come, in all or from one address, the oldest is closed: it is the slowest.
  ConnectionLimits limits = {256, 128};
  // For the whole of a request and its reply.
  absl::Duration patience = absl::Seconds(5);
};

// Serves until it is destroyed. Every connection has one request; any other input gets an error and
// the connection ends. Thread-safe.
class HttpServer {
 public:
  static constexpr size_t kMaxRequestBytes = 8192;

  // Unknown "cannot listen on ..." when the port is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options);
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
};

}  // namespace muster
