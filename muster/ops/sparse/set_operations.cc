// Rows as sets: SetSize and the set operations, on dense tensors, sparse ones or one of each. The
// last axis holds the members of a set, all others say which set it is.
#include <set>

#include "absl/container/btree_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

// Sets by the number of their group, in row-major order; those without members are left out.
template <typename T>
using Sets = absl::btree_map<int64_t, std::set<T>>;

absl::StatusOr<Shape> GroupShape(absl::Span<const int64_t> dims) {
  if (dims.size() < 2) {
    return InvalidArgument("Shape [", absl::StrJoin(dims, ","), "] has rank ", dims.size(), " < 2");
  }
  return Shape::Make(Dims(dims.begin(), dims.end() - 1));
}

template <typename T>
struct Operand {
  Shape groups;
  Sets<T> sets;
};

template <typename T>
absl::StatusOr<Operand<T>> DenseSets(const Tensor& tensor) {
  Operand<T> operand;
  ASSIGN_OR_RETURN(operand.groups, GroupShape(tensor.shape().dims()));
  const int64_t size = tensor.dim(tensor.rank() - 1);
  if (size == 0) return operand;
  const absl::Span<const T> values = tensor.values<T>();
  for (int64_t group = 0; group < operand.groups.num_elements(); ++group) {
    const absl::Span<const T> members = values.subspan(group * size, size);
    operand.sets[group].insert(members.begin(), members.end());
  }
  return operand;
}

// The sparse tensor in inputs first, first + 1 and first + 2.
template <typename T>
absl::StatusOr<Operand<T>> SparseSets(KernelContext& c, int first) {
  const Tensor indices = c.input(first), values = c.input(first + 1), shape = c.input(first + 2);
  if (shape.rank() != 1) return InvalidArgument("Shape must be a 1D tensor.");
  RETURN_IF_ERROR(CheckSparse(indices, values, shape));
  const absl::Span<const int64_t> dims = shape.values<int64_t>();
  Operand<T> operand;
  ASSIGN_OR_RETURN(operand.groups, GroupShape(dims));
  if (!CheckIndices(indices, dims).ok()) {
    return InvalidArgument("Index out of range: ", CheckIndices(indices, dims).message());
  }
  const auto rank = static_cast<int64_t>(dims.size());
  const absl::Span<const int64_t> places = indices.values<int64_t>();
  ASSIGN_OR_RETURN(const bool validate, c.node().Attr<bool>("validate_indices"));
  if (validate) RETURN_IF_ERROR(CheckOrder(indices));
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    int64_t group = 0;
    for (int64_t d = 0; d + 1 < rank; ++d) group = group * dims[d] + places[i * rank + d];
    operand.sets[group].insert(values.values<T>()[i]);
  }
  return operand;
}

enum class Operation { kDifference, kReverseDifference, kIntersection, kUnion };

absl::StatusOr<Operation> ReadOperation(const Node& node) {
  ASSIGN_OR_RETURN(std::string name, node.Attr<std::string>("set_operation"));
  absl::AsciiStrToLower(&name);
  if (name == "a-b") return Operation::kDifference;
  if (name == "b-a") return Operation::kReverseDifference;
  if (name == "intersection") return Operation::kIntersection;
  if (name == "union") return Operation::kUnion;
  return InvalidArgument("Invalid set_operation ", name, ".");
}

template <typename T>
std::set<T> Apply(Operation operation, const std::set<T>& a, const std::set<T>& b) {
  if (operation == Operation::kReverseDifference) return Apply(Operation::kDifference, b, a);
  std::set<T> result;
  for (const T& value : a) {
    const bool both = b.contains(value);
    if (operation == Operation::kUnion || both == (operation == Operation::kIntersection))
      result.insert(value);
  }
  if (operation == Operation::kUnion) result.insert(b.begin(), b.end());
  return result;
}

