"""Turns the events logged by the proxies and the client into transcripts.

tests/golden/wire/README.md describes the text.
"""
import base64
import glob
import json
import os
import re
import socket

from google.protobuf import text_format
from google.protobuf.message import DecodeError

import wire_messages

BYTES_LIMIT, STRING_LIMIT, LIST_LIMIT = 220, 4000, 40
PLAIN_HEADERS = ("user-agent", "content-type", "te", "grpc-accept-encoding", "accept-encoding")


def load(folder):
    """All events of one cluster, in order of time."""
    events = []
    for path in glob.glob(os.path.join(folder, "*.log")):
        with open(path) as f:
            for line in f:
                e = json.loads(line)
                e["f"] = os.path.basename(path)
                if "b" in e:
                    e["b"] = base64.b64decode(e["b"])
                e["tmd"] = [(k, base64.b64decode(v)) for k, v in e.get("tmd", ())]
                events.append(e)
    events.sort(key=lambda e: e["t"])
    name_callers_of_renamed_tasks(events)
    return events


def name_callers_of_renamed_tasks(events):
    """In l_clusterspec all tasks share one cluster_def, and so the ports of 'peer'."""
    jobs = {b"alpha": "ps:0", b"beta": "worker:0", b"boss": "worker:1"}
    for e in events:
        if e.get("src") == "peer":
            e["src"] = "worker:1"
            if e["m"].endswith("/RecvTensor"):
                e["src"] = jobs[e["b"].split(b";")[2].split(b"/")[1][4:]]


# ---- messages as text

def is_repeated(field):
    try:
        return field.is_repeated
    except AttributeError:
        return field.label == 3


def is_map(field):
    return is_repeated(field) and field.message_type is not None and field.message_type.GetOptions().map_entry


def shorten(message):
    """Cuts long strings and lists and drops debug_info, in place."""
    def short(x, is_bytes):
        limit = BYTES_LIMIT if is_bytes else STRING_LIMIT
        if len(x) <= limit:
            return x
        return x[:48] + (b" ...<%d bytes in all>" % len(x) if is_bytes else " ...<%d characters in all>" % len(x))
    for field, value in list(message.ListFields()):
        if field.name == "debug_info" and field.message_type is not None:
            message.ClearField(field.name)
        elif is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    shorten(value[key])
        elif field.message_type is not None:
            for x in value if is_repeated(field) else [value]:
                shorten(x)
        elif field.cpp_type == field.CPPTYPE_STRING:
            is_bytes = field.type == field.TYPE_BYTES
            if is_repeated(field):
                for i in range(len(value)):
                    value[i] = short(value[i], is_bytes)
            else:
                setattr(message, field.name, short(value, is_bytes))
        elif is_repeated(field) and len(value) > LIST_LIMIT:
            kept = list(value[:8])
            message.ClearField(field.name)
            getattr(message, field.name).extend(kept)


def one_line(message):
    return text_format.MessageToString(message, as_one_line=True)


def print_fields(message, indent, out):
    for field, value in message.ListFields():
        if field.message_type is not None and not is_map(field):
            for x in value if is_repeated(field) else [value]:
                text = one_line(x)
                if len(text) < 330 or field.message_type.name == "NodeDef":
                    out.append("%s%s { %s}" % (indent, field.name, text + " " if text else ""))
                else:
                    out.append("%s%s {" % (indent, field.name))
                    print_fields(x, indent + "  ", out)
                    out.append(indent + "}")
            continue
        single = type(message)()
        if is_map(field):
            getattr(single, field.name).MergeFrom(value)
        elif is_repeated(field):
            getattr(single, field.name).extend(value)
        else:
            setattr(single, field.name, value)
        if is_repeated(field) and field.cpp_type in (field.CPPTYPE_STRING, field.CPPTYPE_MESSAGE):
            out.extend(indent + line for line in text_format.MessageToString(single).rstrip().split("\n"))
        else:
            out.append(indent + one_line(single).rstrip())


def text_of(message_class, data, graphs=True, indent="    "):
    message = message_class()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return indent + "(not a %s: %s)" % (message_class.DESCRIPTOR.name, data[:64].hex())
    shorten(message)
    out = []
    if not graphs and "graph_def" in message.DESCRIPTOR.fields_by_name and message.HasField("graph_def"):
        nodes = message.graph_def.node
        out.append("%sgraph_def: %d nodes, written as name = op(inputs) @device" % (indent, len(nodes)))
        out += ["%s  %s = %s(%s)%s" % (indent, n.name, n.op, ", ".join(n.input), " @" + n.device if n.device else "")
                for n in nodes]
        message.ClearField("graph_def")
    print_fields(message, indent, out)
    return "\n".join(out)


