// Ops on tables: finding, inserting, removing, counting, exporting, importing, initializing.
#include "muster/ops/file_kernel.h"
#include "muster/ops/resource_kernel.h"
#include "muster/ops/tables/table.h"

namespace muster {
namespace {

absl::StatusOr<RefPtr<LookupTable>> InputTable(KernelContext& c) {
  return InputResourceAs<LookupTable>(c, 0);
}

std::string HandleWord(KernelContext& c) {
  return c.input_is_reference(0) ? "string_ref" : "resource";
}

// TensorFlow's words for inputs whose types are not the table's.
absl::Status CheckTypes(KernelContext& c, const LookupTable& table, bool has_output) {
  const DType key = c.input_type(1);
  const DType value = c.num_inputs() > 2 ? c.input_type(2) : table.value_type();
  if (key == table.key_type() && value == table.value_type()) return absl::OkStatus();
  const auto signature = [&](DType k, DType v) {
    return absl::StrCat(HandleWord(c), ",", DTypeName(k),
                        c.num_inputs() > 2 ? absl::StrCat(",", DTypeName(v)) : "", "->",
                        has_output ? DTypeName(v) : "");
  };
  return InvalidArgument("Signature mismatch, have: ", signature(key, value),
                         " expected: ", signature(table.key_type(), table.value_type()));
}

// The shape of the values that belong to keys of a shape.
absl::StatusOr<Shape> ValuesShape(const LookupTable& table, const Shape& keys) {
  Dims dims = keys.dims();
  dims.resize(dims.size() - static_cast<size_t>(table.key_shape().rank()));
  dims.insert(dims.end(), table.value_shape().dims().begin(), table.value_shape().dims().end());
  return Shape::Make(dims);
}

// Dimensions beside a zero may be of any size, so that their products do not fit.
bool HasRows(const Tensor& tensor, int64_t count, const Shape& row) {
  return MultiplyWithoutOverflow(count, row.num_elements()) == tensor.num_elements();
}

// A dense table takes keys in a row, and a single one where that is a scalar.
absl::Status CheckKeys(const LookupTable& table, const Tensor& keys) {
  if (table.kind() != LookupTable::Kind::kDense) return absl::OkStatus();
  const Shape& key = table.key_shape();
  if (keys.rank() < key.rank() || (key.rank() == 1 && keys.dim(keys.rank() - 1) != key[0])) {
    return InvalidArgument("Input key shape ", keys.shape().ToString(),
                           " must end with the table's key shape ", key.ToString());
  }
  const int64_t count = keys.rank() == 0 ? 1 : keys.dim(0);
  if (HasRows(keys, count, key)) return absl::OkStatus();
  return InvalidArgument("Expected key shape [", count,
                         key.rank() == 0 ? "" : absl::StrCat(",", key[0]), "] got ",
                         keys.shape().ToString());
}

absl::Status RunFind(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, InputTable(c));
  RETURN_IF_ERROR(CheckTypes(c, *table, true));
  const Tensor& keys = c.input(1);
  RETURN_IF_ERROR(CheckKeys(*table, keys));
  const Tensor& fallback = c.input(2);
  ASSIGN_OR_RETURN(const Shape shape, ValuesShape(*table, keys.shape()));
  const bool per_key = table->kind() != LookupTable::Kind::kStatic && fallback.shape() == shape;
  if (fallback.shape() != table->value_shape() && !per_key) {
    return InvalidArgument("Expected shape ", table->value_shape().ToString(), " or ",
                           shape.ToString(), " for default value, got ",
                           fallback.shape().ToString());
  }
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(0, shape));
  return table->Find(keys, fallback, *values);
}

absl::Status CheckValues(KernelContext& c, const LookupTable& table) {
  RETURN_IF_ERROR(CheckTypes(c, table, false));
  RETURN_IF_ERROR(CheckKeys(table, c.input(1)));
  ASSIGN_OR_RETURN(const Shape shape, ValuesShape(table, c.input(1).shape()));
  if (c.input(2).shape() == shape) return absl::OkStatus();
  return InvalidArgument("Expected shape ", shape.ToString(), " for value, got ",
                         c.input(2).shape().ToString());
}

