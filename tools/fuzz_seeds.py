#!/usr/bin/env python3
"""Makes the first inputs of the fuzz targets from recorded traffic.

    tools/fuzz_seeds.py WIRE DESCRIPTORS OUT

WIRE holds <version>/raw/*.jsonl (see the README beside the recordings), DESCRIPTORS is muster_protos.bin of a build,
OUT gets <target>/<hash>. `tools/fuzz.sh merge` then keeps those that add coverage in tests/fuzz/corpus.
"""
import base64
import hashlib
import json
import pathlib
import re
import struct
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

ROOT = pathlib.Path(__file__).resolve().parent.parent
LARGEST = 6000  # bytes; longer messages repeat what shorter ones show
SERVICES = {"kMasterService": "master_service", "kWorkerService": "worker_service"}
# Messages that are read without protobuf, and the target of each.
DECODERS = {
    "RecvTensorResponse": "recv_tensor_reply", "RunStepRequest": "run_step_request",
    "RunStepResponse": "run_step_reply", "RunGraphRequest": "run_graph_request",
    "RunGraphResponse": "run_graph_reply", "RunCallableRequest": "run_callable_request",
    "RunCallableResponse": "run_callable_reply",
}
TASKS = {"ps": "/job:w/replica:0/task:0", "worker": "/job:w/replica:0/task:1", "local": "/job:w/replica:0/task:0"}
TEXTS = {  # kind of text_fuzz.cc -> inputs
    0: ["ps=a:2222,b:2222;worker=c:2222", "ps|a:2222;b:2222,worker|c:2222", '{"ps": ["a:1"], "worker": {"1": "[::1]:2"}}'],
    1: ['{"a": [1, -2.5e3, true, false, null, "\\u00e9\\n"], "b": {}}', "[[[[]]]]"],
    2: ['{"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}'],
    3: ["/job:worker/replica:0/task:1/device:CPU:0", "/cpu:0", "/job:a/device:GPU:*", "/device:CPU:0"],
    4: ["/job:w/replica:0/task:0/device:CPU:0;00000000000000aa;/job:w/replica:0/task:1/device:CPU:0;edge_3_y;0:0"],
    5: ["/job:ps/replica:0/task:1/device:CPU:0", "node:12", "^node", "localhost:2222", "[::1]:80", "grpc://a:1"],
    6: ["T: {float, double} = DT_FLOAT", "N: int >= 1 = 3", "padding: {'SAME', 'VALID'} = 'SAME'", "x: N * T",
        "types: list(type) >= 1 = []", "shape: shape = { unknown_rank: true }", "input: Ref(T)"],
}
SERVER_DEF = """cluster { job { name: "ps" tasks { key: 0 value: "a:2222" } } job { name: "worker" tasks { key: 0 value: "b:2222" } } }
job_name: "worker" task_index: 0 protocol: "grpc" default_session_config { device_filters: "/job:ps" }"""


def message_classes(path):
    files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(path).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def method_numbers():
    """(service constant, method) -> number among the methods of its service, as service_fuzz.cc counts."""
    numbers, counts = {}, {}
    table = (ROOT / "muster/transport/messages/methods.cc").read_text()
    for service, name in re.findall(r"\{(k\w+Service), \"(\w+)\"", table):
        numbers[service, name] = counts.get(service, 0)
        counts[service] = counts.get(service, 0) + 1
    return numbers


def localized(text):
    """A text of a message in the words of the cluster that service_fuzz.cc makes."""
    text = re.sub(r"/job:(ps|worker|local)/replica:0/task:\d", lambda m: TASKS[m[1]], text)
    number = iter("01010101")
    return re.sub(r";[0-9a-f]{16};", lambda m: f";INCARNATION-CPU{next(number)};", text)


def localize(message):
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for item in value.values() if field.message_type.fields_by_name["value"].message_type else []:
                localize(item)
        elif field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                localize(item)
        elif field.name == "session_handle":
            message.session_handle = "SESSIONSESSIONSE"
        elif field.name in ("graph_handle", "handle") and isinstance(value, str):
            setattr(message, field.name, "0000000000000001")
        elif field.name in ("step_id", "request_id"):
            setattr(message, field.name, 1 + value % 5)
        elif field.type == field.TYPE_STRING and not field.is_repeated:
            setattr(message, field.name, localized(value))
        elif field.type == field.TYPE_STRING:
            value[:] = [localized(item) for item in value]


