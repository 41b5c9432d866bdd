"""Sends the recorded requests of a transcript to a live server and compares the replies.

usage: wire_replay.py GOLDEN_DIR/SCENARIO --target HOST:PORT [--as TASK] [--peer TASK=PORT]...
       wire_replay.py GOLDEN_DIR/SCENARIO --task COMMAND [--as TASK]

The live server stands for TASK of the recording (default: the first task the
client calls): it gets every recorded request to TASK, in the recorded order,
with live handles, incarnations and fresh request ids. What the server itself
asks other tasks is answered from the recording by a stand-in for each of them:
with --task (template as in wire_record.py) the server is started in a cluster of
stand-ins; with --target each --peer gives the port on which the stand-in of a
task must listen, or the server has real peers and no --peer is needed.

Requests come from the recorded bytes where there are some, else from the text;
requests whose strings are cut in the text are skipped and named.
Exit status 1 when something differs. Needs grpcio and tensorflow 2.x.
"""
import argparse
import base64
import collections
import concurrent.futures
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time

import grpc
from google.protobuf import text_format

import wire_compare
import wire_messages
import wire_record
import wire_transcript
import wire_recordings

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0),
           ("grpc.max_metadata_size", 65536), ("grpc.absolute_max_metadata_size", 131072)]
SERVICE_PATH = "/tensorflow.%s"
LONGEST_PAUSE = 0.7  # recorded pauses are kept up to this


# ---- the recording

def load(path):
    """Returns events {n, t, ev: request|reply|error|cancel, ...} with bytes, and what was skipped."""
    folder, scenario = os.path.split(path)
    events = wire_recordings.messages(folder, scenario)
    if events is None:
        return load_text(wire_recordings.transcript(folder, scenario))
    for e in events:
        e["b"] = base64.b64decode(e.get("b", ""))
    return events, []


def load_text(text):
    events, lines, skipped, method, step = [], [], [], {}, {}
    for line in text.splitlines(keepends=True):
        m = wire_compare.HEAD.match(line.rstrip("\n"))
        if not m:
            lines.append(line)
            continue
        lines = []
        when, n, src, arrow, dst, name, rest, note = m.groups()
        if note is not None:
            continue
        e = dict(n=int(n), t=float(when), lines=lines)
        if arrow == "->":
            e.update(ev="request", src=src, dst=dst, method=SERVICE_PATH % name)
            method[n] = e["method"]
            deadline = re.search(r"deadline (\S+) s", rest)
            if deadline:
                e["deadline"] = float(deadline.group(1))
        elif arrow == "x-":
            e["ev"] = "cancel"
        elif "OK" in rest:
            e["ev"] = "reply"
        else:
            e.update(ev="error", code=rest.split()[-1])
        e["name"] = method[n]
        events.append(e)
    for e in events:
        text, e["b"] = "".join(e.pop("lines")), b""
        found = re.search(r"^ {4}step_id: (\d+)", text, re.M)
        if e["ev"] == "request" and found:
            step[e["n"]] = found.group(1)
        if e["ev"] == "error":
            e["message"] = re.sub(r"^ {6}\| ?", "", text, flags=re.M).rstrip("\n")
        elif e["ev"] in ("request", "reply"):
            try:
                if re.search(r"\.\.\.<\d+ \w+ in all>|graph_def: \d+ nodes|config_proto \{ \.\.\. \}", text):
                    raise text_format.ParseError("cut in the text")
                kind = (wire_messages.request if e["ev"] == "request" else wire_messages.reply)(e["name"])
                e["b"] = text_format.Parse(text, kind()).SerializeToString()
            except (KeyError, text_format.ParseError) as problem:
                e["skipped"] = True
                skipped.append("%s %d (%s): %s" % (e["ev"], e["n"], e["name"].rsplit("/", 1)[1], str(problem)[:80]))
    gone = {e["n"] for e in events if e.get("skipped")}
    lost = {step[n] for n in gone if n in step}
    gone |= {n for n, s in step.items() if s in lost}  # a step is replayed as a whole
    return [e for e in events if e["n"] not in gone], skipped