# ---- transcripts

def address_names(events):
    """A function that replaces the addresses of the cluster: localhost:22001 -> worker0:2222."""
    task_at = next(e for e in events if e["ev"] == "addr")["task_at"]
    host = r"(localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0|%5B::1%5D|::1|\[::ffff:127\.0\.0\.1\])"

    def replace(match):
        task = task_at.get(match.group(2))
        return task.replace(":", "") + ":2222" if task else match.group(0)
    return lambda text: re.sub(host + r":(\d{5})\b", replace, text)


def clean(text):
    """Removes what depends on the machine and on the Python program."""
    text = re.sub(r"\(defined at [^)]*?:\d+\)", "(defined at FILE:LINE)", text)
    text = re.sub(r'\n +\| +File "[^"]*", line \d+, in [^\n]*', "", text)
    text = re.sub(r"(running on )%s\b" % re.escape(socket.gethostname()), r"\1HOST", text)
    text = re.sub(r"<tensorflow\.python[^>]*Session object at 0x[0-9a-f]+>", "<Session>", text)
    text = re.sub(r"ipv[46]:(%5B::1%5D|\[::1\]|127\.0\.0\.1|localhost):(\d+)", "ipv4:ADDRESS", text)
    text = re.sub(r"n{2900,}", lambda m: "<n x %d>" % len(m.group(0)), text)
    return re.sub(r"\[::1\]:\d+", "ADDRESS", text)


def window(events, name):
    """The events between begin and end of a scenario, and the time of its begin."""
    begin = next(e["t"] for e in events if e["ev"] == "begin" and e["s"] == name)
    end = next((e["t"] for e in events if e["ev"] == "end" and e["s"] == name), float("inf"))
    return [e for e in events if begin <= e["t"] <= end], begin


def body(events, name):
    graphs = not name.startswith("m_")
    named = address_names(events)
    events, begin = window(events, name)
    requests, out = {}, []
    for e in events:
        time, key = "%+8.3f" % (e["t"] - begin), (e["f"], e.get("id"))
        if e["ev"] == "note":
            out.append("%s  -- %s" % (time, named(e["s"]).replace("\n", "\n      | ")))
        elif e["ev"] == "req":
            number = len(requests) + 1
            requests[key] = (number, e)
            more = ""
            if e["dl"] is not None and e["dl"] < 1e8:
                more += "  deadline %.1f s" % e["dl"]
            headers = [(k, v) for k, v in e["md"] if k not in PLAIN_HEADERS]
            if headers:
                more += "  metadata " + " ".join("%s=%s" % (k, "ID" if k == "tf-rpc" else v) for k, v in headers)
            out.append("%s  [%d] %s -> %s  %s  (%d bytes)%s" % (
                time, number, e["src"], e["dst"], e["m"].replace("/tensorflow.", ""), len(e["b"]), more))
            try:
                text = text_of(wire_messages.request(e["m"]), e["b"], graphs)
            except KeyError:
                text = "    (undecoded)"
            if text:
                out.append(named(text))
        elif e["ev"] in ("ok", "err", "cancel") and key in requests:
            number, r = requests[key]
            method = r["m"].rsplit("/", 1)[1]
            if e["ev"] == "cancel":
                out.append("%s  [%d] %s x- %s  %s  cancelled by the caller" % (time, number, r["src"], r["dst"], method))
                continue
            head = "%s  [%d] %s <- %s  %s reply" % (time, number, r["src"], r["dst"], method)
            if e["ev"] == "ok":
                out.append(head + "  OK (%d bytes)" % len(e["b"]))
                text = text_of(wire_messages.reply(r["m"]), e["b"], graphs)
                if text:
                    out.append(named(text))
            else:
                out.append(head + "  gRPC status %s" % e["code"])
                out.append("      | " + named(e["msg"] or "").replace("\n", "\n      | "))
                out += ["      trailer %s = %r" % (k, v) for k, v in e["tmd"]]
    text = clean("\n".join(out) + "\n")
    if not graphs:
        text = re.sub(r"config_proto \{[^\n]*\}\n", "config_proto { ... }\n", text)
    return text


def write(events, name, folder):
    with open(os.path.join(folder, name + ".txt"), "w") as f:
        f.write(body(events, name))
