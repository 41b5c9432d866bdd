// Nodes of one operand: Unary<Tanh, float>.
#include "muster/ops/math/unary.cuh"
