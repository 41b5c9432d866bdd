#include "muster/collective/step/collective_run.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"

#include "muster/base/status.h"
#include "muster/collective/reduce.h"

namespace muster {
namespace {

constexpr size_t kSectionAlignment = 64;
constexpr size_t kMaxSectionBytes = size_t{4} << 20;
constexpr int kMaxSubdivsPerDevice = 2;
// What messages of failures start with: they are passed on without another prefix.
constexpr absl::string_view kFailed = "Collective ";

void CopyBytes(const char* from, char* to, size_t count) {
  if (count > 0) std::memcpy(to, from, count);
}

}  // namespace

// --- The common part

CollectiveRun::CollectiveRun(Options options) : options_(std::move(options)) {
  // Since 2.4 the key of the group is a part.
  exec_key_ = options_.group->is_legacy ? "" : absl::StrCat(options_.params.group_key, ":");
  absl::StrAppend(&exec_key_, options_.params.instance_key, ":",
                  options_.params.frame_and_iteration);
  MutexLock lock(mutex_);
  unconsumed_.resize(options_.group->members.size());
}

void CollectiveRun::Start() {
  if (absl::Status status = Plan(); !status.ok()) return Fail(std::move(status));
  if (receives_left_ == 0 && sends_left_ == 0) {
    Begin();
    return End(absl::OkStatus());
  }
  // Held back: the last of them may be done while others are still being started.
  ++receives_left_;
  Begin();
  OneDone(true);
}

void CollectiveRun::Send(int member, std::string key, Buffer bytes) {
  if (ended()) return;
  {
    MutexLock lock(mutex_);
    ++unconsumed_[member];
  }
  options_.exchange->Provide(std::move(key), std::move(bytes),
                             [self = shared_from_this(), member](absl::Status status) {
                               if (!status.ok()) return self->Fail(self->Named(status, member));
                               {
                                 MutexLock lock(self->mutex_);
                                 --self->unconsumed_[member];
                               }
                               self->OneDone(false);
                             });
}

void CollectiveRun::Receive(int member, std::string key, size_t num_bytes,
                            absl::AnyInvocable<void(const Buffer&) &&> then) {
  if (ended()) return;
  options_.exchange->Fetch(
      group().members[member], params().device, std::move(key), num_bytes, options_.cancellation,
      [self = shared_from_this(), member, num_bytes,
       then = std::move(then)](absl::StatusOr<Buffer> bytes) mutable {
        if (self->ended()) return;
        if (!bytes.ok()) return self->Fail(self->Named(bytes.status(), member));
        if (bytes->length_bytes() != num_bytes) {
          return self->Fail(self->Named(Internal("RecvBufResponse returned ", bytes->length_bytes(),
                                                 " bytes where to_tensor expected ", num_bytes),
                                        member));
        }
        std::move(then)(*bytes);
        self->OneDone(true);
      });
}

absl::Status CollectiveRun::Named(const absl::Status& status, int member) const {
  if (absl::StartsWith(status.message(), kFailed)) return status;
  return Prefixed(
      status, absl::StrCat(params().ToString(), " on ", params().device.name, " failed at rank ",
                           member, ", ", group().members[member].device.name, ": "));
}

void CollectiveRun::OneDone(bool was_receive) {
  // Receives first: seen at zero, they say that only consumers are waited for.
  const bool received_all = was_receive && --receives_left_ == 0;
  const bool sent_all = was_receive ? sends_left_ == 0 : --sends_left_ == 0;
  if (sent_all && (received_all || receives_left_ == 0)) return End(absl::OkStatus());
  if (received_all && !ended()) WatchConsumers();
}

void CollectiveRun::WatchConsumers() {
  std::vector<int> members;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < unconsumed_.size(); ++i) {
      if (unconsumed_[i] > 0) members.push_back(static_cast<int>(i));
    }
  }
  for (const int member : members) {
    options_.exchange->WatchConsumer(group().members[member], options_.cancellation,
                                     [weak = weak_from_this(), member](absl::Status status) {
                                       if (const auto self = weak.lock())
                                         self->Fail(self->Named(status, member));
                                     });
  }
}

