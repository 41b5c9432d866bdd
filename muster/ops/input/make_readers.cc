// Readers of records of fixed length, of lines, of whole files, of TFRecords, and of nothing but
// the work units themselves; with resource handles (V2) and with the older references.
#include "absl/strings/strip.h"

#include "muster/checkpoint/records/record_reader.h"
#include "muster/ops/input/byte_buffer.h"
#include "muster/ops/input/reader.h"
#include "muster/ops/op.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

using Next = RecordSource::Next;

Next End() {
  Next next;
  next.at_end = true;
  return next;
}
Next Found(std::string key, std::string value, bool at_end = false) {
  return Next{true, at_end, Record{std::move(key), std::move(value)}};
}

// A source that reads one file after the other.
class FileSource : public RecordSource {
 public:
  void Stop() override { buffer_.reset(); }

 protected:
  absl::Status Open(const std::string& filename, RecordCompression compression) {
    filename_ = filename;
    count_ = 0;
    ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> file, OpenFile(filename));
    buffer_ = std::make_unique<ByteBuffer>(Decompressed(std::move(file), compression));
    return absl::OkStatus();
  }
  std::string Key() const { return absl::StrCat(filename_, ":", count_); }

  std::string filename_;
  int64_t count_ = 0;
  std::unique_ptr<ByteBuffer> buffer_;
};

struct RecordLayout {
  size_t header = 0;
  size_t record = 0;
  size_t footer = 0;
  size_t hop = 0;  // from the start of a record to that of the next
  RecordCompression compression = RecordCompression::kNone;
};

class FixedLengthSource : public FileSource {
 public:
  explicit FixedLengthSource(const RecordLayout& layout) : layout_(layout) {}
  absl::Status Start(const std::string& work) override {
    RETURN_IF_ERROR(Open(work, layout_.compression));
    return buffer_->Skip(layout_.header).status();
  }
  absl::StatusOr<Next> Read() override {
    if (count_ > 0) RETURN_IF_ERROR(buffer_->Skip(layout_.hop).status());
    // A record that would reach into the footer does not count.
    const size_t needed = layout_.record + layout_.footer;
    ASSIGN_OR_RETURN(const absl::string_view bytes, buffer_->Peek(needed));
    if (bytes.size() < needed) return End();
    return Take(bytes);
  }
  std::optional<Next> ReadAhead() override {
    const size_t passed = count_ > 0 ? layout_.hop : 0;
    const absl::string_view ahead = buffer_->ahead();
    if (ahead.size() < passed || ahead.size() - passed < layout_.record + layout_.footer)
      return std::nullopt;
    buffer_->Consume(passed);
    return Take(ahead.substr(passed));
  }

 private:
  Next Take(absl::string_view bytes) {
    Next next = Found(Key(), std::string(bytes.substr(0, layout_.record)));
    ++count_;
    return next;
  }

  const RecordLayout layout_;
};

