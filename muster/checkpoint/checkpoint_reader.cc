#include "muster/checkpoint/checkpoint_reader.h"

#include "absl/strings/ascii.h"

#include "muster/checkpoint/bundle_commit.h"

namespace muster {

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    const std::string& prefix) {
  auto reader = std::make_unique<CheckpointReader>();
  if (FileExists(IndexFileName(prefix))) {
    ASSIGN_OR_RETURN(reader->bundle_, BundleReader::Open(prefix));
    ASSIGN_OR_RETURN(const auto entries, reader->bundle_->List());
    for (const auto& [name, entry] : entries) {
      reader->variables_[name] = {entry.dtype, entry.shape, static_cast<int>(entry.slices.size())};
    }
    return reader;
  }
  ASSIGN_OR_RETURN(reader->v1_, V1Reader::Open(prefix));
  for (const auto& [name, stored] : reader->v1_->tensors()) {
    const auto slices = static_cast<int>(stored.slices.size());
    reader->variables_[name] = {stored.dtype, stored.shape, slices == 1 ? 0 : slices};
  }
  return reader;
}

absl::StatusOr<Tensor> CheckpointReader::GetTensor(const std::string& name) const {
  return bundle_ != nullptr ? bundle_->Read(name) : v1_->Read(name);
}

std::string CheckpointReader::DebugString() const {
  std::string text;
  for (const auto& [name, variable] : variables_) {
    absl::StrAppend(&text, name, " (DT_", absl::AsciiStrToUpper(DTypeName(variable.dtype)), ") ",
                    variable.shape.ToString(), "\n");
  }
  return text;
}

}  // namespace muster
