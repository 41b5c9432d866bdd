// Positions of the elements that are not zero: Where.
#include "muster/ops/op.h"

namespace muster {
namespace {

template <typename T>
bool IsSet(const T& value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return static_cast<float>(value) != 0;
  } else {
    return value != T();
  }
}

template <typename T>
absl::Status RunWhere(KernelContext& c) {
  const Tensor& input = c.input(0);
  if (input.rank() == 0) return InvalidArgument("WhereOp : Unhandled input dimensions: 0");
  const T* values = input.data<T>();
  const int64_t count = input.num_elements();
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += IsSet(values[i]);
  const int rank = input.rank();
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make({found, int64_t{rank}}));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (found == 0) return absl::OkStatus();
  int64_t* row = output->data<int64_t>();
  if (rank == 1) {
    for (int64_t i = 0; i < count; ++i) {
      if (IsSet(values[i])) *row++ = i;
    }
    return absl::OkStatus();
  }
  Dims strides(rank, 1);
  for (int i = rank - 2; i >= 0; --i) strides[i] = strides[i + 1] * input.dim(i + 1);
  for (int64_t i = 0; i < count; ++i) {
    if (!IsSet(values[i])) continue;
    int64_t rest = i;
    for (int d = 0; d < rank; ++d) {
      *row++ = rest / strides[d];
      rest %= strides[d];
    }
  }
  return absl::OkStatus();
}

absl::Status WhereShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  c.SetOutput(0, PartialShape::Matrix(-1, input.known_rank() ? input.rank() : -1));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Where) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
        "bfloat16, qint16, "
        "quint16, uint16, complex128, half, uint32, uint64, bool} = DT_BOOL")
      .Input("input: T")
      .Output("index: int64")
      .Doc("The positions of the elements that are true or not zero, in row-major order.")
      .Shape(WhereShape)
      .CpuTypes<Join<Numbers, Types<bool>>>("T",
                                            []<typename T>() { return Stateless(RunWhere<T>); });
}

}  // namespace muster
