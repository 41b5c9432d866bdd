// Datasets of datasets, and back: windows of elements, groups by a key, rows of batches.
#include <deque>
#include <limits>
#include <map>

#include "muster/ops/data/captured_function.h"

namespace muster {
namespace {

DatasetPtr DatasetOf(ElementSpec spec, std::vector<Element> elements) {
  const auto count = static_cast<int64_t>(elements.size());
  const auto shared = std::make_shared<const std::vector<Element>>(std::move(elements));
  return std::make_shared<const Dataset>(
      std::move(spec),
      [shared](const DataContext&) -> absl::StatusOr<NextElement> {
        return [shared, next = size_t{0}](const DataContext&) mutable -> MaybeElement {
          if (next == shared->size()) return std::nullopt;
          return (*shared)[next++];
        };
      },
      nullptr, count);
}

// --- Windows -----------------------------------------------------------------------------------

struct WindowPlan {
  int64_t size = 1;
  int64_t shift = 1;
  int64_t stride = 1;
  bool drop_remainder = false;
};

class Windows {
 public:
  Windows(DatasetPtr input, NextElement next, WindowPlan plan)
      : input_(std::move(input)), next_(std::move(next)), plan_(plan) {}

  MaybeElement Next(const DataContext& context) {
    RETURN_IF_ERROR(Fill(context));
    const auto held = static_cast<int64_t>(buffer_.size());
    const int64_t count = held == 0 ? 0 : (held - 1) / plan_.stride + 1;
    if (held == 0 || (plan_.drop_remainder && count < plan_.size)) {
      buffer_.clear();
      over_ = true;
      return std::nullopt;
    }
    std::vector<Element> chosen;
    for (int64_t i = 0; i < std::min(count, plan_.size); ++i) {
      chosen.push_back(buffer_[static_cast<size_t>(i * plan_.stride)]);
    }
    RETURN_IF_ERROR(Shift(context));
    return Split(chosen);
  }

 private:
  absl::Status Fill(const DataContext& context) {
    // How many elements a window covers; the dataset may have fewer.
    int64_t span = 0;
    if (__builtin_mul_overflow(plan_.size - 1, plan_.stride, &span) ||
        span == std::numeric_limits<int64_t>::max()) {
      span = std::numeric_limits<int64_t>::max() - 1;
    }
    while (!over_ && static_cast<int64_t>(buffer_.size()) <= span) {
      ASSIGN_OR_RETURN(std::optional<Element> element, next_(context));
      over_ = !element.has_value();
      if (!over_) buffer_.push_back(*std::move(element));
    }
    return absl::OkStatus();
  }

  absl::Status Shift(const DataContext& context) {
    int64_t left = plan_.shift;
    for (; left > 0 && !buffer_.empty(); --left) buffer_.pop_front();
    for (; left > 0 && !over_; --left) {
      ASSIGN_OR_RETURN(const std::optional<Element> skipped, next_(context));
      over_ = !skipped.has_value();
    }
    return absl::OkStatus();
  }

  // One dataset per component.
  Element Split(const std::vector<Element>& chosen) const {
    Element result;
    const ElementSpec& spec = input_->spec();
    for (size_t i = 0; i < chosen[0].size(); ++i) {
      std::vector<Element> column;
      for (const Element& element : chosen) column.push_back({element[i]});
      ElementSpec of_column{{spec.types[i]}, {spec.shapes[i]}};
      result.push_back(Tensor::Scalar(Variant(DatasetOf(std::move(of_column), std::move(column)))));
    }
    return result;
  }

