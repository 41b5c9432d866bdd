// DecodeCSV: records of comma-separated values, one tensor per column.
#include "absl/strings/numbers.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

struct Format {
  char delimiter = ',';
  bool quotes = true;
  std::vector<int64_t> columns;  // those wanted, ascending; empty: all
};

// Takes the fields out of one record, RFC 4180 as TensorFlow reads it.
class RecordReader {
 public:
  RecordReader(const Format& format, absl::string_view record) : format_(format), record_(record) {}

  absl::StatusOr<std::vector<std::string>> Read() {
    while (at_ < record_.size()) {
      if (record_[at_] == '\n' || record_[at_] == '\r') {
        ++at_;
        continue;
      }
      const bool quoted = format_.quotes && record_[at_] == '"';
      absl::StatusOr<std::string> field = quoted ? ReadQuoted() : ReadPlain();
      if (!field.ok()) return field.status();
      if (Wanted()) fields_.push_back(*std::move(field));
      ++parsed_;
      if (!format_.columns.empty() && fields_.size() == format_.columns.size()) return fields_;
    }
    // A delimiter at the end has an empty field behind it.
    if (!record_.empty() && record_.back() == format_.delimiter && Wanted()) fields_.emplace_back();
    return fields_;
  }

 private:
  bool Wanted() const {
    return format_.columns.empty() ||
           (fields_.size() < format_.columns.size() && format_.columns[fields_.size()] == parsed_);
  }

  absl::StatusOr<std::string> ReadPlain() {
    std::string field;
    for (; at_ < record_.size() && record_[at_] != format_.delimiter; ++at_) {
      const char c = record_[at_];
      if ((format_.quotes && c == '"') || c == '\n' || c == '\r')
        return InvalidArgument("Unquoted fields cannot have quotes/CRLFs inside");
      field += c;
    }
    ++at_;
    return field;
  }

  absl::StatusOr<std::string> ReadQuoted() {
    std::string field;
    ++at_;
    while (at_ + 1 < record_.size() &&
           (record_[at_] != '"' || record_[at_ + 1] != format_.delimiter)) {
      if (record_[at_] != '"') {
        field += record_[at_++];
        continue;
      }
      if (record_[at_ + 1] != '"')
        return InvalidArgument("Quote inside a string has to be escaped by another quote");
      field += '"';
      at_ += 2;
    }
    if (at_ >= record_.size() || record_[at_] != '"')
      return InvalidArgument("Quoted field has to end with quote followed by delim or end");
    at_ += 2;
    return field;
  }

  const Format& format_;
  const absl::string_view record_;
  size_t at_ = 0;
  int64_t parsed_ = 0;
  std::vector<std::string> fields_;
};

bool Parse(const std::string& text, int32_t* value) {
  return absl::SimpleAtoi(text, value);
}
bool Parse(const std::string& text, int64_t* value) {
  return absl::SimpleAtoi(text, value);
}
bool Parse(const std::string& text, float* value) {
  return absl::SimpleAtof(text, value);
}
bool Parse(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value);
}
bool Parse(const std::string& text, std::string* value) {
  *value = text;
  return true;
}

template <typename T>
absl::Status Store(const std::string& text, Tensor& column, int64_t record, size_t field) {
  if (Parse(text, &column.data<T>()[record])) return absl::OkStatus();
  return InvalidArgument("Field ", field, " in record ", record, " is not a valid ",
                         DTypeName(column.dtype()), ": ", text);
}

class DecodeCsvKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string delimiter, setup.Attr<std::string>("field_delim"));
    ASSIGN_OR_RETURN(format_.quotes, setup.Attr<bool>("use_quote_delim"));
    ASSIGN_OR_RETURN(na_value_, setup.Attr<std::string>("na_value"));
    ASSIGN_OR_RETURN(format_.columns, setup.Attr<std::vector<int64_t>>("select_cols"));
    ASSIGN_OR_RETURN(const std::vector<DType> types, setup.Attr<std::vector<DType>>("OUT_TYPE"));
    if (delimiter.size() != 1) return InvalidArgument("field_delim should be only 1 char");
    format_.delimiter = delimiter[0];
    if (!format_.columns.empty() && format_.columns.size() != types.size())
      return InvalidArgument("select_cols should match output size");
    for (size_t i = 0; i < format_.columns.size(); ++i) {
      if (format_.columns[i] < 0)
        return InvalidArgument("select_cols should be non-negative indices");
      if (i > 0 && format_.columns[i] <= format_.columns[i - 1])
        return InvalidArgument("select_cols should be strictly increasing indices");
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor records = c.input(0);
    std::vector<Tensor*> columns;
    for (int i = 0; i < c.num_outputs(); ++i) {
      const Tensor& fallback = c.input(1 + i);
      if (fallback.rank() > 1)
        return InvalidArgument("Each record default should be at most rank 1");
      if (fallback.num_elements() > 1) {
        return InvalidArgument("There should only be 1 default per field but field ", i, " has ",
                               fallback.num_elements());
      }
      ASSIGN_OR_RETURN(Tensor* const column, c.AllocateOutput(i, records.shape()));
      columns.push_back(column);
    }
    for (int64_t r = 0; r < records.num_elements(); ++r) {
      ASSIGN_OR_RETURN(const std::vector<std::string> fields,
                       RecordReader(format_, records.data<std::string>()[r]).Read());
      if (fields.size() != columns.size()) {
        return InvalidArgument("Expect ", columns.size(), " fields but have ", fields.size(),
                               " in record ", r);
      }
      for (size_t f = 0; f < fields.size(); ++f) {
        RETURN_IF_ERROR(Fill(fields[f], c.input(1 + static_cast<int>(f)), *columns[f], r, f));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Fill(const std::string& text, const Tensor& fallback, Tensor& column, int64_t record,
                    size_t field) const {
    if (text.empty() || text == na_value_) {
      if (fallback.num_elements() != 1) {
        return InvalidArgument("Field ", field, " is required but missing in record ", record, "!");
      }
      const auto size = static_cast<int64_t>(DTypeSize(column.dtype()));
      CopyElements(column.dtype(), fallback.raw(), column.raw() + record * size, 1);
      return absl::OkStatus();
    }
    switch (column.dtype()) {
      case DType::kInt32:
        return Store<int32_t>(text, column, record, field);
      case DType::kInt64:
        return Store<int64_t>(text, column, record, field);
      case DType::kFloat:
        return Store<float>(text, column, record, field);
      case DType::kDouble:
        return Store<double>(text, column, record, field);
      case DType::kString:
        return Store<std::string>(text, column, record, field);
      default:
        return InvalidArgument("csv: data type ", DTypeName(column.dtype()),
                               " not supported in field ", field);
    }
  }

  Format format_;
  std::string na_value_;
};

absl::Status InferShapes(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) {
    ASSIGN_OR_RETURN(const PartialShape fallback, c.WithRankAtMost(c.input(i), 1));
    if (fallback.known_rank() && fallback.rank() == 1 && fallback.dim(0) > 1) {
      return InvalidArgument(
          "Shape of a default must be a length-0 or length-1 vector, or a scalar.");
    }
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, c.input(0));
  return absl::OkStatus();
}

DEFINE_OP(DecodeCSV) {
  op.Attr("OUT_TYPE: list({float, double, int32, int64, string}) >= 1")
      .Attr("field_delim: string = ','")
      .Attr("use_quote_delim: bool = true")
      .Attr("na_value: string = ''")
      .Attr("select_cols: list(int) = []")
      .Input("records: string")
      .Input("record_defaults: OUT_TYPE")
      .Output("output: OUT_TYPE")
      .Doc("Records of comma-separated values, one tensor per column.")
      .Shape(InferShapes)
      .Cpu(New<DecodeCsvKernel>());
}

}  // namespace
}  // namespace muster