void CollectiveRun::Fail(absl::Status status) {
  End(std::move(status));
}

void CollectiveRun::End(absl::Status status) {
  if (ended_.exchange(true, std::memory_order_acq_rel)) return;
  const auto self = shared_from_this();
  // The next reader of the result may then change it in place. After an error a peer may still
  // write to it.
  if (status.ok()) options_.input = options_.output = Tensor();
  Done done = std::move(options_.done);
  std::move(done)(std::move(status));
}

// --- Rings

int64_t AlignedSectionElements(size_t element_bytes, int64_t elements, int64_t sections) {
  const int64_t even = (elements + sections - 1) / sections;
  if (element_bytes == 0 || element_bytes >= kSectionAlignment) return even;
  const size_t bytes = static_cast<size_t>(even) * element_bytes;
  const size_t more = bytes < kSectionAlignment ? kSectionAlignment - bytes
                                                : kSectionAlignment - bytes % kSectionAlignment;
  return even + static_cast<int64_t>(more / element_bytes);
}

absl::StatusOr<RingPlan> RingPlan::Make(const CollectiveParams& params,
                                        const CollectiveGroup& group, int rank) {
  std::vector<int> offsets = params.subdiv_offsets;
  const int num_tasks = static_cast<int>(group.devices_per_task.size());
  if (offsets.empty() && params.max_subdivs_per_device == -1) {
    offsets = {0};
  } else if (offsets.empty()) {
    const int devices_per_task = group.size() / num_tasks;
    const int per_device =
        params.max_subdivs_per_device > 0 ? params.max_subdivs_per_device : kMaxSubdivsPerDevice;
    const int64_t most = int64_t{per_device} * devices_per_task;
    const size_t bytes = static_cast<size_t>(params.shape.num_elements()) * DTypeSize(params.dtype);
    int count = 1;
    while (bytes / (static_cast<size_t>(group.size()) * count) > kMaxSectionBytes && count < most)
      ++count;
    const int stride = std::max(1, devices_per_task / count);
    for (int j = 0; j < count; ++j) offsets.push_back(j % 2 == 1 ? -stride * j : stride * j);
  }
  RingPlan plan;
  for (const int offset : offsets) {
    std::vector<int> order;
    int before = 0;
    for (const int devices : group.devices_per_task) {
      for (int i = 0; i < devices; ++i) {
        const int rotated = static_cast<int>((i + std::abs(int64_t{offset})) % devices);
        order.push_back(before + (offset < 0 ? devices - (rotated + 1) : rotated));
      }
      before += devices;
    }
    plan.ranks.push_back(
        static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin()));
    plan.orders.push_back(std::move(order));
  }
  return plan;
}

namespace {

class Ring : public CollectiveRun {
 public:
  explicit Ring(Options options) : CollectiveRun(std::move(options)) {}

 protected:
  struct Section {
    int number = 0;
    int chunk = 0;
    int subdiv = 0;
    int rank = 0;  // of this device in the subdivision
    size_t offset_bytes = 0;
    size_t bytes = 0;
  };

  int size() const { return group().size(); }
  std::shared_ptr<Ring> self() { return std::static_pointer_cast<Ring>(shared_from_this()); }
  const std::vector<Section>& sections() const { return sections_; }

  void Cut(int64_t elements_per_section) {
    const size_t element = DTypeSize(params().dtype);
    const size_t total = output().size_bytes();
    const size_t step = static_cast<size_t>(elements_per_section) * element;
    const int subdivs = static_cast<int>(plan_.orders.size());
    for (int number = 0; number < size() * subdivs; ++number) {
      Section section;
      section.number = number;
      section.chunk = number / subdivs;
      section.subdiv = number % subdivs;
      section.rank = plan_.ranks[section.subdiv];
      section.offset_bytes = std::min(total, static_cast<size_t>(number) * step);
      section.bytes = std::min(total, section.offset_bytes + step) - section.offset_bytes;
      sections_.push_back(section);
    }
  }

