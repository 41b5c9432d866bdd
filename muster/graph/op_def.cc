#include "muster/graph/op_def.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "muster/base/status.h"

namespace muster {
namespace {

// Reads the notation from the left; every Take skips the white space before it.
class Reader {
 public:
  explicit Reader(absl::string_view text) : whole_(text), rest_(text) {}
  bool done() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    return rest_.empty();
  }
  bool Take(absl::string_view token) {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    return absl::ConsumePrefix(&rest_, token);
  }
  bool Peek(absl::string_view token) {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    return absl::StartsWith(rest_, token);
  }
  std::string Word() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    size_t length = 0;
    while (length < rest_.size() && (absl::ascii_isalnum(rest_[length]) || rest_[length] == '_'))
      ++length;
    std::string word(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return word;
  }
  // A number, as text.
  std::string Number() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    size_t length = 0;
    while (length < rest_.size() && (absl::ascii_isalnum(rest_[length]) ||
                                     absl::StrContains("+-.", rest_.substr(length, 1)))) {
      ++length;
    }
    std::string number(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return number;
  }
  // Text in single or double quotes, escapes resolved.
  absl::StatusOr<std::string> Quoted() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return Bad("a quoted string");
    const size_t end = rest_.find(rest_[0], 1);
    if (end == absl::string_view::npos) return Bad("a closing quote");
    std::string value;
    if (!absl::CUnescape(rest_.substr(1, end - 1), &value))
      return Bad("a string without bad escapes");
    rest_.remove_prefix(end + 1);
    return value;
  }
  absl::Status Bad(absl::string_view wanted) const {
    return InvalidArgument("'", whole_, "': expected ", wanted, " at '", rest_, "'");
  }

 private:
  absl::string_view whole_;
  absl::string_view rest_;
};

const std::vector<DType>& NumberTypes() {
  using enum DType;
  static const auto* types =
      new std::vector<DType>{kFloat,  kDouble,     kInt32,  kUint8,  kInt16,    kInt8,   kComplex64,
                             kInt64,  kQint8,      kQuint8, kQint32, kBfloat16, kQint16, kQuint16,
                             kUint16, kComplex128, kHalf,   kUint32, kUint64};
  return *types;
}

absl::StatusOr<DType> ReadDType(Reader& reader) {
  std::string word = reader.Word();
  absl::string_view name = word;
  if (absl::ConsumePrefix(&name, "DT_")) return DTypeFromName(absl::AsciiStrToLower(name));
  return DTypeFromName(name);
}

absl::StatusOr<PartialShape> ReadShape(Reader& reader) {
  if (reader.Take("{")) {
    if (!reader.Take("unknown_rank:") || !reader.Take("true") || !reader.Take("}"))
      return reader.Bad("{ unknown_rank: true }");
    return PartialShape();
  }
  if (!reader.Take("[")) return reader.Bad("a shape such as [2,3]");
  Dims dims;
  while (!reader.Take("]")) {
    int64_t size;
    if (!absl::SimpleAtoi(reader.Number(), &size)) return reader.Bad("a dimension");
    dims.push_back(size);
    reader.Take(",");
  }
  return PartialShape::Make(dims);
}

absl::StatusOr<Tensor> ReadTensor(Reader& reader);

// A default value of the given attribute type.
absl::StatusOr<AttrValue> ReadValue(Reader& reader, absl::string_view type) {
  if (type == "string") {
    ASSIGN_OR_RETURN(std::string value, reader.Quoted());
    return AttrValue(std::move(value));
  }
  if (type == "int") {
    int64_t value;
    if (!absl::SimpleAtoi(reader.Number(), &value)) return reader.Bad("an integer");
    return AttrValue(value);
  }
  if (type == "float") {
    float value;
    if (!absl::SimpleAtof(reader.Number(), &value)) return reader.Bad("a number");
    return AttrValue(value);
  }
  if (type == "bool") {
    if (reader.Take("true")) return AttrValue(true);
    if (reader.Take("false")) return AttrValue(false);
    return reader.Bad("true or false");
  }
  if (type == "type") {
    ASSIGN_OR_RETURN(DType value, ReadDType(reader));
    return AttrValue(value);
  }
  if (type == "shape") {
    ASSIGN_OR_RETURN(PartialShape value, ReadShape(reader));
    return AttrValue(std::move(value));
  }
  if (type == "tensor") {
    ASSIGN_OR_RETURN(Tensor value, ReadTensor(reader));
    return AttrValue(std::move(value));
  }
  return reader.Bad(absl::StrCat("no default value, which type ", type, " cannot have here"));
}

