#include "muster/train/optimizers/decay.h"

#include <numbers>
#include <utility>

#include "absl/strings/str_join.h"

#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/cond_context.h"

namespace muster {
namespace {

absl::string_view NameOr(absl::string_view name, absl::string_view otherwise) {
  return name.empty() ? otherwise : name;
}

Output Unary(const Scope& scope, absl::string_view op, Output x) {
  return scope.Op(op, {x});
}

// A binary function of the front end, not an operator: its name is the op's or `name`.
Output CallBinary(const Scope& scope, absl::string_view op, const Operand& x, const Operand& y,
                  absl::string_view name = "") {
  return CallOpOutput(scope, op, {{"x", x}, {"y", y}}, {}, name);
}

Output Power(const Scope& scope, const Operand& x, const Operand& y) {
  return Operator(scope, "Pow", "pow", x, y);
}

absl::StatusOr<Output> Checked(const Scope& scope, Output output) {
  RETURN_IF_ERROR(scope.status());
  return output;
}

// What the decays share: their scope, the learning rate as a tensor, and numbers of its type.
struct Schedule {
  Schedule(const Scope& scope, absl::string_view name, const Operand& learning_rate)
      : own(scope.NameScope(name)), rate(Convert(own, learning_rate, "initial_learning_rate")) {}
  Operand AsRate(const Operand& value) const {
    return Cast(own, value, rate ? rate.base_dtype() : DType::kFloat);
  }
  Scope own;
  Output rate;
};

absl::StatusOr<Output> Exponential(const Scope& scope, const Operand& learning_rate,
                                   const Operand& global_step, const Operand& decay_steps,
                                   const Operand& decay_rate, bool staircase,
                                   absl::string_view name) {
  const Schedule s(scope, NameOr(name, "ExponentialDecay"), learning_rate);
  const Operand steps = s.AsRate(decay_steps);
  const Operand rate = s.AsRate(decay_rate);
  Output done = Over(s.own, s.AsRate(global_step), steps);
  if (staircase) done = Unary(s.own, "Floor", done);
  const Output factor = CallBinary(s.own, "Pow", rate, done);
  return Checked(s.own, CallBinary(s.own, "Mul", s.rate, factor, s.own.prefix()));
}

// 1 + cos(pi * fraction), halved or scaled by `factor`.
Output CosineOf(const Scope& own, Output fraction) {
  const Output pi = own.ConstScalar<float>(std::numbers::pi_v<float>);
  const Output cosine = Unary(own, "Cos", Times(own, pi, fraction));
  return Plus(own, Operand(1.0), cosine);
}

// (1 - alpha) * decayed + alpha, where a number alpha is folded beforehand.
Output AboveFloor(const Scope& own, const Operand& alpha, Output decayed) {
  if (const Number* number = alpha.number()) {
    const Number rest{1 - number->value, number->is_integer};
    return Plus(own, Times(own, rest, decayed), alpha);
  }
  const Output rest = Minus(own, Operand(1), alpha);
  return Plus(own, Times(own, rest, decayed), alpha);
}

}  // namespace

absl::StatusOr<Output> ExponentialDecay(const Scope& scope, const Operand& learning_rate,
                                        const Operand& global_step, const Operand& decay_steps,
                                        const Operand& decay_rate, bool staircase,
                                        absl::string_view name) {
  return Exponential(scope, learning_rate, global_step, decay_steps, decay_rate, staircase, name);
}

absl::StatusOr<Output> NaturalExpDecay(const Scope& scope, const Operand& learning_rate,
                                       const Operand& global_step, const Operand& decay_steps,
                                       const Operand& decay_rate, bool staircase,
                                       absl::string_view name) {
  const Output negative = CallOpOutput(scope, "Neg", {{"x", decay_rate}});
  const Output rate = Unary(scope, "Exp", negative);
  RETURN_IF_ERROR(scope.status());
  return Exponential(scope, learning_rate, global_step, decay_steps, rate, staircase, name);
}

absl::StatusOr<Output> InverseTimeDecay(const Scope& scope, const Operand& learning_rate,
                                        const Operand& global_step, const Operand& decay_steps,
                                        const Operand& decay_rate, bool staircase,
                                        absl::string_view name) {
  const Schedule s(scope, NameOr(name, "InverseTimeDecay"), learning_rate);
  const Operand steps = s.AsRate(decay_steps);
  const Operand rate = s.AsRate(decay_rate);
  Output done = Over(s.own, s.AsRate(global_step), steps);
  if (staircase) done = Unary(s.own, "Floor", done);
  const Operand one = s.AsRate(s.own.ConstScalar<int32_t>(1));
  const Output divisor = CallBinary(s.own, "Add", one, CallBinary(s.own, "Mul", rate, done));
  return Checked(s.own, CallBinary(s.own, "RealDiv", s.rate, divisor, s.own.prefix()));
}

absl::StatusOr<Output> PolynomialDecay(const Scope& scope, const Operand& learning_rate,
                                       const Operand& global_step, const Operand& decay_steps,
                                       const PolynomialDecayOptions& options) {
  const Schedule s(scope, NameOr(options.name, "PolynomialDecay"), learning_rate);
  const Operand end = s.AsRate(options.end_learning_rate);
  const Operand power = s.AsRate(options.power);
  Operand step = s.AsRate(global_step);
  Operand steps = s.AsRate(decay_steps);
  RETURN_IF_ERROR(s.own.status());
  if (options.cycle) {
    // The end of the cycle that the step is in; step 0 is in the first.
    const Output at_start = CallBinary(s.own, "Equal", step, Operand(0));
    RETURN_IF_ERROR(s.own.status());
    ASSIGN_OR_RETURN(
        const std::vector<Output> cycles,
        Cond(
            s.own, at_start,
            [&](const Scope& at) -> absl::StatusOr<std::vector<BranchResult>> {
              return std::vector<BranchResult>{at.ConstScalar<float>(1)};
            },
            [&](const Scope& at) -> absl::StatusOr<std::vector<BranchResult>> {
              ASSIGN_OR_RETURN(const Output whole,
                               Checked(at, Unary(at, "Ceil", Over(at, step, decay_steps))));
              if (whole.base_dtype() != DType::kFloat) {
                return InvalidArgument(
                    "Outputs of true_fn and false_fn must have the same type: float32, ",
                    PythonTypeName(whole.dtype()));
              }
              return std::vector<BranchResult>{whole};
            }));
    steps = CallBinary(s.own, "Mul", steps, cycles[0]);
  } else {
    step = CallBinary(s.own, "Minimum", step, decay_steps);
  }
  const Output done = Over(s.own, step, steps);
  const Output range = Minus(s.own, s.rate, end);
  const Output left = CallBinary(s.own, "Pow", Minus(s.own, Operand(1), done), power);
  const Output above = CallBinary(s.own, "Mul", range, left);
  return Checked(s.own, CallBinary(s.own, "Add", above, end, s.own.prefix()));
}

namespace {

struct Choice {
  Output predicate;
  Output value;
};

// Fails the step when more than one predicate holds.
absl::StatusOr<Node*> AssertExclusive(const Scope& own, const std::vector<Choice>& choices) {
  std::vector<Output> predicates;
  for (const Choice& choice : choices) predicates.push_back(choice.predicate);
  const Output packed = own.Op("Pack", {predicates}, {}, "preds_c");
  const Output ones = CastToOutput(own, packed, DType::kInt32);
  const Output axes = own.ConstVector({0});
  const Output count = own.Op("Sum", {ones, axes}, {}, "num_true_conds");
  const Output most = own.ConstScalar<int32_t>(1, "n_true_conds");
  const Output holds = own.Op("LessEqual", {count, most});
  RETURN_IF_ERROR(own.status());
  const std::string message = absl::StrCat(
      "Input error: exclusive=True: more than 1 conditions (",
      absl::StrJoin(predicates, ", ",
                    [](std::string* text, const Output& o) { text->append(o.name()); }),
      ") evaluated as True:");
  const Scope asserting = own.NameScope("Assert");
  asserting.ConstScalar<std::string>(message);
  ASSIGN_OR_RETURN(const std::vector<Output> guarded,
                   Cond(
                       asserting, holds,
                       [&](const Scope& at) -> absl::StatusOr<std::vector<BranchResult>> {
                         ASSIGN_OR_RETURN(Node * nothing, at.TryAdd("NoOp", {}));
                         return std::vector<BranchResult>{nothing};
                       },
                       [&](const Scope& at) -> absl::StatusOr<std::vector<BranchResult>> {
                         const Scope named = at.NameScope("Assert");
                         const Output text = named.ConstScalar<std::string>(message, "data_0");
                         Node* node =
                             AddNamed(named, "Assert", {holds, std::vector<Output>{text, packed}},
                                      {{"summarize", static_cast<int64_t>(predicates.size())}});
                         RETURN_IF_ERROR(named.status());
                         return std::vector<BranchResult>{node};
                       },
                       "AssertGuard"));
  return guarded[0].node;
}

absl::StatusOr<Output> FirstThatHolds(const Scope& scope, const std::vector<Choice>& choices,
                                      size_t from, Output otherwise) {
  if (from == choices.size()) return otherwise;
  ASSIGN_OR_RETURN(const std::vector<Output> merged,
                   Cond(
                       scope, choices[from].predicate,
                       [&](const Scope&) -> absl::StatusOr<std::vector<BranchResult>> {
                         return std::vector<BranchResult>{choices[from].value};
                       },
                       [&](const Scope& at) -> absl::StatusOr<std::vector<BranchResult>> {
                         ASSIGN_OR_RETURN(const Output rest,
                                          FirstThatHolds(at, choices, from + 1, otherwise));
                         return std::vector<BranchResult>{rest};
                       }));
  return merged[0];
}

}  // namespace

absl::StatusOr<Output> PiecewiseConstant(const Scope& scope, const Operand& x,
                                         const std::vector<Operand>& boundaries,
                                         const std::vector<Operand>& values,
                                         absl::string_view name) {
  std::vector<Output> limits, results;
  for (const Operand& boundary : boundaries) limits.push_back(Convert(scope, boundary));
  for (const Operand& value : values) results.push_back(Convert(scope, value));
  const Output at = Convert(scope, x);
  RETURN_IF_ERROR(scope.status());
  for (Output& limit : limits) {
    if (limit.base_dtype() == at.base_dtype()) continue;
    // Only plain integers may be widened; other conversions could change the side x is on.
    if (limit.base_dtype() != DType::kInt32 || at.base_dtype() != DType::kInt64) {
      return InvalidArgument("Boundaries (<dtype: '", PythonTypeName(limit.dtype()),
                             "'>) must have the same dtype as x (<dtype: '",
                             PythonTypeName(at.dtype()), "'>).");
    }
    limit = CastToOutput(scope, limit, at.base_dtype());
  }
  for (const Output& value : results) {
    if (value.base_dtype() == results[0].base_dtype()) continue;
    return InvalidArgument("Values must have elements all with the same dtype (<dtype: '",
                           PythonTypeName(results[0].dtype()), "'> vs <dtype: '",
                           PythonTypeName(value.dtype()), "'>).");
  }
  if (limits.empty() || limits.size() + 1 != results.size()) {
    return InvalidArgument("The length of boundaries should be 1 less than the length of values");
  }
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(NameOr(name, "PiecewiseConstant")));
  // Converted again: TensorFlow checks types with one tensor and compares another.
  const Output compared = Convert(own, x);
  const auto compare = [&](absl::string_view op, Output limit) {
    return Operator(own, op, op, compared, limit);
  };
  std::vector<Choice> choices = {{compare("LessEqual", limits.front()), results.front()},
                                 {compare("Greater", limits.back()), results.back()}};
  for (size_t i = 0; i + 1 < limits.size(); ++i) {
    const Output above = compare("Greater", limits[i]);
    const Output below = compare("LessEqual", limits[i + 1]);
    choices.push_back({own.Op("LogicalAnd", {above, below}, {}, "and"), results[i + 1]});
  }
  RETURN_IF_ERROR(own.status());
  const Scope cases = own.NameScope("case");
  ASSIGN_OR_RETURN(Node * exclusive, AssertExclusive(cases, choices));
  return FirstThatHolds(cases.WithControlDependencies({exclusive}), choices, 0, results[0]);
}

