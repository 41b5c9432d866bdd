// A device of type GPU for tests without a GPU, as strict as a real one:
//  - its memory cannot be read or written by the host (the pages have no rights), and what was freed
//    is overwritten;
//  - nothing that is put on its stream runs before the host waits for something behind it.
// Its kernels are those of the CPU, run by the thread of the stream on a second mapping of the
// memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "muster/base/check.h"
#include "muster/base/random.h"
#include "muster/device/device_directory.h"
#include "muster/device/device_kinds.h"
#include "muster/runtime/kernel.h"

namespace muster {

class LateStream : public Stream {
 public:
  using Work = absl::AnyInvocable<absl::Status()>;

  LateStream() : thread_([this] { Run(); }) {}
  ~LateStream() override {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void Put(Work work) { Add({std::move(work), nullptr}, /*wanted=*/false); }
  void WhenDone(Done done) override { Add({nullptr, std::move(done)}, /*wanted=*/true); }

  // While it is held, nothing runs.
  void Hold(bool is_held) {
    std::lock_guard lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
  }
  int64_t num_run() const {
    std::lock_guard lock(mutex_);
    return num_run_;
  }
  int64_t num_waiting() const {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(queue_.size());
  }

 private:
  struct Item {
    Work work;
    Done done;
  };

  void Add(Item item, bool wanted) {
    // Under the lock: what ends with this item, and be it the stream itself, waits for the lock.
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
    ++num_put_;
    if (!wanted) return;
    num_wanted_ = num_put_;
    changed_.notify_all();
  }

  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return is_over_ || (!is_held_ && num_run_ < num_wanted_); });
      if (num_run_ >= num_wanted_) return;  // it is over, and nobody waits for the rest
      Item item = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      // As on a GPU, the first error is also that of all later work.
      if (item.work != nullptr && failed_.ok()) failed_ = item.work();
      item.work = nullptr;
      lock.lock();
      ++num_run_;
      if (item.done == nullptr) continue;
      lock.unlock();
      std::move(item.done)(failed_);
      item.done = nullptr;
      lock.lock();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  int64_t num_put_ = 0;
  int64_t num_wanted_ = 0;
  int64_t num_run_ = 0;
  bool is_held_ = false;
  bool is_over_ = false;
  absl::Status failed_;  // of the thread
  std::thread thread_;
};

// Memory with two addresses: the one that tensors have cannot be used.
class LateMemory : public Allocator {
 public:
  LateMemory(size_t size_bytes, LateStream& stream) : size_bytes_(size_bytes), stream_(stream) {
    const int file = memfd_create("fake accelerator", 0);
    CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(size_bytes)) == 0);
    device_ = Map(file, PROT_NONE);
    usable_ = Map(file, PROT_READ | PROT_WRITE);
    close(file);
    free_[0] = size_bytes;
  }
  ~LateMemory() override {
    CHECK(usage_.bytes_in_use == 0);
    munmap(device_, size_bytes_);
    munmap(usable_, size_bytes_);
  }

  Buffer Allocate(size_t size_bytes) override {
    const size_t block = (std::max<size_t>(size_bytes, 1) + kBufferAlignment - 1) /
                         kBufferAlignment * kBufferAlignment;
    std::lock_guard lock(mutex_);
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      const auto [offset, length] = *at;
      if (length < block) continue;
      free_.erase(at);
      if (length > block) free_[offset + block] = length - block;
      usage_.bytes_in_use += static_cast<int64_t>(block);
      ++usage_.allocations;
      return Buffer(MakeRef<Block>(*this, offset, block), 0, size_bytes);
    }
    return Buffer();
  }
  MemoryKind memory_kind() const override { return MemoryKind::kDevice; }
  Usage usage() const override {
    std::lock_guard lock(mutex_);
    return usage_;
  }

  // For the thread of the stream.
  char* Usable(const Tensor& tensor) const {
    const char* const at = tensor.raw();
    CHECK(at >= device_ && at + tensor.size_bytes() <= device_ + size_bytes_);
    return usable_ + (at - device_);
  }

 private:
  class Block : public Region {
   public:
    Block(LateMemory& memory, size_t offset, size_t length)
        : Region(memory.device_ + offset, length, MemoryKind::kDevice),
          memory_(memory),
          offset_(offset) {}
    ~Block() override { memory_.Free(offset_, size_bytes()); }

   private:
    LateMemory& memory_;
    const size_t offset_;
  };

  char* Map(int file, int rights) const {
    void* const at = mmap(nullptr, size_bytes_, rights, MAP_SHARED, file, 0);
    CHECK(at != MAP_FAILED);
    return static_cast<char*>(at);
  }

  // What was put on the stream before may still use the block; what gets it next comes later.
  void Free(size_t offset, size_t length) {
    stream_.Put([at = usable_ + offset, length] {
      std::memset(at, 0xDD, length);
      return absl::OkStatus();
    });
    std::lock_guard lock(mutex_);
    usage_.bytes_in_use -= static_cast<int64_t>(length);
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + length) {
      length += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += length;
        return;
      }
    }
    free_[offset] = length;
  }

  const size_t size_bytes_;
  LateStream& stream_;
  char* device_ = nullptr;
  char* usable_ = nullptr;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset -> length
  Usage usage_;
};

