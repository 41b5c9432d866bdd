#include "muster/ops/conv/convolver.h"

#include "muster/ops/conv/direct_conv.h"
#include "muster/ops/conv/onednn.h"

namespace muster {
namespace {

// Sizes that one kernel meets are few; a graph with ever changing sizes must not collect programs
// for ever.
constexpr size_t kMostPrograms = 32;
// Below this many multiplications another thread costs more than it saves.
constexpr double kSmallWork = 1e5;
// More parts than threads even out threads that are late; each part of a filter's gradient is one
// more sum to add.
constexpr int64_t kPartsPerThread = 4;
constexpr int64_t kFilterPartsPerThread = 2;

// oneDNN counts in 32 bits; what could come near its limits goes through the plain loops.
constexpr int64_t kLargestReach = 1 << 20;
bool WithinReach(const ConvGeometry& g) {
  for (int64_t reach :
       {g.pad_top, g.pad_bottom, g.pad_left, g.pad_right, g.stride_height, g.stride_width,
        g.dilation_height * (g.filter_height - 1), g.dilation_width * (g.filter_width - 1)}) {
    if (reach > kLargestReach) return false;
  }
  return true;
}

// Null where oneDNN is not there; what follows works only where it is.
dnnl_engine_t Engine() {
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    const OneDnn* const dnn = LoadOneDnn();
    return dnn != nullptr && dnn->engine_create(&made, dnnl_cpu, 0) == dnnl_success ? made
                                                                                    : nullptr;
  }();
  return engine;
}
const OneDnn& Dnn() {
  static const OneDnn& dnn = *LoadOneDnn();
  return dnn;
}
void UseOneThread() {
  if (Dnn().set_num_threads != nullptr) Dnn().set_num_threads(1);
}

template <typename T, dnnl_status_t (*OneDnn::*kDestroy)(T)>
struct Destroy {
  void operator()(T handle) const { (Dnn().*kDestroy)(handle); }
};
template <typename T, dnnl_status_t (*OneDnn::*kDestroy)(T)>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, kDestroy>>;
using PrimitiveDesc = Handle<dnnl_primitive_desc_t, &OneDnn::primitive_desc_destroy>;
using Primitive = Handle<dnnl_primitive_t, &OneDnn::primitive_destroy>;
using Attributes = Handle<dnnl_primitive_attr_t, &OneDnn::primitive_attr_destroy>;
using Memory = Handle<dnnl_memory_t, &OneDnn::memory_destroy>;
using StreamHandle = Handle<dnnl_stream_t, &OneDnn::stream_destroy>;

// Memory for scratch is ours, because a program may run in several threads at once.
Attributes ScratchByUser() {
  dnnl_primitive_attr_t made = nullptr;
  if (Dnn().primitive_attr_create(&made) != dnnl_success) return nullptr;
  Attributes attributes(made);
  Dnn().primitive_attr_set_scratchpad_mode(made, dnnl_scratchpad_mode_user);
  return attributes;
}

struct Argument {
  int name;
  const dnnl_memory_desc_t* desc;
  const void* data;
};

// A primitive with its scratch description.
class Stage {
 public:
  bool Compile(PrimitiveDesc desc) {
    if (desc == nullptr) return false;
    dnnl_primitive_t made = nullptr;
    if (Dnn().primitive_create(&made, desc.get()) != dnnl_success) return false;
    primitive_.reset(made);
    scratch_ = *Dnn().primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
    return true;
  }
  explicit operator bool() const { return primitive_ != nullptr; }

  absl::Status Run(std::initializer_list<Argument> arguments) const {
    dnnl_stream_t made = nullptr;
    if (Dnn().stream_create(&made, Engine(), dnnl_stream_default_flags) != dnnl_success) {
      return Internal("oneDNN cannot make a stream");
    }
    const StreamHandle stream(made);
    std::vector<Memory> memories;
    std::vector<dnnl_exec_arg_t> list;
    const auto add = [&](int name, const dnnl_memory_desc_t& desc, const void* data) {
      dnnl_memory_t memory = nullptr;
      if (Dnn().memory_create(&memory, &desc, Engine(), const_cast<void*>(data)) != dnnl_success)
        return false;
      memories.emplace_back(memory);
      list.push_back({name, memory});
      return true;
    };
    bool good = true;
    for (const Argument& argument : arguments)
      good = good && add(argument.name, *argument.desc, argument.data);
    Tensor scratch;
    if (const size_t size = Dnn().memory_desc_get_size(&scratch_); size > 0) {
      ASSIGN_OR_RETURN(scratch, Tensor::Make(DType::kUint8, Shape({static_cast<int64_t>(size)})));
      good = good && add(DNNL_ARG_SCRATCHPAD, scratch_, scratch.raw());
    }
    if (!good ||
        Dnn().primitive_execute(primitive_.get(), stream.get(), static_cast<int>(list.size()),
                                list.data()) != dnnl_success) {
      return Internal("oneDNN failed to run a convolution");
    }
    Dnn().stream_wait(stream.get());
    return absl::OkStatus();
  }

