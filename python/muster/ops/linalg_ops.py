"""Norms, decompositions and solvers; tf.linalg."""
import numpy as np

from muster import errors
from muster.generated.linalg_ops import *  # noqa: F403
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.names import absent as _absent
from muster.ops import array_ops, math_ops
from muster.ops.array_ops import _merge_deprecated

__getattr__ = _absent.explain(__name__)

matmul = math_ops.matmul
matvec = math_ops.matvec
tensordot = math_ops.tensordot
trace = math_ops.trace
cross = math_ops.cross
eye = array_ops.eye
diag = array_ops.matrix_diag
diag_part = array_ops.matrix_diag_part
set_diag = array_ops.matrix_set_diag
band_part = array_ops.matrix_band_part
tensor_diag = array_ops.diag
tensor_diag_part = array_ops.diag_part
matrix_transpose = transpose = array_ops.matrix_transpose


def l2_normalize(x, axis=None, epsilon=1e-12, name=None, dim=None):
    from muster.nn import nn_ops

    return nn_ops.l2_normalize(x, axis, epsilon, name, dim)


def norm(tensor, ord="euclidean", axis=None, keepdims=None, name=None, keep_dims=None):
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    is_matrix = isinstance(axis, (tuple, list)) and len(axis) == 2
    if is_matrix:
        axis = tuple(axis)
        if not isinstance(axis[0], int) or not isinstance(axis[1], int) or axis[0] == axis[1]:
            raise ValueError("'axis' must be None, an integer, or a tuple of 2 unique integers")
        supported = ["euclidean", "fro", 1, 2, np.inf]
        if ord not in supported:
            raise ValueError("'ord' must be a supported matrix norm in %s, got %s" % (supported, ord))
    else:
        if not (isinstance(axis, int) or axis is None):
            raise ValueError("'axis' must be None, an integer, or a tuple of 2 unique integers")
        supported = ["euclidean", 1, 2, np.inf]
        if (not np.isreal(ord) or ord <= 0) and ord not in supported:
            raise ValueError("'ord' must be a supported vector norm, got %s" % ord)
        if axis is not None:
            axis = (axis,)
    with name_scope(name, "norm", [tensor]):
        tensor = convert_to_tensor(tensor)
        if ord in ("fro", "euclidean", 2, 2.0):
            if is_matrix and ord in (2, 2.0):
                raise errors.UnimplementedError(None, None, "The matrix 2-norm needs Svd, which is not supported")
            result = math_ops.sqrt(math_ops.reduce_sum(tensor * math_ops.conj(tensor), axis, keepdims=True))
        else:
            result = math_ops.abs(tensor)
            if ord == 1:
                result = math_ops.reduce_sum(result, None if axis is None else axis[0], keepdims=True)
                if is_matrix:
                    result = math_ops.reduce_max(result, axis[-1], keepdims=True)
            elif ord == np.inf:
                if is_matrix:
                    result = math_ops.reduce_sum(result, axis[1], keepdims=True)
                result = math_ops.reduce_max(result, None if axis is None else axis[0], keepdims=True)
            else:
                result = math_ops.pow(math_ops.reduce_sum(math_ops.pow(result, ord), axis, keepdims=True), 1.0 / ord)
        return result if keepdims else array_ops.squeeze(result, axis)


def cholesky_solve(chol, rhs, name=None):
    with name_scope(name, "cholesky_solve", [chol, rhs]):
        y = matrix_triangular_solve(chol, rhs, adjoint=False, lower=True)
        return matrix_triangular_solve(chol, y, adjoint=True, lower=True)


def svd(tensor, full_matrices=False, compute_uv=True, name=None):
    s, u, v = call("Svd", name=name, input=tensor, compute_uv=compute_uv, full_matrices=full_matrices)
    return (s, u, v) if compute_uv else s


inv, det, solve, triangular_solve = matrix_inverse, matrix_determinant, matrix_solve, matrix_triangular_solve


def global_norm(t_list, name=None):
    from muster.ops import clip_ops

    return clip_ops.global_norm(t_list, name)


def logdet(matrix, name=None):
    """log(det(m)) of Hermitian matrices that are positive definite."""
    with name_scope(name, "logdet", [matrix]):
        diagonal = array_ops.matrix_diag_part(call("Cholesky", input=matrix))
        return 2.0 * math_ops.reduce_sum(math_ops.log(math_ops.real(diagonal)), axis=[-1])


__all__ = ["norm", "cholesky", "cholesky_solve", "matrix_inverse", "matrix_determinant", "matrix_solve",
           "matrix_triangular_solve", "qr", "svd"]
