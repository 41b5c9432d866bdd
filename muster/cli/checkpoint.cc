// muster checkpoint ls|show|diff|export: looks into checkpoints.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include <CLI/CLI.hpp>

#include "muster/checkpoint/checkpoint_reader.h"
#include "muster/checkpoint/checkpoint_state.h"
#include "muster/checkpoint/safetensors.h"
#include "muster/cli/commands.h"

namespace muster {
namespace {

int Fail(const char* command, const absl::Status& status) {
  std::fprintf(stderr, "muster checkpoint %s: %s\n", command,
               std::string(status.message()).c_str());
  return 1;
}

// The newest checkpoint of a folder. Its state file names a checkpoint of another folder where the
// folder was copied or moved: then the one of that name in this folder is meant. What is looked
// into is said in either case.
absl::StatusOr<std::string> NewestOf(const std::string& folder) {
  ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpointState(folder));
  const std::filesystem::path named = state.model_checkpoint_path;
  std::error_code failed;
  const std::filesystem::path within =
      std::filesystem::relative(named.parent_path(), folder, failed);
  if (!failed && !within.empty() && *within.begin() != "..") return named.string();
  const std::string here = (std::filesystem::path(folder) / named.filename()).string();
  const bool is_here = CheckpointExists(here);
  std::fprintf(
      stderr,
      "muster checkpoint: '%s/checkpoint' names '%s', in another folder; looking into '%s'\n",
      folder.c_str(), named.c_str(), is_here ? here.c_str() : named.c_str());
  return is_here ? here : named.string();
}

// A prefix, a folder with a state file, or one of a checkpoint's files.
absl::StatusOr<std::string> PrefixOf(const std::string& given) {
  std::error_code ignored;
  if (std::filesystem::is_directory(given, ignored)) return NewestOf(given);
  for (const char* mark : {".index", ".meta", ".data-"}) {
    const size_t at = given.rfind(mark);
    if (at != std::string::npos && FileExists(given) && CheckpointExists(given.substr(0, at)))
      return given.substr(0, at);
  }
  return given;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenGiven(const std::string& given) {
  ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(given));
  if (!CheckpointExists(prefix)) {
    return NotFound("there is no checkpoint '", prefix,
                    "': give a prefix such as model.ckpt-100 (beside model.ckpt-100.index), or a "
                    "folder with a file 'checkpoint'");
  }
  return CheckpointReader::Open(prefix);
}

std::string Amount(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return unit == 0 ? absl::StrFormat("%.0f B", bytes)
                   : absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

int64_t BytesOf(const CheckpointReader::Variable& variable) {
  const int64_t width =
      IsPlainData(variable.dtype) ? static_cast<int64_t>(DTypeSize(variable.dtype)) : 0;
  return MultiplyWithoutOverflow(variable.shape.num_elements(), width).value_or(0);
}

int List(const std::string& given) {
  const absl::StatusOr<std::unique_ptr<CheckpointReader>> reader = OpenGiven(given);
  if (!reader.ok()) return Fail("ls", reader.status());
  size_t name_width = 4;
  size_t type_width = 4;
  size_t shape_width = 5;
  for (const auto& [name, variable] : (*reader)->variables()) {
    name_width = std::max(name_width, name.size());
    type_width = std::max(type_width, DTypeName(variable.dtype).size());
    shape_width = std::max(shape_width, variable.shape.ToString().size());
  }
  int64_t bytes = 0;
  int64_t elements = 0;
  for (const auto& [name, variable] : (*reader)->variables()) {
    const std::string parts =
        variable.slices == 0 ? "" : absl::StrFormat("  in %d parts", variable.slices);
    const std::string size = IsPlainData(variable.dtype)
                                 ? Amount(static_cast<double>(BytesOf(variable)))
                                 : std::string("-");
    std::printf("%-*s  %-*s  %-*s  %9s%s\n", static_cast<int>(name_width), name.c_str(),
                static_cast<int>(type_width), DTypeName(variable.dtype).c_str(),
                static_cast<int>(shape_width), variable.shape.ToString().c_str(), size.c_str(),
                parts.c_str());
    bytes += BytesOf(variable);
    elements += variable.shape.num_elements();
  }
  std::printf("%zu tensors, %lld elements, %s\n", (*reader)->variables().size(),
              static_cast<long long>(elements), Amount(static_cast<double>(bytes)).c_str());
  return 0;
}

// Elements as doubles where that makes sense.
template <typename T>
void Convert(const Tensor& tensor, std::vector<double>& out) {
  for (const T& value : tensor.values<T>()) out.push_back(static_cast<double>(value));
}

bool AsDoubles(const Tensor& tensor, std::vector<double>& out) {
  switch (tensor.dtype()) {
    case DType::kFloat:
      Convert<float>(tensor, out);
      return true;
    case DType::kDouble:
      Convert<double>(tensor, out);
      return true;
    case DType::kHalf:
      for (const Half& value : tensor.values<Half>()) out.push_back(static_cast<float>(value));
      return true;
    case DType::kBfloat16:
      for (const Bfloat16& value : tensor.values<Bfloat16>())
        out.push_back(static_cast<float>(value));
      return true;
    case DType::kInt32:
      Convert<int32_t>(tensor, out);
      return true;
    case DType::kInt64:
      Convert<int64_t>(tensor, out);
      return true;
    case DType::kInt8:
      Convert<int8_t>(tensor, out);
      return true;
    case DType::kUint8:
      Convert<uint8_t>(tensor, out);
      return true;
    default:
      return false;
  }
}

void PrintStatistics(const Tensor& tensor) {
  std::vector<double> values;
  if (!AsDoubles(tensor, values) || values.size() < 2) return;
  double low = INFINITY;
  double high = -INFINITY;
  double sum = 0;
  double squares = 0;
  size_t finite = 0;
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
    squares += value * value;
    ++finite;
  }
  if (finite > 0) {
    const double mean = sum / static_cast<double>(finite);
    const double variance = std::max(0.0, squares / static_cast<double>(finite) - mean * mean);
    std::printf("  min %.6g  max %.6g  mean %.6g  deviation %.6g", low, high, mean,
                std::sqrt(variance));
  }
  if (finite < values.size()) std::printf("  not finite: %zu", values.size() - finite);
  std::printf("\n");
}

// "[[1 2][3 4]]", '["a" "b"...]', or the element of a scalar.
std::string Elements(const Tensor& tensor, int64_t max_elements) {
  if (tensor.dtype() != DType::kString) {
    const std::string text = tensor.SummarizeValues(max_elements);
    return tensor.rank() == 0 ? text : absl::StrCat("[", text, "]");
  }
  const int64_t all = tensor.num_elements();
  const int64_t shown = max_elements < 0 ? all : std::min(all, max_elements);
  std::vector<std::string> quoted;
  for (const std::string& element : tensor.values<std::string>().subspan(0, shown))
    quoted.push_back(absl::StrCat("\"", absl::CHexEscape(element), "\""));
  const std::string text = absl::StrCat(absl::StrJoin(quoted, " "), shown < all ? "..." : "");
  return tensor.rank() == 0 ? text : absl::StrCat("[", text, "]");
}

int Show(const std::string& given, const std::vector<std::string>& names, int64_t max_elements) {
  const absl::StatusOr<std::unique_ptr<CheckpointReader>> reader = OpenGiven(given);
  if (!reader.ok()) return Fail("show", reader.status());
  std::vector<std::string> wanted = names;
  if (wanted.empty()) {
    for (const auto& [name, variable] : (*reader)->variables()) wanted.push_back(name);
  }
  for (const std::string& name : wanted) {
    const absl::StatusOr<Tensor> tensor = (*reader)->GetTensor(name);
    if (!tensor.ok()) return Fail("show", tensor.status());
    std::printf("%s  %s%s\n", name.c_str(), DTypeName(tensor->dtype()).c_str(),
                tensor->shape().ToString().c_str());
    PrintStatistics(*tensor);
    if (tensor->num_elements() > 0) std::printf("  %s\n", Elements(*tensor, max_elements).c_str());
  }
  return 0;
}

// What differs between two tensors of one name, in words; "" when nothing does.
std::string Difference(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) {
    return absl::StrCat(DTypeName(a.dtype()), a.shape().ToString(), " became ",
                        DTypeName(b.dtype()), b.shape().ToString());
  }
  if (SameTensor(a, b)) return "";
  std::vector<double> before;
  std::vector<double> after;
  if (!AsDoubles(a, before) || !AsDoubles(b, after)) return "other elements";
  size_t changed = 0;
  double largest = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i] || (std::isnan(before[i]) && std::isnan(after[i]))) continue;
    ++changed;
    largest = std::max(largest, std::abs(after[i] - before[i]));
  }
  if (changed == 0) return "";  // zeros or NaNs of another sign
  if (before.size() == 1) return absl::StrFormat("%.9g became %.9g", before[0], after[0]);
  return absl::StrFormat("%d of %d elements changed, by up to %.6g", changed, before.size(),
                         largest);
}