def recorded(wire):
    """(method path, "Request" or "Response", bytes) of every message."""
    for path in sorted(pathlib.Path(wire).glob("*/raw/*.jsonl")):
        methods = {}
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["ev"] == "request":
                methods[event["n"]] = event["method"]
                yield event["method"], "Request", base64.b64decode(event["b"])
            elif event["ev"] == "reply" and event["n"] in methods:
                yield methods[event["n"]], "Response", base64.b64decode(event["b"])


def own_steps(get):
    """Requests that fit the graph of service_fuzz.cc."""
    def tensor(named, values):
        named.dtype = 1
        named.tensor_shape.dim.add(size=len(values))
        named.tensor_content = struct.pack(f"<{len(values)}f", *values)
    for feeds, fetches, targets in [(["x"], ["y"], []), (["x", "w"], ["z"], ["go"]), (["x"], ["inc"], ["init"])]:
        step = get("tensorflow.RunStepRequest")(session_handle="SESSIONSESSIONSE", target=targets)
        step.fetch.extend(f"{name}:0" for name in fetches)
        for name in feeds:
            fed = step.feed.add(name=f"{name}:0")
            tensor(fed.tensor, [1, 2])
        yield "RunStep", step
        partial = get("tensorflow.RunStepRequest").FromString(step.SerializeToString())
        partial.partial_run_handle = "0"
        yield "RunStep", partial
    key = "/job:w/replica:0/task:0/device:CPU:0;INCARNATION-CPU0;/job:w/replica:0/task:0/device:CPU:0;{};0:0"
    run = get("tensorflow.RunGraphRequest")(session_handle="SESSIONSESSIONSE", create_worker_session_called=True,
                                            graph_handle="0000000000000001", step_id=9)
    for name in ["x:0", "w:0"]:
        tensor(run.send.add(name=key.format(name)).tensor, [1, 2])
    run.recv_key.append(key.format("z:0"))
    yield "RunGraph", run
    call = get("tensorflow.RunCallableRequest")(session_handle="SESSIONSESSIONSE", handle=0)
    tensor(call.feed.add(), [1, 2])
    yield "RunCallable", call
    yield "RecvTensor", get("tensorflow.RecvTensorRequest")(step_id=9, rendezvous_key=key.format("edge_1_y"))


def seeds(wire, get):
    """(target, input)."""
    numbers = method_numbers()
    def request(name, message):
        for service, target in SERVICES.items():
            if (service, name) in numbers:
                yield target, bytes([numbers[service, name]]) + message.SerializeToString()
    for path, kind, data in recorded(wire):
        name = path.rsplit("/", 1)[1]
        if name + kind in DECODERS:
            yield DECODERS[name + kind], b"\0" + data
            yield DECODERS[name + kind], b"\7" + data
        message = get(f"tensorflow.{name}{kind}")()
        try:
            message.ParseFromString(data)
        except Exception:  # recorded on purpose
            continue
        for field in ("graph_def",):
            if kind == "Request" and field in message.DESCRIPTOR.fields_by_name:
                graph = getattr(message, field)
                yield "graph", b"\0" + graph.SerializeToString()
                for node in graph.node:
                    for attr in node.attr.values():
                        yield "tensor", b"\1" + attr.SerializeToString()
                        if attr.HasField("tensor"):
                            yield "tensor", b"\0" + attr.tensor.SerializeToString()
                        if attr.HasField("shape"):
                            yield "tensor", b"\2" + attr.shape.SerializeToString()
        if kind == "Request":
            localize(message)
            yield from request(name, message)
        if name + kind == "RecvTensorResponse":
            yield "tensor", b"\0" + message.tensor.SerializeToString()
    for name, message in own_steps(get):
        yield from request(name, message)
        if name + "Request" in DECODERS:
            yield DECODERS[name + "Request"], b"\0" + message.SerializeToString()
    for kind, texts in TEXTS.items():
        for text in texts:
            yield "text", bytes([kind]) + text.encode()
    yield "server_def", SERVER_DEF.encode()
    yield "server_def", text_format.Parse(SERVER_DEF, get("tensorflow.ServerDef")()).SerializeToString()


def main():
    wire, descriptors, out = sys.argv[1:]
    counts = {}
    for target, data in seeds(wire, message_classes(descriptors)):
        if len(data) > LARGEST:
            continue
        folder = pathlib.Path(out) / target
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / hashlib.sha1(data).hexdigest()
        if not path.exists():
            counts[target] = counts.get(target, 0) + 1
            path.write_bytes(data)
    for target, count in sorted(counts.items()):
        print(f"{target}: {count} inputs")


if __name__ == "__main__":
    main()
