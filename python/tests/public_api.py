"""The public names of tf and of the modules below it, for the tests of stubs and docstrings."""
import inspect
import types

import gen_python_stubs

import muster as tf


def modules():
    """{"tf": module, "tf.train": module, ...}: every module that programs reach from tf."""
    found, at = {}, [("tf", tf)]
    seen = set()
    while at:
        path, module = at.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        found[path] = module
        for name in gen_python_stubs.public_names(module):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType) and gen_python_stubs.stub_name(value):
                at.insert(0, (path + "." + name, value))
    return found


def callables():
    """{"tf.train.Saver.save": function}: public functions, classes and methods of Muster, each under its shortest name."""
    found, seen = {}, set()
    for path, module in sorted(modules().items(), key=lambda item: (item[0].count("."), item[0])):
        for name in gen_python_stubs.public_names(module):
            value = getattr(module, name)
            if not (inspect.isfunction(value) or inspect.isclass(value)) or id(value) in seen:
                continue
            if not str(value.__module__).startswith("muster."):
                continue
            seen.add(id(value))
            found[path + "." + name] = value
            for member in dir(value) if inspect.isclass(value) else ():
                method = inspect.getattr_static(value, member)
                method = getattr(method, "__func__", method)
                if member.startswith("_") or not inspect.isfunction(method) or id(method) in seen:
                    continue
                if str(method.__module__).startswith("muster."):
                    seen.add(id(method))
                    found["%s.%s.%s" % (path, name, member)] = method
    return found
