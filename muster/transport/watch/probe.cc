#include "muster/transport/watch/probe.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/base/mutex.h"
#include "muster/base/threads/thread_name.h"
#include "muster/transport/api/local_address.h"

namespace muster {
namespace {

constexpr int kWaitMillis = 1000;
// The preface of HTTP/2 and an empty SETTINGS frame; a server of HTTP/2 answers with SETTINGS.
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
constexpr unsigned char kSettingsFrame = 4;

class Stopwatch {
 public:
  std::string Took() const {
    return absl::StrCat(" (", absl::ToInt64Milliseconds(absl::Now() - start_), " ms)");
  }

 private:
  const absl::Time start_ = absl::Now();
};

// Whether something happens in time; the error of the socket otherwise.
std::string WaitFor(int socket, short events) {
  pollfd wait = {socket, events, 0};
  const int ready = poll(&wait, 1, kWaitMillis);
  if (ready == 0) return absl::StrCat("no answer within ", kWaitMillis, " ms");
  int error = ready < 0 ? errno : 0;
  socklen_t size = sizeof(error);
  if (ready > 0) getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? "" : std::strerror(error);
}

std::string TryHttp2(int socket) {
  const Stopwatch watch;
  const auto failed = [&watch](absl::string_view why) {
    return absl::StrCat("HTTP/2: ", why, watch.Took());
  };
  if (send(socket, kPreface, sizeof(kPreface) - 1, MSG_NOSIGNAL) < 0)
    return failed(std::strerror(errno));
  if (const std::string error = WaitFor(socket, POLLIN); !error.empty()) return failed(error);
  unsigned char head[9] = {};
  const ssize_t got = recv(socket, head, sizeof(head), 0);
  if (got < 0) return failed(std::strerror(errno));
  if (got == 0) return failed("the connection was closed; does the port want TLS?");
  if (got < 4 || head[3] != kSettingsFrame) return failed("something else answers at this port");
  return absl::StrCat("HTTP/2 answers", watch.Took(), ", but the call does not");
}

std::string TryAddress(const addrinfo& address) {
  const Stopwatch watch;
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::StrCat("TCP: ", std::strerror(errno));
  const absl::Cleanup close_it = [fd] { close(fd); };
  std::string error;
  if (connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    error = errno == EINPROGRESS ? WaitFor(fd, POLLOUT) : std::strerror(errno);
  }
  if (!error.empty()) return absl::StrCat("TCP: ", error, watch.Took());
  return absl::StrCat("TCP connected", watch.Took(), ", ", TryHttp2(fd));
}

std::string Try(const std::string& address) {
  const absl::StatusOr<HostPort> place = ParseHostPort(address);
  if (!place.ok()) return std::string(place.status().message());
  const Stopwatch watch;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(place->host.c_str(), absl::StrCat(place->port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::StrCat("name resolution of '", place->host, "': ", gai_strerror(error),
                        watch.Took());
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  char numeric[NI_MAXHOST] = "";
  getnameinfo(found->ai_addr, found->ai_addrlen, numeric, sizeof(numeric), nullptr, 0,
              NI_NUMERICHOST);
  return absl::StrCat("'", place->host, "' is ", numeric, watch.Took(), ", port ", place->port,
                      ": ", TryAddress(*found));
}

// Probes one after the other; the thread goes when there is nothing left to do.
struct Queue {
  struct Entry {
    std::string address;
    absl::AnyInvocable<void(std::string) &&> done;
  };
  Mutex mutex;
  bool running ABSL_GUARDED_BY(mutex) = false;
  std::deque<Entry> waiting ABSL_GUARDED_BY(mutex);

  void Work() {
    for (;;) {
      Entry next;
      {
        MutexLock lock(mutex);
        if (waiting.empty()) {
          running = false;
          return;
        }
        next = std::move(waiting.front());
        waiting.pop_front();
      }
      std::move(next.done)(Try(next.address));
    }
  }
};

}  // namespace

void ProbeAddress(std::string address, absl::AnyInvocable<void(std::string) &&> done) {
  static Queue& queue = *std::make_unique<Queue>().release();  // threads may outlive main
  {
    MutexLock lock(queue.mutex);
    queue.waiting.push_back({std::move(address), std::move(done)});
    if (std::exchange(queue.running, true)) return;
  }
  std::thread([] {
    NameThread("muster-probe");
    queue.Work();
  }).detach();
}

}  // namespace muster