def as_call(e, data):
    """A wire_compare.Call of a request event; outcome is filled in by finish()."""
    c = wire_compare.Call(e["n"], e["src"], e["dst"], e["method"].replace("/tensorflow.", ""), e["t"])
    try:
        c.request = wire_compare.parse_body(wire_transcript.text_of(wire_messages.request(e["method"]), data).split("\n"))
    except KeyError:
        c.request = []
    c.trailer = []
    return c


def finish(c, method, data=None, code=None, message="", outcome=None):
    if data is not None:
        c.outcome = "OK"
        try:
            c.reply = wire_compare.parse_body(wire_transcript.text_of(wire_messages.reply(method), data).split("\n"))
        except KeyError:
            pass
    elif code is not None:
        c.outcome, c.message = "gRPC status " + code, wire_transcript.clean(message or "")
    else:
        c.outcome = outcome


# ---- live ids in place of recorded ones

class Substitution:
    def __init__(self, address):
        self.address, self.map, self.incarnation, self.lock = address, {}, {}, threading.RLock()
        self.answered = set()  # numbers of the replayed requests that have been answered

    def fresh(self, kind, value, make):
        with self.lock:
            return self.map.setdefault((kind, value), make())

    def key(self, key):
        parts = key.split(";")
        if len(parts) >= 5:
            try:
                parts[1] = "%016x" % self.incarnation.get(int(parts[1], 16), int(parts[1], 16))
            except ValueError:
                pass
        return ";".join(parts)

    def request(self, method, data):
        try:
            m = wire_messages.request(method).FromString(data)
        except KeyError:
            return data
        fields, name = m.DESCRIPTOR.fields_by_name, method.rsplit("/", 1)[1]
        session = getattr(m, "session_handle", "")
        if getattr(m, "request_id", 0):
            m.request_id = self.fresh("request", m.request_id, lambda: random.getrandbits(62) + 1)
        if getattr(m, "step_id", 0) > 1000000:
            m.step_id = self.fresh("step", m.step_id, lambda: random.getrandbits(55) + 1)
        if session:
            if "WorkerService" in method:
                m.session_handle = self.fresh("session", session, lambda: "%016x" % random.getrandbits(64))
            else:
                m.session_handle = self.map.get(("session", session), session)
        for field in ("graph_handle", "partial_run_handle", "handle"):
            if field in fields:
                old = getattr(m, field)
                setattr(m, field, self.map.get((field, session, old), old))
        if name == "CreateSession":
            m.target = "grpc://" + self.address
        if "rendezvous_key" in fields:
            m.rendezvous_key = self.key(m.rendezvous_key)
        if name == "RunGraph":
            for t in m.send:
                t.name = self.key(t.name)
            m.recv_key[:] = [self.key(k) for k in m.recv_key]
        if name == "CreateWorkerSession":
            for d in m.cluster_device_attributes:
                d.incarnation = self.incarnation.get(d.incarnation, d.incarnation)
        if name == "RegisterGraph":
            for node in m.graph_def.node:
                if "send_device_incarnation" in node.attr:
                    attr = node.attr["send_device_incarnation"]
                    new = self.incarnation.get(attr.i % (1 << 64), attr.i % (1 << 64))
                    attr.i = new - (1 << 64) if new >= 1 << 63 else new
        return m.SerializeToString()

    def learn(self, method, request, recorded, live):
        """Pairs the handles in a recorded and a live reply."""
        name = method.rsplit("/", 1)[1]
        field = {"CreateSession": "session_handle", "RegisterGraph": "graph_handle", "MakeCallable": "handle",
                 "PartialRunSetup": "partial_run_handle"}.get(name)
        if not field:
            return
        kind = wire_messages.reply(method)
        old, new = getattr(kind.FromString(recorded), field), getattr(kind.FromString(live), field)
        if name == "CreateSession":
            self.map[("session", old)] = new
        else:
            self.map[(field, wire_messages.request(method).FromString(request).session_handle, old)] = new


def incarnations(data_list):
    """{device name: incarnation} of GetStatus replies."""
    out = {}
    for data in data_list:
        for d in wire_messages.M["GetStatusResponse"].FromString(data).device_attributes:
            out[d.name] = d.incarnation
    return out


