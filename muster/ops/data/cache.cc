// Datasets that are read once and remembered, in memory or in files.
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"

#include "muster/checkpoint/bundle_reader.h"
#include "muster/checkpoint/bundle_writer.h"
#include "muster/ops/data/dataset.h"

namespace muster {
namespace {

// What the first complete reading gave. Thread-safe.
class Memory {
 public:
  using Elements = std::shared_ptr<const std::vector<Element>>;
  Elements Get() const {
    MutexLock lock(mutex_);
    return elements_;
  }
  void Set(std::vector<Element> elements) {
    MutexLock lock(mutex_);
    if (elements_ == nullptr)
      elements_ = std::make_shared<const std::vector<Element>>(std::move(elements));
  }

 private:
  mutable Mutex mutex_;
  Elements elements_ ABSL_GUARDED_BY(mutex_);
};

NextElement FromMemory(Memory::Elements elements) {
  return [elements = std::move(elements),
          position = size_t{0}](const DataContext&) mutable -> MaybeElement {
    if (position == elements->size()) return std::nullopt;
    return (*elements)[position++];
  };
}

using Store = absl::AnyInvocable<absl::Status(std::vector<Element>)>;

// Gives the elements of `input`, and all of them to `store` at the end. What is not read to its end
// is forgotten.
NextElement Remembering(NextElement input, Store store) {
  return [input = std::move(input), store = std::move(store), seen = std::vector<Element>(),
          over = false](const DataContext& context) mutable -> MaybeElement {
    if (over) return std::nullopt;
    ASSIGN_OR_RETURN(std::optional<Element> element, input(context));
    if (element.has_value()) {
      seen.push_back(*element);
      return element;
    }
    over = true;
    RETURN_IF_ERROR(store(std::move(seen)));
    return std::nullopt;
  };
}

absl::Status CacheInMemory(KernelContext& c, const DatasetPtr& input) {
  const auto memory = std::make_shared<Memory>();
  return SetDataset(c, [input, memory](const DataContext& begin) -> absl::StatusOr<NextElement> {
    if (Memory::Elements elements = memory->Get(); elements != nullptr)
      return FromMemory(std::move(elements));
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return Remembering(std::move(next), [memory](std::vector<Element> elements) {
      memory->Set(std::move(elements));
      return absl::OkStatus();
    });
  });
}

// --- Files -------------------------------------------------------------------------------------

// A checkpoint with a tensor per element and component, under TensorFlow's names: numbers that are
// padded to the width of the largest.
std::string KeyOf(size_t element, size_t component, size_t components) {
  const auto width = static_cast<int>(absl::StrCat(components - 1).size());
  return absl::StrFormat("%7d_%*d", element, width, component);
}

absl::Status WriteElements(const std::string& prefix, const std::vector<Element>& elements) {
  BundleWriter writer(prefix);
  for (size_t i = 0; i < elements.size(); ++i) {
    for (size_t j = 0; j < elements[i].size(); ++j)
      RETURN_IF_ERROR(writer.Add(KeyOf(i, j, elements[i].size()), elements[i][j]));
  }
  return writer.Finish();
}

NextElement FromFiles(std::shared_ptr<const BundleReader> reader, size_t components) {
  return [reader = std::move(reader), components,
          next = size_t{0}](const DataContext&) mutable -> MaybeElement {
    ASSIGN_OR_RETURN(const bool more, reader->Contains(KeyOf(next, 0, components)));
    if (!more) return std::nullopt;
    Element element;
    for (size_t i = 0; i < components; ++i) {
      ASSIGN_OR_RETURN(Tensor tensor, reader->Read(KeyOf(next, i, components)));
      element.push_back(std::move(tensor));
    }
    ++next;
    return element;
  };
}

// The prefixes that are being written. Thread-safe.
class Writing {
 public:
  // Null when another iterator writes there.
  static std::shared_ptr<const Writing> Begin(const std::string& prefix) {
    MutexLock lock(mutex_);
    if (!prefixes_.insert(prefix).second) return nullptr;
    return std::make_shared<const Writing>(prefix);
  }
  explicit Writing(std::string prefix) : prefix_(std::move(prefix)) {}
  ~Writing() {
    MutexLock lock(mutex_);
    prefixes_.erase(prefix_);
  }

 private:
  const std::string prefix_;
  static inline Mutex mutex_;
  static inline absl::flat_hash_set<std::string> prefixes_ ABSL_GUARDED_BY(mutex_);
};

absl::Status CacheInFiles(KernelContext& c, const DatasetPtr& input, const std::string& prefix) {
  return SetDataset(c, [input, prefix](const DataContext& begin) -> absl::StatusOr<NextElement> {
    absl::StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(prefix);
    if (reader.ok()) return FromFiles(*std::move(reader), input->spec().types.size());
    if (!absl::IsNotFound(reader.status())) return reader.status();
    std::shared_ptr<const Writing> writing = Writing::Begin(prefix);
    if (writing == nullptr) {
      return absl::AlreadyExistsError(absl::StrCat(
          "There appears to be a concurrent caching iterator running - another one writes to '",
          prefix, "'"));
    }
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return Remembering(std::move(next), [prefix, writing = std::move(writing)](
                                            const std::vector<Element>& elements) mutable {
      const absl::Status status = WriteElements(prefix, elements);
      writing = nullptr;
      return status;
    });
  });
}

absl::Status MakeCache(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const std::string filename, ScalarString(c.input(1), "filename"));
  return filename.empty() ? CacheInMemory(c, input) : CacheInFiles(c, input, filename);
}

}  // namespace

DEFINE_OP(CacheDataset) {
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("filename: string");
  DefineDataset(op, "The elements, remembered when they were read once.", MakeCache);
}

}  // namespace muster
