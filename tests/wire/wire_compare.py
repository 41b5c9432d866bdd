"""Compares two folders of transcripts (or two transcripts).

usage: wire_compare.py GOLDEN NEW [SCENARIO...] [--strict] [--codes-only] [--no-graphs]

Prints what a peer can depend on and that differs: the calls between each pair
of tasks, fields of requests and replies, statuses, error messages, results the
client saw.  '-' is golden, '+' is new. Exit status 1 when something differs.
Needs only the standard library.

Not compared, unless --strict: times, byte counts, addresses; session, step,
graph, callable, partial run and request ids (replaced by labels, so that the use of
the right id is compared); incarnations; memory sizes; numbers of edges and of
send and receive nodes; the order of calls that overlap and of nodes, devices,
feeds and result tensors; cost graphs and step statistics; in a step that
failed or was cancelled, how the calls that were not its cause ended, and which
tasks the master quotes in its error message besides the cause.
"""
import argparse
import collections
import os
import re
import sys

HEAD = re.compile(r" *\+(\d+\.\d+)  (?:\[(\d+)\] (\S+) (->|<-|x-) (\S+)  (\S+)(.*)|-- (.*))$")
TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}:]|[^\s{}:"]+)')
ANY_VALUE = {"request_id", "send_start_micros", "memory_limit", "incarnation", "master_incarnation", "next_step_id"}
IGNORED = {"physical_device_desc", "cost_graph", "step_stats"}
BY_NAME = {"node", "device_attributes", "local_device", "remote_device", "feed", "tensor", "send", "recv",
           "cluster_device_attributes"}
BY_KEY = {"attr", "device_count"}
# Marks in the lines of a call: it belongs to a step that failed; how it ended depends on timing.
FAILED, RACY = "reply mark: failed step", "reply mark: any end"
WORKER_STEP_CALLS = {"RunGraph", "RecvTensor"}
LATE = {"CleanupGraph", "DeregisterGraph", "MarkRecvFinished", "Logging", "DeleteWorkerSession"}  # no call waits for these


# ---- reading

class Call:
    def __init__(self, number, source, target, method, start):
        self.number, self.source, self.target, self.start = number, source, target, start
        self.service, self.method = method.split("/") if "/" in method else ("", method)
        self.end, self.deadline, self.metadata = None, None, ""
        self.request, self.reply, self.outcome, self.message = [], [], "no reply", ""

    def __str__(self):
        return "[%s] %s -> %s %s" % (self.number, self.source, self.target, self.method)


def parse_fields(lines):
    """Protobuf text format as [(field, value)]; a value is a string or such a list."""
    tokens = TOKEN.findall("\n".join(lines))
    position = 0

    def fields():
        nonlocal position
        out = []
        while position < len(tokens) and tokens[position] != "}":
            name = tokens[position]
            position += 1
            if position < len(tokens) and tokens[position] == ":":
                position += 1
                if tokens[position] != "{":
                    out.append((name, tokens[position]))
                    position += 1
                    continue
            if position < len(tokens) and tokens[position] == "{":
                position += 1
                out.append((name, fields()))
                position += 1
            else:
                out.append((name, ""))  # free text such as (undecoded)
        return out
    return fields()


def parse_body(lines):
    if lines and lines[0].startswith("    graph_def: "):  # a shortened graph: one line per node
        end = next((i for i, l in enumerate(lines[1:], 1) if not l.startswith("      ")), len(lines))
        nodes = [("node", [("name", l.split(" = ")[0].strip()), ("text", l.strip())]) for l in lines[1:end]]
        return [("graph_def", nodes)] + parse_fields(lines[end:])
    return parse_fields(lines)


def read(path):
    """Returns (calls in order of start, notes)."""
    calls, notes, lines = {}, [], None
    with open(path) as f:
        for line in f:
            line = line.rstrip("\n")
            m = HEAD.match(line)
            if not m:
                if lines is not None and line:
                    lines.append(line)
                continue
            time, number, source, arrow, target, method, rest, note = m.groups()
            lines = []
            if note is not None:
                notes.append((float(time), note, lines))
            elif arrow == "->":
                c = calls[number] = Call(number, source, target, method, float(time))
                d = re.search(r"deadline (\S+) s", rest)
                c.deadline = float(d.group(1)) if d else None
                c.metadata = (rest.split("  metadata ") + [""])[1]
                c.request = lines
            else:
                c = calls[number]
                c.end, c.reply = float(time), lines
                c.outcome = "cancelled by the caller" if arrow == "x-" else re.search(r"(OK|gRPC status \w+)", rest).group(1)
    for c in calls.values():
        c.request = parse_body(c.request)
        if c.outcome.startswith("gRPC"):
            c.message = "\n".join(l[8:] for l in c.reply if l.startswith("      | "))
            c.trailer = [l.strip() for l in c.reply if l.startswith("      trailer")]
            c.reply = []
        else:
            c.reply = parse_body(c.reply)
    return list(calls.values()), notes


def get(fields, name, default=None):
    return next((v for k, v in fields if k == name), default)


# ---- labels for ids

def steps_overlap(calls):
    """Whether the client ran steps of one master at the same time: their order is then undefined."""
    steps = [c for c in calls if c.source == "client" and c.method in ("RunStep", "RunCallable")]
    return any(a.target == b.target and (a.end is None or b.start < a.end)
               for i, a in enumerate(steps) for b in steps[i + 1:])


class Labels:
    """Names ids after the task that made them and when: 'worker:0 session 2'.

    Steps and graphs are not numbered when steps overlap.
    """

    def __init__(self, calls, overlap):
        self.session, self.step, self.graph, self.callable, self.partial, self.incarnation = {}, {}, {}, {}, {}, {}
        counts = collections.Counter()

        def label(table, key, text):
            if key not in table:
                counts[text] += 1
                numbered = not overlap or (table is not self.step and table is not self.graph)
                table[key] = "%s %d" % (text, counts[text]) if numbered else text
        runs = {get(c.request, "step_id"): c.source for c in calls if c.method == "RunGraph"}
        for c in calls:
            step, session = get(c.request, "step_id"), get(c.request, "session_handle")
            if c.method == "CreateSession" and get(c.reply, "session_handle"):
                label(self.session, get(c.reply, "session_handle"), "%s session" % c.target)
            elif c.service == "WorkerService" and c.method == "CreateWorkerSession" and session:
                label(self.session, session, "%s session" % c.source)
            if step:
                label(self.step, step, "%s step" % runs.get(step, c.source))
            if c.method == "RegisterGraph" and get(c.reply, "graph_handle"):
                label(self.graph, (c.target, session, get(c.reply, "graph_handle")), "graph of %s %s" % (c.target, session))
            elif c.method == "MakeCallable" and c.outcome == "OK":
                label(self.callable, (c.target, session, get(c.reply, "handle", "0")), "callable of %s %s" % (c.target, session))
            elif c.method == "PartialRunSetup" and c.outcome == "OK":
                label(self.partial, (c.target, session, get(c.reply, "partial_run_handle")), "partial run of %s %s" % (c.target, session))
            for name, value in c.reply:
                if name in ("device_attributes", "local_device", "remote_device"):
                    self.incarnation[get(value, "name").strip('"')] = int(get(value, "incarnation", "0"))

    def short(self, text):
        return re.sub(r' of \S+ "\w*"', "", text)  # 'graph of ps:0 "1234" 2' -> 'graph 2'

    def key_incarnation(self, device, value):
        """INC when it may be right; the number when it is known to be wrong or a constant."""
        known = self.incarnation.get(device)
        if value < 1000 or (known is not None and known != value):
            return "%016x" % value
        return "INC"


CODE = (r"(?:CANCELLED|UNKNOWN|[A-Z]+(?:_[A-Z]+)+|ABORTED|INTERNAL|UNAVAILABLE|UNIMPLEMENTED|Invalid argument|Cancelled|"
        r"Failed precondition|Aborted|Unavailable|Internal|Out of range|Not found|Unknown|Unimplemented|Resource exhausted|"
        r"Deadline exceeded|Permission denied|Already exists|Data loss)")
FRAME = re.compile(r"=+$|Graph execution error:$|Detected at node|Node: |From /job:\S+:$|\d+ root error|\d+ successful op|"
                   r'\d+ derived err|:UNKNOWN:Error received|Additional GRPC error|:?\{"created"|\{"created"|$')


def causes(message):
    """The distinct error texts in a message a master made from the errors of several tasks.

    Which tasks are quoted besides the cause depends on timing. Frames, task
    names, repetitions and cancellations are left out.
    """
    found, cancelled, drop = [], [], False
    for line in message.split("\n"):
        line = line.strip()
        m = re.match(r"(?:\(\d+\) )?(%s): (.*)" % CODE, line)
        if m:
            drop, line = m.group(1).upper() in ("CANCELLED", "ABORTED"), m.group(2)
        line = re.sub(r"^\[_Derived_\]", "", line)
        node = re.match(r"\[\[(?:\{\{)?(?:node )?([^\s\]}]+)", line)
        if node:
            line = "" if re.search(r"_[SN]$|/_N$", node.group(1)) else "[[%s]]" % node.group(1)
        if not FRAME.match(line):
            (cancelled if drop else found).append(line)
    return "causes: " + " | ".join(sorted(set(found or cancelled)))


def same_cause(a, b):
    """Whether two messages made by causes() have a cause in common."""
    if "causes: " not in a or "causes: " not in b:
        return a == b
    (head_a, a), (head_b, b) = (x.split("causes: ", 1) for x in (a, b))
    return head_a == head_b and (a == b or any(x in b.split(" | ") for x in a.split(" | ") if not x.startswith("[[")))


def unquote(literal):
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), literal.strip('"'))