  // In the second pass everything is one place further on.
  bool Receives(const Section& section, int pass) const {
    return section.bytes > 0 && section.rank != (section.chunk + (size() - 1) * pass) % size();
  }
  bool Sends(const Section& section, int pass) const {
    return section.bytes > 0 && !IsLast(section, pass);
  }
  bool IsLast(const Section& section, int pass) const {
    return section.rank == (section.chunk + 2 * size() - 1 - pass) % size();
  }

  int MemberAt(const Section& section, int offset) const {
    return plan_.orders[section.subdiv][(section.rank + size() + offset) % size()];
  }
  std::string Key(const Section& section, int pass, int sender) const {
    return absl::StrCat(exec_key(), ":", pass, ":", section.number, ":", sender);
  }
  void SendSection(const Section& section, int pass) {
    Send(MemberAt(section, 1), Key(section, pass, section.rank),
         output().buffer().Slice(section.offset_bytes, section.bytes));
  }
  void ReceiveSection(const Section& section, int pass,
                      absl::AnyInvocable<void(const Buffer&) &&> then) {
    Receive(MemberAt(section, -1), Key(section, pass, (section.rank + size() - 1) % size()),
            section.bytes, std::move(then));
  }

  void ExpectPasses(int passes) {
    for (const Section& section : sections_) {
      for (int pass = 0; pass < passes; ++pass)
        Expect(Receives(section, pass) ? 1 : 0, Sends(section, pass) ? 1 : 0);
    }
  }

  RingPlan plan_;

 private:
  std::vector<Section> sections_;
};

// Each chunk goes around once, every rank adding its part, and once more as it is then. A rank
// overwrites a chunk only when its successor has read it: the second pass comes through it.
class RingReduce : public Ring {
 public:
  explicit RingReduce(Options options) : Ring(std::move(options)) {}

 private:
  absl::Status Plan() override {
    auto kernel = collective::FindReduceKernel({params().dtype, params().merge});
    if (!kernel.ok()) return Unimplemented(params().ToString(), ": ", kernel.status().message());
    kernel_ = *kernel;
    ASSIGN_OR_RETURN(plan_, RingPlan::Make(params(), group(), rank()));
    const auto count = static_cast<int64_t>(size() * plan_.orders.size());
    Cut(AlignedSectionElements(DTypeSize(params().dtype), output().num_elements(), count));
    ExpectPasses(2);
    return absl::OkStatus();
  }

  void Begin() override {
    for (const Section& section : sections()) {
      if (section.bytes > 0) FirstPass(section);
    }
  }

  void FirstPass(const Section& section) {
    if (!Receives(section, 0)) return AfterMerge(section);
    ReceiveSection(section, 0, [self = self(), this, &section](const Buffer& bytes) {
      const size_t count = section.bytes / kernel_.element_bytes;
      char* const into = output().raw() + section.offset_bytes;
      kernel_.combine(into, into, bytes.data(), count);
      if (IsLast(section, 0) && params().final == FinalOp::kDiv)
        kernel_.divide(into, count, size());
      AfterMerge(section);
    });
  }

  void AfterMerge(const Section& section) {
    if (Sends(section, 0)) SendSection(section, 0);
    if (!Receives(section, 1)) return AfterCopy(section);
    ReceiveSection(section, 1, [self = self(), this, &section](const Buffer& bytes) {
      CopyBytes(bytes.data(), output().raw() + section.offset_bytes, section.bytes);
      AfterCopy(section);
    });
  }

  void AfterCopy(const Section& section) {
    if (Sends(section, 1)) SendSection(section, 1);
  }

  collective::ReduceKernel kernel_;
};

class RingGather : public Ring {
 public:
  explicit RingGather(Options options) : Ring(std::move(options)) {}