class TextLineSource : public FileSource {
 public:
  explicit TextLineSource(int64_t skipped) : skipped_(skipped) {}
  absl::Status Start(const std::string& work) override {
    RETURN_IF_ERROR(Open(work, RecordCompression::kNone));
    for (int64_t i = 0; i < skipped_; ++i) {
      ASSIGN_OR_RETURN(const Next next, Read());
      if (next.at_end) break;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Next> Read() override {
    size_t searched = 0;
    while (true) {
      const absl::string_view ahead = buffer_->ahead();
      const size_t end = ahead.find('\n', searched);
      if (end != absl::string_view::npos) return Take(ahead.substr(0, end), end + 1);
      searched = ahead.size();
      ASSIGN_OR_RETURN(const bool more, buffer_->ReadMore());
      if (more) continue;
      if (buffer_->ahead().empty()) return End();
      return Take(buffer_->ahead(), buffer_->ahead().size());
    }
  }
  std::optional<Next> ReadAhead() override {
    const absl::string_view ahead = buffer_->ahead();
    const size_t end = ahead.find('\n');
    if (end == absl::string_view::npos) return std::nullopt;
    return Take(ahead.substr(0, end), end + 1);
  }

 private:
  Next Take(absl::string_view line, size_t consumed) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    ++count_;
    Next next = Found(Key(), std::string(line));
    buffer_->Consume(consumed);
    return next;
  }

  const int64_t skipped_;
};

class WholeFileSource : public FileSource {
 public:
  absl::Status Start(const std::string& work) override {
    filename_ = work;
    return absl::OkStatus();
  }
  absl::StatusOr<Next> Read() override {
    RETURN_IF_ERROR(Open(filename_, RecordCompression::kNone));
    while (true) {
      ASSIGN_OR_RETURN(const bool more, buffer_->ReadMore());
      if (!more) break;
    }
    return Found(filename_, std::string(buffer_->ahead()), true);
  }
};

class TfRecordSource : public RecordSource {
 public:
  explicit TfRecordSource(RecordCompression compression) : compression_(compression) {}
  absl::Status Start(const std::string& work) override {
    filename_ = work;
    ASSIGN_OR_RETURN(reader_, RecordReader::Open(work, compression_));
    return absl::OkStatus();
  }
  std::optional<Next> ReadAhead() override {
    if (!reader_->has_whole_record()) return std::nullopt;
    const uint64_t offset = reader_->offset();
    absl::StatusOr<std::string> record = reader_->Next();
    // A record that cannot be read stays where it is.
    if (!record.ok()) return std::nullopt;
    return Found(absl::StrCat(filename_, ":", offset), *std::move(record));
  }
  absl::StatusOr<Next> Read() override {
    const uint64_t offset = reader_->offset();
    absl::StatusOr<std::string> record = reader_->Next();
    if (absl::IsOutOfRange(record.status())) return End();
    RETURN_IF_ERROR(record.status());
    return Found(absl::StrCat(filename_, ":", offset), *std::move(record));
  }
  void Stop() override { reader_.reset(); }

 private:
  const RecordCompression compression_;
  std::string filename_;
  std::unique_ptr<RecordReader> reader_;
};

class IdentitySource : public RecordSource {
 public:
  absl::Status Start(const std::string& work) override {
    work_ = work;
    return absl::OkStatus();
  }
  absl::StatusOr<Next> Read() override { return Found(work_, work_, true); }
  bool may_block() const override { return false; }
  bool can_save() const override { return true; }

 private:
  std::string work_;
};

class ReaderKernel : public ResourceKernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    kind_ = std::string(absl::StripSuffix(s.node().op(), "V2"));
    return ResourceKernel::Init(s);
  }

 protected:
  absl::StatusOr<RefPtr<Resource>> Make(const std::string&) override {
    return RefPtr<Resource>(
        MakeRef<Reader>(absl::StrCat(kind_, " '", node_name(), "'"), MakeSource()));
  }
  absl::Status Verify(Resource& resource) override {
    if (dynamic_cast<Reader*>(&resource) == nullptr)
      return InvalidArgument(name().name, " is a ", resource.Describe(), ", not a reader");
    return absl::OkStatus();
  }
  std::string type_name() const override { return Reader::kTypeName; }
  virtual std::unique_ptr<RecordSource> MakeSource() const = 0;

 private:
  std::string kind_;
};

absl::StatusOr<size_t> NotNegative(const KernelSetup& s, const char* attr) {
  ASSIGN_OR_RETURN(const int64_t value, s.Attr<int64_t>(attr));
  if (value >= 0) return static_cast<size_t>(value);
  return InvalidArgument(attr, " must be >= 0 not ", value);
}

class FixedLengthKernel : public ReaderKernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(layout_.header, NotNegative(s, "header_bytes"));
    ASSIGN_OR_RETURN(layout_.record, NotNegative(s, "record_bytes"));
    ASSIGN_OR_RETURN(layout_.footer, NotNegative(s, "footer_bytes"));
    ASSIGN_OR_RETURN(layout_.hop, NotNegative(s, "hop_bytes"));
    if (layout_.record == 0) return InvalidArgument("record_bytes must be > 0");
    if (layout_.hop == 0) layout_.hop = layout_.record;
    const absl::StatusOr<std::string> encoding = s.Attr<std::string>("encoding");
    if (encoding.ok()) {
      ASSIGN_OR_RETURN(layout_.compression, ParseRecordCompression(*encoding));
    }
    return ReaderKernel::Init(s);
  }

 protected:
  std::unique_ptr<RecordSource> MakeSource() const override {
    return std::make_unique<FixedLengthSource>(layout_);
  }

 private:
  RecordLayout layout_;
};