# ---- normal form: a call as a list of lines 'path: value'

class Normal:
    def __init__(self, calls, options, overlap=False):
        self.o, self.labels = options, Labels(calls, overlap)
        self.failed = self.failed_steps(calls)

    def failed_steps(self, calls):
        """Steps in which some call did not succeed."""
        out = set()
        for c in calls:
            step = get(c.request, "step_id")
            if c.method in WORKER_STEP_CALLS and step and (c.outcome != "OK" or get(c.reply, "status_code")):
                out.add(step)
        return out

    def text(self, s):
        """A string or an error message without ids."""
        if self.o.strict:
            return s
        s = re.sub(r'(?:\\n|\n)?(?:Additional GRPC error information.*?:)?(?:\\n|\n)?:?\{\\*"created.*?\}(?=\\n|\n|"?$)', "", s, flags=re.S)
        s = re.sub(r'(?:\\n|\n)Additional GRPC error information[^\n]*?(?=\\n|\n|"?$)', "", s)
        for table in (self.labels.session, self.labels.step):
            for value, name in table.items():
                s = s.replace(value.strip('"'), "<%s>" % name) if len(value) > 6 else s
        s = re.sub(r'(?:\\n|\n)Recent warning and error logs:.*?(?=\n=====|"?$)', "", s, flags=re.S)
        s = re.sub(r"\brequest_id: -?\d+", "request_id: N", s)
        s = re.sub(r"goo\.gle/debug\w+\s+", "", s)  # varies on purpose
        s = re.sub(r"\bedge_\d+_", "edge_N_", s)
        s = re.sub(r"_[SG]\d+\b", "_S", s)
        s = re.sub(r"/_\d+\b", "/_N", s)
        s = re.sub(r"\b\d{12,20}\b", "N", s)  # incarnations
        s = re.sub(r"([0-9a-f]{16})(?=;/job)", lambda m: m.group(1) if int(m.group(1), 16) < 1000 else "INC", s)
        return re.sub(r"\b(\w+\d):2222\b|ADDRESS|ipv4:\S+", "ADDRESS", s)

    def rendezvous_key(self, value):
        parts = value.strip('"').split(";")
        if len(parts) < 5:
            return value
        try:
            parts[1] = self.labels.key_incarnation(parts[0], int(parts[1], 16))
        except ValueError:
            pass
        return self.text(";".join(parts))

    def flatten(self, fields, call, path=""):
        lines, index = [], collections.Counter()
        repeated = {k for k, n in collections.Counter(k for k, _ in fields).items() if n > 1}
        for name, value in fields:
            here = path + name
            if not self.o.strict:
                if name in IGNORED:
                    continue
                if name in BY_NAME and isinstance(value, list) and get(value, "name"):
                    here += "[%s]" % self.name_of(get(value, "name").strip('"'))
                elif name in BY_KEY and isinstance(value, list):
                    here += "[%s]" % get(value, "key", "").strip('"')
                elif name in repeated:
                    here += "[%d]" % index[name]
                    index[name] += 1
                if name == "graph_def" and self.o.no_graphs and call.service == "WorkerService":
                    continue
                value = self.value(name, value, call, path)
            elif name in repeated:
                here += "[%d]" % index[name]
                index[name] += 1
            if isinstance(value, list):
                if name == "graph_def" and not self.o.strict:
                    value = self.graph(value)
                lines += self.flatten(value, call, here + ".") if value else [here + " {}"]
            else:
                lines.append("%s: %s" % (here, value))
        return lines

    def name_of(self, name):
        return self.rendezvous_key(name) if name.count(";") == 4 else name

    def value(self, name, value, call, path):
        l, session = self.labels, get(call.request, "session_handle")
        if name in ANY_VALUE:
            return "*"  # only whether it is set
        if isinstance(value, list):
            if path.endswith("attr[send_device_incarnation]."):
                n = int(get(value, "i", "0"))
                return [("i", str(n) if 0 <= n < 1000 else "INC")]
            return value
        if name == "session_handle":
            return l.session.get(value, value)
        if name in ("step_id", "fetch_step_id"):
            return l.step.get(value, value)
        if name == "graph_handle":
            return l.short(l.graph.get((call.target, session, value), value))
        if name == "handle" and not path:
            return l.short(l.callable.get((call.target, session, value), value))
        if name == "partial_run_handle":
            return l.short(l.partial.get((call.target, session, value), value))
        if name == "rendezvous_key" or (name in ("name", "recv_key") and value.count(";") == 4):
            return self.rendezvous_key(value)
        if name == "target" and "grpc://" in value:
            return "ADDRESS"
        if name == "status_error_message" and self.o.codes_only:
            return "..."
        if name == "status_error_message" and call.service == "MasterService":
            return causes(self.text(unquote(value)))
        return self.text(value) if value.startswith('"') else value

    def graph(self, fields):
        """Send and receive nodes are named after what they carry; inputs follow."""
        names = {}
        for kind, node in fields:
            if kind == "node" and get(node, "op") in ('"_Send"', '"_Recv"', '"_HostSend"', '"_HostRecv"'):
                tensor = next((get(v, "s") for k, v in ((get(a, "key"), get(a, "value")) for n, a in node if n == "attr")
                               if k == '"tensor_name"'), "")
                key = "%s(%s)" % (get(node, "op").strip('"'), self.text(tensor.strip('"')))
                names[get(node, "name").strip('"')] = key
        if not names:
            return fields

        def renamed(reference):
            m = re.match(r'"(\^?)([^":]+)(:\d+)?"$', reference)
            return '"%s%s%s"' % (m.group(1), names[m.group(2)], m.group(3) or "") if m and m.group(2) in names else reference
        return [(k, [(n, renamed(v) if n in ("name", "input") and isinstance(v, str) else v) for n, v in node])
                if k == "node" else (k, node) for k, node in fields]

    def request(self, c):
        out = ["request " + l for l in self.flatten(c.request, c)]
        if c.deadline is not None:
            d = c.deadline
            out.append("request deadline: " + (str(d) if self.o.strict else "%g s" % (round(d) if d >= 2 else round(2 * d) / 2)))
        return out + (["request metadata: " + c.metadata] if c.metadata else [])

    def reply(self, c):
        out, fields = ["reply: " + c.outcome] + self.marks(c), c.reply
        if c.method == "Logging" and not self.o.strict:
            fields = []  # what has been traced by then varies
        if c.method in ("MakeCallable", "PartialRunSetup") and not self.o.strict:
            fields = [f for f in fields if f[0] not in ("handle", "partial_run_handle")]
        out += ["reply " + l for l in self.flatten(fields, c)]
        if c.message and not self.o.codes_only:
            text = self.text(c.message)
            if c.service == "MasterService" and not self.o.strict:
                text = causes(text)
            out.append("reply message: " + text.replace("\n", "\\n"))
        return out + (["reply " + l for l in c.trailer] if self.o.strict and c.message else [])

    def marks(self, c):
        if self.o.strict:
            return []
        if c.method in WORKER_STEP_CALLS and get(c.request, "step_id") in self.failed:
            return [FAILED] if self.is_cause(c) else [FAILED, RACY]
        return [RACY] if c.method == "CleanupGraph" and c.outcome == "no reply" else []

    def is_cause(self, c):
        """RunGraph that reports an error of its own, not one that came from another call."""
        code, message = get(c.reply, "status_code"), get(c.reply, "status_error_message", "")
        return (c.method == "RunGraph" and code is not None and code not in ("CANCELLED", "ABORTED")
                and "_Derived_" not in message and "RecvTensor" not in message and "from remote" not in message)

    def note(self, text, lines):
        """Client-visible results: (title, result), or None for the start of an action."""
        text = "\n".join([text] + [re.sub(r"^\s+\| ?", "", l) for l in lines])
        if self.o.strict:
            return text, ""
        text = re.sub(r"   \(\d+\.\d+ s\)$", "", text)
        text = re.sub(r" after \d+\.\d+ s$", "", text, flags=re.M)
        m = re.match(r"(.*?)(?:  => +| => |  raised )(.*)$", text, re.S)
        if not m:
            return (text, "") if not text.startswith("client: ") else None
        title, result = m.group(1), m.group(2)
        result = "raised " + result if "  raised " in text[:len(title) + 10] else result
        if "partial_run_setup" in title and result.startswith("'"):
            result = "a handle"
        if result.startswith("array([(["):  # bytes of a resource handle: a pointer
            result = "a resource handle"
        if "list_devices" in title:
            result = " ".join(sorted(result.strip("[]").split(", ")))
        if self.o.codes_only:
            result = result.split("\n")[0]
        if result.startswith("raised "):
            first, _, rest = result.partition("\n")
            result = first + "\n" + causes(self.text(rest))
        return title, self.text(result)


