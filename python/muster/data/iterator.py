"""Iterators: where a graph takes the next element of a dataset."""
from muster.data import structure
from muster.graph import framework
from muster.graph.op_library import call

GLOBAL_ITERATORS = "iterators"


class Iterator(object):
    """The state of one pass through a dataset, kept where the iterator's node runs."""

    def __init__(self, iterator_resource, initializer, output_types, output_shapes=None, output_classes=None, spec=None):
        self._iterator_resource = iterator_resource
        self._initializer = initializer
        self._spec = structure.from_legacy(output_types, output_shapes, output_classes) if spec is None else spec
        self._string_handle = call("IteratorToStringHandle", resource_handle=iterator_resource)
        framework.add_to_collection(GLOBAL_ITERATORS, iterator_resource)

    @staticmethod
    def from_structure(output_types, output_shapes=None, shared_name=None, output_classes=None):
        """An iterator over any dataset of this structure, given by make_initializer."""
        spec = structure.from_legacy(output_types, output_shapes, output_classes)
        resource = call("IteratorV2", container="", shared_name=shared_name or "", **structure.flat_attrs(spec))
        return Iterator(resource, None, None, spec=spec)

    @staticmethod
    def from_string_handle(string_handle, output_types, output_shapes=None, output_classes=None):
        """The iterator whose string_handle() is fed."""
        from muster import dtypes
        from muster.graph import convert

        spec = structure.from_legacy(output_types, output_shapes, output_classes)
        string_handle = convert.convert_to_tensor(string_handle, dtypes.string)
        resource = call("IteratorFromStringHandleV2", string_handle=string_handle, **structure.flat_attrs(spec))
        return Iterator(resource, None, None, spec=spec)

    @property
    def initializer(self):
        if self._initializer is None:
            raise ValueError("Iterator does not have an initializer.")
        return self._initializer

    def make_initializer(self, dataset, name=None):
        """An operation that starts this iterator at the beginning of `dataset`."""
        with framework.name_scope(name, "make_initializer") as name:
            ours, theirs = structure.flatten(self._spec), structure.flatten(dataset._spec)
            if len(ours) != len(theirs) or any(a.dtype != b.dtype for a, b in zip(ours, theirs)):
                raise TypeError("Expected output types %r but got dataset with output types %r."
                                % (self.output_types, dataset.output_types))
            if not all(a.shape.is_compatible_with(b.shape) for a, b in zip(ours, theirs)):
                raise TypeError("Expected output shapes compatible with %r but got dataset with output shapes %r."
                                % (self.output_shapes, dataset.output_shapes))
            dataset = dataset._apply_options()
            with framework.colocate_with(self._iterator_resource.op):
                return call("MakeIterator", name=name, dataset=dataset._variant_tensor, iterator=self._iterator_resource)

    def get_next(self, name=None):
        """The next element. Call it once: each call makes a node of its own, which takes elements of its own."""
        op_name = None if name is None else name
        tensors = call("IteratorGetNext", name=op_name, iterator=self._iterator_resource,
                       **structure.flat_attrs(self._spec))
        return structure.element(self._spec, tensors)

    def string_handle(self, name=None):
        if name is None:
            return self._string_handle
        return call("IteratorToStringHandle", name=name, resource_handle=self._iterator_resource)

    output_types = property(lambda self: structure.types_of(self._spec))
    output_shapes = property(lambda self: structure.shapes_of(self._spec))
    output_classes = property(lambda self: structure.classes_of(self._spec))