 private:
  Primitive primitive_;
  dnnl_memory_desc_t scratch_{};
};

bool CompileReorder(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to, Stage& step) {
  const Attributes attributes = ScratchByUser();
  dnnl_primitive_desc_t made = nullptr;
  if (attributes == nullptr ||
      Dnn().reorder_primitive_desc_create(&made, &from, Engine(), &to, Engine(),
                                          attributes.get()) != dnnl_success) {
    return false;
  }
  return step.Compile(PrimitiveDesc(made));
}

PrimitiveDesc MakeDesc(const dnnl_convolution_desc_t& desc, const Attributes& attributes,
                       dnnl_primitive_desc_t hint) {
  dnnl_primitive_desc_t made = nullptr;
  if (Dnn().primitive_desc_create(&made, &desc, attributes.get(), Engine(), hint) != dnnl_success)
    return nullptr;
  return PrimitiveDesc(made);
}

}  // namespace

// A compiled convolution: of images and gradients in their plain layout, and of filters in the
// layout that oneDNN prefers, to and from which `reorder_` converts them.
class Convolver::Program {
 public:
  static std::shared_ptr<const Program> Compile(Kind kind, const ConvGeometry& g) {
    if (Engine() == nullptr || !WithinReach(g)) return nullptr;
    // Programs are compiled for the number of threads that they find.
    UseOneThread();
    auto program = std::make_shared<Program>();
    if (!program->Init(kind, g)) return nullptr;
    return program;
  }

  size_t filter_bytes() const { return Dnn().memory_desc_get_size(&filter_); }
  bool SameFilterLayout(const Program& other) const {
    return Dnn().memory_desc_equal(&filter_, &other.filter_) != 0;
  }
  // Filters come in as HWIO; `to` has filter_bytes(). Null when HWIO will do.
  absl::StatusOr<Tensor> PrepareFilter(const float* hwio) const {
    if (!reorder_) return Tensor();
    ASSIGN_OR_RETURN(Tensor prepared,
                     Tensor::Make(DType::kUint8, Shape({static_cast<int64_t>(filter_bytes())})));
    RETURN_IF_ERROR(
        reorder_.Run({{DNNL_ARG_FROM, &hwio_, hwio}, {DNNL_ARG_TO, &filter_, prepared.raw()}}));
    return prepared;
  }
  absl::Status Forward(const float* input, const void* filter, float* output) const {
    return step_.Run({{DNNL_ARG_SRC, &input_, input},
                      {DNNL_ARG_WEIGHTS, &filter_, filter},
                      {DNNL_ARG_DST, &output_, output}});
  }
  absl::Status BackwardInput(const void* filter, const float* dy, float* dx) const {
    return step_.Run({{DNNL_ARG_DIFF_DST, &output_, dy},
                      {DNNL_ARG_WEIGHTS, &filter_, filter},
                      {DNNL_ARG_DIFF_SRC, &input_, dx}});
  }
  // Writes an HWIO filter.
  absl::Status BackwardFilter(const float* input, const float* dy, float* hwio) const {
    if (!reorder_) return RunBackwardFilter(input, dy, hwio);
    ASSIGN_OR_RETURN(Tensor own,
                     Tensor::Make(DType::kUint8, Shape({static_cast<int64_t>(filter_bytes())})));
    RETURN_IF_ERROR(RunBackwardFilter(input, dy, own.raw()));
    return reorder_.Run({{DNNL_ARG_FROM, &filter_, own.raw()}, {DNNL_ARG_TO, &hwio_, hwio}});
  }

 private:
  absl::Status RunBackwardFilter(const float* input, const float* dy, void* filter) const {
    return step_.Run({{DNNL_ARG_SRC, &input_, input},
                      {DNNL_ARG_DIFF_DST, &output_, dy},
                      {DNNL_ARG_DIFF_WEIGHTS, &filter_, filter}});
  }

