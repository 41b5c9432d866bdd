"""tensorflow.python.client.device_lib: the devices of this process."""
from muster import _muster, _protos


def list_local_devices(session_config=None):
    from muster.session import session

    options = session._session_options(session_config)
    devices = _muster.new_session(_muster.Graph(), **options).list_devices()
    result = []
    for name, device_type, memory_limit, incarnation, description in devices:
        result.append(_protos.get("tensorflow.DeviceAttributes")(
            name=name[name.index("/device:"):], device_type=device_type, memory_limit=memory_limit,
            incarnation=incarnation, locality={}, physical_device_desc=description))
    return result
