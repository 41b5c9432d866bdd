"""What TensorFlow's wheel registers: op definitions and the element types of its CPU kernels."""

import hashlib
import pathlib
import pickle
import subprocess

from muster import _protos

import element_types as et

# Kernels that are registered without naming types and then refuse these.
REFUSED = {"Cast": (et.STRING,)}


class Registry:
    def __init__(self, op_list, kernels):
        self.ops = {op.name: op for op in _protos.get("tensorflow.OpList").FromString(op_list).op}
        self.kernels = kernels

    def type_attrs(self, op):
        return [a for a in self.ops[op].attr if a.type == "type"]

    def _allowed(self, attr):
        return [t for t in (list(attr.allowed_values.list.type) or et.USABLE) if t in et.USABLE]

    def combinations(self, op):
        """{type attr: registered values} once per CPU kernel; values that a test cannot feed are left out."""
        attrs = self.type_attrs(op)
        found = []
        for kernel in self.kernels.get(op, []):
            if set(kernel) - {a.name for a in self.ops[op].attr}:
                continue  # asks for an attribute that the op does not have: TensorFlow can never run it
            # Some kernels are registered for types that the op does not take.
            values = {a.name: [t for t in self._allowed(a) if t in (kernel.get(a.name) or et.USABLE) and t not in REFUSED.get(
                op, ())] for a in attrs}
            if all(values.values()) or not values:
                found.append(values)
        return found

    def typings(self, op):
        """[(label, {type attr: value})]: every registered value of every type attribute once, with the other attributes
        at a common value that is registered together with it."""
        preferred = {a.name: (a.default_value.type,) if a.HasField("default_value") else (et.FLOAT, et.INT32)
                     for a in self.type_attrs(op)}
        result = {}
        for combination in self.combinations(op):
            for name, values in combination.items():
                for value in values:
                    others = {n: next((p for p in preferred[n] if p in vs), vs[0])
                              for n, vs in combination.items() if n != name}
                    common = sum(v in preferred[n] for n, v in others.items())
                    label = f"{name}={et.NAMES[value]}"
                    if label not in result or result[label][0] < common:
                        result[label] = (common, {name: value, **others})
        if not self.type_attrs(op) or not result:
            return [("-", {})] if not self.type_attrs(op) and self.combinations(op) else []
        return [(label, chosen) for label, (_, chosen) in sorted(result.items())]


def load(tf_python, worker, folder):
    """The registry of the wheel behind `tf_python`; asked for once per interpreter."""
    stamp = hashlib.sha256(str(pathlib.Path(tf_python).absolute()).encode()).hexdigest()[:8]
    path = folder / "registry.pickle"  # recorded for machines without TensorFlow
    if not path.exists():
        path = folder / f"registry-{stamp}.pickle"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([tf_python, str(worker), "registry", str(path)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"TensorFlow's registry cannot be read: {done.stderr[-2000:]}")
    with open(path, "rb") as file:
        return Registry(*pickle.load(file))
