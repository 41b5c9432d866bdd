// Where the servers of launched tasks report to (see server/status_report.h).
#pragma once

#include <string>

namespace muster {

// A socket in a folder of its own, which goes with it.
class ReportSocket {
 public:
  ReportSocket();
  ~ReportSocket();
  ReportSocket(const ReportSocket&) = delete;
  ReportSocket& operator=(const ReportSocket&) = delete;

  // -1: there is no progress to show beyond what the tasks print.
  int fd() const { return fd_; }
  std::string path() const { return folder_ + "/status"; }
  // The next report; empty when there is none yet.
  std::string Receive();

 private:
  std::string folder_;
  int fd_ = -1;
};

}  // namespace muster
