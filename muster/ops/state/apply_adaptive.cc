// Optimizers that keep running averages of gradients: Adagrad, Adadelta, RMSProp.
#include <cmath>

#include "muster/ops/state/apply.h"

namespace muster {
namespace {

struct Adagrad {
  static constexpr int kSlots = 1;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C lr = h[0];
    if (h.update_slots) {
      loop([=](C g, C& var, C& accum) {
        accum += g * g;
        var -= g * lr / std::sqrt(accum);
      });
    } else {
      loop([=](C g, C& var, C& accum) { var -= g * lr / std::sqrt(accum); });
    }
  }
};

struct AdagradV2 {
  static constexpr int kSlots = 1;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C lr = h[0], epsilon = h[1];
    if (h.update_slots) {
      loop([=](C g, C& var, C& accum) {
        accum += g * g;
        var -= g * lr / (std::sqrt(accum) + epsilon);
      });
    } else {
      loop([=](C g, C& var, C& accum) { var -= g * lr / (std::sqrt(accum) + epsilon); });
    }
  }
};

// Dual averaging: the variable follows from the sums alone.
struct AdagradDA {
  static constexpr int kSlots = 2;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C lr = h[0], l1 = h[1], l2 = h[2], step = static_cast<C>(h.global_step);
    const C threshold = step * l1;
    loop([=](C g, C& var, C& sum, C& squares) {
      sum += g;
      squares += g * g;
      const C magnitude = std::max(std::abs(sum) - threshold, C(0));
      const C direction = l1 > C(0) ? std::copysign(magnitude, sum) : sum;
      var = -lr * direction / (l2 * step * lr + std::sqrt(squares));
    });
  }
};

struct Adadelta {
  static constexpr int kSlots = 2;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    loop([lr = h[0], rho = h[1], epsilon = h[2]](C g, C& var, C& accum, C& accum_update) {
      accum = accum * rho + g * g * (C(1) - rho);
      const C update = std::sqrt(accum_update + epsilon) / std::sqrt(accum + epsilon) * g;
      var -= update * lr;
      accum_update = accum_update * rho + update * update * (C(1) - rho);
    });
  }
};

struct RMSProp {
  static constexpr int kSlots = 2;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    loop([lr = h[0], rho = h[1], momentum = h[2], epsilon = h[3]](C g, C& var, C& ms, C& mom) {
      ms += (g * g - ms) * (C(1) - rho);
      mom = mom * momentum + g * lr / std::sqrt(ms + epsilon);
      var -= mom;
    });
  }
};

struct CenteredRMSProp {
  static constexpr int kSlots = 3;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    loop([lr = h[0], rho = h[1], momentum = h[2], epsilon = h[3]](C g, C& var, C& mg, C& ms,
                                                                  C& mom) {
      ms += (g * g - ms) * (C(1) - rho);
      mg += (g - mg) * (C(1) - rho);
      mom = mom * momentum + g * lr / std::sqrt(ms - mg * mg + epsilon);
      var -= mom;
    });
  }
};

void DefineAdagrad(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "accum"}, {"lr", "grad"}, {"update_slots: bool = true"});
  FinishApply<Adagrad, ApplyTypes>(op);
  AddGpuApply(op, form, "Adagrad");
  op.Doc("accum += grad^2; var -= lr * grad / sqrt(accum).");
}

void DefineAdagradV2(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "accum"}, {"lr", "epsilon", "grad"},
               {"update_slots: bool = true"});
  FinishApply<AdagradV2, ApplyTypes>(op);
  AddGpuApply(op, form, "AdagradV2");
  op.Doc("accum += grad^2; var -= lr * grad / (sqrt(accum) + epsilon).");
}

void DefineAdagradDA(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "gradient_accumulator", "gradient_squared_accumulator"},
               {"grad", "lr", "l1", "l2", "global_step"});
  FinishApply<AdagradDA, Types<float, double>>(op);
  AddGpuApply(op, form, "AdagradDA", {DType::kFloat, DType::kDouble});
  op.Doc("Adagrad with dual averaging and regularisation.");
}

void DefineAdadelta(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "accum", "accum_update"}, {"lr", "rho", "epsilon", "grad"});
  FinishApply<Adadelta, ApplyTypes>(op);
  AddGpuApply(op, form, "Adadelta");
  op.Doc("Steps scaled by the ratio of averaged squared updates and gradients.");
}

void DefineRMSProp(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "ms", "mom"}, {"lr", "rho", "momentum", "epsilon", "grad"});
  FinishApply<RMSProp, ApplyTypes>(op);
  AddGpuApply(op, form, "RMSProp");
  op.Doc("Momentum over gradients divided by the root of their averaged squares.");
}

void DefineCenteredRMSProp(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "mg", "ms", "mom"}, {"lr", "rho", "momentum", "epsilon", "grad"});
  FinishApply<CenteredRMSProp, ApplyTypes>(op);
  AddGpuApply(op, form, "CenteredRMSProp");
  op.Doc("RMSProp with the variance of the gradient in place of its mean square.");
}

}  // namespace

#define DEFINE_ALL_FORMS(Name)                            \
  DEFINE_OP(Apply##Name) {                                \
    Define##Name(op, {});                                 \
  }                                                       \
  DEFINE_OP(SparseApply##Name) {                          \
    Define##Name(op, {.sparse = true});                   \
  }                                                       \
  DEFINE_OP(ResourceApply##Name) {                        \
    Define##Name(op, {.resource = true});                 \
  }                                                       \
  DEFINE_OP(ResourceSparseApply##Name) {                  \
    Define##Name(op, {.resource = true, .sparse = true}); \
  }

DEFINE_ALL_FORMS(Adagrad)
DEFINE_ALL_FORMS(AdagradV2)
DEFINE_ALL_FORMS(AdagradDA)
DEFINE_ALL_FORMS(Adadelta)
DEFINE_ALL_FORMS(RMSProp)
DEFINE_ALL_FORMS(CenteredRMSProp)

}  // namespace muster
