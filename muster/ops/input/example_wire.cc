#include "muster/ops/input/example_wire.h"

#include <cstring>

namespace muster {
namespace {

constexpr int kMaxGroupDepth = 64;

// Calls `each` with the contents of every field number `wanted` that is a nested message or string.
template <typename Each>
bool ForEachNested(absl::string_view bytes, uint32_t wanted, Each each) {
  WireReader reader(bytes);
  while (!reader.at_end()) {
    uint32_t field, type;
    if (!reader.ReadTag(&field, &type)) return false;
    if (field == wanted && type == WireReader::kDelimited) {
      absl::string_view value;
      if (!reader.ReadDelimited(&value) || !each(value)) return false;
    } else if (!reader.Skip(field, type)) {
      return false;
    }
  }
  return true;
}

bool ReadFeature(absl::string_view bytes, FeatureView& feature) {
  WireReader reader(bytes);
  while (!reader.at_end()) {
    uint32_t field, type;
    if (!reader.ReadTag(&field, &type)) return false;
    if (field < 1 || field > 3 || type != WireReader::kDelimited) {
      if (!reader.Skip(field, type)) return false;
      continue;
    }
    constexpr DType kTypes[] = {DType::kString, DType::kFloat, DType::kInt64};
    feature.type = kTypes[field - 1];
    if (!reader.ReadDelimited(&feature.list)) return false;
  }
  return true;
}

// An entry of a map: key = 1, value = 2.
bool ReadEntry(absl::string_view bytes, absl::string_view& key, absl::string_view& value) {
  WireReader reader(bytes);
  while (!reader.at_end()) {
    uint32_t field, type;
    if (!reader.ReadTag(&field, &type)) return false;
    if (field == 1 && type == WireReader::kDelimited) {
      if (!reader.ReadDelimited(&key)) return false;
    } else if (field == 2 && type == WireReader::kDelimited) {
      if (!reader.ReadDelimited(&value)) return false;
    } else if (!reader.Skip(field, type)) {
      return false;
    }
  }
  return true;
}

bool ReadFeatures(absl::string_view bytes, std::vector<NamedFeature>& features) {
  return ForEachNested(bytes, 1, [&](absl::string_view entry) {
    NamedFeature named;
    absl::string_view value;
    if (!ReadEntry(entry, named.name, value) || !ReadFeature(value, named.feature)) return false;
    features.push_back(named);
    return true;
  });
}

bool ReadFeatureLists(absl::string_view bytes, std::vector<NamedFeatureList>& lists) {
  return ForEachNested(bytes, 1, [&](absl::string_view entry) {
    NamedFeatureList named;
    absl::string_view value;
    if (!ReadEntry(entry, named.name, value)) return false;
    const bool read = ForEachNested(value, 1, [&](absl::string_view step) {
      return ReadFeature(step, named.steps.emplace_back());
    });
    if (!read) return false;
    lists.push_back(std::move(named));
    return true;
  });
}

// Calls take(run, type) for every piece of a repeated number field 1: packed runs and single
// values alike.
template <typename Take>
bool ForEachRun(absl::string_view list, uint32_t single, Take take) {
  WireReader reader(list);
  while (!reader.at_end()) {
    uint32_t field, type;
    if (!reader.ReadTag(&field, &type)) return false;
    absl::string_view run;
    if (field == 1 && type == WireReader::kDelimited) {
      if (!reader.ReadDelimited(&run)) return false;
    } else if (field == 1 && type == single) {
      const absl::string_view before = reader.rest();
      if (!reader.Skip(field, type)) return false;
      run = before.substr(0, before.size() - reader.rest().size());
    } else {
      if (!reader.Skip(field, type)) return false;
      continue;
    }
    if (!take(run)) return false;
  }
  return true;
}

}  // namespace

bool WireReader::ReadVarint(uint64_t* value) {
  uint64_t result = 0;
  for (int i = 0; i < 10 && static_cast<size_t>(i) < rest_.size(); ++i) {
    const auto byte = static_cast<uint8_t>(rest_[i]);
    result |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) {
      rest_.remove_prefix(i + 1);
      *value = result;
      return true;
    }
  }
  return false;
}