template <typename T>
absl::StatusOr<AttrValue> ReadList(Reader& reader, absl::string_view element) {
  std::vector<T> values;
  while (!reader.Take("]")) {
    ASSIGN_OR_RETURN(AttrValue value, ReadValue(reader, element));
    values.push_back(*value.get<T>());
    reader.Take(",");
  }
  return AttrValue(std::move(values));
}

absl::StatusOr<AttrValue> ReadDefault(Reader& reader, absl::string_view type) {
  absl::string_view element = type;
  if (!absl::ConsumePrefix(&element, "list(")) return ReadValue(reader, type);
  absl::ConsumeSuffix(&element, ")");
  if (!reader.Take("[")) return reader.Bad("a list");
  if (reader.Take("]")) return AttrValue(EmptyList());
  if (element == "string") return ReadList<std::string>(reader, element);
  if (element == "int") return ReadList<int64_t>(reader, element);
  if (element == "float") return ReadList<float>(reader, element);
  if (element == "bool") return ReadList<bool>(reader, element);
  if (element == "type") return ReadList<DType>(reader, element);
  if (element == "shape") return ReadList<PartialShape>(reader, element);
  return reader.Bad("an empty list");
}

// "{uint8: 255 0 0 255}": a vector of that type.
absl::StatusOr<Tensor> ReadTensor(Reader& reader) {
  if (!reader.Take("{")) return reader.Bad("{uint8: values}");
  if (reader.Word() != "uint8" || !reader.Take(":")) return reader.Bad("uint8:");
  std::vector<uint8_t> values;
  while (!reader.Take("}")) {
    int value;
    if (!absl::SimpleAtoi(reader.Number(), &value)) return reader.Bad("a number");
    values.push_back(static_cast<uint8_t>(value));
  }
  return Tensor::Vector<uint8_t>(values);
}

// The part of an attribute between ':' and '>=' or '='.
absl::Status ReadAttrType(Reader& reader, AttrDef& attr) {
  const bool in_list = reader.Take("list(");
  if (reader.Take("{")) {
    const bool strings = reader.Peek("'") || reader.Peek("\"");
    while (!reader.Take("}")) {
      if (strings) {
        ASSIGN_OR_RETURN(std::string value, reader.Quoted());
        attr.allowed_strings.push_back(std::move(value));
      } else {
        ASSIGN_OR_RETURN(DType value, ReadDType(reader));
        attr.allowed_types.push_back(value);
      }
      reader.Take(",");
    }
    attr.type = strings ? "string" : "type";
  } else {
    attr.type = reader.Word();
    using enum DType;
    if (attr.type == "numbertype") attr.allowed_types = NumberTypes();
    if (attr.type == "realnumbertype") {
      attr.allowed_types = {kFloat, kDouble,   kInt32,  kUint8, kInt16,  kInt8,
                            kInt64, kBfloat16, kUint16, kHalf,  kUint32, kUint64};
    }
    if (!attr.allowed_types.empty()) attr.type = "type";
  }
  if (in_list) {
    if (!reader.Take(")")) return reader.Bad(")");
    attr.type = absl::StrCat("list(", attr.type, ")");
  }
  return absl::OkStatus();
}

}  // namespace

const AttrDef* OpDef::FindAttr(absl::string_view attr_name) const {
  for (const AttrDef& attr : attrs) {
    if (attr.name == attr_name) return &attr;
  }
  return nullptr;
}

int OpDef::FindInput(absl::string_view arg_name) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == arg_name) return static_cast<int>(i);
  }
  return -1;
}

int OpDef::FindOutput(absl::string_view arg_name) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == arg_name) return static_cast<int>(i);
  }
  return -1;
}

absl::StatusOr<AttrDef> ParseAttrDef(absl::string_view text) {
  Reader reader(text);
  AttrDef attr;
  attr.name = reader.Word();
  if (attr.name.empty() || !reader.Take(":")) return reader.Bad("name: type");
  RETURN_IF_ERROR(ReadAttrType(reader, attr));
  if (reader.Take(">=")) {
    int64_t minimum;
    if (!absl::SimpleAtoi(reader.Number(), &minimum)) return reader.Bad("a minimum");
    attr.minimum = minimum;
  }
  if (reader.Take("=")) {
    ASSIGN_OR_RETURN(attr.default_value, ReadDefault(reader, attr.type));
  }
  if (!reader.done()) return reader.Bad("the end");
  return attr;
}

