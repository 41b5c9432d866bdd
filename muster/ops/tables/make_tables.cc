// Ops that make tables: HashTable, MutableHashTable, MutableHashTableOfTensors and
// MutableDenseHashTable, with resource handles (V2) and with the older references.
#include <atomic>

#include "muster/ops/op.h"
#include "muster/ops/resource_kernel.h"
#include "muster/ops/tables/table.h"

namespace muster {
namespace {

using Kind = LookupTable::Kind;

class TableKernel : public ResourceKernel {
 public:
  explicit TableKernel(Kind kind) { options_.kind = kind; }

  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(use_node_name_, s.Attr<bool>("use_node_name_sharing"));
    ASSIGN_OR_RETURN(options_.key_type, s.Attr<DType>("key_dtype"));
    ASSIGN_OR_RETURN(options_.value_type, s.Attr<DType>("value_dtype"));
    if (options_.kind == Kind::kOfTensors || options_.kind == Kind::kDense) {
      ASSIGN_OR_RETURN(const PartialShape shape, s.Attr<PartialShape>("value_shape"));
      const std::optional<Shape> known = shape.ToShape();
      if (!known || (options_.kind == Kind::kOfTensors && known->rank() > 1)) {
        return InvalidArgument("Default value must be a vector, got shape ", shape.ToString());
      }
      options_.value_shape = *known;
    }
    return ResourceKernel::Init(s);
  }
  TableOptions& options() { return options_; }

 protected:
  absl::StatusOr<RefPtr<Resource>> Make(const std::string& name) override {
    ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, MakeTable(name, options_));
    return RefPtr<Resource>(table);
  }
  absl::Status Verify(Resource& resource) override {
    auto* table = dynamic_cast<LookupTable*>(&resource);
    if (table == nullptr)
      return InvalidArgument(name().name, " is a ", resource.Describe(), ", not a lookup table");
    if (table->key_type() == options_.key_type && table->value_type() == options_.value_type)
      return absl::OkStatus();
    return InvalidArgument("Conflicting key/value dtypes ", DTypeName(options_.key_type), "->",
                           DTypeName(options_.value_type), " with ", DTypeName(table->key_type()),
                           "-", DTypeName(table->value_type()), " for table ", table->name());
  }
  std::string type_name() const override { return LookupTable::kTypeName; }
  bool use_node_name() const override { return use_node_name_; }

 private:
  TableOptions options_;
  bool use_node_name_ = false;
};

absl::Status ReadBuckets(const KernelSetup& s, TableOptions& options) {
  ASSIGN_OR_RETURN(options.num_buckets, s.Attr<int64_t>("initial_num_buckets"));
  const int64_t buckets = options.num_buckets;
  if (buckets < 1 || (buckets & (buckets - 1)) != 0)
    return InvalidArgument("Number of buckets must be a power of 2, got: ", buckets);
  ASSIGN_OR_RETURN(const float load, s.Attr<float>("max_load_factor"));
  if (!(load > 0 && load < 1))
    return InvalidArgument("max_load_factor must be between 0 and 1, got: ", load);
  options.max_load = load;
  return absl::OkStatus();
}

absl::Status ReadReservedKeys(KernelContext& c, TableOptions& options) {
  const Tensor& empty = c.input(0);
  if (empty.rank() > 1) {
    return InvalidArgument("Empty key must be a scalar or a vector, got shape ",
                           empty.shape().ToString());
  }
  if (empty.num_elements() == 0) {
    return InvalidArgument("Empty key must have elements, got shape ", empty.shape().ToString());
  }
  if (c.num_inputs() == 2) {
    const Tensor& deleted = c.input(1);
    if (deleted.shape() != empty.shape()) {
      return InvalidArgument("Empty and deleted keys must have same shape, got shapes: ",
                             empty.shape().ToString(), " and ", deleted.shape().ToString());
    }
    if (SameTensor(empty, deleted))
      return InvalidArgument("Empty and deleted keys cannot be equal");
    options.deleted_key = KeptTensor(deleted);
  }
  options.empty_key = KeptTensor(empty);
  return absl::OkStatus();
}