# ---- comparing

def difference(golden, new):
    if RACY in golden or (FAILED in golden and RACY in new):
        golden, new = ([l for l in x if not l.startswith("reply")] for x in (golden, new))
    golden, new = ([l for l in x if l not in (FAILED, RACY)] for x in (golden, new))
    a, b = collections.Counter(golden), collections.Counter(new)
    gone, added = [l for l in golden if (a - b)[l]], [l for l in new if (b - a)[l]]
    for x in [l for l in gone if "causes: " in l]:
        y = next((l for l in added if same_cause(x, l)), None)
        if y is not None:
            gone.remove(x)
            added.remove(y)
    return gone, added


def match(golden, new, lines_g, lines_n):
    """Pairs equal calls in order, then similar calls; returns pairs and the two rests."""
    def key(lines):
        lines = [l.split("causes: ")[0] for l in lines if not (RACY in lines and l.startswith("reply"))]
        return tuple(sorted(l for l in lines if l != FAILED))
    pairs, rest_g, waiting = [], [], collections.defaultdict(list)
    for c in new:
        waiting[key(lines_n[c])].append(c)
    for c in golden:
        same = waiting[key(lines_g[c])]
        if same:
            pairs.append((c, same.pop(0)))
        else:
            rest_g.append(c)
    taken = {id(n) for _, n in pairs}
    rest_n = [c for c in new if id(c) not in taken]
    for c in list(rest_g):
        if rest_n:
            best = min(rest_n, key=lambda n: sum(map(len, difference(lines_g[c], lines_n[n]))))
            pairs.append((c, best))
            rest_g.remove(c)
            rest_n.remove(best)
    return pairs, rest_g, rest_n


