// _Send and _Recv: where values leave and enter a partition. They run for dead values too, so that
// deadness crosses the border.
#include "absl/strings/str_format.h"

#include "muster/device/device_directory.h"
#include "muster/device/device_name.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// "send_device;incarnation;recv_device;tensor_name;frame:iteration"; feeds and fetches of partial
// runs in local sessions have no devices, and a name that is the whole key.
class Transfer : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(name_, s.Attr<std::string>("tensor_name"));
    ASSIGN_OR_RETURN(std::string from, s.Attr<std::string>("send_device"));
    ASSIGN_OR_RETURN(std::string to, s.Attr<std::string>("recv_device"));
    ASSIGN_OR_RETURN(int64_t incarnation, s.Attr<int64_t>("send_device_incarnation"));
    ASSIGN_OR_RETURN(const bool client_terminated, s.Attr<bool>("client_terminated"));
    name_is_key_ = client_terminated && from.empty();
    same_task_ = TaskOf(from) == TaskOf(to);
    prefix_ =
        absl::StrFormat("%s;%016x;%s;%s;", from, static_cast<uint64_t>(incarnation), to, name_);
    plain_key_ = name_is_key_ ? name_ : absl::StrCat(prefix_, kOutsideLoops);
    return absl::OkStatus();
  }

 protected:
  bool same_task() const { return same_task_; }
  // `storage` holds the key of a node in a loop.
  absl::string_view Key(const KernelContext& c, std::string& storage) const {
    if (name_is_key_) return plain_key_;
    storage = c.frame_and_iteration();
    if (storage == kOutsideLoops) return plain_key_;
    storage = absl::StrCat(prefix_, storage);
    return storage;
  }

 private:
  static constexpr char kOutsideLoops[] = "0:0";
  std::string name_;
  std::string prefix_;
  std::string plain_key_;
  bool same_task_ = false;
  bool name_is_key_ = false;
};

class Send : public Transfer {
 public:
  absl::Status Compute(KernelContext& c) override {
    if (c.step().rendezvous == nullptr) return Internal("The step has no rendezvous to send to");
    std::string storage;
    return c.step().rendezvous->Send(
        Key(c, storage), {c.is_input_dead() ? Tensor() : c.input(0), c.is_input_dead()});
  }
};

class Recv : public Transfer {
 public:
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(Transfer::Init(s));
    ASSIGN_OR_RETURN(int64_t incarnation, s.Attr<int64_t>("send_device_incarnation"));
    // Values are in host memory. Only CPUs of one task pretend to have memories of their own.
    if (!same_task() || s.device().has_own_memory()) return absl::OkStatus();
    Device* sender = DeviceDirectory::Global().Find(static_cast<uint64_t>(incarnation));
    if (sender != &s.device() && sender != nullptr && !sender->has_own_memory()) sender_ = sender;
    return absl::OkStatus();
  }
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("_Recv runs asynchronously"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    if (c.step().rendezvous == nullptr) {
      std::move(done)(Internal("The step has no rendezvous to receive from"));
      return;
    }
    std::string storage;
    auto receive = [this, &c,
                    done = std::move(done)](absl::StatusOr<Rendezvous::Value> value) mutable {
      if (!value.ok()) {
        std::move(done)(value.status());
      } else if (value->is_dead) {
        c.SetOutputDead(0);
        std::move(done)(absl::OkStatus());
      } else {
        Take(c, std::move(value->tensor), std::move(done));
      }
    };
    c.step().rendezvous->RecvAsync(Key(c, storage), std::move(receive));
  }

 private:
  void Take(KernelContext& c, Tensor tensor, Done done) {
    if (sender_ == nullptr) {
      c.SetOutput(0, std::move(tensor));
      std::move(done)(absl::OkStatus());
      return;
    }
    sender_->Copy(tensor, c.device(),
                  [&c, done = std::move(done)](absl::StatusOr<Tensor> copy) mutable {
                    if (copy.ok()) c.SetOutput(0, *copy);
                    std::move(done)(copy.status());
                  });
  }

  Device* sender_ = nullptr;  // null: nothing to copy
};

OpBuilder& SendAttrs(OpBuilder& op) {
  return op.Attr("T: type")
      .Attr("tensor_name: string")
      .Attr("send_device: string")
      .Attr("send_device_incarnation: int")
      .Attr("recv_device: string")
      .Attr("client_terminated: bool = false")
      .Input("tensor: T")
      .Stateful()
      .Doc("Hands a tensor to the step's rendezvous.")
      .Shape(NoOutputs)
      .HostMemory({"tensor"})
      .Cpu(New<Send>())
      .Gpu(New<Send>());
}

OpBuilder& RecvAttrs(OpBuilder& op) {
  return op.Attr("tensor_type: type")
      .Attr("tensor_name: string")
      .Attr("send_device: string")
      .Attr("send_device_incarnation: int")
      .Attr("recv_device: string")
      .Attr("client_terminated: bool = false")
      .Output("tensor: tensor_type")
      .Stateful()
      .Doc("Takes a tensor from the step's rendezvous, waiting for it if need be.")
      .Shape(UnknownShape)
      .HostMemory({"tensor"})
      .Cpu(New<Recv>())
      .Gpu(New<Recv>());
}

}  // namespace

DEFINE_OP(_Send) {
  SendAttrs(op);
}
DEFINE_OP(_Recv) {
  RecvAttrs(op).DistributedCommunication();
}
DEFINE_OP(_HostSend) {
  SendAttrs(op);
}
DEFINE_OP(_HostRecv) {
  RecvAttrs(op).DistributedCommunication();
}

}  // namespace muster