int Diff(const std::string& first, const std::string& second) {
  const absl::StatusOr<std::unique_ptr<CheckpointReader>> a = OpenGiven(first);
  if (!a.ok()) return Fail("diff", a.status());
  const absl::StatusOr<std::unique_ptr<CheckpointReader>> b = OpenGiven(second);
  if (!b.ok()) return Fail("diff", b.status());
  int differences = 0;
  int same = 0;
  for (const auto& [name, variable] : (*a)->variables()) {
    if (!(*b)->HasTensor(name)) {
      std::printf("- %s  %s%s\n", name.c_str(), DTypeName(variable.dtype).c_str(),
                  variable.shape.ToString().c_str());
      ++differences;
      continue;
    }
    const absl::StatusOr<Tensor> before = (*a)->GetTensor(name);
    if (!before.ok()) return Fail("diff", before.status());
    const absl::StatusOr<Tensor> after = (*b)->GetTensor(name);
    if (!after.ok()) return Fail("diff", after.status());
    const std::string difference = Difference(*before, *after);
    if (difference.empty()) {
      ++same;
      continue;
    }
    std::printf("~ %s  %s\n", name.c_str(), difference.c_str());
    ++differences;
  }
  for (const auto& [name, variable] : (*b)->variables()) {
    if ((*a)->HasTensor(name)) continue;
    std::printf("+ %s  %s%s\n", name.c_str(), DTypeName(variable.dtype).c_str(),
                variable.shape.ToString().c_str());
    ++differences;
  }
  std::printf("%d tensors differ, %d are the same\n", differences, same);
  return differences == 0 ? 0 : 1;
}