# ---- stand-ins for the other tasks

class StandIns:
    """Answers the calls of the server under test with the recorded replies to the same calls."""

    def __init__(self, task, events, substitution):
        self.task, self.substitution, self.lock = task, substitution, threading.Lock()
        self.calls, self.answers, self.servers = [], collections.defaultdict(list), []
        ends, self.before = {}, {}  # before: requests of other tasks answered earlier than this call
        earlier = set()
        from_tasks = {e["n"] for e in events if e["ev"] == "request" and e["dst"] == task and e["src"] != "client"}
        for e in events:
            if e["ev"] != "request":
                ends[e["n"]], self.before[e["n"]] = e, set(earlier)
                earlier |= {e["n"]} & from_tasks
        for e in events:
            if e["ev"] == "request" and e["src"] == task:
                self.answers[(e["dst"], e["method"])].append((e, ends.get(e["n"])))

    def find(self, callee, method, data):
        """The recorded call this one corresponds to: the same step and key, if possible."""
        waiting = self.answers[(callee, method)]
        if method.endswith("/RecvTensor"):
            kind = wire_messages.request(method)
            live = kind.FromString(data)

            def parts(key, edges):
                key = ";".join(key.split(";")[:1] + key.split(";")[2:])  # without the incarnation
                return key if edges else re.sub(r";edge_\d+_", ";edge_N_", key)
            for edges, steps in ((True, True), (True, False), (False, False)):
                for i, (e, _) in enumerate(waiting):
                    old = kind.FromString(e["b"])
                    if (parts(old.rendezvous_key, edges) == parts(live.rendezvous_key, edges)
                            and self.substitution.map.get(("step", old.step_id), None if not steps else 0) in (
                                live.step_id, None)):
                        return waiting.pop(i)
            return None, None
        found = waiting.pop(0) if waiting else (None, None)
        if found[0] and method.endswith("/RunGraph"):  # the server is the master: it has made the step id
            kind = wire_messages.request(method)
            self.substitution.map[("step", kind.FromString(found[0]["b"]).step_id)] = kind.FromString(data).step_id
        return found

    def serve(self, callee, port):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(32), options=OPTIONS,
                             handlers=(self.for_callee(callee),))
        if not server.add_insecure_port("localhost:%d" % port):
            raise SystemExit("port %d is taken" % port)
        server.start()
        self.servers.append(server)

    def for_callee(self, callee):
        outer = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                return grpc.unary_unary_rpc_method_handler(lambda data, context: outer.answer(callee, details.method, data, context))
        return Handler()

    def answer(self, callee, method, data, context):
        with self.lock:
            recorded, end = self.find(callee, method, data)
            number = "live %d" % (len(self.calls) + 1)
            call = as_call(dict(n=number, src=self.task, dst=callee, method=method, t=time.time()), data)
            self.calls.append(call)
        if recorded is None:
            finish(call, method, code="NOT_FOUND", message="not in the recording")
            context.abort(grpc.StatusCode.NOT_FOUND, "not in the recording")
        if end is None or end["ev"] == "cancel":  # recorded as cancelled: wait for that
            while context.is_active():
                time.sleep(0.02)
            finish(call, method, outcome="cancelled by the caller")
            return b""
        if method.endswith("/RunGraph"):  # a master may end the step once it has this reply
            limit = time.time() + 2
            while not self.before[end["n"]] <= self.substitution.answered and time.time() < limit:
                time.sleep(0.005)
        call.end = time.time()
        if end["ev"] == "error":
            finish(call, method, code=end["code"], message=end["message"])
            context.abort(grpc.StatusCode[end["code"]], end["message"])
        finish(call, method, data=end["b"])
        return end["b"]


# ---- replaying

