// Datasets: immutable descriptions of a sequence of elements, held by variant tensors. Reading one
// gives a function that is called for one element after the other.
//
// Reading may block (files, functions, other threads), so it never happens on a scheduler's thread:
// an iterator has a thread of its own, and so has every prefetching part of a pipeline.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"

#include "muster/ops/op.h"

namespace muster {

using Element = std::vector<Tensor>;
// No value at the end of the sequence, and from then on.
using MaybeElement = absl::StatusOr<std::optional<Element>>;

// The settings for reading a pipeline, or a part of it. Outlives the reading.
struct DataContext {
  Cancellation* cancellation;
  // shuffle(...).repeat(...) is one thing, as TensorFlow 1.15's optimizer makes it.
  bool fuse_shuffle_and_repeat = false;
};

// Confined to one thread at a time. After an error the next element may still come.
using NextElement = absl::AnyInvocable<MaybeElement(const DataContext&)>;

// What `next` gives; ResourceExhausted where it finds no memory, as for a line as long as its file.
// For threads that read: nothing else would catch that.
MaybeElement ReadNext(NextElement& next, const DataContext& context);

// How many elements a dataset has, where that is known before it is read.
inline constexpr int64_t kInfiniteCardinality = -1;
inline constexpr int64_t kUnknownCardinality = -2;

struct ElementSpec {
  std::vector<DType> types;
  std::vector<PartialShape> shapes;
};

// Thread-safe.
class Dataset : public std::enable_shared_from_this<Dataset> {
 public:
  // Never blocks.
  using Begin = std::function<absl::StatusOr<NextElement>(const DataContext&)>;
  using BeginRepeated = std::function<absl::StatusOr<NextElement>(const DataContext&, int64_t)>;

  Dataset(ElementSpec spec, Begin begin, BeginRepeated begin_repeated = nullptr,
          int64_t cardinality = kUnknownCardinality)
      : spec_(std::move(spec)),
        begin_(std::move(begin)),
        begin_repeated_(std::move(begin_repeated)),
        cardinality_(cardinality) {}
  const ElementSpec& spec() const { return spec_; }
  int64_t cardinality() const { return cardinality_; }
  absl::StatusOr<NextElement> Read(const DataContext& context) const { return begin_(context); }
  // Reads the sequence repeatedly; null where that needs no special code.
  const BeginRepeated& begin_repeated() const { return begin_repeated_; }

 private:
  const ElementSpec spec_;
  const Begin begin_;
  const BeginRepeated begin_repeated_;
  const int64_t cardinality_;
};
using DatasetPtr = std::shared_ptr<const Dataset>;

// The dataset in a variant; InvalidArgument when there is none.
absl::StatusOr<DatasetPtr> DatasetIn(const Tensor& tensor);
inline absl::StatusOr<DatasetPtr> InputDataset(const KernelContext& c, int i) {
  return DatasetIn(c.input(i));
}
// From the attributes output_types (or Toutput_types) and output_shapes.
absl::StatusOr<ElementSpec> SpecOf(const Node& node);
// Output 0 becomes the dataset; its elements are as the attributes say.
absl::Status SetDataset(KernelContext& c, Dataset::Begin begin,
                        Dataset::BeginRepeated begin_repeated = nullptr);
absl::Status SetDataset(KernelContext& c, ElementSpec spec, Dataset::Begin begin);

// The cardinality of the dataset that the node makes, from its inputs and attributes.
int64_t CardinalityOf(const KernelContext& c);

// What went wrong in a function that the user gave to a transformation ("Map").
absl::Status InUserFunction(absl::Status status, absl::string_view transformation);

// Scalar inputs; InvalidArgument naming `what`.
absl::StatusOr<bool> ScalarBool(const Tensor& tensor, absl::string_view what);
absl::StatusOr<std::string> ScalarString(const Tensor& tensor, absl::string_view what);

// Row `index` of dimension 0, with memory of its own. Requires: it is there.
absl::StatusOr<Tensor> CopyRow(const Tensor& tensor, int64_t index);

// The components in the memory that kernels of the device have them in: datasets of the host may be
// read by an iterator on a GPU. FailedPrecondition for components in another device's memory.
absl::StatusOr<Element> InMemoryOf(Device& device, Element element);

// Reads ahead on a thread of its own, up to `limit` elements (at least one).
NextElement Prefetched(NextElement input, size_t limit, const DataContext& parent);

// The attributes that nearly every dataset has, and what all have in common.
OpBuilder& ElementAttrs(OpBuilder& op);
void DefineDataset(OpBuilder& op, const char* doc, KernelFunction make);

}  // namespace muster
