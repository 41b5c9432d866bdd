// Gradient descent: plain, with momentum, proximal, and by the sign of the gradient.
#include <cmath>

#include "muster/ops/state/apply.h"

namespace muster {
namespace {

struct GradientDescent {
  static constexpr int kSlots = 0;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    loop([alpha = h[0]](C g, C& var) { var -= g * alpha; });
  }
};

struct Momentum {
  static constexpr int kSlots = 1;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C lr = h[0], momentum = h[1];
    if (h.use_nesterov) {
      loop([=](C g, C& var, C& accum) {
        accum = accum * momentum + g;
        var -= g * lr + accum * momentum * lr;
      });
    } else {
      loop([=](C g, C& var, C& accum) {
        accum = accum * momentum + g;
        var -= accum * lr;
      });
    }
  }
};

// The learning rate goes into the accumulator.
struct KerasMomentum {
  static constexpr int kSlots = 1;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    const C lr = h[0], momentum = h[1];
    if (h.use_nesterov) {
      loop([=](C g, C& var, C& accum) {
        accum = accum * momentum - g * lr;
        var += accum * momentum - g * lr;
      });
    } else {
      loop([=](C g, C& var, C& accum) {
        accum = accum * momentum - g * lr;
        var += accum;
      });
    }
  }
};

// Shrinks |v| by lr * l1, then divides by 1 + lr * l2.
template <typename C>
C Proximal(C v, C lr, C l1, C l2) {
  const C shrunk = l1 > C(0) ? std::copysign(std::max(std::abs(v) - lr * l1, C(0)), v) : v;
  return shrunk / (C(1) + l2 * lr);
}

struct ProximalGradientDescent {
  static constexpr int kSlots = 0;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    loop([lr = h[0], l1 = h[1], l2 = h[2]](C g, C& var) {
      var = Proximal(var - g * lr, lr, l1, l2);
    });
  }
};

struct ProximalAdagrad {
  static constexpr int kSlots = 1;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    loop([lr = h[0], l1 = h[1], l2 = h[2]](C g, C& var, C& accum) {
      accum += g * g;
      const C rate = lr / std::sqrt(accum);
      var = Proximal(var - g * rate, rate, l1, l2);
    });
  }
};

template <typename C>
C Sign(C x) {
  return C(x > C(0)) - C(x < C(0));
}

struct AddSign {
  static constexpr int kSlots = 1;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    loop([lr = h[0], alpha = h[1], decay = h[2], beta = h[3]](C g, C& var, C& m) {
      m = m * beta + g * (C(1) - beta);
      var -= lr * (alpha + decay * (Sign(g) * Sign(m))) * g;
    });
  }
};

struct PowerSign {
  static constexpr int kSlots = 1;
  template <typename C, typename Loop>
  static void Run(const Hyper<C>& h, Loop loop) {
    loop([lr = h[0], logbase = h[1], decay = h[2], beta = h[3]](C g, C& var, C& m) {
      m = m * beta + g * (C(1) - beta);
      var -= lr * std::exp(logbase * decay * (Sign(g) * Sign(m))) * g;
    });
  }
};

using RealDoubles = Types<float, double>;

void DefineGradientDescent(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var"}, {"alpha", "delta"});
  FinishApply<GradientDescent, ApplyTypes>(op);
  AddGpuApply(op, form, "GradientDescent");
  op.Doc("var -= alpha * delta.");
}

void DefineMomentum(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "accum"}, {"lr", "grad", "momentum"},
               {"use_nesterov: bool = false"});
  FinishApply<Momentum, ApplyTypes>(op);
  AddGpuApply(op, form, "Momentum");
  op.Doc("accum = momentum * accum + grad; var -= lr * accum.");
}

void DefineKerasMomentum(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "accum"}, {"lr", "grad", "momentum"},
               {"use_nesterov: bool = false"});
  FinishApply<KerasMomentum, ApplyTypes>(op);
  AddGpuApply(op, form, "KerasMomentum");
  op.Doc("accum = momentum * accum - lr * grad; var += accum.");
}

