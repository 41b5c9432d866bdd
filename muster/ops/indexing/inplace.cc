// Rows of a tensor replaced or changed: InplaceUpdate, InplaceAdd, InplaceSub. As in TensorFlow the
// input itself is changed, and later readers see that, where its memory was allocated in the step.
// Constants, variables and what was fed or received stay as they are.
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "muster/graph/rewrite/rewriter.h"
#include "muster/ops/indexing/moving.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

enum class Change { kUpdate, kAdd, kSub };

template <typename T>
void Combine(const char* from, char* to, int64_t count, bool add) {
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, Compute<T>>;
  const auto* const v = reinterpret_cast<const T*>(from);
  auto* const y = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) {
    const auto a = static_cast<Wide>(y[i]);
    const auto b = static_cast<Wide>(v[i]);
    y[i] = static_cast<T>(add ? a + b : a - b);
  }
}

template <typename... Ts>
void CombineTyped(Types<Ts...>, DType dtype, const char* from, char* to, int64_t count, bool add) {
  ((dtype == kDTypeOf<Ts> ? Combine<Ts>(from, to, count, add) : void()), ...);
}

template <typename... Ts>
bool IsNumber(Types<Ts...>, DType dtype) {
  return ((dtype == kDTypeOf<Ts>) || ...);
}

// Ops whose results are in memory that nothing outside the step holds.
bool MakesItsMemory(const Node& node) {
  static const auto* const ops = new absl::flat_hash_set<absl::string_view>{"Add",
                                                                            "AddV2",
                                                                            "DeepCopy",
                                                                            "Empty",
                                                                            "Fill",
                                                                            "InplaceAdd",
                                                                            "InplaceSub",
                                                                            "InplaceUpdate",
                                                                            "Mul",
                                                                            "OnesLike",
                                                                            "RandomStandardNormal",
                                                                            "RandomUniform",
                                                                            "Sub",
                                                                            "ZerosLike"};
  return ops->contains(node.op());
}

// The node that owns the memory of the first input.
const Node& Origin(const Node& node) {
  const Node* origin = node.input(0).node;
  while (HandsOnMemory(*origin)) origin = origin->input(0).node;
  return *origin;
}

absl::Status CheckInplace(const Tensor& x, const Tensor& rows, const Tensor& v) {
  if (rows.rank() != 1) {
    return InvalidArgument("i must be a vector. ", rows.shape().ToString());
  }
  bool alike = x.rank() == v.rank() && x.rank() > 0;
  for (int d = 1; alike && d < x.rank(); ++d) alike = x.dim(d) == v.dim(d);
  if (!alike) {
    return InvalidArgument("x and v shape doesn't match (ranks differ): ", x.shape().ToString(),
                           " vs. ", v.shape().ToString());
  }
  if (rows.dim(0) != v.dim(0)) {
    return InvalidArgument("i and x shape doesn't match at index 0: ", rows.shape().ToString(),
                           " vs. ", v.shape().ToString());
  }
  return absl::OkStatus();
}

template <Change kChange>
absl::Status Run(KernelContext& c, bool in_place) {
  const Tensor x = c.input(0);
  const Tensor& rows = c.input(1);
  const Tensor& v = c.input(2);
  RETURN_IF_ERROR(CheckInplace(x, rows, v));
  if (kChange != Change::kUpdate && !IsNumber(Numbers(), x.dtype()))
    return InvalidArgument("Unsupported dtype: ", DTypeName(x.dtype()));
  for (int64_t i = 0; i < rows.dim(0); ++i) {
    const int64_t row = rows.data<int32_t>()[i];
    if (row < -x.dim(0) || row >= x.dim(0)) {
      return InvalidArgument("i[", i, "] = ", row, " is not a row of x, which has ", x.dim(0));
    }
  }
  Tensor y = x;
  if (!in_place && x.num_elements() > 0) {
    ASSIGN_OR_RETURN(Tensor* const copy, c.AllocateOutput(0, x.shape()));
    CopyElements(x.dtype(), x.raw(), copy->raw(), x.num_elements());
    y = *copy;
  }
  c.SetOutput(0, y);
  if (x.num_elements() == 0) return absl::OkStatus();
  const int64_t count = x.shape().ElementsIn(1, x.rank());
  const auto bytes = count * static_cast<int64_t>(DTypeSize(x.dtype()));
  for (int64_t i = 0; i < rows.dim(0); ++i) {
    const int64_t given = rows.data<int32_t>()[i];
    const int64_t row = given < 0 ? given + x.dim(0) : given;
    const char* const from = v.raw() + i * bytes;
    char* const to = y.raw() + row * bytes;
    if (kChange == Change::kUpdate) {
      CopyElements(x.dtype(), from, to, count);
    } else {
      CombineTyped(Numbers(), x.dtype(), from, to, count, kChange == Change::kAdd);
    }
  }
  return absl::OkStatus();
}

template <Change kChange>
class InplaceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    in_place_ = MakesItsMemory(Origin(setup.node()));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override { return Run<kChange>(c, in_place_); }

 private:
  bool in_place_ = false;
};

class GpuInplace : public GpuKernel {
 public:
  GpuInplace(const char* how, DType dtype)
      : run_(*this, "indexing/inplace.cu",
             absl::StrCat("Inplace<", how, ", ", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    in_place_ = MakesItsMemory(Origin(setup.node()));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor x = c.input(0);
    const Tensor& rows = c.input(1);
    const Tensor& v = c.input(2);
    RETURN_IF_ERROR(CheckInplace(x, rows, v));
    Tensor y = x;
    if (!in_place_) {
      ASSIGN_OR_RETURN(y, c.AllocateTemporary(x.dtype(), x.shape()));
      RETURN_IF_ERROR(gpu().CopyWithin(y.raw(), x.raw(), x.size_bytes()));
    }
    c.SetOutput(0, y);
    if (x.num_elements() == 0) return absl::OkStatus();
    const int64_t inner = x.shape().ElementsIn(1, x.rank());
    return run_.Launch(GridForRows(run_, rows.dim(0), inner), GpuIn(rows), GpuIn(v), GpuOut(y),
                       rows.dim(0), x.dim(0), inner);
  }

 private:
  bool in_place_ = false;
  const GpuFunction run_;
};

void Define(OpBuilder& op, const char* doc, KernelFactory kernel, const char* gpu_how) {
  op.Attr("T: type")
      .Input("x: T")
      .Input("i: int32")
      .Input("v: T")
      .Output("y: T")
      .Doc(doc)
      .Shape(UnchangedShape)
      .Cpu(kernel)
      .Gpu(kernel, {{"T", DType::kInt32}}, {"x", "i", "v", "y"})
      .GpuTypes("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt64},
                [gpu_how](DType dtype) {
                  return [=] { return std::make_unique<GpuInplace>(gpu_how, dtype); };
                });
}

}  // namespace

DEFINE_OP(InplaceUpdate) {
  Define(op, "x with the rows i replaced by those of v.", New<InplaceKernel<Change::kUpdate>>(),
         "ScatterUpdate");
  op.GpuTypes("T", {DType::kBool}, [](DType dtype) {
    return [=] { return std::make_unique<GpuInplace>("ScatterUpdate", dtype); };
  });
}
DEFINE_OP(InplaceAdd) {
  Define(op, "x with the rows of v added to its rows i.", New<InplaceKernel<Change::kAdd>>(),
         "ScatterAdd");
}
DEFINE_OP(InplaceSub) {
  Define(op, "x with the rows of v subtracted from its rows i.", New<InplaceKernel<Change::kSub>>(),
         "ScatterSub");
}

}  // namespace muster