template <typename T>
absl::Status SetResult(KernelContext& c, const Shape& groups, const Sets<T>& sets) {
  int64_t count = 0, largest = 0;
  for (const auto& [group, members] : sets) {
    count += static_cast<int64_t>(members.size());
    largest = std::max(largest, static_cast<int64_t>(members.size()));
  }
  const int64_t rank = groups.rank() + 1;
  ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(0, Shape({count, rank})));
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, Shape({count})));
  int64_t* place = indices->data<int64_t>();
  T* value = values->data<T>();
  for (const auto& [group, members] : sets) {
    int64_t position = 0;
    for (const T& member : members) {
      int64_t rest = group;
      for (int64_t d = rank - 2; d >= 0; --d) {
        place[d] = rest % groups.dim(static_cast<int>(d));
        rest /= groups.dim(static_cast<int>(d));
      }
      place[rank - 1] = position++;
      place += rank;
      *value++ = member;
    }
  }
  Dims shape = groups.dims();
  shape.push_back(largest);
  c.SetOutput(2, Tensor::Vector<int64_t>(shape));
  return absl::OkStatus();
}

template <typename T>
absl::Status Operate(KernelContext& c, absl::StatusOr<Operand<T>> a, absl::StatusOr<Operand<T>> b) {
  RETURN_IF_ERROR(a.status());
  RETURN_IF_ERROR(b.status());
  ASSIGN_OR_RETURN(const Operation operation, ReadOperation(c.node()));
  if (!(a->groups == b->groups)) {
    return InvalidArgument("Mismatched shapes [", absl::StrJoin(a->groups.dims(), ","), "] vs [",
                           absl::StrJoin(b->groups.dims(), ","), "]");
  }
  const std::set<T> none;
  Sets<T> results;
  const auto add = [&](int64_t group, const std::set<T>& first, const std::set<T>& second) {
    std::set<T> result = Apply(operation, first, second);
    if (!result.empty()) results.emplace(group, std::move(result));
  };
  for (const auto& [group, members] : a->sets) {
    const auto other = b->sets.find(group);
    add(group, members, other == b->sets.end() ? none : other->second);
  }
  for (const auto& [group, members] : b->sets) {
    if (!a->sets.contains(group)) add(group, none, members);
  }
  return SetResult(c, a->groups, results);
}

template <typename T>
absl::Status DenseToDense(KernelContext& c) {
  return Operate(c, DenseSets<T>(c.input(0)), DenseSets<T>(c.input(1)));
}
template <typename T>
absl::Status DenseToSparse(KernelContext& c) {
  return Operate(c, DenseSets<T>(c.input(0)), SparseSets<T>(c, 1));
}
template <typename T>
absl::Status SparseToSparse(KernelContext& c) {
  return Operate(c, SparseSets<T>(c, 0), SparseSets<T>(c, 3));
}

template <typename T>
absl::Status SetSize(KernelContext& c) {
  ASSIGN_OR_RETURN(const Operand<T> operand, SparseSets<T>(c, 0));
  ASSIGN_OR_RETURN(Tensor* const sizes, c.AllocateOutput(0, operand.groups));
  std::fill_n(sizes->data<int32_t>(), sizes->num_elements(), 0);
  for (const auto& [group, members] : operand.sets)
    sizes->data<int32_t>()[group] = static_cast<int32_t>(members.size());
  return absl::OkStatus();
}

// --- Shapes and definitions --------------------------------------------------------------------

void SetSparseShapes(ShapeContext& c, int64_t rank) {
  c.SetOutput(0, PartialShape::Matrix(-1, rank));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(rank));
}

absl::Status DenseToDenseShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape a, c.WithRankAtLeast(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape b, a.known_rank() ? c.WithRank(c.input(1), a.rank())
                                                        : c.WithRankAtLeast(c.input(1), 2));
  const bool known = c.input(0).known_rank() && c.input(1).known_rank();
  if (known) {
    RETURN_IF_ERROR(
        ShapeContext::Merge(ShapeContext::Subshape(a, 0, -1), ShapeContext::Subshape(b, 0, -1))
            .status());
  }
  SetSparseShapes(c, a.known_rank() ? a.rank() : b.known_rank() ? b.rank() : -1);
  return absl::OkStatus();
}