void DefineProximalGradientDescent(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var"}, {"alpha", "l1", "l2", form.sparse ? "grad" : "delta"});
  FinishApply<ProximalGradientDescent, RealDoubles>(op);
  AddGpuApply(op, form, "ProximalGradientDescent", {DType::kFloat, DType::kDouble});
  op.Doc("Gradient descent, then the proximal step of l1 and l2 regularisation.");
}

void DefineProximalAdagrad(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "accum"}, {"lr", "l1", "l2", "grad"});
  FinishApply<ProximalAdagrad, RealDoubles>(op);
  AddGpuApply(op, form, "ProximalAdagrad", {DType::kFloat, DType::kDouble});
  op.Doc("Adagrad, then the proximal step of l1 and l2 regularisation.");
}

void DefineAddSign(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "m"}, {"lr", "alpha", "sign_decay", "beta", "grad"});
  FinishApply<AddSign, Floats>(op);
  AddGpuApply(op, form, "AddSign");
  op.Doc("Steps are larger where the gradient agrees with its average.");
}

void DefinePowerSign(OpBuilder& op, ApplyForm form) {
  DeclareApply(op, form, {"var", "m"}, {"lr", "logbase", "sign_decay", "beta", "grad"});
  FinishApply<PowerSign, Floats>(op);
  AddGpuApply(op, form, "PowerSign");
  op.Doc("Steps are exponentially larger where the gradient agrees with its average.");
}

}  // namespace

DEFINE_OP(ApplyGradientDescent) {
  DefineGradientDescent(op, {});
}
DEFINE_OP(ResourceApplyGradientDescent) {
  DefineGradientDescent(op, {.resource = true});
}

DEFINE_OP(ApplyMomentum) {
  DefineMomentum(op, {});
}
DEFINE_OP(SparseApplyMomentum) {
  DefineMomentum(op, {.sparse = true});
}
DEFINE_OP(ResourceApplyMomentum) {
  DefineMomentum(op, {.resource = true});
}
DEFINE_OP(ResourceSparseApplyMomentum) {
  DefineMomentum(op, {.resource = true, .sparse = true});
}

DEFINE_OP(ResourceApplyKerasMomentum) {
  DefineKerasMomentum(op, {.resource = true});
}
DEFINE_OP(ResourceSparseApplyKerasMomentum) {
  DefineKerasMomentum(op, {.resource = true, .sparse = true});
}

DEFINE_OP(ApplyProximalGradientDescent) {
  DefineProximalGradientDescent(op, {});
}
DEFINE_OP(SparseApplyProximalGradientDescent) {
  DefineProximalGradientDescent(op, {.sparse = true});
}
DEFINE_OP(ResourceApplyProximalGradientDescent) {
  DefineProximalGradientDescent(op, {.resource = true});
}
DEFINE_OP(ResourceSparseApplyProximalGradientDescent) {
  DefineProximalGradientDescent(op, {.resource = true, .sparse = true});
}

DEFINE_OP(ApplyProximalAdagrad) {
  DefineProximalAdagrad(op, {});
}
DEFINE_OP(SparseApplyProximalAdagrad) {
  DefineProximalAdagrad(op, {.sparse = true});
}
DEFINE_OP(ResourceApplyProximalAdagrad) {
  DefineProximalAdagrad(op, {.resource = true});
}
DEFINE_OP(ResourceSparseApplyProximalAdagrad) {
  DefineProximalAdagrad(op, {.resource = true, .sparse = true});
}

DEFINE_OP(ApplyAddSign) {
  DefineAddSign(op, {});
}
DEFINE_OP(ResourceApplyAddSign) {
  DefineAddSign(op, {.resource = true});
}

DEFINE_OP(ApplyPowerSign) {
  DefinePowerSign(op, {});
}
DEFINE_OP(ResourceApplyPowerSign) {
  DefinePowerSign(op, {.resource = true});
}

}  // namespace muster
