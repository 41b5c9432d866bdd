// RaggedTensorToTensor: a ragged tensor as a dense one, filled up with a default value.
#include <algorithm>

#include "muster/ops/op.h"

namespace muster {
namespace {

enum class Partition { kFirstDimSize, kValueRowIds, kRowSplits };

// Rows without values cost memory too.
constexpr int64_t kMostRows = int64_t{1} << 26;

absl::StatusOr<std::vector<Partition>> PartitionsOf(const Node& node) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   node.Attr<std::vector<std::string>>("row_partition_types"));
  std::vector<Partition> partitions;
  for (const std::string& name : names) {
    if (name == "FIRST_DIM_SIZE") {
      partitions.push_back(Partition::kFirstDimSize);
    } else if (name == "VALUE_ROWIDS") {
      partitions.push_back(Partition::kValueRowIds);
    } else if (name == "ROW_SPLITS") {
      partitions.push_back(Partition::kRowSplits);
    } else {
      return InvalidArgument("Unknown string for partition info type: ", name);
    }
  }
  if (partitions.empty()) return InvalidArgument("Must have at least one row partition type");
  return partitions;
}

int RaggedRank(const std::vector<Partition>& partitions) {
  const bool has_size = partitions[0] == Partition::kFirstDimSize;
  return static_cast<int>(partitions.size()) - (has_size ? 1 : 0);
}

// The requested shape with what the values say about the inner dims; -1 where the rows decide.
absl::StatusOr<PartialShape> Combine(const PartialShape& wanted, const PartialShape& values,
                                     int ragged_rank) {
  if (!values.known_rank()) return wanted;
  if (values.rank() < 1) return InvalidArgument("values must have at least one dimension");
  Dims dims(static_cast<size_t>(ragged_rank), -1);
  dims.insert(dims.end(), values.dims().begin(), values.dims().end());
  dims[static_cast<size_t>(ragged_rank)] = -1;
  const PartialShape whole(dims);
  if (!wanted.known_rank()) return whole;
  if (wanted.rank() != whole.rank()) {
    return InvalidArgument("ragged tensor is of rank ", whole.rank(), " and shape ",
                           wanted.ToString(), " is of rank ", wanted.rank(),
                           ": they must be the same");
  }
  return wanted.Merge(whole);
}

// How many rows there are, and for every ragged level which row each of its values belongs to.
struct Layout {
  int64_t first = 0;
  std::vector<Dims> row_of;
};

absl::StatusOr<Dims> RowsOfIds(Dims ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < (i == 0 ? 0 : ids[i - 1]))
      return InvalidArgument("Row ids must be sorted and not negative");
  }
  return ids;
}

absl::StatusOr<Dims> RowsOfSplits(const Dims& splits) {
  if (splits.empty()) return InvalidArgument("Invalid row split size: there are no splits");
  if (splits[0] != 0) return InvalidArgument("Row splits must begin with 0, not ", splits[0]);
  Dims rows;
  for (size_t row = 0; row + 1 < splits.size(); ++row) {
    if (splits[row + 1] < splits[row] || splits[row + 1] > kMostRows) {
      return InvalidArgument("Row splits must ascend up to ", kMostRows, ", but ", splits[row + 1],
                             " follows ", splits[row]);
    }
    rows.insert(rows.end(), static_cast<size_t>(splits[row + 1] - splits[row]),
                static_cast<int64_t>(row));
  }
  return rows;
}

// The places of values in their rows.
Dims Places(const Dims& row_of) {
  Dims places(row_of.size(), 0);
  for (size_t i = 1; i < row_of.size(); ++i) {
    places[i] = row_of[i] == row_of[i - 1] ? places[i - 1] + 1 : 0;
  }
  return places;
}