def replay(events, task, address, substitution, wait):
    """Sends all requests to the task; returns (recorded calls, live calls)."""
    own_steps = {wire_messages.request(e["method"]).FromString(e["b"]).step_id
                 for e in events if e["ev"] == "request" and e["src"] == task and e["method"].endswith("/RunGraph")}
    channel = grpc.insecure_channel(address, options=OPTIONS)
    grpc.channel_ready_future(channel).result(timeout=30)
    recorded_status = incarnations(e["b"] for e in events if e["ev"] == "reply" and e.get("b")
                                   and any(r["ev"] == "request" and r["n"] == e["n"] and r["dst"] == task
                                           and r["method"].endswith("WorkerService/GetStatus") for r in events))
    live_status = {}
    try:
        live_status = incarnations([channel.unary_unary(SERVICE_PATH % "WorkerService/GetStatus")(b"", timeout=wait)])
    except grpc.RpcError as e:
        print("GetStatus failed: %s" % e.code().name)
    for e in events:  # a master is not asked for its status, but its devices are in keys
        if e["ev"] == "request" and e["dst"] == task and e["method"].endswith("/RecvTensor"):
            parts = wire_messages.request(e["method"]).FromString(e["b"]).rendezvous_key.split(";")
            if len(parts) >= 5 and int(parts[1], 16) > 1000:
                recorded_status.setdefault(parts[0], int(parts[1], 16))
    substitution.incarnation = {v: live_status[k] for k, v in recorded_status.items() if k in live_status}
    create_missing_sessions(events, task, channel, substitution, wait)

    recorded, live, futures, sent = {}, {}, {}, {}
    last = None
    for e in events:
        n = e["n"]
        if e["ev"] == "request" and e["dst"] != task or e["ev"] != "request" and n not in futures:
            continue
        if last is not None:
            time.sleep(max(0, min(e["t"] - last, LONGEST_PAUSE)))
        last = e["t"]
        if e["ev"] == "request":
            if e["method"].endswith("/RecvTensor"):
                step = wire_messages.request(e["method"]).FromString(e["b"]).step_id
                end = time.time() + wait  # the server is the master: its RunGraph tells the step id
                while step in own_steps and ("step", step) not in substitution.map and time.time() < end:
                    time.sleep(0.005)
            data = substitution.request(e["method"], e["b"])
            recorded[n], live[n] = as_call(e, e["b"]), as_call(e, data)
            sent[n] = e
            futures[n] = channel.unary_unary(e["method"]).future(data, timeout=e.get("deadline"))
            continue
        method = sent[n]["method"]
        recorded[n].end = live[n].end = e["t"]
        if e["ev"] == "cancel":
            finish(recorded[n], method, outcome="cancelled by the caller")
            futures[n].cancel()
        elif e["ev"] == "error":
            finish(recorded[n], method, code=e["code"], message=e["message"])
        else:
            finish(recorded[n], method, data=e["b"])
        try:
            answer = futures[n].result(timeout=wait)
            finish(live[n], method, data=answer)
            if e["ev"] == "reply":
                substitution.learn(method, sent[n]["b"], e["b"], answer)
        except grpc.FutureTimeoutError:
            futures[n].cancel()
            finish(live[n], method, outcome="no reply within %g s" % wait)
        except grpc.FutureCancelledError:
            finish(live[n], method, outcome="cancelled by the caller")
        except grpc.RpcError as error:
            finish(live[n], method, code=error.code().name, message=error.details())
        substitution.answered.add(n)
    for n, future in futures.items():
        if recorded[n].outcome == "no reply":
            future.cancel()
    return list(recorded.values()), list(live.values())