// A dense table learns its reserved keys from its inputs when it is made.
class DenseTableKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(ReadBuckets(s, table_.options()));
    return table_.Init(s);
  }
  absl::Status Compute(KernelContext& c) override {
    MutexLock lock(mutex_);
    TableOptions& options = table_.options();
    if (!options.empty_key.valid()) RETURN_IF_ERROR(ReadReservedKeys(c, options));
    return table_.Compute(c);
  }

 private:
  Mutex mutex_;
  TableKernel table_{Kind::kDense};
};

// A new table with every execution, known by its handle alone.
class AnonymousTableKernel : public Kernel {
 public:
  explicit AnonymousTableKernel(Kind kind) { options_.kind = kind; }

  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(options_.key_type, s.Attr<DType>("key_dtype"));
    ASSIGN_OR_RETURN(options_.value_type, s.Attr<DType>("value_dtype"));
    if (options_.kind == Kind::kStatic || options_.kind == Kind::kMutable) return absl::OkStatus();
    ASSIGN_OR_RETURN(const PartialShape shape, s.Attr<PartialShape>("value_shape"));
    const std::optional<Shape> known = shape.ToShape();
    if (!known || (options_.kind == Kind::kOfTensors && known->rank() > 1)) {
      return InvalidArgument("Default value must be a vector, got shape ", shape.ToString());
    }
    options_.value_shape = *known;
    if (options_.kind != Kind::kDense) return absl::OkStatus();
    return ReadBuckets(s, options_);
  }

  absl::Status Compute(KernelContext& c) override {
    static std::atomic<int64_t> next{0};
    TableOptions options = options_;
    if (options.kind == Kind::kDense) RETURN_IF_ERROR(ReadReservedKeys(c, options));
    ResourceHandle handle;
    handle.device = c.device().name();
    handle.container = "AnonymousLookupTable";
    handle.name = absl::StrCat("AnonymousLookupTable", next.fetch_add(1));
    handle.type_name = LookupTable::kTypeName;
    ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, MakeTable(handle.name, options));
    handle.resource = table;
    c.SetOutput(0, Tensor::Scalar<ResourceHandle>(std::move(handle)));
    return absl::OkStatus();
  }

 private:
  TableOptions options_;
};

absl::Status TableShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleOutputShape(c));
  if (c.output_type(0) != DType::kResource) return absl::OkStatus();
  DTypeAndShape key, value;
  ASSIGN_OR_RETURN(key.dtype, c.Attr<DType>("key_dtype"));
  ASSIGN_OR_RETURN(value.dtype, c.Attr<DType>("value_dtype"));
  // Dense tables are given a key.
  key.shape = PartialShape::Scalar();
  if (c.num_inputs() > 0) {
    ASSIGN_OR_RETURN(key.shape, c.WithRankAtMost(c.input(0), 1));
  }
  value.shape = PartialShape::Scalar();
  const absl::StatusOr<PartialShape> shape = c.Attr<PartialShape>("value_shape");
  if (shape.ok()) value.shape = *shape;
  c.SetOutputHandle(0, {std::move(key), std::move(value)});
  return absl::OkStatus();
}

void Define(OpBuilder& op, Kind kind, bool anonymous = false) {
  const bool is_static = kind == Kind::kStatic;
  const auto factory = [kind, anonymous]() -> std::unique_ptr<Kernel> {
    if (anonymous) return std::make_unique<AnonymousTableKernel>(kind);
    return std::make_unique<TableKernel>(kind);
  };
  op.Stateful().Shape(TableShape).NoGradient("tables are not numbers");
  const auto add = [&](DType key, std::initializer_list<DType> values) {
    for (const DType value : values) {
      const std::vector<std::pair<std::string, DType>> types = {{"key_dtype", key},
                                                                {"value_dtype", value}};
      if (kind == Kind::kDense && !anonymous) {
        op.Cpu(New<DenseTableKernel>(), types);
      } else {
        op.Cpu(factory, types);
      }
    }
  };
  add(DType::kString, {DType::kInt64, DType::kInt32, DType::kFloat, DType::kDouble, DType::kBool});
  add(DType::kInt64, {DType::kInt64, DType::kInt32, DType::kFloat, DType::kDouble});
  add(DType::kInt32, {DType::kInt32, DType::kFloat, DType::kDouble});
  if (is_static) add(DType::kString, {DType::kString});
  if (is_static) add(DType::kInt32, {DType::kString});
  if (kind == Kind::kDense) add(DType::kInt64, {DType::kBool});
  if (kind != Kind::kDense) add(DType::kInt64, {DType::kString});
}

