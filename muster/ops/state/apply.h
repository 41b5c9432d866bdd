// Optimizer ops. A formula says how one element of the variable and of its slots changes;
// everything else (references and resources, dense and sparse gradients, checks, locks, loops) is
// here, once.
//
//   struct Momentum {
//     static constexpr int kSlots = 1;
//     template <typename C, typename Loop>
//     static void Run(const Hyper<C>& h, Loop loop) {
//       loop([lr = h[0], momentum = h[1]](C g, C& var, C& accum) { ... });
//     }
//   };
//
// The roles of inputs follow from the op's definition: Ref(T) and resource arguments are the
// variable and its slots, "grad" or "delta" is the gradient, "indices" its rows, "global_step" an
// integer, all others scalars in order.
#pragma once

#include <array>
#include <vector>

#include "muster/ops/op.h"
#include "muster/ops/rows_ahead.h"
#include "muster/ops/state/access.h"

namespace muster {

// What a formula is configured with: the scalars in the order of the op's definition, and its
// attributes.
template <typename C>
struct Hyper {
  std::array<C, 8> scalars{};
  int64_t global_step = 0;
  bool use_nesterov = false;
  bool update_slots = true;
  bool multiply_linear_by_lr = false;
  bool sparse = false;

  C operator[](int i) const { return scalars[i]; }
};

// One execution, checked and locked.
struct ApplyCall {
  const KernelContext& context;
  VariableUpdate& variables;  // the variable, then its slots
  const Tensor& gradient;
  absl::Span<const Tensor* const> scalars;
  const Tensor* global_step = nullptr;  // where the op has one
  const Tensor* indices = nullptr;      // null: dense
  int64_t row_elements = 0;
  // The indices, where the host can see them; null: dense, or on a card.
  const int64_t* rows = nullptr;
  int64_t num_rows = 0;
};

// What every optimizer op does around its formula, on whichever device.
class ApplyInputs {
 public:
  absl::Status Init(KernelSetup& setup);
  // Finds, checks and locks the inputs of an execution and calls `change` with them.
  using Change = absl::FunctionRef<absl::Status(const ApplyCall&)>;
  absl::Status Apply(KernelContext& c, Change change) const;

  int num_variables() const { return num_variables_; }
  bool use_nesterov() const { return use_nesterov_; }
  bool update_slots() const { return update_slots_; }
  bool multiply_linear_by_lr() const { return multiply_linear_by_lr_; }

 private:
  absl::Status CheckShapes(const KernelContext& c, VariableUpdate& variables) const;
  absl::StatusOr<std::vector<int64_t>> Rows(const KernelContext& c, const Tensor& variable) const;