absl::StatusOr<Output> CosineDecay(const Scope& scope, const Operand& learning_rate,
                                   const Operand& global_step, const Operand& decay_steps,
                                   const Operand& alpha, absl::string_view name) {
  const Schedule s(scope, NameOr(name, "CosineDecay"), learning_rate);
  const Operand steps = s.AsRate(decay_steps);
  const Output step = CallBinary(s.own, "Minimum", s.AsRate(global_step), steps);
  const Output cosine = CosineOf(s.own, Over(s.own, step, steps));
  const Output decayed = Times(s.own, Operand(0.5), cosine);
  return Checked(s.own, CallBinary(s.own, "Mul", s.rate, AboveFloor(s.own, alpha, decayed)));
}

absl::StatusOr<Output> CosineDecayRestarts(const Scope& scope, const Operand& learning_rate,
                                           const Operand& global_step,
                                           const Operand& first_decay_steps,
                                           const CosineRestartsOptions& options) {
  const Schedule s(scope, NameOr(options.name, "SGDRDecay"), learning_rate);
  const Operand first = s.AsRate(first_decay_steps);
  const Operand alpha = s.AsRate(options.alpha);
  const Operand t_mul = s.AsRate(options.t_mul);
  const Operand m_mul = s.AsRate(options.m_mul);
  const Output done = Over(s.own, s.AsRate(global_step), first);
  const Output equal = CallBinary(s.own, "Equal", t_mul, Operand(1.0));
  RETURN_IF_ERROR(s.own.status());
  const auto results = [](const Scope& at, Output restarts,
                          Output fraction) -> absl::StatusOr<std::vector<BranchResult>> {
    RETURN_IF_ERROR(at.status());
    return std::vector<BranchResult>{restarts, fraction};
  };
  // How many periods are over, and how much of the present one.
  ASSIGN_OR_RETURN(const std::vector<Output> merged,
                   Cond(
                       s.own, equal,
                       [&](const Scope& at) {
                         const Output restarts = Unary(at, "Floor", done);
                         return results(at, restarts, Minus(at, done, restarts));
                       },
                       [&](const Scope& at) {
                         const Output shorter = Minus(at, Operand(1.0), t_mul);
                         const Output inner = Minus(at, Operand(1.0), Times(at, done, shorter));
                         const Output log = Unary(at, "Log", inner);
                         const Output log_of_t = CallOpOutput(at, "Log", {{"x", t_mul}});
                         const Output restarts = Unary(at, "Floor", Over(at, log, log_of_t));
                         const Output grown = Minus(at, Operand(1.0), Power(at, t_mul, restarts));
                         const Output before = Over(at, grown, Minus(at, Operand(1.0), t_mul));
                         const Output since = Minus(at, done, before);
                         return results(at, restarts, Over(at, since, Power(at, t_mul, restarts)));
                       }));
  const Output lowered = Times(s.own, Operand(0.5), Power(s.own, m_mul, merged[0]));
  const Output decayed = Times(s.own, lowered, CosineOf(s.own, merged[1]));
  return Checked(
      s.own, CallBinary(s.own, "Mul", s.rate, AboveFloor(s.own, alpha, decayed), s.own.prefix()));
}

