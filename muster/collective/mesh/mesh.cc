#include "muster/collective/mesh/mesh.h"

#include <algorithm>
#include <ctime>

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "muster/base/threads/thread_name.h"

namespace muster::collective {
namespace {

// Within some milliseconds, at no cost: good enough to detect silent ranks.
int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int CoresOfThisProcess() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 2;
}

// Two ranks that call one tag differently find out by this number.
uint64_t Signature(std::initializer_list<uint64_t> parts) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint64_t part : parts) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

enum CallKind : uint64_t { kAllReduceCall = 1, kScatterCall, kGatherCall, kBroadcastCall };

}  // namespace

absl::Status Await(Group& group, absl::FunctionRef<void(Done)> start) {
  absl::Status result;
  std::atomic<bool> ended{false};
  group.ComeToHelp();
  start([&](absl::Status status) {
    result = std::move(status);
    ended.store(true, std::memory_order_release);
  });
  group.HelpUntil([&] { return ended.load(std::memory_order_acquire); });
  group.EndHelp();
  return result;
}

absl::StatusOr<std::unique_ptr<Mesh>> Mesh::Create(MeshOptions options,
                                                   std::unique_ptr<Connector> connector) {
  const auto ranks = static_cast<int>(options.names.size());
  if (options.rank < 0 || options.rank >= ranks) {
    return InvalidArgument("Rank ", options.rank, " of a group of ", ranks);
  }
  if (options.silence <= absl::ZeroDuration() || options.lateness <= absl::ZeroDuration()) {
    return InvalidArgument("The bounds on silence and lateness of a group must be positive");
  }
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll < 0 || wake < 0) {
    if (epoll >= 0) close(epoll);
    if (wake >= 0) close(wake);
    return absl::ErrnoToStatus(errno, "A group has no descriptors left");
  }
  epoll_event event{.events = EPOLLIN, .data = {.u32 = UINT32_MAX}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, wake, &event);
  return std::unique_ptr<Mesh>(new Mesh(std::move(options), std::move(connector), epoll, wake));
}

Mesh::Mesh(MeshOptions options, std::unique_ptr<Connector> connector, int epoll, int wake)
    : options_(std::move(options)),
      connector_(std::move(connector)),
      epoll_(epoll),
      wake_(wake),
      watched_(options_.names.size(), -1),
      pace_(CoresOfThisProcess() > 1 ? absl::ToInt64Nanoseconds(options_.spin) : 0) {
  for (int peer = 0; peer < size(); ++peer) {
    links_.push_back(peer == rank()
                         ? nullptr
                         : std::make_unique<RankLink>(peer, static_cast<RankLinkOwner&>(*this)));
  }
  connector_->Open(options_.group, rank(),
                   [this](int peer, absl::StatusOr<std::unique_ptr<Channel>> channel) {
                     if (peer < 0 || peer >= size() || peer == rank()) return;
                     Event event{.peer = peer, .status = channel.status()};
                     if (channel.ok()) event.channel = *std::move(channel);
                     Post(std::move(event));
                     Wake();
                   });
  thread_ = std::thread([this] {
    NameThread("muster-mesh");
    RunThread();
  });
}

Mesh::~Mesh() {
  absl::Status reason = absl::CancelledError(absl::StrCat(Name(rank()), " has left the group"));
  // An abort that was asked for says why.
  mutex_.Lock();
  DrainInbox();
  if (!failed_.ok()) reason = failed_;
  Release(/*is_driver=*/false);
  connector_->End(reason);
  {
    MutexLock lock(driver_mutex_);
    stopping_ = true;
    driver_changed_.NotifyAll();
  }
  Wake();
  thread_.join();
  connector_ = nullptr;  // the last that could call
  mutex_.Lock();
  DrainInbox();
  if (!operations_.empty()) Fail(reason);
  if (failed_.ok()) {
    failed_ = reason;
    failed_nanos_ = Now();
  }
  while (!CloseWrittenLinks(Now())) {
    mutex_.Unlock();
    usleep(200);
    mutex_.Lock();
  }
  Release(/*is_driver=*/false);
  close(epoll_);
  close(wake_);
}

std::string Mesh::Name(int rank) const {
  return absl::StrCat("rank ", rank, " (", options_.names[rank], ")");
}

void Mesh::Reduce(uint64_t kind, uint64_t tag, const Reduction& reduction, void* data, size_t count,
                  Done done, absl::FunctionRef<Schedule(size_t)> make_schedule) {
  absl::StatusOr<ReduceKernel> kernel = FindReduceKernel(reduction);
  if (!kernel.ok()) return std::move(done)(kernel.status());
  const uint64_t signature =
      Signature({kind, static_cast<uint64_t>(reduction.dtype), static_cast<uint64_t>(reduction.op),
                 reduction.mean, count});
  Start(std::make_unique<Operation>(tag, signature, make_schedule(kernel->element_bytes),
                                    static_cast<char*>(data), &*kernel, reduction.mean ? size() : 0,
                                    std::move(done)));
}