class RaggedToTensor : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(partitions_, PartitionsOf(setup.node()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& values = c.input(1);
    if (c.num_inputs() != 3 + static_cast<int>(partitions_.size())) {
      return InvalidArgument("There are ", c.num_inputs() - 3, " row partitions but ",
                             partitions_.size(), " row partition types");
    }
    const int ragged_rank = RaggedRank(partitions_);
    ASSIGN_OR_RETURN(const PartialShape wanted, WantedShape(c.input(0)));
    ASSIGN_OR_RETURN(const PartialShape partial, Combine(wanted, values.shape(), ragged_rank));
    ASSIGN_OR_RETURN(const Layout layout, ReadLayout(c));
    Dims dims(partial.dims().begin(), partial.dims().end());
    if (dims[0] < 0) dims[0] = layout.first;
    std::vector<Dims> places;
    for (int i = 0; i < ragged_rank; ++i) {
      places.push_back(Places(layout.row_of[i]));
      if (dims[i + 1] >= 0) continue;
      dims[i + 1] = 0;
      for (const int64_t place : places[i]) dims[i + 1] = std::max(dims[i + 1], place + 1);
    }
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    Shape inner = values.shape();
    inner.Remove(0);
    ASSIGN_OR_RETURN(const Tensor filling, Filling(c, inner));
    ASSIGN_OR_RETURN(const Dims targets, Targets(layout, places, dims));
    if (static_cast<int64_t>(targets.size()) != values.dim(0)) {
      return InvalidArgument("The row partitions describe ", targets.size(),
                             " values, but there are ", values.dim(0));
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    const int64_t width = inner.num_elements();
    if (width == 0) return absl::OkStatus();
    const auto bytes = width * static_cast<int64_t>(DTypeSize(output->dtype()));
    for (int64_t i = 0; i < output->num_elements() / width; ++i) {
      CopyElements(output->dtype(), filling.raw(), output->raw() + i * bytes, width);
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] < 0) continue;
      CopyElements(output->dtype(), values.raw() + static_cast<int64_t>(i) * bytes,
                   output->raw() + targets[i] * bytes, width);
    }
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<PartialShape> WantedShape(const Tensor& shape) {
    if (shape.rank() == 0) {
      ASSIGN_OR_RETURN(const int64_t any, ScalarInteger(shape, "shape"));
      if (any == -1) return PartialShape();
      return InvalidArgument(
          "The only valid scalar shape tensor is the fully unknown shape specified as -1.");
    }
    ASSIGN_OR_RETURN(const Dims dims, IntegerVector(shape, "shape"));
    for (const int64_t dim : dims) {
      if (dim < -1) return InvalidArgument("Dimension ", dim, " must be >= -1");
    }
    return PartialShape(dims);
  }

  absl::StatusOr<Layout> ReadLayout(const KernelContext& c) const {
    Layout layout;
    for (size_t i = 0; i < partitions_.size(); ++i) {
      const Tensor& tensor = c.input(3 + static_cast<int>(i));
      ASSIGN_OR_RETURN(Dims numbers, IntegerValues(tensor));
      if (partitions_[i] == Partition::kFirstDimSize) {
        if (i != 0 || numbers.size() != 1 || numbers[0] < 0 || numbers[0] > kMostRows) {
          return InvalidArgument("FIRST_DIM_SIZE must come first and be one size up to ",
                                 kMostRows);
        }
        layout.first = numbers[0];
        continue;
      }
      if (tensor.rank() != 1) return InvalidArgument("Row partitions must be vectors");
      const bool splits = partitions_[i] == Partition::kRowSplits;
      if (i == 0) {
        if (!splits) return InvalidArgument("Cannot handle VALUE_ROWIDS in first dimension.");
        layout.first = static_cast<int64_t>(numbers.size()) - 1;
      }
      ASSIGN_OR_RETURN(Dims rows, splits ? RowsOfSplits(numbers) : RowsOfIds(std::move(numbers)));
      layout.row_of.push_back(std::move(rows));
    }
    return layout;
  }

  // The default value in the shape of one value.
  static absl::StatusOr<Tensor> Filling(KernelContext& c, const Shape& inner) {
    const Tensor& given = c.input(2);
    const int missing = inner.rank() - given.rank();
    bool fits = missing >= 0;
    for (int i = 0; fits && i < given.rank(); ++i) {
      fits = given.dim(i) == 1 || given.dim(i) == inner[i + missing];
    }
    if (!fits) {
      return InvalidArgument("default_value.shape=", given.shape().ToString(),
                             " and rt_input.flat_values.shape[1:]=", inner.ToString(),
                             " are incompatible");
    }
    ASSIGN_OR_RETURN(Tensor filling, c.AllocateTemporary(given.dtype(), inner));
    const auto bytes = static_cast<int64_t>(DTypeSize(given.dtype()));
    Dims index(inner.rank(), 0);
    for (int64_t i = 0; i < filling.num_elements(); ++i) {
      int64_t from = 0;
      for (int d = 0; d < given.rank(); ++d) {
        from = from * given.dim(d) + (given.dim(d) == 1 ? 0 : index[d + missing]);
      }
      CopyElements(given.dtype(), given.raw() + from * bytes, filling.raw() + i * bytes, 1);
      for (int d = inner.rank() - 1; d >= 0; --d) {
        if (++index[d] < inner[d]) break;
        index[d] = 0;
      }
    }
    return filling;
  }

  // Where each value goes, in units of values; -1 when there is no room for it.
  static absl::StatusOr<Dims> Targets(const Layout& layout, const std::vector<Dims>& places,
                                      const Dims& dims) {
    Dims targets(static_cast<size_t>(layout.first));
    for (int64_t i = 0; i < layout.first; ++i) targets[i] = i < dims[0] ? i : -1;
    for (size_t level = 0; level < places.size(); ++level) {
      const int64_t size = dims[level + 1];
      Dims next(places[level].size(), -1);
      for (size_t i = 0; i < next.size(); ++i) {
        const int64_t row = layout.row_of[level][i];
        if (row >= static_cast<int64_t>(targets.size())) {
          return InvalidArgument("A value belongs to row ", row, ", but there are ",
                                 targets.size());
        }
        const int64_t place = places[level][i];
        if (targets[row] >= 0 && place < size) next[i] = targets[row] * size + place;
      }
      targets = std::move(next);
    }
    return targets;
  }

  std::vector<Partition> partitions_;
};

absl::Status ToTensorShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const std::vector<Partition> partitions, PartitionsOf(c.node()));
  PartialShape wanted;
  if (c.input(0).known_rank() && c.input(0).rank() == 1) {
    ASSIGN_OR_RETURN(wanted, c.InputAsShape(0));
  }
  ASSIGN_OR_RETURN(PartialShape shape, Combine(wanted, c.input(1), RaggedRank(partitions)));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(RaggedTensorToTensor) {
  op.Attr("T: type")
      .Attr("Tindex: {int64, int32}")
      .Attr("Tshape: {int64, int32}")
      .Attr("num_row_partition_tensors: int >= 1")
      .Attr("row_partition_types: list(string)")
      .Input("shape: Tshape")
      .Input("values: T")
      .Input("default_value: T")
      .Input("row_partition_tensors: num_row_partition_tensors * Tindex")
      .Output("result: T")
      .Doc("A ragged tensor as a dense one: rows are cut, or filled up with the default value.")
      .Shape(ToTensorShape)
      .CpuDTypes("T", AllDTypes(), New<RaggedToTensor>());
}

}  // namespace muster
