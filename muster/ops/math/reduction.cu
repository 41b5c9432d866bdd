// The functions of reduce.cuh for the ops of reductions.cuh: Reduce<Mean<float>>.
#include "muster/ops/math/reductions.cuh"
