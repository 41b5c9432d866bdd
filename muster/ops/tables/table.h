// Lookup tables: maps from keys to values of a fixed shape, shared by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/params/state.h"
#include "muster/tensor/tensor.h"

namespace muster {

// The parts of a snapshot of a table, in this order; a delta of rows has keys, values, size and
// buckets.
struct TableParts {
  static constexpr absl::string_view kKeys = "keys";
  static constexpr absl::string_view kValues = "values";
  static constexpr absl::string_view kRemoved = "removed";  // values, of a dense table
  static constexpr absl::string_view kBuckets = "buckets";  // of a dense table
  static constexpr absl::string_view kInitialized = "initialized";
  static constexpr absl::string_view kSize = "size";
};

// Thread-safe. As a state its rows are its entries, in the order in which it keeps them.
class LookupTable : public State {
 public:
  static constexpr const char* kTypeName = "N10tensorflow6lookup15LookupInterfaceE";
  // kStatic tables are filled once; find fails before that. Dense tables reserve two keys.
  enum class Kind { kStatic, kMutable, kOfTensors, kDense };

  LookupTable(std::string name, Kind kind, DType key_type, Shape key_shape, DType value_type,
              Shape value_shape, std::vector<Tensor> reserved_keys)
      : name_(std::move(name)),
        kind_(kind),
        key_type_(key_type),
        key_shape_(std::move(key_shape)),
        value_type_(value_type),
        value_shape_(std::move(value_shape)),
        reserved_keys_(std::move(reserved_keys)) {}
  std::string Describe() const override { return "lookup table"; }
  absl::string_view state_kind() const override { return "hash table"; }

  const std::string& name() const { return name_; }
  Kind kind() const { return kind_; }
  DType key_type() const { return key_type_; }
  // A scalar, or a vector in dense tables whose reserved keys are vectors.
  const Shape& key_shape() const { return key_shape_; }
  DType value_type() const { return value_type_; }
  const Shape& value_shape() const { return value_shape_; }
  // Of a dense table: the key of empty buckets, and that of removed entries if it has one.
  const std::vector<Tensor>& reserved_keys() const { return reserved_keys_; }

  // The value of every key, or `fallback`: one value, or one per key.
  virtual absl::Status Find(const Tensor& keys, const Tensor& fallback, Tensor& values) const = 0;
  virtual absl::Status Insert(const Tensor& keys, const Tensor& values) = 0;
  virtual absl::Status Remove(const Tensor& keys) = 0;
  struct Entries {
    Tensor keys;
    Tensor values;
  };
  virtual int64_t size() const = 0;
  // Fills a static table. Once more with as many entries does nothing; with another number of them
  // it is FailedPrecondition, as are unequal values of one key.
  virtual absl::Status Initialize(const Tensor& keys, const Tensor& values) = 0;

 protected:
  std::string Named() const { return absl::StrCat("Table '", name_, "'"); }

 private:
  const std::string name_;
  const Kind kind_;
  const DType key_type_;
  const Shape key_shape_;
  const DType value_type_;
  const Shape value_shape_;
  const std::vector<Tensor> reserved_keys_;
};

struct TableOptions {
  LookupTable::Kind kind = LookupTable::Kind::kStatic;
  DType key_type = DType::kInvalid;
  DType value_type = DType::kInvalid;
  Shape value_shape;
  // Dense tables: keys that no entry may have, and the shape of all keys. Invalid tensors: none.
  Tensor empty_key;
  Tensor deleted_key;
  // Dense tables export all of their buckets, and grow beyond a load.
  int64_t num_buckets = 0;
  double max_load = 1;
};
// Unimplemented for key types other than string, int32 and int64.
absl::StatusOr<RefPtr<LookupTable>> MakeTable(std::string name, const TableOptions& options);

// A snapshot of a table in the form in which checkpoints have it, and back. A dense table shows its
// buckets: entries, removed ones, and empty ones, which hold a reserved key. FailedPrecondition for
// a static table that was not filled yet.
absl::StatusOr<LookupTable::Entries> ExportTable(const LookupTable& table);
// Replaces everything; a static table is filled. Requires: types and shapes were checked.
absl::Status ImportTable(LookupTable& table, const Tensor& keys, const Tensor& values);

// Columns of a text file as keys and values.
struct TextColumns {
  static constexpr int64_t kLineNumber = -1;
  static constexpr int64_t kWholeLine = -2;
  int64_t key = 0;
  int64_t value = 0;
  int64_t vocab_size = -1;  // lines to read; -1: all
  int64_t offset = 0;       // added to line numbers
  char delimiter = '\t';
};
absl::StatusOr<LookupTable::Entries> ReadTextColumns(const std::string& filename,
                                                     const TextColumns& columns, DType key_type,
                                                     DType value_type);

}  // namespace muster
