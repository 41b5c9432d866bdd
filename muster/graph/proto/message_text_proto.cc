#include "muster/graph/proto/message_text_proto.h"

#include <charconv>
#include <cmath>
#include <memory>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "muster/tensor/message_proto.h"

namespace muster {
namespace {

class PythonValues : public google::protobuf::TextFormat::FastFieldValuePrinter {
 public:
  using Generator = google::protobuf::TextFormat::BaseTextGenerator;
  void PrintFloat(float value, Generator* generator) const override {
    generator->PrintString(PythonFloat(static_cast<double>(value)));
  }
  void PrintDouble(double value, Generator* generator) const override {
    generator->PrintString(PythonFloat(value));
  }
};

}  // namespace

std::string PythonFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that give the number back: "-d.ddde+xx".
  char digits[40];
  const std::to_chars_result end =
      std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::scientific);
  const absl::string_view text(digits, static_cast<size_t>(end.ptr - digits));
  int exponent = 0;
  const size_t e = text.find('e');
  const char* first = text.data() + e + 1;
  if (*first == '+') ++first;
  std::from_chars(first, end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  std::string plain(64, '\0');
  const std::to_chars_result fixed =
      std::to_chars(plain.data(), plain.data() + plain.size(), value, std::chars_format::fixed);
  plain.resize(static_cast<size_t>(fixed.ptr - plain.data()));
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

std::string MessageText(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetDefaultFieldValuePrinter(new PythonValues());  // owned by the printer
  std::string text;
  printer.PrintToString(message, &text);
  return text;
}

absl::StatusOr<std::string> MessageText(const std::string& full_name, absl::string_view bytes) {
  const google::protobuf::Descriptor* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(full_name);
  if (descriptor == nullptr) return NotFound("No message is called ", full_name);
  const std::unique_ptr<google::protobuf::Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
  if (!MessageFromBytes(bytes, *message))
    return InvalidArgument("These bytes are not a ", full_name);
  return MessageText(*message);
}

}  // namespace muster
