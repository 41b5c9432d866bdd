#include "muster/ops/state/apply.h"

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

bool IsGradient(absl::string_view name) {
  return name == "grad" || name == "delta";
}

bool IsVariableArgument(const ArgDef& arg) {
  return arg.is_ref || arg.type == DType::kResource;
}

}  // namespace

absl::Status ApplyInputs::Init(KernelSetup& setup) {
  const std::vector<ArgDef>& args = setup.node().def().inputs;
  for (int i = 0; i < static_cast<int>(args.size()); ++i) {
    const std::string& name = args[i].name;
    names_.push_back(name);
    if (IsVariableArgument(args[i])) {
      ++num_variables_;
    } else if (IsGradient(name)) {
      gradient_ = i;
    } else if (name == "indices") {
      indices_ = i;
    } else if (name == "global_step") {
      global_step_ = i;
    } else {
      scalars_.push_back(i);
    }
  }
  const auto read = [&](const char* name, bool* value) -> absl::Status {
    if (setup.node().def().FindAttr(name) == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(*value, setup.Attr<bool>(name));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(read("use_nesterov", &use_nesterov_));
  RETURN_IF_ERROR(read("update_slots", &update_slots_));
  return read("multiply_linear_by_lr", &multiply_linear_by_lr_);
}

absl::Status ApplyInputs::Apply(KernelContext& c, Change change) const {
  const bool knows_rows = indices_ >= 0 && !c.device().has_own_memory();
  absl::InlinedVector<RefPtr<Variable>, 4> owners;
  absl::InlinedVector<Variable*, 4> variables;
  for (int i = 0; i < num_variables_; ++i) {
    ASSIGN_OR_RETURN(RefPtr<Variable> variable, InputVariable(c, i));
    if (variable->dtype() != c.input_type(gradient_)) {
      return InvalidArgument("Variable ", variable->name(), " has type ",
                             DTypeName(variable->dtype()), ", the gradient ",
                             DTypeName(c.input_type(gradient_)));
    }
    variables.push_back(variable.get());
    owners.push_back(std::move(variable));
  }
  absl::InlinedVector<const Tensor*, 8> scalars;
  for (int i : scalars_) {
    if (!c.input(i).shape().is_scalar())
      return InvalidArgument(names_[i], " is not a scalar: ", c.input(i).shape().ToString());
    scalars.push_back(&c.input(i));
  }
  if (global_step_ >= 0 && !c.input(global_step_).shape().is_scalar()) {
    return InvalidArgument("global_step is not a scalar: ",
                           c.input(global_step_).shape().ToString());
  }
  {
    ASSIGN_OR_RETURN(
        VariableUpdate update,
        VariableUpdate::Begin(variables, knows_rows ? VariableUpdate::Changes::kRows
                                                    : VariableUpdate::Changes::kWhole));
    RETURN_IF_ERROR(CheckShapes(c, update));
    ApplyCall call{c, update, c.input(gradient_), scalars};
    if (global_step_ >= 0) call.global_step = &c.input(global_step_);
    if (indices_ >= 0) {
      call.indices = &c.input(indices_);
      call.row_elements = update.value(0).shape().ElementsIn(1, update.value(0).rank());
    }
    std::vector<int64_t> rows;
    if (knows_rows) {
      ASSIGN_OR_RETURN(rows, Rows(c, update.value(0)));
      // Never null, which would mean a dense gradient.
      static constexpr int64_t kNone = 0;
      call.rows = rows.empty() ? &kNone : rows.data();
      call.num_rows = static_cast<int64_t>(rows.size());
      update.TouchRows(rows);
    }
    RETURN_IF_ERROR(change(call));
  }
  if (c.num_outputs() == 1) c.SetOutputReference(0, c.input_reference(0));
  return absl::OkStatus();
}

absl::Status ApplyInputs::CheckShapes(const KernelContext& c, VariableUpdate& variables) const {
  const Shape& shape = variables.value(0).shape();
  for (int i = 1; i < num_variables_; ++i) {
    if (variables.value(i).shape() != shape) {
      return InvalidArgument("var and ", names_[i], " do not have the same shape", shape.ToString(),
                             " ", variables.value(i).shape().ToString());
    }
  }
  const Shape& gradient = c.input(gradient_).shape();
  if (indices_ < 0) {
    if (gradient == shape) return absl::OkStatus();
    return InvalidArgument("var and ", names_[gradient_], " do not have the same shape",
                           shape.ToString(), " ", gradient.ToString());
  }
  const Shape& indices = c.input(indices_).shape();
  if (shape.rank() < 1) return InvalidArgument("var must be at least 1 dimensional");
  if (!indices.is_vector()) return InvalidArgument("indices must be one-dimensional");
  if (gradient.rank() != shape.rank()) {
    return InvalidArgument("var and grad must have the same rank, got ", shape.ToString(), " and ",
                           gradient.ToString());
  }
  for (int axis = 1; axis < shape.rank(); ++axis) {
    if (gradient[axis] != shape[axis])
      return InvalidArgument("var and grad must match in dimension ", axis);
  }
  if (gradient[0] != indices[0])
    return InvalidArgument("grad must be the same size as indices in the first dimension.");
  if (shape.ElementsIn(1, shape.rank()) == 0)
    return InvalidArgument("Inner dimension should be greater than zero.");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> ApplyInputs::Rows(const KernelContext& c,
                                                       const Tensor& variable) const {
  const Tensor& indices = c.input(indices_);
  std::vector<int64_t> rows(indices.num_elements());
  const bool narrow = indices.dtype() == DType::kInt32;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = narrow ? indices.data<int32_t>()[i] : indices.data<int64_t>()[i];
    if (rows[i] < 0 || rows[i] >= variable.dim(0)) {
      return InvalidArgument("Index ", rows[i], " at offset ", i, " in indices is out of range");
    }
  }
  return rows;
}

absl::Status ApplyShape(ShapeContext& c) {
  const std::vector<ArgDef>& args = c.node().def().inputs;
  PartialShape shape;
  int gradient = -1;
  int indices = -1;
  for (int i = 0; i < static_cast<int>(args.size()); ++i) {
    if (IsVariableArgument(args[i])) {
      ASSIGN_OR_RETURN(shape, ShapeContext::Merge(shape, InputVariableShape(c, i)));
    } else if (IsGradient(args[i].name)) {
      gradient = i;
    } else if (args[i].name == "indices") {
      indices = i;
    } else {
      RETURN_IF_ERROR(c.WithRank(c.input(i), 0).status());
    }
  }
  if (indices < 0) {
    ASSIGN_OR_RETURN(shape, ShapeContext::Merge(shape, c.input(gradient)));
  } else {
    ASSIGN_OR_RETURN(const PartialShape rows, c.WithRank(c.input(indices), 1));
    const PartialShape& slices = c.input(gradient);
    if (slices.known_rank()) {
      RETURN_IF_ERROR(c.WithRankAtLeast(slices, 1).status());
      RETURN_IF_ERROR(
          ShapeContext::MergeDims(rows.known_rank() ? rows[0] : -1, slices[0]).status());
      // All but the number of rows is the same.
      PartialShape whole = slices;
      whole.Set(0, -1);
      ASSIGN_OR_RETURN(shape, ShapeContext::Merge(shape, whole));
    }
  }
  if (c.num_outputs() == 1) c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

void DeclareApply(OpBuilder& op, ApplyForm form, std::initializer_list<const char*> variables,
                  std::initializer_list<const char*> inputs,
                  std::initializer_list<const char*> attrs,
                  std::initializer_list<const char*> attrs_2x) {
  op.Attr("T: numbertype");
  if (form.sparse) op.Attr("Tindices: {int32, int64}");
  op.Attr("use_locking: bool = false");
  for (const char* attr : attrs) op.Attr(attr);
  for (const char* attr : attrs_2x) op.Attr2x(attr);
  for (const char* name : variables)
    op.Input(absl::StrCat(name, form.resource ? ": resource" : ": Ref(T)"));
  for (const char* name : inputs) {
    op.Input(absl::string_view(name) == "global_step" ? "global_step: int64"
                                                      : absl::StrCat(name, ": T"));
    if (form.sparse && IsGradient(name)) op.Input("indices: Tindices");
  }
  if (form.resource) {
    op.Stateful();
  } else {
    op.Output("out: Ref(T)");
  }
}

}  // namespace muster
