#include "message_mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <google/protobuf/stubs/logging.h>

// Every broken message would be a line on the terminal.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace muster {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::array<int64_t, 20> kNumbers = {0,
                                              1,
                                              -1,
                                              2,
                                              3,
                                              7,
                                              8,
                                              16,
                                              63,
                                              64,
                                              127,
                                              128,
                                              255,
                                              1024,
                                              65536,
                                              std::numeric_limits<int32_t>::max(),
                                              std::numeric_limits<int32_t>::min(),
                                              int64_t{1} << 32,
                                              std::numeric_limits<int64_t>::max(),
                                              std::numeric_limits<int64_t>::min()};

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void Mutate(Message& root) {
    messages_.clear();
    texts_.clear();
    Collect(root, 0);
    const int changes = 1 + static_cast<int>(Draw(3));
    for (int i = 0; i < changes; ++i) {
      // Collected again: a change may have removed what was collected.
      messages_.clear();
      Collect(root, 0);
      ChangeField(*messages_[Draw(messages_.size())]);
    }
  }
  uint64_t Draw(uint64_t below) { return random_() % below; }

 private:
  static constexpr int kMaxDepth = 24;

  void Collect(Message& message, int depth) {
    messages_.push_back(&message);
    if (depth > kMaxDepth) return;
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
      for (int i = 0; i < count; ++i) {
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
          Collect(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                       : *reflection.MutableMessage(&message, field),
                  depth + 1);
        } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && texts_.size() < 256) {
          texts_.push_back(field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                                : reflection.GetString(message, field));
        }
      }
    }
  }

  void ChangeField(Message& message) {
    const Descriptor& descriptor = *message.GetDescriptor();
    if (descriptor.field_count() == 0) return;
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    // Mostly a field that is there already.
    const FieldDescriptor* field =
        !fields.empty() && Draw(4) != 0
            ? fields[Draw(fields.size())]
            : descriptor.field(static_cast<int>(Draw(descriptor.field_count())));
    const uint64_t action = Draw(10);
    if (action == 0) return reflection.ClearField(&message, field);
    if (!field->is_repeated()) return Set(message, *field, -1);
    const int count = reflection.FieldSize(message, field);
    if (count > 0 && action < 3) {
      reflection.SwapElements(&message, field, static_cast<int>(Draw(count)), count - 1);
      if (action == 1) reflection.RemoveLast(&message, field);
    } else if (count > 0 && action < 8) {
      Set(message, *field, static_cast<int>(Draw(count)));
    } else {
      Add(message, *field, count);
    }
  }

  // A copy of an element, or a new one.
  void Add(Message& message, const FieldDescriptor& field, int count) {
    const Reflection& reflection = *message.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Message* added = reflection.AddMessage(&message, &field);
      if (count > 0) {
        added->CopyFrom(
            reflection.GetRepeatedMessage(message, &field, static_cast<int>(Draw(count))));
      }
      ChangeField(*added);
      return;
    }
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.AddString(&message, &field, Text(""));
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.AddInt32(&message, &field, static_cast<int32_t>(Number()));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.AddInt64(&message, &field, Number());
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.AddUInt32(&message, &field, static_cast<uint32_t>(Number()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection.AddUInt64(&message, &field, static_cast<uint64_t>(Number()));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.AddFloat(&message, &field, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection.AddDouble(&message, &field, Real());
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection.AddBool(&message, &field, Draw(2) == 0);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection.AddEnumValue(&message, &field, EnumValue(field));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return;
    }
  }

  // `index` is -1 for a field that is not repeated.
  void Set(Message& message, const FieldDescriptor& field, int index) {
    const Reflection& reflection = *message.GetReflection();
    const bool one = index < 0;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string old = one ? reflection.GetString(message, &field)
                                    : reflection.GetRepeatedString(message, &field, index);
        if (one) return reflection.SetString(&message, &field, Text(old));
        return reflection.SetRepeatedString(&message, &field, index, Text(old));
      }
      case FieldDescriptor::CPPTYPE_INT32: {
        const auto value = static_cast<int32_t>(Number());
        if (one) return reflection.SetInt32(&message, &field, value);
        return reflection.SetRepeatedInt32(&message, &field, index, value);
      }
      case FieldDescriptor::CPPTYPE_INT64:
        if (one) return reflection.SetInt64(&message, &field, Number());
        return reflection.SetRepeatedInt64(&message, &field, index, Number());
      case FieldDescriptor::CPPTYPE_UINT32: {
        const auto value = static_cast<uint32_t>(Number());
        if (one) return reflection.SetUInt32(&message, &field, value);
        return reflection.SetRepeatedUInt32(&message, &field, index, value);
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        const auto value = static_cast<uint64_t>(Number());
        if (one) return reflection.SetUInt64(&message, &field, value);
        return reflection.SetRepeatedUInt64(&message, &field, index, value);
      }
      case FieldDescriptor::CPPTYPE_FLOAT: {
        const auto value = static_cast<float>(Real());
        if (one) return reflection.SetFloat(&message, &field, value);
        return reflection.SetRepeatedFloat(&message, &field, index, value);
      }
      case FieldDescriptor::CPPTYPE_DOUBLE:
        if (one) return reflection.SetDouble(&message, &field, Real());
        return reflection.SetRepeatedDouble(&message, &field, index, Real());
      case FieldDescriptor::CPPTYPE_BOOL:
        if (one) return reflection.SetBool(&message, &field, Draw(2) == 0);
        return reflection.SetRepeatedBool(&message, &field, index, Draw(2) == 0);
      case FieldDescriptor::CPPTYPE_ENUM:
        if (one) return reflection.SetEnumValue(&message, &field, EnumValue(field));
        return reflection.SetRepeatedEnumValue(&message, &field, index, EnumValue(field));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return ChangeField(one ? *reflection.MutableMessage(&message, &field)
                               : *reflection.MutableRepeatedMessage(&message, &field, index));
    }
  }

  int64_t Number() {
    switch (Draw(3)) {
      case 0:
        return static_cast<int64_t>(Draw(12)) - 2;
      case 1:
        return kNumbers[Draw(kNumbers.size())];
      default:
        return static_cast<int64_t>(random_() >> Draw(64));
    }
  }

  double Real() {
    constexpr std::array<double, 6> kReals = {
        0.0, -0.0, 1.0, 1e300, -1e300, std::numeric_limits<double>::quiet_NaN()};
    return Draw(2) == 0 ? kReals[Draw(kReals.size())] : static_cast<double>(Number());
  }

  int EnumValue(const FieldDescriptor& field) {
    const auto& type = *field.enum_type();
    if (Draw(8) == 0) return static_cast<int>(Number());
    return type.value(static_cast<int>(Draw(type.value_count())))->number();
  }

  // Another text of the message, part of the old one, or its bytes changed.
  std::string Text(const std::string& old) {
    const uint64_t choice = Draw(4);
    if (choice < 2 && !texts_.empty()) return texts_[Draw(texts_.size())];
    if (choice == 2 && !old.empty()) return old.substr(0, Draw(old.size()));
    std::string text = old;
    text.resize(old.size() + 16);
    const size_t size =
        LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), old.size(), text.size());
    text.resize(size);
    return text;
  }

  std::mt19937_64 random_;
  std::vector<Message*> messages_;
  std::vector<std::string> texts_;
};

}  // namespace

size_t MutateInput(uint8_t* data, size_t size, size_t max_size, unsigned seed, size_t prefix,
                   absl::FunctionRef<Message*(uint8_t)> message_for) {
  Mutator mutator(seed);
  if (size < prefix || mutator.Draw(5) == 0) return LLVMFuzzerMutate(data, size, max_size);
  if (prefix > 0 && mutator.Draw(20) == 0) data[mutator.Draw(prefix)] = mutator.Draw(256);
  Message* message = message_for(prefix > 0 ? data[0] : 0);
  const size_t length = size - prefix;
  if (message == nullptr || !message->ParseFromArray(data + prefix, static_cast<int>(length))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  mutator.Mutate(*message);
  const std::string text = message->SerializePartialAsString();
  if (text.size() + prefix > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data + prefix, text.data(), text.size());
  return prefix + text.size();
}

}  // namespace muster