def compare_calls(calls_g, calls_n, options):
    """Returns the report lines about two lists of calls."""
    report = []
    overlap = steps_overlap(calls_g) or steps_overlap(calls_n)
    normal_g, normal_n = Normal(calls_g, options, overlap), Normal(calls_n, options, overlap)
    lines_g = {c: normal_g.request(c) + normal_g.reply(c) for c in calls_g}
    lines_n = {c: normal_n.request(c) + normal_n.reply(c) for c in calls_n}
    groups_g, groups_n = collections.OrderedDict(), collections.OrderedDict()
    for calls, groups in ((calls_g, groups_g), (calls_n, groups_n)):
        for c in calls:
            groups.setdefault((c.source, c.target, c.method), []).append(c)

    def may_be_absent(call, normal):
        """In a failed step: RecvTensor, and RunGraph that was cancelled at once."""
        if options.strict or get(call.request, "step_id") not in normal.failed:
            return False
        return call.method == "RecvTensor" or (call.method == "RunGraph" and not normal.is_cause(call)
                                               and call.end is not None and call.end - call.start < 0.1)
    matched = {}
    for key in list(groups_g) + [k for k in groups_n if k not in groups_g]:
        pairs, missing, extra = match(groups_g.get(key, []), groups_n.get(key, []), lines_g, lines_n)
        for g, n in pairs:
            matched[g] = n
            gone, added = difference(lines_g[g], lines_n[n])
            if gone or added:
                report.append("%s (new: [%s])" % (g, n.number))
                report += ["    - " + l for l in gone] + ["    + " + l for l in added]
        report += ["- only in golden: %s" % c for c in missing if not may_be_absent(c, normal_g)]
        report += ["+ only in new: %s" % c for c in extra if not may_be_absent(c, normal_n)]
    return report + order(calls_g, matched, options, overlap)