absl::Status RunInsert(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, InputTable(c));
  RETURN_IF_ERROR(CheckValues(c, *table));
  return table->Insert(c.input(1), c.input(2));
}

// What a dense table has exported: rows of keys and values, or the keys and values themselves.
absl::Status CheckBuckets(KernelContext& c, const LookupTable& table) {
  RETURN_IF_ERROR(CheckTypes(c, table, false));
  const Tensor& keys = c.input(1);
  const Tensor& values = c.input(2);
  const int64_t count = keys.rank() == 0 ? 1 : keys.dim(0);
  if (HasRows(keys, count, table.key_shape()) && HasRows(values, count, table.value_shape()) &&
      (values.rank() == 0 ? 1 : values.dim(0)) == count)
    return absl::OkStatus();
  return InvalidArgument(
      "Keys of shape ", keys.shape().ToString(), " and values of shape ", values.shape().ToString(),
      " are not buckets of a table with keys of shape ", table.key_shape().ToString(),
      " and values of shape ", table.value_shape().ToString());
}

absl::Status RunImport(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, InputTable(c));
  if (table->kind() == LookupTable::Kind::kDense) {
    RETURN_IF_ERROR(CheckBuckets(c, *table));
  } else {
    RETURN_IF_ERROR(CheckValues(c, *table));
  }
  if (table->kind() == LookupTable::Kind::kStatic && c.input(1).num_elements() == 0) {
    return InvalidArgument("keys and values cannot be empty tensors");
  }
  return ImportTable(*table, c.input(1), c.input(2));
}

absl::Status RunRemove(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, InputTable(c));
  RETURN_IF_ERROR(CheckTypes(c, *table, false));
  RETURN_IF_ERROR(CheckKeys(*table, c.input(1)));
  return table->Remove(c.input(1));
}

absl::Status RunSize(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, InputTable(c));
  c.SetOutput(0, Tensor::Scalar<int64_t>(table->size()));
  return absl::OkStatus();
}

absl::Status RunExport(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, InputTable(c));
  if (c.output_type(0) != table->key_type() || c.output_type(1) != table->value_type()) {
    return InvalidArgument("Table holds ", DTypeName(table->key_type()), "->",
                           DTypeName(table->value_type()), ", asked for ",
                           DTypeName(c.output_type(0)), "->", DTypeName(c.output_type(1)));
  }
  ASSIGN_OR_RETURN(LookupTable::Entries entries, ExportTable(*table));
  c.SetOutput(0, std::move(entries.keys));
  c.SetOutput(1, std::move(entries.values));
  return absl::OkStatus();
}

absl::Status CheckFillable(const LookupTable& table) {
  if (table.kind() == LookupTable::Kind::kStatic) return absl::OkStatus();
  return InvalidArgument("Table ", table.name(), " is not initialized but inserted into");
}

absl::Status RunInitialize(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<LookupTable> table, InputTable(c));
  RETURN_IF_ERROR(CheckFillable(*table));
  RETURN_IF_ERROR(CheckTypes(c, *table, false));
  const Tensor& keys = c.input(1);
  const Tensor& values = c.input(2);
  if (keys.rank() != 1) {
    return InvalidArgument("Keys must be a vector, but received shape", keys.shape().ToString());
  }
  if (values.rank() != 1) {
    return InvalidArgument("Values must be a vector, but received shape",
                           values.shape().ToString());
  }
  if (keys.num_elements() != values.num_elements()) {
    return InvalidArgument("Keys and values must have the same size ", keys.num_elements(), " vs ",
                           values.num_elements());
  }
  if (keys.num_elements() == 0) {
    return InvalidArgument("keys and values cannot be empty tensors");
  }
  return table->Initialize(keys, values);
}

class InitializeFromTextKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(columns_.key, s.Attr<int64_t>("key_index"));
    ASSIGN_OR_RETURN(columns_.value, s.Attr<int64_t>("value_index"));
    ASSIGN_OR_RETURN(columns_.vocab_size, s.Attr<int64_t>("vocab_size"));
    ASSIGN_OR_RETURN(columns_.offset, s.Attr<int64_t>("offset"));
    ASSIGN_OR_RETURN(const std::string delimiter, s.Attr<std::string>("delimiter"));
    if (delimiter.size() != 1) {
      return InvalidArgument("delimiter should be only 1 char");
    }
    columns_.delimiter = delimiter[0];
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(FileCall::Work work, Work(c));
    return FileCall::RunHere(c, std::move(work));
  }
  bool is_async() const override { return true; }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<FileCall::Work> work = Work(c);
    if (!work.ok()) return std::move(done)(work.status());
    FileCall::Start(c, *std::move(work), std::move(done));
  }

 private:
  absl::StatusOr<FileCall::Work> Work(KernelContext& c) const {
    ASSIGN_OR_RETURN(RefPtr<LookupTable> table, InputTable(c));
    return [table = std::move(table), columns = columns_](FileCall& call) {
      return Fill(call, *table, columns);
    };
  }

  static absl::Status Fill(const FileCall& c, LookupTable& table, const TextColumns& columns) {
    RETURN_IF_ERROR(CheckFillable(table));
    if (c.input(1).num_elements() != 1) {
      return InvalidArgument("filename should be a single string, but got ",
                             c.input(1).shape().ToString());
    }
    const std::string& filename = c.input(1).scalar<std::string>();
    if (filename.empty()) return InvalidArgument("filename cannot be empty.");
    ASSIGN_OR_RETURN(const LookupTable::Entries entries,
                     ReadTextColumns(filename, columns, table.key_type(), table.value_type()));
    RETURN_IF_ERROR(c.CheckWanted());
    return table.Initialize(entries.keys, entries.values);
  }

  TextColumns columns_;
};

absl::Status HandleIn(ShapeContext& c) {
  if (c.input_type(0) == DType::kResource) return c.WithRank(c.input(0), 0).status();
  ASSIGN_OR_RETURN(const PartialShape handle, c.WithRank(c.input(0), 1));
  return ShapeContext::MergeDims(handle.dim(0), 2).status();
}

absl::Status FindShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleIn(c));
  c.SetOutput(0, PartialShape());
  if (c.input_type(0) != DType::kResource) {
    return c.WithRankAtMost(c.input(2), 1).status();
  }
  const std::vector<DTypeAndShape>& handle = c.input_handle(0);
  if (handle.size() != 2) return absl::OkStatus();
  ASSIGN_OR_RETURN(const DType key, c.Attr<DType>("Tin"));
  ASSIGN_OR_RETURN(const DType value, c.Attr<DType>("Tout"));
  if (handle[0].dtype != key) {
    return InvalidArgument("Trying to read value with wrong dtype. Expected ",
                           DTypeName(handle[0].dtype), " got ", DTypeName(key));
  }
  if (handle[1].dtype != value) {
    return InvalidArgument("Trying to read value with wrong dtype. Expected ",
                           DTypeName(handle[1].dtype), " got ", DTypeName(value));
  }
  const PartialShape& keys = c.input(1);
  const PartialShape& one = handle[0].shape;
  if (!keys.known_rank() || !one.known_rank()) return absl::OkStatus();
  if (keys.rank() < one.rank()) {
    return InvalidArgument("Expected keys to have suffix ", one.ToString(),
                           " but saw shape: ", keys.ToString());
  }
  const PartialShape ahead = ShapeContext::Subshape(keys, 0, keys.rank() - one.rank());
  c.SetOutput(0, ShapeContext::Concatenate(ahead, handle[1].shape));
  return absl::OkStatus();
}

absl::Status ExportShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleIn(c));
  // The shape of the keys depends on the kind of table.
  const bool is_known = c.input_type(0) != DType::kResource;
  c.SetOutput(0, is_known ? PartialShape::Vector(-1) : PartialShape());
  c.SetOutput(1, PartialShape());
  return absl::OkStatus();
}

absl::Status SizeShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleIn(c));
  return ScalarShape(c);
}

absl::Status InitializeShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleIn(c));
  ASSIGN_OR_RETURN(const PartialShape keys, c.WithRank(c.input(1), 1));
  return ShapeContext::Merge(keys, c.input(2)).status();
}

absl::Status FromTextShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleIn(c));
  return c.WithRank(c.input(1), 0).status();
}

// Both forms of an op differ in the handle alone; the one with resources is stateful.
void Handle(OpBuilder& op, bool resource) {
  op.Input(resource ? "table_handle: resource" : "table_handle: Ref(string)");
  if (resource) op.Stateful();
}

