// An iterator over a dataset that lives from step to step.
#pragma once

#include <memory>
#include <string>

#include "muster/ops/data/dataset.h"
#include "muster/tensor/handles.h"

namespace muster {

class ElementPump;

// Thread-safe. Elements are read on a thread of the iterator's own and under its own cancellation:
// a step that ends early cancels its request, and the element is kept for the next one.
class IteratorResource : public Resource {
 public:
  static constexpr const char* kTypeName = "N10tensorflow4data16IteratorResourceE";
  using Got = absl::AnyInvocable<void(absl::StatusOr<Element>) &&>;
  // Told the ticket of a request before it waits; false: it is not wanted any more.
  using Accept = absl::FunctionRef<bool(uint64_t ticket)>;

  explicit IteratorResource(ElementSpec spec) : spec_(std::move(spec)) {}
  ~IteratorResource() override;
  std::string Describe() const override { return "Iterator"; }
  const ElementSpec& spec() const { return spec_; }

  // Starts over with `dataset`; requests for an element of the previous one get Cancelled. Nothing
  // of the previous one runs any more afterwards. `skip`: how many elements are skipped first.
  absl::Status Initialize(DatasetPtr dataset, Scheduler& scheduler, int64_t skip = 0);
  // How many elements were given so far; FailedPrecondition when there is no dataset yet.
  absl::StatusOr<int64_t> Position() const;
  // Starts over with the present dataset behind its first `position` elements.
  absl::Status Restore(int64_t position, Scheduler& scheduler);
  // `got` runs on the scheduler's threads, or inside this call. OutOfRange at the end;
  // FailedPrecondition when there is no dataset yet.
  void GetNext(Accept accept, Got got);
  // Withdraws a request: `got` runs with Cancelled in the next Flush. False when it is too late.
  bool Cancel(uint64_t ticket);
  void Flush();

 private:
  std::shared_ptr<ElementPump> pump() const;

  const ElementSpec spec_;
  mutable Mutex mutex_;
  std::shared_ptr<ElementPump> pump_ ABSL_GUARDED_BY(mutex_);
};

// InvalidArgument when elements of `given` are not of the kind that `wanted` says.
absl::Status CheckSpec(const ElementSpec& wanted, const ElementSpec& given);

// The outputs become the components of an element, which must be as the attributes say.
absl::Status SetElement(KernelContext& c, absl::StatusOr<Element> element);
// Shape rule: the outputs are as the attributes say.
absl::Status ElementShapes(ShapeContext& c);

}  // namespace muster