class FakeAccelerator : public Device {
 public:
  static constexpr size_t kMemoryBytes = 16 << 20;

  FakeAccelerator(std::string name, Scheduler& scheduler)
      : Device({std::move(name), "GPU", kMemoryBytes, EntropySeed() | 1, "a fake accelerator"}),
        scheduler_(scheduler) {
    DeviceDirectory::Global().Add(*this);
  }
  ~FakeAccelerator() override { DeviceDirectory::Global().Remove(*this); }

  LateMemory& allocator() override { return memory_; }
  Allocator& host_allocator() override { return HostAllocator(); }
  Scheduler& scheduler() override { return scheduler_; }
  LateStream* stream() override { return &stream_; }
  void Copy(const Tensor&, Device&, CopyDone done) override {
    std::move(done)(Internal("Copy is for memory of the host"));
  }
  absl::StatusOr<Tensor> BeginCopyToHost(const Tensor& tensor) override {
    Tensor copy(tensor.dtype(), tensor.shape());
    if (tensor.size_bytes() > 0) {
      stream_.Put([this, tensor, copy, to = copy.raw()] {
        std::memcpy(to, memory_.Usable(tensor), tensor.size_bytes());
        return absl::OkStatus();
      });
    }
    return copy;
  }
  void CopyToHost(const Tensor& tensor, CopyDone done) override {
    absl::StatusOr<Tensor> copy = BeginCopyToHost(tensor);
    stream_.WhenDone([copy = *copy, done = std::move(done)](absl::Status status) mutable {
      if (!status.ok()) return std::move(done)(std::move(status));
      std::move(done)(std::move(copy));
    });
  }
  absl::StatusOr<Tensor> CopyFromHost(const Tensor& tensor) override {
    ASSIGN_OR_RETURN(Tensor copy, Tensor::Make(tensor.dtype(), tensor.shape(), memory_));
    if (tensor.size_bytes() > 0) {
      stream_.Put([tensor, to = memory_.Usable(copy)] {
        std::memcpy(to, tensor.raw(), tensor.size_bytes());
        return absl::OkStatus();
      });
    }
    return copy;
  }

 private:
  Scheduler& scheduler_;
  LateStream stream_;
  LateMemory memory_{kMemoryBytes, stream_};
};

