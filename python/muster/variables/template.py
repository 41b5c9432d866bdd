"""tf.make_template: a function whose variables are made by its first call and shared by all later ones."""
import functools

from muster import tf_logging
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.variables import variable_scopes

_NEW_VARIABLES = ("variable%s created when calling a template after the first time, perhaps you used tf.Variable when "
                  "you meant tf.get_variable: %s")


def make_template(name_, func_, create_scope_now_=False, unique_name_=None, custom_getter_=None, **kwargs):
    if kwargs:
        func_ = functools.partial(func_, **kwargs)
    return Template(name_, func_, create_scope_now_, unique_name_, custom_getter_)


class Template(object):
    """What make_template returns."""

    def __init__(self, name, func, create_scope_now=False, unique_name=None, custom_getter=None):
        if name is None:
            raise ValueError("name cannot be None.")
        self._name, self._func, self._unique_name = name, func, unique_name
        self._custom_getter = custom_getter
        self._variables_created = False
        self._variable_scope = None
        if create_scope_now:
            with variable_scopes._PureVariableScope(unique_name or variable_scopes._unique_scope_name(name),
                                                    custom_getter=custom_getter, dtype=None) as scope:
                self._variable_scope = scope

    def __call__(self, *args, **kwargs):
        if self._variable_scope is not None:
            with variable_scopes.variable_scope(self._variable_scope, reuse=self._variables_created):
                return self._call(args, kwargs)
        with variable_scopes.variable_scope(self._unique_name, self._name,
                                            custom_getter=self._custom_getter) as scope:
            self._variable_scope = scope
            return self._call(args, kwargs)

    def _call(self, args, kwargs):
        if not self._variables_created:
            result = self._func(*args, **kwargs)
            self._variables_created = True
            return result
        trainable = framework.get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)
        all_variables = framework.get_collection_ref(GraphKeys.GLOBAL_VARIABLES)
        before = len(trainable), len(all_variables)
        result = self._func(*args, **kwargs)
        if len(trainable) != before[0]:
            raise ValueError("Trainable " + _NEW_VARIABLES % ("", trainable[before[0]:]))
        if len(all_variables) != before[1]:
            tf_logging.info("New " + _NEW_VARIABLES % ("s", all_variables[before[1]:]))
        return result

    name = property(lambda self: self._name)
    func = property(lambda self: self._func)
    variable_scope = property(lambda self: self._variable_scope)

    @property
    def variable_scope_name(self):
        return self._variable_scope.name if self._variable_scope is not None else None

    def _in_scope(self, key):
        if self._variable_scope is None:
            return []
        return framework.get_collection(key, self._variable_scope.name + "/")

    @property
    def trainable_variables(self):
        return self._in_scope(GraphKeys.TRAINABLE_VARIABLES)

    @property
    def global_variables(self):
        return self._in_scope(GraphKeys.GLOBAL_VARIABLES)

    @property
    def local_variables(self):
        return self._in_scope(GraphKeys.LOCAL_VARIABLES)

    @property
    def variables(self):
        return self.global_variables + self.local_variables


__all__ = ["make_template"]