bool WireReader::ReadTag(uint32_t* field, uint32_t* type) {
  uint64_t tag;
  if (!ReadVarint(&tag) || tag > 0xffffffffu) return false;
  *field = static_cast<uint32_t>(tag >> 3);
  *type = static_cast<uint32_t>(tag & 7);
  return *field != 0;
}

bool WireReader::Take(size_t size, absl::string_view* value) {
  if (size > rest_.size()) return false;
  *value = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

bool WireReader::ReadDelimited(absl::string_view* value) {
  uint64_t size;
  return ReadVarint(&size) && size <= rest_.size() && Take(static_cast<size_t>(size), value);
}

bool WireReader::Skip(uint32_t field, uint32_t type, int depth) {
  uint64_t number;
  absl::string_view ignored;
  switch (type) {
    case kVarint:
      return ReadVarint(&number);
    case kFixed64:
      return Take(8, &ignored);
    case kDelimited:
      return ReadDelimited(&ignored);
    case kFixed32:
      return Take(4, &ignored);
    case 3: {  // a group: up to its own end
      if (depth >= kMaxGroupDepth) return false;
      uint32_t inner, inner_type;
      while (ReadTag(&inner, &inner_type)) {
        if (inner_type == 4) return inner == field;
        if (!Skip(inner, inner_type, depth + 1)) return false;
      }
      return false;
    }
    default:
      return false;
  }
}

bool ReadExample(absl::string_view bytes, std::vector<NamedFeature>& features) {
  return ForEachNested(bytes, 1,
                       [&](absl::string_view part) { return ReadFeatures(part, features); });
}

bool ReadSequenceExample(absl::string_view bytes, std::vector<NamedFeature>& context,
                         std::vector<NamedFeatureList>& lists) {
  return ForEachNested(bytes, 1,
                       [&](absl::string_view part) { return ReadFeatures(part, context); }) &&
         ForEachNested(bytes, 2,
                       [&](absl::string_view part) { return ReadFeatureLists(part, lists); });
}

std::optional<int64_t> CountValues(const FeatureView& feature) {
  int64_t count = 0;
  bool valid = false;
  switch (feature.type) {
    case DType::kString:
      valid = ForEachNested(feature.list, 1, [&](absl::string_view) {
        ++count;
        return true;
      });
      break;
    case DType::kFloat:
      valid = ForEachRun(feature.list, WireReader::kFixed32, [&](absl::string_view run) {
        count += static_cast<int64_t>(run.size() / sizeof(float));
        return run.size() % sizeof(float) == 0;
      });
      break;
    case DType::kInt64:
      valid = ForEachRun(feature.list, WireReader::kVarint, [&](absl::string_view run) {
        WireReader reader(run);
        uint64_t value;
        while (!reader.at_end()) {
          if (!reader.ReadVarint(&value)) return false;
          ++count;
        }
        return true;
      });
      break;
    default:
      return 0;
  }
  if (!valid) return std::nullopt;
  return count;
}

void CopyValues(const FeatureView& feature, std::string* to) {
  ForEachNested(feature.list, 1, [&](absl::string_view value) {
    (to++)->assign(value.data(), value.size());
    return true;
  });
}

void CopyValues(const FeatureView& feature, float* to) {
  ForEachRun(feature.list, WireReader::kFixed32, [&](absl::string_view run) {
    if (!run.empty()) std::memcpy(to, run.data(), run.size());
    to += run.size() / sizeof(float);
    return true;
  });
}

void CopyValues(const FeatureView& feature, int64_t* to) {
  ForEachRun(feature.list, WireReader::kVarint, [&](absl::string_view run) {
    WireReader reader(run);
    uint64_t value;
    while (!reader.at_end() && reader.ReadVarint(&value)) *to++ = static_cast<int64_t>(value);
    return true;
  });
}

}  // namespace muster