 private:
  absl::Status Plan() override {
    if (output().size_bytes() != input().size_bytes() * static_cast<size_t>(size())) {
      return Internal(params().ToString(), ": the result has ", output().size_bytes(),
                      " bytes, which is not ", size(), " times ", input().size_bytes());
    }
    CollectiveParams single = params();
    single.subdiv_offsets = {0};
    ASSIGN_OR_RETURN(plan_, RingPlan::Make(single, group(), rank()));
    Cut(input().num_elements());
    ExpectPasses(1);
    return absl::OkStatus();
  }

  void Begin() override {
    const size_t bytes = input().size_bytes();
    if (bytes == 0) return;
    CopyBytes(input().raw(), output().raw() + static_cast<size_t>(rank()) * bytes, bytes);
    for (const Section& section : sections()) {
      if (!Receives(section, 0)) {
        if (Sends(section, 0)) SendSection(section, 0);
        continue;
      }
      ReceiveSection(section, 0, [self = self(), this, &section](const Buffer& received) {
        CopyBytes(received.data(), output().raw() + section.offset_bytes, section.bytes);
        if (Sends(section, 0)) SendSection(section, 0);
      });
    }
  }
};

// First among one device of each task, then inside of each task.
class TreeBroadcast : public CollectiveRun {
 public:
  explicit TreeBroadcast(Options options) : CollectiveRun(std::move(options)) {}

 private:
  struct Tree {
    int number = 0;
    std::vector<int> members;
    int rank = 0;
    TreePlace place;
  };

  absl::Status Plan() override {
    if (source_rank() < 0 || source_rank() >= group().size())
      return Internal(params().ToString(), ": rank ", source_rank(), " is not a source");
    const auto& tasks = group().devices_per_task;
    Tree between;
    int source = 0;
    int before = 0;
    for (size_t task = 0; task < tasks.size(); ++task) {
      const bool has_source = source_rank() >= before && source_rank() < before + tasks[task];
      if (has_source) source = static_cast<int>(task);
      between.members.push_back(has_source ? source_rank() : before);
      before += tasks[task];
    }
    if (tasks.size() > 1) AddTree(std::move(between), source);
    before = 0;
    for (size_t task = 0; task < tasks.size(); ++task) {
      Tree inside;
      inside.number = static_cast<int>(task) + (tasks.size() > 1 ? 1 : 0);
      source = 0;
      for (int i = 0; i < tasks[task]; ++i) {
        if (before + i == source_rank()) source = i;
        inside.members.push_back(before + i);
      }
      before += tasks[task];
      AddTree(std::move(inside), source);
    }
    return absl::OkStatus();
  }

  void AddTree(Tree tree, int source) {
    const auto own = std::find(tree.members.begin(), tree.members.end(), rank());
    if (own == tree.members.end()) return;
    tree.rank = static_cast<int>(own - tree.members.begin());
    tree.place = TreePlace::Of(static_cast<int>(tree.members.size()), source, tree.rank);
    Expect(tree.place.from >= 0 ? 1 : 0, static_cast<int>(tree.place.to.size()));
    trees_.push_back(std::move(tree));
  }

  void Begin() override {
    if (rank() == source_rank() && input().raw() != output().raw())
      CopyBytes(input().raw(), output().raw(), output().size_bytes());
    Next(0);
  }

  // At most one tree brings the value; those after it send it on.
  void Next(size_t index) {
    for (; index < trees_.size(); ++index) {
      const Tree& tree = trees_[index];
      if (tree.place.from >= 0) {
        const auto self = std::static_pointer_cast<TreeBroadcast>(shared_from_this());
        Receive(tree.members[tree.place.from], Key(tree, tree.place.from, tree.rank),
                output().size_bytes(), [self, this, index](const Buffer& bytes) {
                  CopyBytes(bytes.data(), output().raw(), bytes.length_bytes());
                  SendOn(trees_[index]);
                  Next(index + 1);
                });
        return;
      }
      SendOn(tree);
    }
  }

  void SendOn(const Tree& tree) {
    for (const int to : tree.place.to)
      Send(tree.members[to], Key(tree, tree.rank, to),
           output().buffer().Slice(0, output().size_bytes()));
  }