  std::vector<std::string> names_;  // of all inputs
  int num_variables_ = 0;
  int gradient_ = -1;
  int indices_ = -1;  // stays -1 for dense gradients
  int global_step_ = -1;
  std::vector<int> scalars_;
  bool use_nesterov_ = false;
  bool update_slots_ = true;
  bool multiply_linear_by_lr_ = false;
};

// The shape rule of all these ops.
absl::Status ApplyShape(ShapeContext& c);

// Changes `count` elements. The pointers never overlap: variables own their memory while they are
// locked.
template <int kSlots, typename T, typename Formula>
void ApplyElements(T* __restrict var, const std::array<T*, kSlots>& slots,
                   const T* __restrict gradient, int64_t count, const Formula& formula) {
  using C = Compute<T>;
  if constexpr (kSlots == 0) {
    for (int64_t i = 0; i < count; ++i) {
      C v = static_cast<C>(var[i]);
      formula(static_cast<C>(gradient[i]), v);
      var[i] = T(v);
    }
  } else if constexpr (kSlots == 1) {
    T* __restrict slot0 = slots[0];
    for (int64_t i = 0; i < count; ++i) {
      C v = static_cast<C>(var[i]), a = static_cast<C>(slot0[i]);
      formula(static_cast<C>(gradient[i]), v, a);
      var[i] = T(v);
      slot0[i] = T(a);
    }
  } else if constexpr (kSlots == 2) {
    T* __restrict slot0 = slots[0];
    T* __restrict slot1 = slots[1];
    for (int64_t i = 0; i < count; ++i) {
      C v = static_cast<C>(var[i]), a = static_cast<C>(slot0[i]), b = static_cast<C>(slot1[i]);
      formula(static_cast<C>(gradient[i]), v, a, b);
      var[i] = T(v);
      slot0[i] = T(a);
      slot1[i] = T(b);
    }
  } else {
    static_assert(kSlots == 3);
    T* __restrict slot0 = slots[0];
    T* __restrict slot1 = slots[1];
    T* __restrict slot2 = slots[2];
    for (int64_t i = 0; i < count; ++i) {
      C v = static_cast<C>(var[i]), a = static_cast<C>(slot0[i]), b = static_cast<C>(slot1[i]),
        d = static_cast<C>(slot2[i]);
      formula(static_cast<C>(gradient[i]), v, a, b, d);
      var[i] = T(v);
      slot0[i] = T(a);
      slot1[i] = T(b);
      slot2[i] = T(d);
    }
  }
}

template <typename Formula, typename C>
concept ChecksScalars = requires(const Hyper<C>& h) {
  Formula::Check(h);
};

template <typename Formula, typename T>
class TypedApplyKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return inputs_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return inputs_.Apply(c, [this](const ApplyCall& call) { return Apply(call); });
  }

 private:
  absl::Status Apply(const ApplyCall& call) const {
    using C = muster::Compute<T>;
    constexpr int kSlots = Formula::kSlots;
    Hyper<C> hyper;
    for (size_t i = 0; i < call.scalars.size(); ++i)
      hyper.scalars[i] = static_cast<C>(call.scalars[i]->scalar<T>());
    if (call.global_step != nullptr) hyper.global_step = call.global_step->scalar<int64_t>();
    hyper.use_nesterov = inputs_.use_nesterov();
    hyper.update_slots = inputs_.update_slots();
    hyper.multiply_linear_by_lr = inputs_.multiply_linear_by_lr();
    hyper.sparse = call.rows != nullptr;
    if constexpr (ChecksScalars<Formula, C>) RETURN_IF_ERROR(Formula::Check(hyper));
    T* var = call.variables.value(0).template data<T>();
    std::array<T*, kSlots> slots;
    for (int i = 0; i < kSlots; ++i) slots[i] = call.variables.value(i + 1).template data<T>();
    const T* gradient = call.gradient.template data<T>();
    const auto at = [&slots](int64_t offset) {
      std::array<T*, kSlots> moved;
      for (int i = 0; i < kSlots; ++i) moved[i] = slots[i] + offset;
      return moved;
    };
    Formula::Run(hyper, [&](const auto& formula) {
      if (call.rows == nullptr) {
        call.context.ParallelFor(
            call.gradient.num_elements(), 0.15 * (kSlots + 1), [&](int64_t begin, int64_t end) {
              ApplyElements<kSlots>(var + begin, at(begin), gradient + begin, end - begin, formula);
            });
      } else {
        // In order and on one thread: rows may repeat.
        const auto row_bytes = call.row_elements * static_cast<int64_t>(sizeof(T));
        for (int64_t i = 0; i < call.num_rows; ++i) {
          if (i + kRowsAhead < call.num_rows) {
            const int64_t ahead = call.rows[i + kRowsAhead] * call.row_elements;
            PrefetchRow(var + ahead, row_bytes);
            for (const T* slot : at(ahead)) PrefetchRow(slot, row_bytes);
          }
          const int64_t offset = call.rows[i] * call.row_elements;
          ApplyElements<kSlots>(var + offset, at(offset), gradient + i * call.row_elements,
                                call.row_elements, formula);
        }
      }
    });
    return absl::OkStatus();
  }

  ApplyInputs inputs_;
};

using ApplyTypes = Join<Floats, Complexes>;

// Shape rule, kernels and the rest that all forms of an optimizer op share. The caller has declared
// attributes and arguments.
template <typename Formula, typename List>
void FinishApply(OpBuilder& op) {
  op.Shape(ApplyShape);
  op.CpuTypes<List>("T", []<typename T>() { return New<TypedApplyKernel<Formula, T>>(); });
}

// Which of the four forms of an optimizer op is being defined.
struct ApplyForm {
  bool resource = false;
  bool sparse = false;
};

// Kernels for GPUs that run the formula of this name in formulas.cuh.
void AddGpuApply(OpBuilder& op, ApplyForm form, const char* formula,
                 const std::vector<DType>& dtypes = {DType::kHalf, DType::kBfloat16, DType::kFloat,
                                                     DType::kDouble});
// Declares an op: `variables` are the names of the variable and its slots, `inputs` the others in
// order ("grad" is followed by "indices" in sparse forms), `attrs` those beyond T, Tindices and
// use_locking.
void DeclareApply(OpBuilder& op, ApplyForm form, std::initializer_list<const char*> variables,
                  std::initializer_list<const char*> inputs,
                  std::initializer_list<const char*> attrs = {},
                  std::initializer_list<const char*> attrs_2x = {});

}  // namespace muster