namespace {

// (alpha + linear) * half a cosine of the periods + beta, times the learning rate.
absl::StatusOr<Output> CosineTimes(const Schedule& s, Output linear, Output step,
                                   const Operand& steps, const Operand& num_periods,
                                   const Operand& alpha, const Operand& beta) {
  const Output done = Over(s.own, step, steps);
  const Output fraction = Times(s.own, Times(s.own, Operand(2.0), num_periods), done);
  const Output decayed = Times(s.own, Operand(0.5), CosineOf(s.own, fraction));
  const Output scaled = Times(s.own, Plus(s.own, alpha, linear), decayed);
  const Output factor = Plus(s.own, scaled, beta);
  return Checked(s.own, CallBinary(s.own, "Mul", s.rate, factor, s.own.prefix()));
}

// random_normal of float32 with a tensor for its deviation.
absl::StatusOr<Output> Noise(const Scope& scope, Output like, Output deviation) {
  const std::optional<Shape> shape = like.shape().ToShape();
  if (!shape.has_value()) {
    return InvalidArgument("Cannot convert a partially known TensorShape to a Tensor: ",
                           like.shape().ToString());
  }
  if (deviation.base_dtype() != DType::kFloat) {
    const std::string type = PythonTypeName(deviation.dtype());
    return InvalidArgument("Tensor conversion requested dtype float32 for Tensor with dtype ", type,
                           ": 'Tensor(\"", deviation.name(), "\", shape=(), dtype=", type, ")'");
  }
  const Scope own = scope.NameScope("random_normal");
  const std::vector<int32_t> dims(shape->dims().begin(), shape->dims().end());
  const Output dims_tensor = own.ConstVector(dims, "shape");
  const Output mean = own.ConstScalar<float>(0, "mean");
  const SeedPair seeds = SeedsFor(own.graph(), std::nullopt);
  const Output noise =
      own.Op("RandomStandardNormal", {dims_tensor},
             {{"dtype", DType::kFloat}, {"seed", seeds.seed}, {"seed2", seeds.seed2}});
  const Output scaled = own.Op("Mul", {noise, deviation}, {}, "mul");
  return Checked(own, OpNamed(own, "Add", {scaled, mean}));
}

}  // namespace