void DefineFind(OpBuilder& op, bool resource) {
  op.Attr("Tin: type").Attr("Tout: type");
  Handle(op, resource);
  op.Input("keys: Tin")
      .Input("default_value: Tout")
      .Output("values: Tout")
      .Doc("The values of keys, or a default where there is none.")
      .Shape(FindShape)
      .NoGradient("tables are not numbers")
      .Cpu(RunFind);
}

void DefineChange(OpBuilder& op, bool resource, KernelFunction run, const char* doc) {
  op.Attr("Tin: type").Attr("Tout: type");
  Handle(op, resource);
  op.Input("keys: Tin")
      .Input("values: Tout")
      .Doc(doc)
      .Shape(HandleIn)
      .NoGradient("tables are not numbers")
      .Cpu(run);
}

void DefineSize(OpBuilder& op, bool resource) {
  Handle(op, resource);
  op.Output("size: int64")
      .Doc("The number of entries.")
      .Shape(SizeShape)
      .NoGradient("tables are not numbers")
      .Cpu(RunSize);
}

void DefineExport(OpBuilder& op, bool resource) {
  op.Attr("Tkeys: type").Attr("Tvalues: type");
  Handle(op, resource);
  op.Output("keys: Tkeys")
      .Output("values: Tvalues")
      .Doc("All entries.")
      .Shape(ExportShape)
      .NoGradient("tables are not numbers")
      .Cpu(RunExport);
}

void DefineInitialize(OpBuilder& op, bool resource) {
  op.Attr("Tkey: type").Attr("Tval: type");
  Handle(op, resource);
  op.Input("keys: Tkey")
      .Input("values: Tval")
      .Doc("Fills a table.")
      .Shape(InitializeShape)
      .NoGradient("tables are not numbers")
      .Cpu(RunInitialize);
}

void DefineFromText(OpBuilder& op, bool resource) {
  op.Attr("key_index: int >= -2")
      .Attr("value_index: int >= -2")
      .Attr("vocab_size: int >= -1 = -1")
      .Attr("delimiter: string = '\t'");
  if (resource) {
    op.Attr2x("offset: int = 0");
  } else {
    op.Attr("offset: int = 0");
  }
  Handle(op, resource);
  op.Input("filename: string")
      .Doc("Fills a table with columns of a text file.")
      .Shape(FromTextShape)
      .NoGradient("tables are not numbers")
      .Cpu(New<InitializeFromTextKernel>());
}

}  // namespace

DEFINE_OP(LookupTableFind) {
  DefineFind(op, false);
}
DEFINE_OP(LookupTableFindV2) {
  DefineFind(op, true);
}
DEFINE_OP(LookupTableInsert) {
  DefineChange(op, false, RunInsert, "Adds entries, replacing those with equal keys.");
}
DEFINE_OP(LookupTableInsertV2) {
  DefineChange(op, true, RunInsert, "Adds entries, replacing those with equal keys.");
}
DEFINE_OP(LookupTableImport) {
  DefineChange(op, false, RunImport, "Replaces all entries.");
}
DEFINE_OP(LookupTableImportV2) {
  DefineChange(op, true, RunImport, "Replaces all entries.");
}
DEFINE_OP(LookupTableRemoveV2) {
  op.Attr("Tin: type")
      .Input("table_handle: resource")
      .Input("keys: Tin")
      .Stateful()
      .Doc("Removes entries.")
      .Shape(HandleIn)
      .Cpu(RunRemove);
}
DEFINE_OP(LookupTableSize) {
  DefineSize(op, false);
}
DEFINE_OP(LookupTableSizeV2) {
  DefineSize(op, true);
}
DEFINE_OP(LookupTableExport) {
  DefineExport(op, false);
}
DEFINE_OP(LookupTableExportV2) {
  DefineExport(op, true);
}
DEFINE_OP(InitializeTable) {
  DefineInitialize(op, false);
}
DEFINE_OP(InitializeTableV2) {
  DefineInitialize(op, true);
}
DEFINE_OP(InitializeTableFromTextFile) {
  DefineFromText(op, false);
}
DEFINE_OP(InitializeTableFromTextFileV2) {
  DefineFromText(op, true);
}

}  // namespace muster