  std::string Key(const Tree& tree, int from, int to) const {
    return absl::StrCat(exec_key(), ":", tree.number, ":", from, ":", to);
  }

  std::vector<Tree> trees_;
};

class AllToAll : public CollectiveRun {
 public:
  explicit AllToAll(Options options) : CollectiveRun(std::move(options)) {}

 private:
  absl::Status Plan() override {
    if (input().size_bytes() != output().size_bytes() ||
        input().size_bytes() % static_cast<size_t>(group().size()) != 0) {
      return Internal(params().ToString(), ": ", input().size_bytes(), " bytes cannot be cut into ",
                      group().size(), " equal parts");
    }
    Expect(group().size() - 1, group().size() - 1);
    return absl::OkStatus();
  }

  void Begin() override {
    const size_t bytes = input().size_bytes() / static_cast<size_t>(group().size());
    const auto self = std::static_pointer_cast<AllToAll>(shared_from_this());
    for (int other = 0; other < group().size(); ++other) {
      const size_t offset = static_cast<size_t>(other) * bytes;
      if (other == rank()) {
        CopyBytes(input().raw() + offset, output().raw() + offset, bytes);
        continue;
      }
      Send(other, absl::StrCat(exec_key(), ":", rank(), ":", other),
           input().buffer().Slice(offset, bytes));
      Receive(other, absl::StrCat(exec_key(), ":", other, ":", rank()), bytes,
              [self, this, offset](const Buffer& received) {
                CopyBytes(received.data(), output().raw() + offset, received.length_bytes());
              });
    }
  }
};

}  // namespace

// --- Trees

TreePlace TreePlace::Of(int size, int source, int rank) {
  TreePlace place;
  if (rank != source) {
    const int parent = source == 0 ? (rank - 1) / 2 : rank / 2 - 1;
    place.from = parent < 0 ? source : parent;
  }
  const auto add = [&](int child) {
    if (child < size && child != source) place.to.push_back(child);
  };
  // A source that is not rank 0 feeds the first two besides those that its number gives it.
  if (rank == source && source != 0) {
    add(0);
    add(1);
  }
  const int first = source == 0 ? 2 * rank + 1 : 2 * rank + 2;
  add(first);
  add(first + 1);
  return place;
}

absl::StatusOr<std::shared_ptr<CollectiveRun>> CollectiveRun::Create(Options options) {
  switch (options.params.type) {
    case CollectiveType::kReduce:
      return std::shared_ptr<CollectiveRun>(std::make_shared<RingReduce>(std::move(options)));
    case CollectiveType::kGather:
      return std::shared_ptr<CollectiveRun>(std::make_shared<RingGather>(std::move(options)));
    case CollectiveType::kBroadcast:
      return std::shared_ptr<CollectiveRun>(std::make_shared<TreeBroadcast>(std::move(options)));
    case CollectiveType::kAllToAll:
      return std::shared_ptr<CollectiveRun>(std::make_shared<AllToAll>(std::move(options)));
    case CollectiveType::kReduceScatter:
      break;
  }
  // A reduction of which each rank keeps its part.
  Tensor work = options.input.Clone();
  Tensor part = std::exchange(options.output, work);
  if (part.size_bytes() * static_cast<size_t>(options.group->size()) != work.size_bytes()) {
    return Internal(options.params.ToString(), ": ", work.size_bytes(),
                    " bytes cannot be cut into ", options.group->size(), " equal parts");
  }
  options.done = [work, part, rank = options.rank,
                  done = std::move(options.done)](absl::Status status) mutable {
    if (status.ok()) {
      CopyBytes(work.raw() + static_cast<size_t>(rank) * part.size_bytes(), part.raw(),
                part.size_bytes());
    }
    std::move(done)(std::move(status));
  };
  return std::shared_ptr<CollectiveRun>(std::make_shared<RingReduce>(std::move(options)));
}

}  // namespace muster