  const DatasetPtr input_;
  NextElement next_;
  const WindowPlan plan_;
  std::deque<Element> buffer_;
  bool over_ = false;
};

absl::Status MakeWindows(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  WindowPlan plan;
  ASSIGN_OR_RETURN(plan.size, ScalarInteger(c.input(1), "size"));
  ASSIGN_OR_RETURN(plan.shift, ScalarInteger(c.input(2), "shift"));
  ASSIGN_OR_RETURN(plan.stride, ScalarInteger(c.input(3), "stride"));
  ASSIGN_OR_RETURN(plan.drop_remainder, ScalarBool(c.input(4), "drop_remainder"));
  if (plan.size <= 0) return InvalidArgument("Window size must be greater than zero.");
  if (plan.shift <= 0) return InvalidArgument("Window shift must be greater than zero.");
  if (plan.stride <= 0) return InvalidArgument("Window stride must be greater than zero.");
  return SetDataset(c, [input, plan](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [windows = std::make_unique<Windows>(input, std::move(next), plan)](
               const DataContext& context) { return windows->Next(context); };
  });
}

// --- Rows of batches ---------------------------------------------------------------------------

absl::Status CheckBatch(const Element& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].rank() == 0) {
      return InvalidArgument("Input element must have a non-scalar value in each component.");
    }
    if (batch[i].dim(0) != batch[0].dim(0)) {
      return InvalidArgument(
          "Input element must have the same batch size in each component. Component 0 had size ",
          batch[0].dim(0), " but component ", i, " had size, ", batch[i].dim(0), ".");
    }
  }
  return absl::OkStatus();
}

absl::Status MakeUnbatched(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  return SetDataset(c, [input](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [next = std::move(next), batch = Element(),
            row = int64_t{0}](const DataContext& context) mutable -> MaybeElement {
      while (batch.empty() || row == batch[0].dim(0)) {
        ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
        if (!element.has_value() || element->empty()) return std::nullopt;
        RETURN_IF_ERROR(CheckBatch(*element));
        batch = *std::move(element);
        row = 0;
      }
      Element rows;
      for (const Tensor& component : batch) {
        ASSIGN_OR_RETURN(Tensor one, CopyRow(component, row));
        rows.push_back(std::move(one));
      }
      ++row;
      return rows;
    };
  });
}

// --- Groups by a key ---------------------------------------------------------------------------

struct Grouping {
  DatasetPtr input;
  CapturedFunctionPtr key;
  CapturedFunctionPtr reduce;
  CapturedFunctionPtr window_size;
};

absl::StatusOr<int64_t> CallForNumber(const CapturedFunction& function, Element arguments,
                                      absl::string_view what, const DataContext& context) {
  absl::StatusOr<Element> results = function.Call(context, std::move(arguments));
  RETURN_IF_ERROR(InUserFunction(results.status(), "GroupByWindow"));
  if (results->size() != 1 || (*results)[0].dtype() != DType::kInt64 ||
      (*results)[0].num_elements() != 1) {
    return InvalidArgument("`", what, "` must return a scalar int64.");
  }
  return (*results)[0].data<int64_t>()[0];
}

class Groups {
 public:
  Groups(Grouping grouping, NextElement next)
      : grouping_(std::move(grouping)), next_(std::move(next)) {}

  MaybeElement Next(const DataContext& context) {
    while (true) {
      if (current_ != nullptr) {
        ASSIGN_OR_RETURN(std::optional<Element> element, current_(context));
        if (element.has_value()) return element;
        current_ = nullptr;
      }
      if (!over_) {
        RETURN_IF_ERROR(Gather(context));
      } else if (!groups_.empty()) {
        auto group = groups_.extract(groups_.begin());
        RETURN_IF_ERROR(Reduce(group.key(), std::move(group.mapped().elements), context));
      } else {
        return std::nullopt;
      }
    }
  }

 private:
  struct Group {
    int64_t size = 0;
    std::vector<Element> elements;
  };

