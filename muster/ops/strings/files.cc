// Whole files as strings, and names of files: ReadFile, WriteFile, MatchingFiles.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "absl/strings/str_split.h"
#include <fnmatch.h>

#include "muster/checkpoint/file.h"
#include "muster/ops/file_kernel.h"

namespace muster {
namespace {

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

absl::StatusOr<std::string> ReadAll(const std::string& name) {
  const File file(std::fopen(LocalPath(name).c_str(), "rb"));
  if (file == nullptr) return FileError(name, errno);
  std::string contents;
  char block[1 << 16];
  while (true) {
    const size_t got = std::fread(block, 1, sizeof(block), file.get());
    contents.append(block, got);
    if (got < sizeof(block)) break;
  }
  if (std::ferror(file.get()) != 0) return FileError(name, errno);
  return contents;
}

absl::Status WriteAll(const std::string& name, absl::string_view contents) {
  std::error_code ignored;  // the file's own error tells more
  const std::filesystem::path parent = std::filesystem::path(LocalPath(name)).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  File file(std::fopen(LocalPath(name).c_str(), "wb"));
  if (file == nullptr) return FileError(name, errno);
  if (std::fwrite(contents.data(), 1, contents.size(), file.get()) != contents.size())
    return FileError(name, errno);
  if (std::fclose(file.release()) != 0) return FileError(name, errno);
  return absl::OkStatus();
}

absl::Status CheckScalar(const Tensor& tensor, absl::string_view what) {
  if (tensor.shape().is_scalar()) return absl::OkStatus();
  return InvalidArgument(what,
                         " tensor must be scalar, but had shape: ", tensor.shape().ToString());
}

absl::Status RunRead(FileCall& c) {
  RETURN_IF_ERROR(CheckScalar(c.input(0), "Input filename"));
  ASSIGN_OR_RETURN(std::string contents, ReadAll(c.input(0).scalar<std::string>()));
  c.SetOutput(0, Tensor::Scalar<std::string>(std::move(contents)));
  return absl::OkStatus();
}

absl::Status RunWrite(FileCall& c) {
  RETURN_IF_ERROR(CheckScalar(c.input(0), "Input filename"));
  RETURN_IF_ERROR(CheckScalar(c.input(1), "Contents"));
  return WriteAll(c.input(0).scalar<std::string>(), c.input(1).scalar<std::string>());
}

bool HasWildcard(absl::string_view part) {
  return part.find_first_of("*?[\\") != absl::string_view::npos;
}

// Appends all names that match parts[at...] below `prefix` ("", or ending in "/").
void Match(const std::vector<std::string>& parts, size_t at, const std::string& prefix,
           std::vector<std::string>& found) {
  std::error_code error;
  const std::string& part = parts[at];
  const bool last = at + 1 == parts.size();
  const auto follow = [&](const std::string& name) {
    const std::string path = prefix + name;
    if (last) {
      if (std::filesystem::exists(path, error)) found.push_back(path);
    } else if (name.empty() || std::filesystem::is_directory(path, error)) {
      Match(parts, at + 1, path + "/", found);
    }
  };
  if (!HasWildcard(part)) {
    follow(part);
    return;
  }
  std::filesystem::directory_iterator entry(prefix.empty() ? "." : prefix, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (fnmatch(part.c_str(), name.c_str(), 0) == 0) follow(name);
  }
}

absl::Status RunMatching(FileCall& c) {
  const Tensor& patterns = c.input(0);
  if (patterns.rank() > 1) {
    return InvalidArgument("Input patterns tensor must be scalar or vector, but had shape: ",
                           patterns.shape().ToString());
  }
  std::vector<std::string> found;
  for (const std::string& pattern : patterns.values<std::string>()) {
    if (pattern.empty()) continue;
    const std::string local = LocalPath(pattern);
    const std::string scheme = pattern.substr(0, pattern.size() - local.size());
    const std::vector<std::string> parts = absl::StrSplit(local, '/');
    const size_t before = found.size();
    Match(parts, 0, "", found);
    for (size_t i = before; i < found.size(); ++i) found[i].insert(0, scheme);
  }
  std::sort(found.begin(), found.end());
  ASSIGN_OR_RETURN(Tensor * output,
                   c.AllocateOutput(0, Shape({static_cast<int64_t>(found.size())})));
  std::move(found.begin(), found.end(), output->data<std::string>());
  return absl::OkStatus();
}

absl::Status ReadShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  return ScalarShape(c);
}

absl::Status WriteShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  return c.WithRank(c.input(1), 0).status();
}

absl::Status MatchingShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(0), 1).status());
  c.SetOutput(0, PartialShape::Vector(-1));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(ReadFile) {
  op.Input("filename: string")
      .Output("contents: string")
      .Doc("The contents of a file.")
      .Shape(ReadShape)
      .Cpu(New<FileKernel<FileFunction<RunRead>>>());
}

DEFINE_OP(WriteFile) {
  op.Input("filename: string")
      .Input("contents: string")
      .Stateful()
      .Doc("Writes a file, making its folders as needed.")
      .Shape(WriteShape)
      .Cpu(New<FileKernel<FileFunction<RunWrite>>>());
}

DEFINE_OP(MatchingFiles) {
  op.Input("pattern: string")
      .Output("filenames: string")
      .Doc("The names of the files that match one of the patterns, sorted.")
      .Shape(MatchingShape)
      .Cpu(New<FileKernel<FileFunction<RunMatching>>>());
}

}  // namespace muster
