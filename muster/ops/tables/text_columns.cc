// Vocabulary files: one entry per line.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "muster/checkpoint/file.h"
#include "muster/ops/tables/table.h"

namespace muster {
namespace {

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& filename, int64_t limit) {
  std::ifstream file(LocalPath(filename), std::ios::binary);
  if (!file) {
    const std::string text = absl::StrCat(filename, "; ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::UnknownError(text);
  }
  std::vector<std::string> lines;
  std::string line;
  while ((limit < 0 || static_cast<int64_t>(lines.size()) < limit) && std::getline(file, line)) {
    line.erase(std::remove(line.begin(), line.end(), '\r'), line.end());
    lines.push_back(line);
  }
  if (file.bad()) return absl::DataLossError(absl::StrCat("cannot read ", filename));
  return lines;
}

absl::Status Store(absl::string_view text, int64_t line, Tensor& column) {
  const auto invalid = [&](absl::string_view type) {
    return InvalidArgument("Field ", text, " in line ", line, " is not a valid ", type, ".");
  };
  switch (column.dtype()) {
    case DType::kString:
      column.data<std::string>()[line] = std::string(text);
      return absl::OkStatus();
    case DType::kInt32:
      return absl::SimpleAtoi(text, &column.data<int32_t>()[line]) ? absl::OkStatus()
                                                                   : invalid("int32");
    case DType::kInt64:
      return absl::SimpleAtoi(text, &column.data<int64_t>()[line]) ? absl::OkStatus()
                                                                   : invalid("int64");
    case DType::kFloat:
      return absl::SimpleAtof(text, &column.data<float>()[line]) ? absl::OkStatus()
                                                                 : invalid("float");
    case DType::kDouble:
      return absl::SimpleAtod(text, &column.data<double>()[line]) ? absl::OkStatus()
                                                                  : invalid("double");
    default:
      return InvalidArgument("Data type ", DTypeName(column.dtype()), " not supported.");
  }
}

absl::Status CheckColumn(absl::string_view what, int64_t column, DType dtype) {
  if (column == TextColumns::kLineNumber && dtype != DType::kInt64) {
    return InvalidArgument(what, " index for line number requires table ", what,
                           " dtype of int64, got ", DTypeName(dtype));
  }
  if (column == TextColumns::kWholeLine && dtype != DType::kString && dtype != DType::kInt64 &&
      dtype != DType::kInt32) {
    return InvalidArgument(what, " index for whole line requires string or integer table ", what,
                           ", got ", DTypeName(dtype));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LookupTable::Entries> ReadTextColumns(const std::string& filename,
                                                     const TextColumns& columns, DType key_type,
                                                     DType value_type) {
  RETURN_IF_ERROR(CheckColumn("Key", columns.key, key_type));
  RETURN_IF_ERROR(CheckColumn("Value", columns.value, value_type));
  ASSIGN_OR_RETURN(const std::vector<std::string> lines, ReadLines(filename, columns.vocab_size));
  const auto count = static_cast<int64_t>(lines.size());
  if (columns.vocab_size >= 0 && count < columns.vocab_size) {
    return InvalidArgument("Invalid vocab_size in ", filename, ": expected ", columns.vocab_size,
                           " but got ", count);
  }
  LookupTable::Entries entries;
  ASSIGN_OR_RETURN(entries.keys, Tensor::Make(key_type, Shape({count})));
  ASSIGN_OR_RETURN(entries.values, Tensor::Make(value_type, Shape({count})));
  const int64_t last_column = std::max(columns.key, columns.value);
  for (int64_t i = 0; i < count; ++i) {
    if (lines[i].empty())
      return InvalidArgument("Invalid content in ", filename, ": empty line found at position ", i);
    std::vector<absl::string_view> fields;
    if (last_column >= 0) {
      fields = absl::StrSplit(lines[i], columns.delimiter);
      if (last_column >= static_cast<int64_t>(fields.size())) {
        return InvalidArgument("Invalid number of columns in ", filename, " line ", i, " (",
                               lines[i], ") : expected ", last_column, " got ", fields.size());
      }
    }
    const auto store = [&](int64_t column, Tensor& to) -> absl::Status {
      if (column == TextColumns::kLineNumber) {
        to.data<int64_t>()[i] = i + columns.offset;
        return absl::OkStatus();
      }
      return Store(column == TextColumns::kWholeLine ? lines[i] : fields[column], i, to);
    };
    RETURN_IF_ERROR(store(columns.key, entries.keys));
    RETURN_IF_ERROR(store(columns.value, entries.values));
  }
  return entries;
}

}  // namespace muster