void Mesh::AllReduceBy(Algorithm algorithm, uint64_t tag, const Reduction& reduction, void* data,
                       size_t count, Done done) {
  const uint64_t kind = kAllReduceCall | static_cast<uint64_t>(algorithm) << 8;
  Reduce(kind, tag, reduction, data, count, std::move(done), [&](size_t element_bytes) {
    return AllReduceSchedule(algorithm, rank(), size(), count, element_bytes);
  });
}

void Mesh::AllReduce(uint64_t tag, const Reduction& reduction, void* data, size_t count,
                     Done done) {
  const size_t bytes = count * DTypeSize(reduction.dtype);
  AllReduceBy(ChooseAllReduce(size(), bytes), tag, reduction, data, count, std::move(done));
}

void Mesh::ReduceScatter(uint64_t tag, const Reduction& reduction, void* data, size_t count,
                         Done done) {
  Reduce(kScatterCall, tag, reduction, data, count, std::move(done), [&](size_t element_bytes) {
    return ReduceScatterSchedule(rank(), size(), count, element_bytes);
  });
}

void Mesh::AllGather(uint64_t tag, void* data, size_t block_bytes, Done done) {
  Start(std::make_unique<Operation>(tag, Signature({kGatherCall, block_bytes}),
                                    AllGatherSchedule(rank(), size(), block_bytes),
                                    static_cast<char*>(data), nullptr, 0, std::move(done)));
}

void Mesh::Broadcast(uint64_t tag, int root, void* data, size_t bytes, Done done) {
  if (root < 0 || root >= size()) {
    return std::move(done)(InvalidArgument("Root ", root, " of a group of ", size()));
  }
  const uint64_t signature = Signature({kBroadcastCall, static_cast<uint64_t>(root), bytes});
  Start(std::make_unique<Operation>(tag, signature, BroadcastSchedule(rank(), size(), root, bytes),
                                    static_cast<char*>(data), nullptr, 0, std::move(done)));
}

void Mesh::Start(std::unique_ptr<Operation> operation) {
  if (mutex_.TryLock()) {
    DrainInbox();
    Begin(std::move(operation));
    Release(/*is_driver=*/false);
  } else {
    Post({.operation = std::move(operation)});
    Kick();
  }
  if (helpers_.load() == 0) NotifyThread();
}

void Mesh::Abort(absl::Status reason) {
  if (reason.ok()) reason = absl::AbortedError("The group was aborted");
  Post({.status = std::move(reason)});
  Kick();
  Wake();
}

absl::Status Mesh::status() const {
  MutexLock lock(mutex_);
  return failed_;
}

Operation* Mesh::FindOperation(uint64_t tag) {
  const auto found = operations_.find(tag);
  return found == operations_.end() ? nullptr : found->second.get();
}

void Mesh::Touched(Operation* operation) {
  if (std::find(touched_.begin(), touched_.end(), operation) == touched_.end()) {
    touched_.push_back(operation);
  }
}

void Mesh::Begin(std::unique_ptr<Operation> operation) {
  if (!failed_.ok()) {
    finished_.emplace_back(operation->TakeDone(), failed_);
    return;
  }
  if (operation->finished()) {
    finished_.emplace_back(operation->TakeDone(), absl::OkStatus());
    return;
  }
  if (FindOperation(operation->tag()) != nullptr) {
    finished_.emplace_back(operation->TakeDone(), InvalidArgument("Collective ", operation->tag(),
                                                                  " is under way already"));
    return;
  }
  const int64_t now = Now();
  if (operations_.empty()) busy_since_ = now;
  busy_.store(true);
  operation->progress_nanos = now;
  Operation& begun = *(operations_[operation->tag()] = std::move(operation));
  for (const Operation::Lane& lane : begun.lanes()) {
    RankLink& link = *links_[lane.peer];
    if (!link.gone.ok()) {
      return Fail(absl::UnavailableError(absl::StrCat(Name(lane.peer), ": ", link.gone.message())));
    }
    if (const absl::Status joined = link.Join(&begun); !joined.ok()) {
      return Fail(Prefixed(joined, absl::StrCat(Name(lane.peer), " ")));
    }
    RequestLink(link);
  }
  if (const absl::Status taken = begun.AcceptEarly(); !taken.ok()) return Fail(taken);
  Touched(&begun);
  HandleTouched();
}

// A rank that is ready for a large send grants it; so does one whose peer would otherwise not learn
// that it takes part.
void Mesh::SendGrants(Operation& operation) {
  for (Operation::Lane& lane : operation.lanes()) {
    const uint32_t grant = operation.NewGrant(lane);
    const bool announce = !lane.announced && lane.sends.empty();
    if (grant == 0 && !announce) continue;
    lane.announced = true;
    lane.granted_to_peer = std::max(lane.granted_to_peer, grant);
    links_[lane.peer]->Queue({.kind = MeshPacketKind::kReady,
                              .tag = operation.tag(),
                              .signature = operation.signature(),
                              .step = lane.granted_to_peer});
  }
}

