// Reads the wire form of Example and SequenceExample in place: views of the values, no message
// objects.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "muster/tensor/dtype.h"

namespace muster {

// Walks the fields of one serialized message. Every read fails at the end of the bytes instead of
// passing it.
class WireReader {
 public:
  enum Type : uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

  explicit WireReader(absl::string_view bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }
  absl::string_view rest() const { return rest_; }
  bool ReadVarint(uint64_t* value);
  // A field's number and wire type; false for number 0 too.
  bool ReadTag(uint32_t* field, uint32_t* type);
  bool ReadDelimited(absl::string_view* value);
  bool Take(size_t size, absl::string_view* value);
  // Passes over a value of the given wire type (groups included).
  bool Skip(uint32_t field, uint32_t type, int depth = 0);

 private:
  absl::string_view rest_;
};

// The one list that a Feature holds. kInvalid: the feature is there and holds no list.
struct FeatureView {
  DType type = DType::kInvalid;
  absl::string_view list;  // the serialized BytesList, FloatList or Int64List
};
struct NamedFeature {
  absl::string_view name;
  FeatureView feature;
};
struct NamedFeatureList {
  absl::string_view name;
  std::vector<FeatureView> steps;
};

// Appends what the messages hold, in the order of the bytes (of equal names the last one counts).
// False: the bytes are not such a message.
bool ReadExample(absl::string_view bytes, std::vector<NamedFeature>& features);
bool ReadSequenceExample(absl::string_view bytes, std::vector<NamedFeature>& context,
                         std::vector<NamedFeatureList>& lists);

// How many values a feature holds; nothing when its bytes are malformed.
std::optional<int64_t> CountValues(const FeatureView& feature);
// Writes them. Requires: CountValues gave a number, `to` has room for that many of the type.
void CopyValues(const FeatureView& feature, std::string* to);
void CopyValues(const FeatureView& feature, float* to);
void CopyValues(const FeatureView& feature, int64_t* to);

}  // namespace muster