int Export(const std::string& given, const std::string& file) {
  const absl::StatusOr<std::unique_ptr<CheckpointReader>> reader = OpenGiven(given);
  if (!reader.ok()) return Fail("export", reader.status());
  const absl::StatusOr<ExportResult> result = ExportSafetensors(**reader, file);
  if (!result.ok()) return Fail("export", result.status());
  for (const std::string& name : result->left_out)
    std::fprintf(stderr, "muster checkpoint export: %s is left out\n", name.c_str());
  std::printf("%s: %d tensors, %s\n", file.c_str(), result->tensors,
              Amount(static_cast<double>(result->bytes)).c_str());
  return 0;
}

}  // namespace

void AddCheckpointCommand(CLI::App& app, Command& chosen) {
  struct Arguments {
    std::string prefix;
    std::string second;
    std::string safetensors;
    std::vector<std::string> names;
    int64_t max_elements = 20;
  };
  auto given = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("checkpoint", "Look into checkpoints");
  command->require_subcommand(1);
  const char* where = "A prefix, one of its files, or a folder (its newest checkpoint)";

  CLI::App* list = command->add_subcommand("ls", "Names, types and shapes");
  list->add_option("checkpoint", given->prefix, where)->required();
  list->callback([given, &chosen] { chosen = [given] { return List(given->prefix); }; });

  CLI::App* show = command->add_subcommand("show", "Elements of tensors");
  show->add_option("checkpoint", given->prefix, where)->required();
  show->add_option("names", given->names, "The tensors; all without");
  show->add_option("--elements", given->max_elements, "Elements shown of each tensor; -1: all")
      ->check(CLI::Range(int64_t{-1}, INT64_MAX));
  show->callback([given, &chosen] {
    chosen = [given] { return Show(given->prefix, given->names, given->max_elements); };
  });

  CLI::App* diff =
      command->add_subcommand("diff", "What differs between two; status 1 if something does");
  diff->add_option("before", given->prefix, where)->required();
  diff->add_option("after", given->second, where)->required();
  diff->callback(
      [given, &chosen] { chosen = [given] { return Diff(given->prefix, given->second); }; });

  CLI::App* write = command->add_subcommand("export", "Write the tensors in another format");
  write->add_option("checkpoint", given->prefix, where)->required();
  write->add_option("--safetensors", given->safetensors, "The file to write")->required();
  write->callback(
      [given, &chosen] { chosen = [given] { return Export(given->prefix, given->safetensors); }; });
}

}  // namespace muster