void Mesh::HandleTouched() {
  while (!touched_.empty()) {
    Operation* const operation = touched_.back();
    touched_.pop_back();
    operation->progress_nanos = Now();
    SendGrants(*operation);
    const uint64_t tag = operation->tag();
    for (Operation::Lane& lane : operation->lanes()) {
      FlushLink(*links_[lane.peer]);
      if (FindOperation(tag) != operation) break;  // failed with the whole group
    }
    if (FindOperation(tag) == operation) FinishIfDone(operation);
  }
}

void Mesh::FinishIfDone(Operation* operation) {
  if (!operation->finished()) return;
  finished_.emplace_back(operation->TakeDone(), absl::OkStatus());
  std::erase(touched_, operation);
  operations_.erase(operation->tag());
  if (operations_.empty()) busy_.store(false);
}

void Mesh::RequestLink(RankLink& link) {
  if (link.attached() || link.requested || !failed_.ok() || connector_ == nullptr) return;
  link.requested = true;
  link.requested_nanos = Now();
  connector_->Connect(link.peer());
}

void Mesh::AttachLink(int peer, std::unique_ptr<Channel> channel) {
  RankLink& link = *links_[peer];
  if (!failed_.ok() || link.attached() || !link.gone.ok()) return;
  link.requested = true;
  link.heard_nanos = link.sent_nanos = Now();
  if (channel->fd() < 0) {
    has_memory_links_ = true;
    channel->SetWaker([this] {
      if (sleeping_.load() > 0) Wake();
    });
  }
  link.Attach(std::move(channel));
  watched_[peer] = -1;
  Watch(link);
  FlushLink(link);
}

void Mesh::Watch(RankLink& link) {
  if (!link.attached() || link.channel()->fd() < 0) return;
  // After a failure nothing more is read.
  const bool awaits_room = link.blocked() && link.channel()->room_is_polled();
  const uint32_t wanted =
      (failed_.ok() ? uint32_t{EPOLLIN} : 0u) | (awaits_room ? uint32_t{EPOLLOUT} : 0u);
  int64_t& watched = watched_[link.peer()];
  if (wanted == watched) return;
  epoll_event event{.events = wanted, .data = {.u32 = static_cast<uint32_t>(link.peer())}};
  epoll_ctl(epoll_, watched < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, link.channel()->fd(), &event);
  watched = wanted;
}

void Mesh::FlushLink(RankLink& link) {
  if (!link.attached()) return;
  const absl::Status flushed = link.Flush(Now());
  if (flushed.ok()) {
    if (link.blocked() && sleeping_.load() > 0) Watch(link);
    return;
  }
  // What the peer sent before it closed may name the rank that caused the failure.
  while (failed_.ok() && link.attached()) {
    const absl::StatusOr<size_t> got = link.Read(Now());
    if (const absl::Status abort = link.TakeAbort(); !abort.ok()) return Fail(abort);
    if (!got.ok() || *got == 0) break;
  }
  LinkBroke(link, flushed);
}

bool Mesh::ReadLink(RankLink& link) {
  if (!link.attached() || !failed_.ok()) return false;
  const absl::StatusOr<size_t> got = link.Read(Now());
  if (const absl::Status abort = link.TakeAbort(); !abort.ok()) {
    Fail(abort);
    return true;
  }
  HandleTouched();
  if (!got.ok()) {
    LinkBroke(link, got.status());
    return true;
  }
  if (!link.control_written() && !link.blocked()) FlushLink(link);
  return *got > 0;
}

void Mesh::LinkBroke(RankLink& link, const absl::Status& status) {
  if (!link.attached()) return;
  link.gone = status;
  link.Detach();
  if (!failed_.ok()) return;
  if (!absl::IsUnavailable(status)) {
    return Fail(Prefixed(status, absl::StrCat(Name(link.peer()), " ")));
  }
  for (const auto& [tag, operation] : operations_) {
    const Operation::Lane* const lane = operation->FindLane(link.peer());
    if (lane != nullptr && operation->Needs(*lane)) {
      return Fail(absl::UnavailableError(
          absl::StrCat(Name(link.peer()), ": ", status.message(), " during collective ", tag)));
    }
  }
}

void Mesh::Fail(absl::Status reason) {
  if (!failed_.ok()) return;
  failed_ = std::move(reason);
  failed_nanos_ = Now();
  for (auto& [tag, operation] : operations_) {
    finished_.emplace_back(operation->TakeDone(), failed_);
  }
  if (connector_ != nullptr) connector_->End(failed_);
  touched_.clear();
  for (const auto& link : links_) {
    if (link == nullptr) continue;
    if (link->attached()) link->Abandon(failed_);
    if (!link->attached() || !link->Flush(failed_nanos_).ok()) {
      link->Detach();
    } else {
      Watch(*link);
    }
  }
  operations_.clear();
  busy_.store(true);  // until the links are closed
}

}  // namespace muster::collective