int64_t RankOfSparse(const PartialShape& shape) {
  return shape.rank() == 1 ? shape.dim(0) : -1;
}

absl::Status DenseToSparseShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape a, c.WithRankAtLeast(c.input(0), 2));
  const int64_t rank = RankOfSparse(c.input(3));
  if (a.known_rank()) RETURN_IF_ERROR(c.MergeDims(rank, a.rank()).status());
  SetSparseShapes(c, a.known_rank() ? a.rank() : rank);
  return absl::OkStatus();
}

absl::Status SparseToSparseShapes(ShapeContext& c) {
  const int64_t ranks[] = {RankOfSparse(c.input(2)), RankOfSparse(c.input(5))};
  for (int i = 0; i < 2; ++i) {
    if (ranks[i] >= 0 && ranks[i] < 2)
      return InvalidArgument("Input ", i, ", expected rank >= 2, got ", ranks[i], ".");
  }
  ASSIGN_OR_RETURN(const int64_t rank, c.MergeDims(ranks[0], ranks[1]));
  SetSparseShapes(c, rank);
  return absl::OkStatus();
}

using Members = Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, std::string>;
constexpr const char* kMemberTypes = "T: {int8, int16, int32, int64, uint8, uint16, string}";

void DefineOperation(OpBuilder& op) {
  op.Attr("set_operation: string").Attr("validate_indices: bool = true").Attr(kMemberTypes);
}
void DefineResult(OpBuilder& op) {
  op.Output("result_indices: int64")
      .Output("result_values: T")
      .Output("result_shape: int64")
      .NoGradient("sets of integers and strings");
}

}  // namespace

DEFINE_OP(SetSize) {
  op.Attr("validate_indices: bool = true")
      .Attr(kMemberTypes)
      .Input("set_indices: int64")
      .Input("set_values: T")
      .Input("set_shape: int64")
      .Output("size: int32")
      .Doc("How many different values each row of a sparse tensor has.")
      .Shape(UnknownShape)
      .NoGradient("sizes of sets")
      .CpuTypes<Members>("T", []<typename T>() { return Stateless(SetSize<T>); });
}

DEFINE_OP(DenseToDenseSetOperation) {
  DefineOperation(op);
  op.Input("set1: T").Input("set2: T");
  DefineResult(op);
  op.Doc("Rows of two dense tensors, taken as sets, joined, intersected or subtracted.")
      .Shape(DenseToDenseShapes)
      .CpuTypes<Members>("T", []<typename T>() { return Stateless(DenseToDense<T>); });
}

DEFINE_OP(DenseToSparseSetOperation) {
  DefineOperation(op);
  op.Input("set1: T")
      .Input("set2_indices: int64")
      .Input("set2_values: T")
      .Input("set2_shape: int64");
  DefineResult(op);
  op.Doc("A set operation on rows of a dense and of a sparse tensor.")
      .Shape(DenseToSparseShapes)
      .CpuTypes<Members>("T", []<typename T>() { return Stateless(DenseToSparse<T>); });
}

DEFINE_OP(SparseToSparseSetOperation) {
  DefineOperation(op);
  op.Input("set1_indices: int64")
      .Input("set1_values: T")
      .Input("set1_shape: int64")
      .Input("set2_indices: int64")
      .Input("set2_values: T")
      .Input("set2_shape: int64");
  DefineResult(op);
  op.Doc("A set operation on rows of two sparse tensors.")
      .Shape(SparseToSparseShapes)
      .CpuTypes<Members>("T", []<typename T>() { return Stateless(SparseToSparse<T>); });
}

}  // namespace muster