  absl::Status Gather(const DataContext& context) {
    ASSIGN_OR_RETURN(std::optional<Element> element, next_(context));
    over_ = !element.has_value();
    if (over_) return absl::OkStatus();
    ASSIGN_OR_RETURN(const int64_t key,
                     CallForNumber(*grouping_.key, *element, "key_func", context));
    auto [found, is_new] = groups_.try_emplace(key);
    Group& group = found->second;
    if (is_new) {
      ASSIGN_OR_RETURN(group.size, CallForNumber(*grouping_.window_size, {Tensor::Scalar(key)},
                                                 "window_size_func", context));
      if (group.size <= 0) {
        const int64_t size = group.size;
        groups_.erase(found);
        return InvalidArgument("Window size must be greater than zero, but got ", size, ".");
      }
    }
    group.elements.push_back(*std::move(element));
    if (static_cast<int64_t>(group.elements.size()) < group.size) return absl::OkStatus();
    std::vector<Element> elements = std::move(group.elements);
    groups_.erase(found);
    return Reduce(key, std::move(elements), context);
  }

  absl::Status Reduce(int64_t key, std::vector<Element> elements, const DataContext& context) {
    DatasetPtr window = DatasetOf(grouping_.input->spec(), std::move(elements));
    Element arguments = {Tensor::Scalar(key), Tensor::Scalar(Variant(std::move(window)))};
    absl::StatusOr<Element> results = grouping_.reduce->Call(context, std::move(arguments));
    RETURN_IF_ERROR(InUserFunction(results.status(), "GroupByWindow"));
    if (results->size() != 1 || (*results)[0].dtype() != DType::kVariant) {
      return InvalidArgument("`reduce_func` must return a single dataset.");
    }
    ASSIGN_OR_RETURN(const DatasetPtr dataset, DatasetIn((*results)[0]));
    ASSIGN_OR_RETURN(current_, dataset->Read(context));
    return absl::OkStatus();
  }

  const Grouping grouping_;
  NextElement next_;
  NextElement current_;
  std::map<int64_t, Group> groups_;
  bool over_ = false;
};

absl::Status MakeGroups(KernelContext& c) {
  Grouping grouping;
  ASSIGN_OR_RETURN(grouping.input, InputDataset(c, 0));
  int first = 1;
  const auto take = [&](const char* attr, const char* types,
                        CapturedFunctionPtr& function) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<Tensor> captured, CapturedInputs(c, first, types));
    first += static_cast<int>(captured.size());
    ASSIGN_OR_RETURN(function, CapturedFunction::Make(c, attr, captured));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(take("key_func", "Tkey_func_other_arguments", grouping.key));
  RETURN_IF_ERROR(take("reduce_func", "Treduce_func_other_arguments", grouping.reduce));
  RETURN_IF_ERROR(
      take("window_size_func", "Twindow_size_func_other_arguments", grouping.window_size));
  return SetDataset(c, [grouping](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, grouping.input->Read(begin));
    return [groups = std::make_unique<Groups>(grouping, std::move(next))](
               const DataContext& context) { return groups->Next(context); };
  });
}

}  // namespace

DEFINE_OP(WindowDataset) {
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("size: int64")
      .Input("shift: int64")
      .Input("stride: int64")
      .Input("drop_remainder: bool");
  DefineDataset(op, "Datasets of several elements each, which may overlap.", MakeWindows);
}

DEFINE_OP(UnbatchDataset) {
  ElementAttrs(op).Attr2x("metadata: string = ''").Input("input_dataset: variant");
  DefineDataset(op, "The rows of the elements, one after the other.", MakeUnbatched);
}

DEFINE_OP(GroupByWindowDataset) {
  op.Attr("key_func: func")
      .Attr("reduce_func: func")
      .Attr("window_size_func: func")
      .Attr("Tkey_func_other_arguments: list(type) >= 0")
      .Attr("Treduce_func_other_arguments: list(type) >= 0")
      .Attr("Twindow_size_func_other_arguments: list(type) >= 0");
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("key_func_other_arguments: Tkey_func_other_arguments")
      .Input("reduce_func_other_arguments: Treduce_func_other_arguments")
      .Input("window_size_func_other_arguments: Twindow_size_func_other_arguments");
  DefineDataset(op, "What a function makes of windows of elements that have the same key.",
                MakeGroups);
}

}  // namespace muster
