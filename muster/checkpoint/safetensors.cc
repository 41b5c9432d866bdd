#include "muster/checkpoint/safetensors.h"

#include <algorithm>

#include "absl/strings/str_join.h"

#include "muster/base/json.h"
#include "muster/checkpoint/table/coding.h"

namespace muster {
namespace {

// "" where the format has none.
absl::string_view TypeName(DType dtype) {
  switch (dtype) {
    case DType::kDouble:
      return "F64";
    case DType::kFloat:
      return "F32";
    case DType::kHalf:
      return "F16";
    case DType::kBfloat16:
      return "BF16";
    case DType::kInt64:
      return "I64";
    case DType::kInt32:
      return "I32";
    case DType::kInt16:
      return "I16";
    case DType::kInt8:
      return "I8";
    case DType::kUint64:
      return "U64";
    case DType::kUint32:
      return "U32";
    case DType::kUint16:
      return "U16";
    case DType::kUint8:
      return "U8";
    case DType::kBool:
      return "BOOL";
    case DType::kFloat8E5m2:
      return "F8_E5M2";
    case DType::kFloat8E4m3fn:
      return "F8_E4M3";
    default:
      return "";
  }
}

}  // namespace

absl::StatusOr<ExportResult> ExportSafetensors(const CheckpointReader& reader,
                                               const std::string& file, FileSystem& files) {
  ExportResult result;
  std::vector<std::string> names;
  std::vector<std::string> fields;
  // Wide elements first, so that all are aligned.
  std::vector<std::pair<std::string, CheckpointReader::Variable>> ordered(
      reader.variables().begin(), reader.variables().end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return DTypeSize(a.second.dtype) > DTypeSize(b.second.dtype);
  });
  for (const auto& [name, variable] : ordered) {
    const absl::string_view type = TypeName(variable.dtype);
    const std::optional<int64_t> size = MultiplyWithoutOverflow(
        variable.shape.num_elements(), static_cast<int64_t>(DTypeSize(variable.dtype)));
    if (type.empty() || !size) {
      result.left_out.push_back(absl::StrCat(name, " (", DTypeName(variable.dtype), ")"));
      continue;
    }
    fields.push_back(absl::StrCat(JsonQuoted(name), ":{\"dtype\":\"", type, "\",\"shape\":[",
                                  absl::StrJoin(variable.shape.dims(), ","), "],\"data_offsets\":[",
                                  result.bytes, ",", result.bytes + *size, "]}"));
    names.push_back(name);
    result.bytes += *size;
  }
  result.tensors = static_cast<int>(names.size());
  std::string header = absl::StrCat("{", absl::StrJoin(fields, ","), "}");
  header.append((8 - header.size() % 8) % 8, ' ');  // the elements begin at a multiple of eight
  std::string length;
  AppendFixed64(length, header.size());

  const std::string temporary = TemporaryName(file);
  const auto write = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> out, files.Create(temporary));
    RETURN_IF_ERROR(out->WriteAt(0, {length, header}));
    uint64_t offset = length.size() + header.size();
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(const Tensor tensor, reader.GetTensor(name));
      RETURN_IF_ERROR(out->WriteAt(offset, {absl::string_view(tensor.raw(), tensor.size_bytes())}));
      offset += tensor.size_bytes();
    }
    RETURN_IF_ERROR(out->Sync());
    RETURN_IF_ERROR(out->Close());
    return files.Rename(temporary, file);
  };
  if (absl::Status status = write(); !status.ok()) {
    files.Remove(temporary).IgnoreError();
    return status;
  }
  RETURN_IF_ERROR(files.SyncDirectory(DirectoryOf(file)));
  return result;
}

}  // namespace muster