  bool Init(Kind kind, const ConvGeometry& g) {
    const dnnl_dims_t input = {g.batch, g.channels, g.height, g.width};
    const dnnl_dims_t output = {g.batch, g.out_channels, g.out_height, g.out_width};
    const int64_t group_outputs = g.out_channels / g.groups;
    const dnnl_dims_t grouped = {g.groups, group_outputs, g.filter_channels, g.filter_height,
                                 g.filter_width};
    const int64_t per_cell = g.filter_channels * g.out_channels;
    const dnnl_dims_t grouped_strides = {group_outputs, 1, g.out_channels,
                                         g.filter_width * per_cell, per_cell};
    // Without groups the first dimension is left out.
    const int skip = g.groups == 1 ? 1 : 0;
    dnnl_memory_desc_t any;
    if (Dnn().memory_desc_init_by_tag(&input_, 4, input, dnnl_f32, dnnl_nhwc) != dnnl_success ||
        Dnn().memory_desc_init_by_tag(&output_, 4, output, dnnl_f32, dnnl_nhwc) != dnnl_success ||
        Dnn().memory_desc_init_by_strides(&hwio_, 5 - skip, grouped + skip, dnnl_f32,
                                          grouped_strides + skip) != dnnl_success ||
        Dnn().memory_desc_init_by_tag(&any, 5 - skip, grouped + skip, dnnl_f32,
                                      dnnl_format_tag_any) != dnnl_success) {
      return false;
    }
    const dnnl_dims_t strides = {g.stride_height, g.stride_width};
    const dnnl_dims_t dilations = {g.dilation_height - 1, g.dilation_width - 1};
    const dnnl_dims_t before = {g.pad_top, g.pad_left};
    const dnnl_dims_t after = {g.pad_bottom, g.pad_right};
    const Attributes attributes = ScratchByUser();
    if (attributes == nullptr) return false;

    dnnl_convolution_desc_t desc;
    if (Dnn().convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                            &input_, &any, nullptr, &output_, strides, dilations,
                                            before, after) != dnnl_success) {
      return false;
    }
    PrimitiveDesc forward = MakeDesc(desc, attributes, nullptr);
    if (forward == nullptr) return false;
    if (kind == Kind::kForward) return Finish(std::move(forward), dnnl_query_weights_md, true);
    if (kind == Kind::kBackwardInput) {
      if (Dnn().convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &input_, &any,
                                                    &output_, strides, dilations, before,
                                                    after) != dnnl_success) {
        return false;
      }
      return Finish(MakeDesc(desc, attributes, forward.get()), dnnl_query_weights_md, true);
    }
    if (Dnn().convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &input_, &any,
                                                     nullptr, &output_, strides, dilations, before,
                                                     after) != dnnl_success) {
      return false;
    }
    return Finish(MakeDesc(desc, attributes, forward.get()), dnnl_query_diff_weights_md, false);
  }

  bool Finish(PrimitiveDesc desc, dnnl_query_t filter_query, bool to_own_layout) {
    if (desc == nullptr) return false;
    filter_ = *Dnn().primitive_desc_query_md(desc.get(), filter_query, 0);
    if (!Dnn().memory_desc_equal(&filter_, &hwio_)) {
      if (!(to_own_layout ? CompileReorder(hwio_, filter_, reorder_)
                          : CompileReorder(filter_, hwio_, reorder_))) {
        return false;
      }
    }
    return step_.Compile(std::move(desc));
  }

  dnnl_memory_desc_t input_{}, output_{}, hwio_{}, filter_{};
  Stage step_;
  Stage reorder_;
};

Convolver::Convolver() = default;
Convolver::~Convolver() = default;

std::shared_ptr<const Convolver::Program> Convolver::Find(Kind kind, const ConvGeometry& g) {
  const MutexLock lock(mutex_);
  for (const Entry& entry : programs_) {
    if (entry.kind == kind && entry.geometry == g) return entry.program;
  }
  if (programs_.size() >= kMostPrograms) programs_.clear();
  programs_.push_back({kind, g, Program::Compile(kind, g)});
  return programs_.back().program;
}

int64_t Convolver::Parts(const KernelContext& c, const ConvGeometry& g, int64_t parts_per_thread) {
  if (g.work() * static_cast<double>(g.batch) < kSmallWork) return 1;
  return std::min<int64_t>(g.batch, parts_per_thread * c.step().scheduler->parallelism());
}

std::vector<std::shared_ptr<const Convolver::Program>> Convolver::FindAll(Kind kind,
                                                                          const ConvGeometry& g,
                                                                          int64_t parts) {
  std::vector<std::shared_ptr<const Program>> programs;
  ConvGeometry part = g;
  for (int64_t i = 0; i < parts; ++i) {
    part.batch = g.batch * (i + 1) / parts - g.batch * i / parts;
    programs.push_back(Find(kind, part));
    if (programs.back() == nullptr) return {};
  }
  return programs;
}