void DefineNames(OpBuilder& op) {
  op.Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Attr("use_node_name_sharing: bool = false")
      .Attr("key_dtype: type")
      .Attr("value_dtype: type");
}

void DefineDense(OpBuilder& op) {
  DefineNames(op);
  op.Attr("value_shape: shape = []")
      .Attr("initial_num_buckets: int = 131072")
      .Attr("max_load_factor: float = 0.800000011920929")
      .Input("empty_key: key_dtype");
}

}  // namespace

DEFINE_OP(HashTable) {
  DefineNames(op);
  op.Output("table_handle: Ref(string)").Doc("A table that is filled once.");
  Define(op, Kind::kStatic);
}

DEFINE_OP(HashTableV2) {
  DefineNames(op);
  op.Output("table_handle: resource").Doc("A table that is filled once.");
  Define(op, Kind::kStatic);
}

DEFINE_OP(MutableHashTable) {
  DefineNames(op);
  op.Output("table_handle: Ref(string)").Doc("A table of scalars that may change.");
  Define(op, Kind::kMutable);
}

DEFINE_OP(MutableHashTableV2) {
  DefineNames(op);
  op.Output("table_handle: resource").Doc("A table of scalars that may change.");
  Define(op, Kind::kMutable);
}

DEFINE_OP(MutableHashTableOfTensors) {
  DefineNames(op);
  op.Attr("value_shape: shape = []")
      .Output("table_handle: Ref(string)")
      .Doc("A table of vectors that may change.");
  Define(op, Kind::kOfTensors);
}

DEFINE_OP(MutableHashTableOfTensorsV2) {
  DefineNames(op);
  op.Attr("value_shape: shape = []")
      .Output("table_handle: resource")
      .Doc("A table of vectors that may change.");
  Define(op, Kind::kOfTensors);
}

DEFINE_OP(MutableDenseHashTable) {
  DefineDense(op);
  op.Output("table_handle: Ref(string)").Doc("A table that may change and reserves a key.");
  Define(op, Kind::kDense);
}

DEFINE_OP(MutableDenseHashTableV2) {
  DefineDense(op);
  op.Input("deleted_key: key_dtype")
      .Output("table_handle: resource")
      .Doc("A table that may change and reserves two keys.");
  Define(op, Kind::kDense);
}

DEFINE_OP(AnonymousHashTable) {
  op.Attr("key_dtype: type")
      .Attr("value_dtype: type")
      .Output("table_handle: resource")
      .Doc("A table that is filled once and lives as long as its handle.");
  Define(op, Kind::kStatic, /*anonymous=*/true);
}

DEFINE_OP(AnonymousMutableHashTable) {
  op.Attr("key_dtype: type")
      .Attr("value_dtype: type")
      .Output("table_handle: resource")
      .Doc("A table of scalars that lives as long as its handle.");
  Define(op, Kind::kMutable, /*anonymous=*/true);
}

DEFINE_OP(AnonymousMutableHashTableOfTensors) {
  op.Attr("key_dtype: type")
      .Attr("value_dtype: type")
      .Attr("value_shape: shape = []")
      .Output("table_handle: resource")
      .Doc("A table of vectors that lives as long as its handle.");
  Define(op, Kind::kOfTensors, /*anonymous=*/true);
}

DEFINE_OP(AnonymousMutableDenseHashTable) {
  op.Attr("key_dtype: type")
      .Attr("value_dtype: type")
      .Attr("value_shape: shape = []")
      .Attr("initial_num_buckets: int = 131072")
      .Attr("max_load_factor: float = 0.800000011920929")
      .Input("empty_key: key_dtype")
      .Input("deleted_key: key_dtype")
      .Output("table_handle: resource")
      .Doc("A table that reserves two keys and lives as long as its handle.");
  Define(op, Kind::kDense, /*anonymous=*/true);
}

}  // namespace muster