def create_missing_sessions(events, task, channel, substitution, wait):
    """Worker sessions that were created before the recording began (n_register_graph)."""
    ok = {e["n"] for e in events if e["ev"] == "reply"}
    used, made = [], set()
    for e in events:
        if e["ev"] == "request" and e["dst"] == task and "WorkerService" in e["method"]:
            name = e["method"].rsplit("/", 1)[1]
            if name in ("RegisterGraph", "CreateWorkerSession"):
                session = wire_messages.request(e["method"]).FromString(e["b"]).session_handle
                if name == "CreateWorkerSession":
                    made.add(session)
                elif e["n"] in ok and session:
                    used.append(session)
    for session in dict.fromkeys(s for s in used if s not in made):
        method = SERVICE_PATH % "WorkerService/CreateWorkerSession"
        data = wire_messages.request(method)(session_handle=session).SerializeToString()
        channel.unary_unary(method)(substitution.request(method, data), timeout=wait)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcript", metavar="GOLDEN_DIR/SCENARIO")
    parser.add_argument("--target", metavar="HOST:PORT")
    parser.add_argument("--task", metavar="COMMAND", help="start the server; template as in wire_record.py")
    parser.add_argument("--as", dest="role", metavar="TASK", help="the recorded task the server stands for")
    parser.add_argument("--peer", action="append", default=[], metavar="TASK=PORT", help="port of a stand-in")
    parser.add_argument("--wait", type=float, default=10, metavar="S", help="longest wait for one reply")
    parser.add_argument("--base-port", type=int, default=24000)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--codes-only", action="store_true")
    parser.add_argument("--no-graphs", action="store_true")
    a = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that tasks are ended
    if bool(a.target) == bool(a.task):
        parser.error("give either --target or --task")
    events, skipped = load(a.transcript)
    tasks = sorted({t for e in events if e["ev"] == "request" for t in (e["src"], e["dst"])} - {"client"})
    role = a.role or next(e["dst"] for e in events if e["ev"] == "request" and e["src"] == "client")
    if role not in tasks:
        parser.error("the recording has the tasks " + " ".join(tasks))
    ports = {t: int(p) for t, p in (x.rsplit("=", 1) for x in a.peer)}
    if a.target and not ports and any(e["ev"] == "request" and e["src"] == "client" and e["dst"] == role for e in events):
        # A master in a live cluster: its peers send their own requests.
        mine = {e["n"] for e in events if e["ev"] == "request" and e["src"] == "client"}
        events = [e for e in events if e["n"] in mine]
    cluster, folder = None, None
    if a.task:
        free = wire_record.free_ports(a.base_port)
        own = next(free)
        ports = {t: next(free) for t in tasks if t != role}
        folder = tempfile.mkdtemp(prefix="wire")
        cluster = wire_record.Cluster(tasks, folder, a.task, a.base_port)
        cluster.real, cluster.proxied = {role: own}, {(role, t): p for t, p in ports.items()}
        a.target = "localhost:%d" % own
    substitution = Substitution(a.target)
    stand_ins = StandIns(role, events, substitution)
    try:
        for task, port in ports.items():
            stand_ins.serve(task, port)
        if cluster:
            cluster.start_task(role)
            cluster.wait_for(role)
        recorded, live = replay(events, role, a.target, substitution, a.wait)
    finally:
        if cluster:
            cluster.kill(role)
    for s in skipped:
        print("skipped: " + s)
    normal_r, normal_l = wire_compare.Normal(recorded, a), wire_compare.Normal(live, a)
    report = []
    for old, new in zip(recorded, live):
        gone, added = wire_compare.difference(normal_r.reply(old), normal_l.reply(new))
        if gone or added:
            report += [str(old)] + ["    - " + l for l in gone] + ["    + " + l for l in added]
    if ports:
        report += compare_stand_in_calls(events, role, stand_ins, set(ports), a)
    print("%s as %s: %d requests sent, %s" % (os.path.basename(a.transcript), role, len(live),
                                              "differs" if report else "no difference"))
    for line in report:
        print("  " + line)
    return 1 if report else 0


def compare_stand_in_calls(events, role, stand_ins, served, options):
    """The calls the server made itself, against those the recorded task made."""
    requests = {e["n"]: e for e in events if e["ev"] == "request" and e["src"] == role and e["dst"] in served}
    recorded = {n: as_call(e, e["b"]) for n, e in requests.items()}
    for e in events:
        if e["n"] in recorded and e["ev"] != "request":
            finish(recorded[e["n"]], requests[e["n"]]["method"], data=e["b"] if e["ev"] == "reply" else None,
                   code=e.get("code"), message=e.get("message", ""), outcome="cancelled by the caller")
            recorded[e["n"]].end = e["t"]
    return wire_compare.compare_calls(list(recorded.values()), stand_ins.calls, options)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # stand-ins may still hold calls