class TextLineKernel : public ReaderKernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const size_t skipped, NotNegative(s, "skip_header_lines"));
    skipped_ = static_cast<int64_t>(skipped);
    return ReaderKernel::Init(s);
  }

 protected:
  std::unique_ptr<RecordSource> MakeSource() const override {
    return std::make_unique<TextLineSource>(skipped_);
  }

 private:
  int64_t skipped_ = 0;
};

class TfRecordKernel : public ReaderKernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const std::string type, s.Attr<std::string>("compression_type"));
    ASSIGN_OR_RETURN(compression_, ParseRecordCompression(type));
    return ReaderKernel::Init(s);
  }

 protected:
  std::unique_ptr<RecordSource> MakeSource() const override {
    return std::make_unique<TfRecordSource>(compression_);
  }

 private:
  RecordCompression compression_ = RecordCompression::kNone;
};

template <typename Source>
class PlainKernel : public ReaderKernel {
 protected:
  std::unique_ptr<RecordSource> MakeSource() const override { return std::make_unique<Source>(); }
};

void Define(OpBuilder& op, KernelFactory factory, bool resource, const char* doc) {
  op.Output(resource ? "reader_handle: resource" : "reader_handle: Ref(string)")
      .Stateful()
      .Doc(doc)
      .Shape(HandleOutputShape)
      .NoGradient("records are not numbers")
      .Cpu(std::move(factory));
}

void DefineNames(OpBuilder& op) {
  op.Attr("container: string = ''").Attr("shared_name: string = ''");
}

void DefineFixedLength(OpBuilder& op, bool resource) {
  op.Attr("header_bytes: int = 0")
      .Attr("record_bytes: int")
      .Attr("footer_bytes: int = 0")
      .Attr("hop_bytes: int = 0");
  DefineNames(op);
  if (resource) op.Attr("encoding: string = ''");
  Define(op, New<FixedLengthKernel>(), resource, "Reads records of equal length from files.");
}

void DefineTextLine(OpBuilder& op, bool resource) {
  op.Attr("skip_header_lines: int = 0");
  DefineNames(op);
  Define(op, New<TextLineKernel>(), resource, "Reads the lines of files.");
}

void DefineTfRecord(OpBuilder& op, bool resource) {
  DefineNames(op);
  op.Attr("compression_type: string = ''");
  Define(op, New<TfRecordKernel>(), resource, "Reads the records of TFRecord files.");
}

}  // namespace

DEFINE_OP(FixedLengthRecordReader) {
  DefineFixedLength(op, false);
  op.Deprecated(26, "Use FixedLengthRecordReaderV2");
}
DEFINE_OP(FixedLengthRecordReaderV2) {
  DefineFixedLength(op, true);
}
DEFINE_OP(TextLineReader) {
  DefineTextLine(op, false);
  op.Deprecated(26, "Use TextLineReaderV2");
}
DEFINE_OP(TextLineReaderV2) {
  DefineTextLine(op, true);
}
DEFINE_OP(TFRecordReader) {
  DefineTfRecord(op, false);
  op.Deprecated(26, "Use TFRecordReaderV2");
}
DEFINE_OP(TFRecordReaderV2) {
  DefineTfRecord(op, true);
}
DEFINE_OP(WholeFileReader) {
  DefineNames(op);
  Define(op, New<PlainKernel<WholeFileSource>>(), false, "Reads files as a whole.");
}
DEFINE_OP(WholeFileReaderV2) {
  DefineNames(op);
  Define(op, New<PlainKernel<WholeFileSource>>(), true, "Reads files as a whole.");
}
DEFINE_OP(IdentityReader) {
  DefineNames(op);
  Define(op, New<PlainKernel<IdentitySource>>(), false, "Gives the work units themselves.");
  op.Deprecated(26, "Use IdentityReaderV2");
}
DEFINE_OP(IdentityReaderV2) {
  DefineNames(op);
  Define(op, New<PlainKernel<IdentitySource>>(), true, "Gives the work units themselves.");
}

}  // namespace muster