// The CPU's kernel, when the stream comes to it. Outputs get the shapes that the op's rule gives for
// the inputs.
class LateKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const KernelRegistration* const cpu,
                     KernelRegistry::Global().Find(setup.node(), "CPU"));
    kernel_ = cpu->factory();
    KernelSetup own(setup.node(), *cpu_, setup.resources());
    return kernel_->Init(own);
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const std::vector<Shape> shapes, OutputShapes(c));
    std::vector<Tensor> inputs, outputs;
    for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.input(i));
    for (int i = 0; i < c.num_outputs(); ++i) {
      ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(i, shapes[i]));
      outputs.push_back(*output);
    }
    // The step is there until the stream has come so far, and the inputs may be freed before: the
    // kernel keeps neither.
    auto& device = dynamic_cast<FakeAccelerator&>(*DeviceDirectory::Global().Find(
        c.device().attributes().incarnation));
    LateMemory& memory = device.allocator();
    std::vector<Tensor> late_inputs, late_outputs;
    for (const Tensor& input : inputs) late_inputs.push_back(Late(memory, input));
    for (const Tensor& output : outputs) late_outputs.push_back(Late(memory, output));
    device.stream()->Put([this, &node = c.node(), late_inputs, late_outputs]() mutable {
      return Run(node, late_inputs, late_outputs);
    });
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<std::vector<Shape>> OutputShapes(const KernelContext& c) {
    Graph graph;
    NodeSpec node;
    node.flat_inputs.emplace();
    for (int i = 0; i < c.num_inputs(); ++i) {
      NodeSpec input;
      input.name = absl::StrCat("input", i);
      input.op = "Placeholder";
      input.attrs = {{"dtype", c.input_type(i)}, {"shape", PartialShape(c.input(i).shape())}};
      if (!IsInDeviceMemory(c.input(i))) {
        input.op = "Const";
        input.attrs = {{"dtype", c.input_type(i)}, {"value", c.input(i)}};
      }
      ASSIGN_OR_RETURN(Node * const made, graph.AddNode(std::move(input)));
      node.flat_inputs->push_back(made->output(0));
    }
    node.name = "node";
    node.op = c.node().op();
    node.attrs = c.node().attrs();
    ASSIGN_OR_RETURN(Node * const made, graph.AddNode(std::move(node)));
    std::vector<Shape> shapes;
    for (int i = 0; i < c.num_outputs(); ++i) {
      const auto shape = made->output_shape(i).ToShape();
      if (!shape) return Internal(c.node().op(), " does not tell the shape of its output ", i);
      shapes.push_back(*shape);
    }
    return shapes;
  }

  // The same elements at the address that can be used. Keeps no device memory; host memory is kept.
  static Tensor Late(const LateMemory& memory, const Tensor& tensor) {
    if (!IsInDeviceMemory(tensor) || tensor.size_bytes() == 0) return tensor;
    Buffer buffer = Buffer::AdoptExternal(memory.Usable(tensor), tensor.size_bytes(), [] {});
    return Tensor::FromBuffer(tensor.dtype(), tensor.shape(), std::move(buffer)).value();
  }

  absl::Status Run(const Node& node, std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    std::vector<Entry> in, out(outputs.size());
    for (Tensor& input : inputs) in.push_back({std::move(input), nullptr, Entry::State::kValue});
    Step step;
    step.scheduler = &DefaultScheduler();
    KernelContext context(step, *cpu_, node, absl::MakeSpan(in), absl::MakeSpan(out));
    RETURN_IF_ERROR(kernel_->Compute(context));
    for (size_t i = 0; i < outputs.size(); ++i) {
      CHECK(out[i].tensor.shape() == outputs[i].shape());
      if (outputs[i].size_bytes() > 0)
        std::memcpy(outputs[i].raw(), out[i].tensor.raw(), outputs[i].size_bytes());
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<Device> cpu_ = NewCpuDevice("/device:CPU:0", DefaultScheduler());
};

// Adds kernels of the fake accelerator, once for a process. As TensorFlow's, those for int32 are in
// host memory.
inline void RegisterLateKernels() {
  static const bool registered = [] {
    KernelRegistry::Global().WithoutCards();
    const auto add = [](const char* op, std::vector<std::pair<std::string, DType>> types,
                        std::vector<std::string> host_memory = {}) {
      KernelRegistry::Global().For(op);  // its definition has run
      KernelRegistry::Global().Add(
          {op, "GPU", std::move(types), std::move(host_memory), New<LateKernel>()});
    };
    for (DType dtype : {DType::kFloat, DType::kDouble}) {
      for (const char* op : {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Less", "Greater",
                             "Neg", "Square", "Exp", "Relu", "MatMul", "BiasAdd", "CheckNumerics",
                             "AddN", "Tanh", "ZerosLike", "OnesLike", "_FusedMatMul",
                             "BiasAddGrad"})
        add(op, {{"T", dtype}});
      add("Sum", {{"T", dtype}}, {"reduction_indices"});
      add("Fill", {{"T", dtype}}, {"dims"});
      add("Transpose", {{"T", dtype}}, {"perm"});
      add("ConcatV2", {{"T", dtype}}, {"axis"});
    }
    return true;
  }();
  CHECK(registered);
}

// While it lives, tasks have `count` of them.
class FakeAccelerators : public DeviceKind {
 public:
  explicit FakeAccelerators(int count) : count_(count), registered_(*this) {
    RegisterLateKernels();
  }
  absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
      const std::string& task, const DeviceOptions&, Scheduler& scheduler) override {
    std::vector<std::unique_ptr<Device>> devices;
    made_.clear();
    for (int i = 0; i < count_; ++i) {
      auto device =
          std::make_unique<FakeAccelerator>(absl::StrCat(task, "/device:GPU:", i), scheduler);
      made_.push_back(device.get());
      devices.push_back(std::move(device));
    }
    return devices;
  }
  // Of the task that was made last.
  FakeAccelerator& made(int i) const { return *made_[i]; }

 private:
  const int count_;
  std::vector<FakeAccelerator*> made_;
  RegisteredDeviceKind registered_;
};

}  // namespace muster
