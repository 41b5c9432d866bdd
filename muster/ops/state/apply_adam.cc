// Adam, AdaMax and FTRL.
#include <cmath>

#include "muster/ops/state/apply.h"

namespace muster {
namespace {

struct Adam {
  static constexpr int kSlots = 2;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C beta1_power = h[0], beta2_power = h[1], lr = h[2], beta1 = h[3], beta2 = h[4],
            epsilon = h[5];
    const C alpha = lr * std::sqrt(C(1) - beta2_power) / (C(1) - beta1_power);
    const C rest1 = C(1) - beta1, rest2 = C(1) - beta2;
    if (h.use_nesterov) {
      loop([=](C g, C& var, C& m, C& v) {
        m += (g - m) * rest1;
        v += (g * g - v) * rest2;
        var -= (g * rest1 + beta1 * m) * alpha / (std::sqrt(v) + epsilon);
      });
    } else {
      loop([=](C g, C& var, C& m, C& v) {
        m += (g - m) * rest1;
        v += (g * g - v) * rest2;
        var -= m * alpha / (std::sqrt(v) + epsilon);
      });
    }
  }
};

// Divides by the largest average of squared gradients so far.
struct AdamWithAmsgrad {
  static constexpr int kSlots = 3;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C beta1_power = h[0], beta2_power = h[1], lr = h[2], beta1 = h[3], beta2 = h[4],
            epsilon = h[5];
    const C alpha = lr * std::sqrt(C(1) - beta2_power) / (C(1) - beta1_power);
    loop([=](C g, C& var, C& m, C& v, C& vhat) {
      m += (g - m) * (C(1) - beta1);
      v += (g * g - v) * (C(1) - beta2);
      vhat = std::max(vhat, v);
      var -= m * alpha / (std::sqrt(vhat) + epsilon);
    });
  }
};

struct AdaMax {
  static constexpr int kSlots = 2;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C beta1_power = h[0], lr = h[1], beta1 = h[2], beta2 = h[3], epsilon = h[4];
    const C rate = lr / (C(1) - beta1_power);
    loop([=](C g, C& var, C& m, C& v) {
      m += (g - m) * (C(1) - beta1);
      v = std::max(beta2 * v, std::abs(g));
      var -= rate * (m / (v + epsilon));
    });
  }
};

// x to the power of -lr_power, the shape of FTRL's learning rates; mostly a square root.
template <typename C>
C RatePower(C x, C lr_power) {
  return lr_power == C(-0.5) ? std::sqrt(x) : std::pow(x, -lr_power);
}

// `kShrinkage`: the form with l2_shrinkage, which adds to the gradient but not to the accumulator.
template <bool kShrinkage>
struct Ftrl {
  static constexpr int kSlots = 2;

  // TensorFlow looks at the signs in the sparse forms only.
  template <typename C>
  static absl::Status Check(const Hyper<C>& h) {
    if (!h.sparse) return absl::OkStatus();
    if (!(h[0] > C(0)) && !(h.multiply_linear_by_lr && h[0] >= C(0))) {
      return InvalidArgument("lr is not a positive scalar: ", h[0]);
    }
    if (!(h[1] >= C(0)))
      return InvalidArgument("l1 regularization strength is not a non-negative scalar: ", h[1]);
    if (!(h[2] >= C(0)))
      return InvalidArgument("l2 regularization strength is not a non-negative scalar: ", h[2]);
    if (kShrinkage && !(h[3] >= C(0))) {
      return InvalidArgument("l2 shrinkage regularization strength is not a non-negative scalar: ",
                             h[3]);
    }
    const C lr_power = h[kShrinkage ? 4 : 3];
    if (!(lr_power <= C(0)))
      return InvalidArgument("lr_power is not a non-positive scalar: ", lr_power);
    return absl::OkStatus();
  }

  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C lr = h[0], l1 = h[1], l2 = h[2];
    const C shrinkage = kShrinkage ? h[3] : C(0);
    const C lr_power = h[kShrinkage ? 4 : 3];
    // With multiply_linear_by_lr the linear slot and everything compared with it carry a factor of
    // lr.
    const C scale = h.multiply_linear_by_lr ? lr : C(1);
    const C rate = h.multiply_linear_by_lr ? C(1) : lr;
    loop([=](C g, C& var, C& accum, C& linear) {
      const C shrunk = kShrinkage ? g + C(2) * shrinkage * var : g;
      const C new_accum = accum + g * g;
      const C power = RatePower(new_accum, lr_power);
      linear += shrunk * scale - (power - RatePower(accum, lr_power)) / rate * var;
      const C quadratic = power / rate + C(2) * l2 * scale;
      const C limit = l1 * scale;
      var = std::abs(linear) > limit ? (std::copysign(limit, linear) - linear) / quadratic : C(0);
      accum = new_accum;
    });
  }
};

