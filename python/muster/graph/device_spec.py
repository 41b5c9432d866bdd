"""Names of devices: whole, in parts, and as functions that choose one for a node."""
from muster import _muster


class DeviceSpec(object):
    """A device name in parts."""

    def __init__(self, job=None, replica=None, task=None, device_type=None, device_index=None):
        self.job, self.replica, self.task = job, replica, task
        self.device_type = device_type.upper() if device_type else None
        self.device_index = device_index

    def parse_from_string(self, spec):
        parts = _muster.parse_device(spec)
        self.job, self.replica, self.task, self.device_type, self.device_index = parts
        return self

    @classmethod
    def from_string(cls, spec):
        return cls().parse_from_string(spec)

    def merge_from(self, dev):
        for part in ("job", "replica", "task", "device_type", "device_index"):
            if getattr(dev, part) is not None:
                setattr(self, part, getattr(dev, part))

    def to_string(self):
        text = ""
        if self.job is not None:
            text += "/job:" + self.job
        if self.replica is not None:
            text += "/replica:" + str(self.replica)
        if self.task is not None:
            text += "/task:" + str(self.task)
        if self.device_type is not None:
            text += "/device:%s:%s" % (self.device_type, "*" if self.device_index is None else self.device_index)
        return text

    def __eq__(self, other):
        return isinstance(other, DeviceSpec) and self.to_string() == other.to_string()

    def __hash__(self):
        return hash(self.to_string())


def device_string(device):
    if device is None:
        return ""
    if isinstance(device, DeviceSpec):
        return device.to_string()
    return DeviceSpec.from_string(str(device)).to_string()


def device_choice(graph, choice):
    """A device as the C++ core takes it: a string, or a function from a node to one."""
    if callable(choice) and not isinstance(choice, DeviceSpec):
        return lambda node: device_result(choice(graph._operation(node)))
    return device_string(choice)


def device_result(device):
    """What a device function returned, word for word: TensorFlow does not complete it."""
    if device is None:
        raise TypeError("Expected binary or unicode string, got None")
    return device.to_string() if isinstance(device, DeviceSpec) else str(device)