namespace {

// The first error of several threads.
class SharedStatus {
 public:
  void Update(const absl::Status& status) {
    if (status.ok()) return;
    const MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  absl::Status Take() { return std::move(status_); }

 private:
  Mutex mutex_;
  absl::Status status_;
};

// Calls run(part, first image) for each part, in parallel, each limited to one OpenMP thread.
template <typename F>
absl::Status RunParts(KernelContext& c, const ConvGeometry& g, int64_t parts, F run) {
  SharedStatus status;
  const double cost = 0.02 * g.work() * static_cast<double>(g.batch) / static_cast<double>(parts);
  c.ParallelFor(parts, cost, [&](int64_t begin, int64_t end) {
    UseOneThread();
    for (int64_t i = begin; i < end; ++i) status.Update(run(i, g.batch * i / parts));
  });
  return status.Take();
}

}  // namespace

absl::Status Convolver::Forward(KernelContext& c, const ConvGeometry& g, const float* input,
                                const float* filter, float* output) {
  const int64_t parts = Parts(c, g, kPartsPerThread);
  const auto programs = FindAll(Kind::kForward, g, parts);
  if (programs.empty()) {
    DirectForward(c, g, input, filter, output);
    return absl::OkStatus();
  }
  UseOneThread();
  ASSIGN_OR_RETURN(const Tensor shared, programs[0]->PrepareFilter(filter));
  return RunParts(c, g, parts, [&](int64_t i, int64_t first) {
    Tensor prepared = shared;
    if (!programs[i]->SameFilterLayout(*programs[0])) {
      ASSIGN_OR_RETURN(prepared, programs[i]->PrepareFilter(filter));
    }
    const void* const weights =
        prepared.valid() ? prepared.raw() : reinterpret_cast<const char*>(filter);
    return programs[i]->Forward(input + first * g.image_size(), weights,
                                output + first * g.output_size());
  });
}

absl::Status Convolver::BackwardInput(KernelContext& c, const ConvGeometry& g, const float* filter,
                                      const float* out_backprop, float* input_backprop) {
  const int64_t parts = Parts(c, g, kPartsPerThread);
  const auto programs = FindAll(Kind::kBackwardInput, g, parts);
  if (programs.empty()) {
    DirectBackwardInput(c, g, filter, out_backprop, input_backprop);
    return absl::OkStatus();
  }
  UseOneThread();
  ASSIGN_OR_RETURN(const Tensor shared, programs[0]->PrepareFilter(filter));
  return RunParts(c, g, parts, [&](int64_t i, int64_t first) {
    Tensor prepared = shared;
    if (!programs[i]->SameFilterLayout(*programs[0])) {
      ASSIGN_OR_RETURN(prepared, programs[i]->PrepareFilter(filter));
    }
    const void* const weights =
        prepared.valid() ? prepared.raw() : reinterpret_cast<const char*>(filter);
    return programs[i]->BackwardInput(weights, out_backprop + first * g.output_size(),
                                      input_backprop + first * g.image_size());
  });
}

absl::Status Convolver::BackwardFilter(KernelContext& c, const ConvGeometry& g, const float* input,
                                       const float* out_backprop, float* filter_backprop) {
  const int64_t parts = Parts(c, g, kFilterPartsPerThread);
  const auto programs = FindAll(Kind::kBackwardFilter, g, parts);
  if (programs.empty()) {
    DirectBackwardFilter(c, g, input, out_backprop, filter_backprop);
    return absl::OkStatus();
  }
  // The first part writes the result, the others have sums of their own that are added in order.
  const int64_t size = g.filter_size();
  Tensor partial;
  if (parts > 1) {
    ASSIGN_OR_RETURN(partial, Tensor::Make(DType::kFloat, Shape({parts - 1, size})));
  }
  float* const others = parts > 1 ? partial.data<float>() : nullptr;
  RETURN_IF_ERROR(RunParts(c, g, parts, [&](int64_t i, int64_t first) {
    return programs[i]->BackwardFilter(input + first * g.image_size(),
                                       out_backprop + first * g.output_size(),
                                       i == 0 ? filter_backprop : others + (i - 1) * size);
  }));
  for (int64_t i = 1; i < parts; ++i) {
    const float* __restrict const from = others + (i - 1) * size;
    float* __restrict const to = filter_backprop;
    for (int64_t k = 0; k < size; ++k) to[k] += from[k];
  }
  return absl::OkStatus();
}

}  // namespace muster