void DefineAdam(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "m", "v"},
               {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"},
               {"use_nesterov: bool = false"});
  FinishApply<Adam, ApplyTypes>(op);
  AddGpuApply(op, form, "Adam");
  op.Doc("Steps along the averaged gradient, divided by the root of its averaged square.");
}

void DefineAdaMax(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "m", "v"},
               {"beta1_power", "lr", "beta1", "beta2", "epsilon", "grad"});
  FinishApply<AdaMax, Floats>(op);
  AddGpuApply(op, form, "AdaMax");
  op.Doc("Adam with the largest recent gradient in place of the averaged square.");
}

void DefineFtrl(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "accum", "linear"}, {"grad", "lr", "l1", "l2", "lr_power"}, {},
               {"multiply_linear_by_lr: bool = false"});
  FinishApply<Ftrl<false>, Floats>(op);
  AddGpuApply(op, form, "Ftrl");
  op.Doc("Follow the regularised leader.");
}

void DefineFtrlV2(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "accum", "linear"},
               {"grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power"}, {},
               {"multiply_linear_by_lr: bool = false"});
  FinishApply<Ftrl<true>, Floats>(op);
  AddGpuApply(op, form, "FtrlV2");
  op.Doc("Follow the regularised leader, with a further penalty on the size of the variable.");
}

}  // namespace

DEFINE_OP(ApplyAdam) {
  DefineAdam(op, {});
}
DEFINE_OP(ResourceApplyAdam) {
  DefineAdam(op, {.resource = true});
}

DEFINE_OP(ResourceApplyAdamWithAmsgrad) {
  DeclareApply(op, {.resource = true}, {"var", "m", "v", "vhat"},
               {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"});
  FinishApply<AdamWithAmsgrad, Floats>(op);
  AddGpuApply(op, {.resource = true}, "AdamWithAmsgrad");
  op.Doc("Adam that never forgets the largest averaged square.");
}

DEFINE_OP(ApplyAdaMax) {
  DefineAdaMax(op, {});
}
DEFINE_OP(ResourceApplyAdaMax) {
  DefineAdaMax(op, {.resource = true});
}

DEFINE_OP(ApplyFtrl) {
  DefineFtrl(op, {});
}
DEFINE_OP(SparseApplyFtrl) {
  DefineFtrl(op, {.sparse = true});
}
DEFINE_OP(ResourceApplyFtrl) {
  DefineFtrl(op, {.resource = true});
}
DEFINE_OP(ResourceSparseApplyFtrl) {
  DefineFtrl(op, {.resource = true, .sparse = true});
}

DEFINE_OP(ApplyFtrlV2) {
  DefineFtrlV2(op, {});
}
DEFINE_OP(SparseApplyFtrlV2) {
  DefineFtrlV2(op, {.sparse = true});
}
DEFINE_OP(ResourceApplyFtrlV2) {
  DefineFtrlV2(op, {.resource = true});
}
DEFINE_OP(ResourceSparseApplyFtrlV2) {
  DefineFtrlV2(op, {.resource = true, .sparse = true});
}

}  // namespace muster