def compare(path_golden, path_new, options):
    """Returns the report lines of one scenario."""
    calls_g, notes_g = read(path_golden)
    calls_n, notes_n = read(path_new)
    normal_g, normal_n = Normal(calls_g, options), Normal(calls_n, options)
    return (compare_calls(calls_g, calls_n, options)
            + compare_notes([normal_g.note(t, l) for _, t, l in notes_g], [normal_n.note(t, l) for _, t, l in notes_n]))


def order(calls, matched, options, overlap):
    """Calls of one pair of tasks that follow each other in golden and are reversed in new."""
    out = []
    for i, a in enumerate(calls):
        for b in calls[i + 1:]:
            if (a.source, a.target) != (b.source, b.target) or a not in matched or b not in matched:
                continue
            methods, same_step = {a.method, b.method}, get(a.request, "step_id") == get(b.request, "step_id")
            if not options.strict and ((not same_step and (overlap or methods & LATE))
                                       or (same_step and methods <= WORKER_STEP_CALLS)):
                continue
            x, y = matched[a], matched[b]
            if a.end is not None and a.end < b.start and y.end is not None and y.end < x.start:
                out.append("order: %s comes before %s; in new [%s] comes after [%s]" % (a, b, x.number, y.number))
    return out


def compare_notes(golden, new):
    out = []
    for title in list(dict.fromkeys(n[0] for n in golden + new if n)):
        a = [n[1] for n in golden if n and n[0] == title]
        b = [n[1] for n in new if n and n[0] == title]
        for i in range(max(len(a), len(b))):
            x, y = a[i] if i < len(a) else None, b[i] if i < len(b) else None
            if x != y and not (x is not None and y is not None and same_cause(x, y)):
                out.append(title)
                out += ["    - " + (x if x is not None else "(absent)").replace("\n", "\n      ")]
                out += ["    + " + (y if y is not None else "(absent)").replace("\n", "\n      ")]
    return out


def scenarios(path):
    if os.path.isdir(path):
        return {f[:-4]: os.path.join(path, f) for f in sorted(os.listdir(path)) if f.endswith(".txt")}
    return {os.path.basename(path)[:-4]: path}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden")
    parser.add_argument("new")
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--strict", action="store_true", help="compare everything that is not a time, ids included")
    parser.add_argument("--codes-only", action="store_true", help="ignore the text of error messages")
    parser.add_argument("--no-graphs", action="store_true", help="ignore the graphs a master registers with workers")
    a = parser.parse_args()
    golden, new = scenarios(a.golden), scenarios(a.new)
    differing = 0
    names = [n for n in new if not a.scenario or n in a.scenario or any(n.startswith(s + "_") for s in a.scenario)]
    for name in names:
        if name not in golden:
            print("%s: not in golden" % name)
            differing += 1
            continue
        report = compare(golden[name], new[name], a)
        print("%s: %s" % (name, "differs" if report else "no difference"))
        for line in report:
            print("  " + line)
        differing += bool(report)
    if not names:
        print("nothing to compare")
    return 1 if differing or not names else 0


if __name__ == "__main__":
    sys.exit(main())
