"""Elements of datasets: nested tuples, named tuples and dicts of tensors (lists become tensors), and their types."""
import collections.abc

from muster import dtypes, errors, nest
from muster.graph import convert, framework, tensor_shape
from muster.ops import sparse_ops, sparse_tensor


class Spec(object):
    """The type and static shape of one component."""

    def __init__(self, dtype, shape):
        self.dtype = dtypes.as_dtype(dtype).base_dtype
        self.shape = tensor_shape.as_shape(shape)

    output_class = property(lambda self: framework.Tensor)
    legacy_type = property(lambda self: self.dtype)
    legacy_shape = property(lambda self: self.shape)
    # How the component passes between nodes.
    component_dtype = property(lambda self: self.dtype)
    component_shape = property(lambda self: self.shape)

    def with_shape(self, shape):
        return Spec(self.dtype, shape)

    def element(self, tensor):
        return tensor

    def is_compatible_with(self, other):
        return type(self) is type(other) and self.dtype == other.dtype and self.shape.is_compatible_with(other.shape)


class SparseSpec(Spec):
    """A sparse component: it passes between nodes as variants, three for each sparse tensor."""

    output_class = property(lambda self: sparse_tensor.SparseTensor)
    component_dtype = property(lambda self: dtypes.variant)
    component_shape = property(lambda self: tensor_shape.TensorShape(None))

    def with_shape(self, shape):
        return SparseSpec(self.dtype, shape)

    def element(self, tensor):
        return sparse_ops.deserialize_sparse(tensor, self.dtype, rank=self.shape.ndims)


class DatasetSpec(Spec):
    """A component that is a dataset itself: a variant with what its elements are."""

    def __init__(self, element_spec, dataset_class):
        super(DatasetSpec, self).__init__(dtypes.variant, [])
        self.element_spec = element_spec
        self.dataset_class = dataset_class

    output_class = property(lambda self: self.dataset_class)
    legacy_type = property(lambda self: types_of(self.element_spec))
    legacy_shape = property(lambda self: shapes_of(self.element_spec))

    def with_shape(self, shape):
        raise errors.UnimplementedError(None, None, "Datasets of datasets cannot be batched")

    def element(self, tensor):
        return self.dataset_class(tensor, self.element_spec)


def is_nested(value):
    if isinstance(value, sparse_tensor.SparseTensorValue):
        return False
    return isinstance(value, (tuple, collections.abc.Mapping)) or hasattr(type(value), "__attrs_attrs__")


def flatten(value):
    if not is_nested(value):
        return [value]
    return [leaf for item in nest._items(value) for leaf in flatten(item)]


def pack(shape_of, leaves):
    """`leaves` nested as `shape_of` is."""
    leaves = iter(leaves)

    def build(value):
        if not is_nested(value):
            return next(leaves)
        return nest._rebuild(value, [build(item) for item in nest._items(value)])

    return build(shape_of)


def transform(function, value):
    return pack(value, [function(leaf) for leaf in flatten(value)])


def flatten_up_to(shallow, deep):
    """Parts of `deep` that stand where `shallow` has leaves; shapes may be tuples, which do not count as nesting."""
    if not is_nested(shallow):
        return [deep]
    if isinstance(deep, list):
        deep = tuple(deep)
    if not is_nested(deep):
        raise TypeError("If shallow structure is a sequence, input must also be a sequence. Input has type: %s."
                        % type(deep))
    if isinstance(shallow, collections.abc.Mapping):
        if not isinstance(deep, collections.abc.Mapping) or sorted(shallow) != sorted(deep):
            raise ValueError("The two structures don't have the same keys. First structure has keys %s, second "
                             "structure is %s" % (sorted(shallow), deep))
    parts, others = nest._items(shallow), nest._items(deep)
    if len(parts) != len(others):
        raise ValueError("The two structures don't have the same sequence length. Input structure has length %d, while "
                         "shallow structure has length %d." % (len(others), len(parts)))
    return [leaf for part, other in zip(parts, others) for leaf in flatten_up_to(part, other)]


def from_legacy(output_types, output_shapes=None, output_classes=None):
    """The specs that types, shapes and classes of elements describe."""
    types = flatten(output_types)
    shapes = [None] * len(types) if output_shapes is None else flatten_up_to(output_types, output_shapes)
    classes = [framework.Tensor] * len(types) if output_classes is None else flatten_up_to(output_types, output_classes)
    return pack(output_types, [_spec_class(kind)(t, s) for kind, t, s in zip(classes, types, shapes)])


def _spec_class(kind):
    if kind is sparse_tensor.SparseTensor:
        return SparseSpec
    if kind is not framework.Tensor:
        raise errors.UnimplementedError(None, None, "Elements of datasets cannot be %s: Muster supports dense and "
                                        "sparse tensors only" % getattr(kind, "__name__", kind))
    return Spec


def types_of(spec):
    return transform(lambda s: s.legacy_type, spec)


def shapes_of(spec):
    return transform(lambda s: s.legacy_shape, spec)


def classes_of(spec):
    return transform(lambda s: s.output_class, spec)


def flat_attrs(spec):
    """Components as the ops name them."""
    specs = flatten(spec)
    return {"output_types": [s.component_dtype for s in specs], "output_shapes": [s.component_shape for s in specs]}


def element(spec, tensors):
    """Tensors as the element that functions and programs see."""
    return pack(spec, [s.element(t) for s, t in zip(flatten(spec), tensors)])


def tensors(value, names=False, rows=False):
    """The tensors of an element and its specs. `names`: constants are called component_0, component_1, ...; `rows`:
    sparse tensors will be split into their rows."""
    from muster.data import dataset

    flat, specs = [], []
    for i, leaf in enumerate(flatten(value)):
        if isinstance(leaf, dataset.Dataset):
            flat.append(leaf._variant_tensor)
            specs.append(DatasetSpec(leaf._spec, dataset.Dataset))
            continue
        if leaf is None:
            raise TypeError("None cannot be an element of a dataset")
        if isinstance(leaf, (sparse_tensor.SparseTensor, sparse_tensor.SparseTensorValue)):
            leaf = sparse_tensor.SparseTensor.from_value(leaf)
            serialize = sparse_ops.serialize_many_sparse if rows else sparse_ops.serialize_sparse
            flat.append(serialize(leaf, out_type=dtypes.variant))
            specs.append(SparseSpec(leaf.dtype, leaf.get_shape()))
            continue
        tensor = convert.convert_to_tensor(leaf, name="component_%d" % i if names else None)
        flat.append(tensor)
        specs.append(Spec(tensor.dtype, tensor.shape))
    return flat, pack(value, specs)