absl::StatusOr<Output> LinearCosineDecay(const Scope& scope, const Operand& learning_rate,
                                         const Operand& global_step, const Operand& decay_steps,
                                         const LinearCosineOptions& options) {
  const Schedule s(scope, NameOr(options.name, "LinearCosineDecay"), learning_rate);
  const Operand steps = s.AsRate(decay_steps);
  const Operand num_periods = s.AsRate(options.num_periods);
  const Operand alpha = s.AsRate(options.alpha);
  const Operand beta = s.AsRate(options.beta);
  const Output step = CallBinary(s.own, "Minimum", s.AsRate(global_step), steps);
  const Output linear = Over(s.own, Minus(s.own, steps, step), steps);
  return CosineTimes(s, linear, step, steps, num_periods, alpha, beta);
}

absl::StatusOr<Output> NoisyLinearCosineDecay(const Scope& scope, const Operand& learning_rate,
                                              const Operand& global_step,
                                              const Operand& decay_steps,
                                              const NoisyLinearCosineOptions& options) {
  const Schedule s(scope, NameOr(options.linear.name, "NoisyLinearCosineDecay"), learning_rate);
  const Operand steps = s.AsRate(decay_steps);
  const Operand initial_variance = s.AsRate(options.initial_variance);
  const Operand variance_decay = s.AsRate(options.variance_decay);
  const Operand num_periods = s.AsRate(options.linear.num_periods);
  const Operand alpha = s.AsRate(options.linear.alpha);
  const Operand beta = s.AsRate(options.linear.beta);
  const Output step = CallBinary(s.own, "Minimum", s.AsRate(global_step), steps);
  const Output linear = Over(s.own, Minus(s.own, steps, step), steps);
  const Output shrink = CallBinary(s.own, "Pow", Plus(s.own, Operand(1.0), step), variance_decay);
  const Output deviation = Unary(s.own, "Sqrt", Over(s.own, initial_variance, shrink));
  RETURN_IF_ERROR(s.own.status());
  ASSIGN_OR_RETURN(const Output noise, Noise(s.own, linear, deviation));
  const Output noisy = Plus(s.own, linear, noise);
  return CosineTimes(s, noisy, step, steps, num_periods, alpha, beta);
}

}  // namespace muster