absl::StatusOr<ArgDef> ParseArgDef(absl::string_view text, const std::vector<AttrDef>& attrs) {
  Reader reader(text);
  ArgDef arg;
  arg.name = reader.Word();
  if (arg.name.empty() || !reader.Take(":")) return reader.Bad("name: type");
  arg.is_ref = reader.Take("Ref(");
  std::string word = reader.Word();
  if (reader.Take("*")) {
    arg.number_attr = word;
    word = reader.Word();
  }
  if (arg.is_ref && !reader.Take(")")) return reader.Bad(")");
  if (!reader.done()) return reader.Bad("the end");
  for (const AttrDef& attr : attrs) {
    if (attr.name != word) continue;
    (attr.type == "list(type)" ? arg.type_list_attr : arg.type_attr) = word;
    return arg;
  }
  ASSIGN_OR_RETURN(arg.type, DTypeFromName(word));
  return arg;
}

namespace {

std::string ArgText(const ArgDef& arg) {
  std::string type = !arg.type_list_attr.empty() ? arg.type_list_attr
                     : !arg.type_attr.empty()    ? arg.type_attr
                                                 : DTypeName(arg.type);
  if (!arg.number_attr.empty()) type = absl::StrCat(arg.number_attr, "*", type);
  if (arg.is_ref) type = absl::StrCat("Ref(", type, ")");
  return absl::StrCat(arg.name, ":", type);
}

std::string AttrText(const AttrDef& attr) {
  std::string out = absl::StrCat(attr.name, ":", attr.type);
  if (attr.default_value) absl::StrAppend(&out, ",default=", attr.default_value->ToString());
  if (attr.minimum) absl::StrAppend(&out, ",min=", *attr.minimum);
  if (!attr.allowed_types.empty()) {
    absl::StrAppend(&out, ",allowed=[",
                    absl::StrJoin(attr.allowed_types, ", ",
                                  [](std::string* o, DType t) {
                                    absl::StrAppend(o, "DT_", absl::AsciiStrToUpper(DTypeName(t)));
                                  }),
                    "]");
  }
  if (!attr.allowed_strings.empty()) {
    absl::StrAppend(&out, ",allowed=[\"", absl::StrJoin(attr.allowed_strings, "\", \""), "\"]");
  }
  return out;
}

}  // namespace

std::string SummarizeOpDef(const OpDef& op) {
  const auto args = [](const std::vector<ArgDef>& list) {
    std::vector<std::string> parts;
    for (const ArgDef& arg : list) parts.push_back(ArgText(arg));
    return absl::StrJoin(parts, ", ");
  };
  std::string out =
      absl::StrCat("Op<name=", op.name, "; signature=", args(op.inputs), " -> ", args(op.outputs));
  for (const AttrDef& attr : op.attrs) absl::StrAppend(&out, "; attr=", AttrText(attr));
  if (op.is_stateful) absl::StrAppend(&out, "; is_stateful=true");
  return absl::StrCat(out, ">");
}

absl::StatusOr<std::vector<ArgRange>> ArgRanges(const std::vector<ArgDef>& args,
                                                const AttrMap& attrs) {
  std::vector<ArgRange> ranges;
  int64_t next = 0;
  for (const ArgDef& arg : args) {
    int64_t count = 1;
    if (!arg.number_attr.empty()) {
      ASSIGN_OR_RETURN(count, GetAttr<int64_t>(attrs, arg.number_attr));
      if (count < 0 || count > 1 << 20) {
        return InvalidArgument("Attr ", arg.number_attr, " = ", count,
                               " is not a possible number of arguments");
      }
    } else if (!arg.type_list_attr.empty()) {
      ASSIGN_OR_RETURN(std::vector<DType> types,
                       GetAttr<std::vector<DType>>(attrs, arg.type_list_attr));
      count = static_cast<int64_t>(types.size());
    }
    ranges.push_back({static_cast<int>(next), static_cast<int>(next + count)});
    next += count;
    if (next > 1 << 20) return InvalidArgument("More than 1048576 arguments");
  }
  return ranges;
}

absl::StatusOr<std::vector<DType>> ArgTypes(const std::vector<ArgDef>& args, const AttrMap& attrs) {
  ASSIGN_OR_RETURN(std::vector<ArgRange> ranges, ArgRanges(args, attrs));
  std::vector<DType> types;
  for (size_t i = 0; i < args.size(); ++i) {
    const ArgDef& arg = args[i];
    if (!arg.type_list_attr.empty()) {
      ASSIGN_OR_RETURN(std::vector<DType> list,
                       GetAttr<std::vector<DType>>(attrs, arg.type_list_attr));
      for (DType type : list) types.push_back(arg.is_ref ? RefType(type) : type);
      continue;
    }
    DType type = arg.type;
    if (!arg.type_attr.empty()) {
      ASSIGN_OR_RETURN(type, GetAttr<DType>(attrs, arg.type_attr));
    }
    for (int k = ranges[i].begin; k < ranges[i].end; ++k)
      types.push_back(arg.is_ref ? RefType(type) : type);
  }
  return types;
}

}  // namespace muster
