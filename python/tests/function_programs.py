"""Programs with functions, built and run by TensorFlow 2.21: graphs, feeds, and what it answers.

Run by test_functions.py in TensorFlow's interpreter: writes a list of cases as a pickle. Each case has a GraphDef and runs
in order: (fetches, feeds, values) or (fetches, feeds, name of the error's class).
"""

import pickle
import sys

import numpy as np

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def while_counts(tf):
    n = tf.placeholder(tf.int32, [], name="n")
    i, total = tf.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t + i * 2), [0, 10])
    tf.identity_n([i, total], name="out")
    return [(["out:0", "out:1"], {"n:0": np.int32(k)}) for k in (5, 0, 1)]


@program
def while_node_itself(tf):
    n = tf.placeholder(tf.int32, [], name="n")
    tf.while_loop(lambda i: i < n, lambda i: i + 1, [0], name="loop")
    return [(["loop:2"], {"n:0": np.int32(4)})]


@program
def nested_loops_and_branches(tf):
    n = tf.placeholder(tf.int32, [], name="n")
    scale = tf.placeholder(tf.float32, [], name="scale")

    def inner(i, x):
        return tf.while_loop(lambda j, y: j < i, lambda j, y: (j + 1, tf.cond(y > 5.0, lambda: y / scale, lambda: y * 2.0 + scale)),
                             [0, x])[1]

    _, x = tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, inner(i, x)), [0, 1.0])
    tf.identity(x, name="x")
    return [("x:0", {"n:0": np.int32(k), "scale:0": np.float32(s)}) for k, s in ((4, 3.0), (0, 1.0), (6, 1.5))]


@program
def branch_of_constants(tf):
    p = tf.placeholder(tf.bool, [], name="p")
    y = tf.cond(p, lambda: (tf.constant(1), tf.constant("yes")), lambda: (tf.constant(2), tf.constant("no")))
    tf.identity(y[0], name="number")
    tf.identity(y[1], name="text")
    return [(["number:0", "text:0"], {"p:0": np.bool_(v)}) for v in (True, False)]


@program
def nested_branches(tf):
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.cond(x[0] > 1.0, lambda: x * 2.0, lambda: tf.concat([x, x], 0)),
                lambda: tf.zeros([0]))
    tf.identity(y, name="y")
    return [("y:0", {"x:0": np.float32(v)}) for v in ([2, 3], [0.5, 3], [-1], [])][:3]


@program
def case_by_index(tf):
    k = tf.placeholder(tf.int32, [], name="k")
    y = tf.switch_case(k, [lambda: tf.constant(10), lambda: k * 100, lambda: tf.constant(-1)])
    tf.identity(y, name="y")
    return [("y:0", {"k:0": np.int32(v)}) for v in (0, 1, 2, 9, -3)]


@program
def resource_variable_in_loop(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=True)
    n = tf.placeholder(tf.int32, [], name="n")

    def body(i):
        with tf.control_dependencies([v.assign_add(tf.cast(i, tf.float32))]):
            return i + 1

    i = tf.while_loop(lambda i: i < n, body, [1])
    with tf.control_dependencies([i]):
        tf.identity(v.read_value(), name="value")
    tf.group(v.initializer, name="init")
    return [("init", {}), ("value:0", {"n:0": np.int32(4)}), ("value:0", {"n:0": np.int32(0)}), ("value:0", {"n:0": np.int32(3)})]


@program
def effects_in_branches(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=True)
    p = tf.placeholder(tf.bool, [], name="p")
    y = tf.cond(p, lambda: v.assign_add(10.0, read_value=True), lambda: v.assign_sub(1.0, read_value=True))
    tf.identity(y, name="y")
    tf.identity(v.read_value(), name="value")
    tf.group(v.initializer, name="init")
    return [("init", {}), ("y:0", {"p:0": np.bool_(True)}), ("value:0", {}), ("y:0", {"p:0": np.bool_(False)}), ("value:0", {})]


@program
def errors_inside(tf):
    x = tf.placeholder(tf.int32, [None], name="x")
    i = tf.placeholder(tf.int32, [], name="i")
    y = tf.while_loop(lambda k, s: k < i, lambda k, s: (k + 1, s + tf.gather(x, k)), [0, 0])[1]
    tf.identity(y, name="y")
    z = tf.cond(i > 2, lambda: tf.reshape(x, [7]), lambda: x)
    tf.identity(z, name="z")
    x3 = np.int32([1, 2, 3])
    return [("y:0", {"x:0": x3, "i:0": np.int32(3)}), ("y:0", {"x:0": x3, "i:0": np.int32(5)}),
            ("z:0", {"x:0": x3, "i:0": np.int32(1)}), ("z:0", {"x:0": x3, "i:0": np.int32(3)})]


@program
def gradient_of_while(tf):
    x = tf.placeholder(tf.float32, [], name="x")
    w = tf.placeholder(tf.float32, [2], name="w")
    n = tf.placeholder(tf.int32, [], name="n")
    y = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x * tf.reduce_sum(w) + tf.sin(a)), [0, tf.constant(1.0)])[1]
    dx, dw = tf.gradients(y, [x, w])
    tf.identity(dx, name="dx")
    tf.identity(dw, name="dw")
    return [(["dx:0", "dw:0"], {"x:0": np.float32(0.5), "w:0": np.float32([0.25, 1]), "n:0": np.int32(k)}) for k in (3, 0, 1)]


@program
def gradient_of_cond(tf):
    x = tf.placeholder(tf.float32, [], name="x")
    w = tf.placeholder(tf.float32, [2], name="w")
    y = tf.cond(x > 0, lambda: tf.sin(x) * w, lambda: w * w)
    dx, dw = tf.gradients(y, [x, w])
    tf.identity(dx, name="dx")
    tf.identity(dw, name="dw")
    return [(["dx:0", "dw:0"], {"x:0": np.float32(v), "w:0": np.float32([0.25, 1])}) for v in (0.5, -1.0)]


@program
def gradient_of_cond_in_while(tf):
    x = tf.placeholder(tf.float32, [3], name="x")

    def body(i, a):
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * x, lambda: a + tf.square(x))

    y = tf.while_loop(lambda i, a: i < 4, body, [0, tf.ones([3])])[1]
    tf.identity(tf.gradients(y, x)[0], name="dx")
    return [("dx:0", {"x:0": np.float32([0.5, -1, 2])})]


@program
def called_functions(tf):
    from tensorflow.python.framework import function

    @function.Defun(tf.float32, tf.float32)
    def scale(a, b):
        return a * b + 1.0, a - b

    @function.Defun(tf.float32, noinline=True)
    def kept(a):
        return tf.square(scale(a, a)[0])

    x = tf.placeholder(tf.float32, [None], name="x")
    p, q = scale(x, x + 1.0)
    tf.identity(p, name="p")
    tf.identity(kept(q), name="q")
    tf.identity(tf.map_fn(lambda v: scale(v, v)[0] + kept(v), x), name="mapped")
    return [(["p:0", "q:0", "mapped:0"], {"x:0": np.float32(v)}) for v in ([1, 2], [], [3])]


@program
def concrete_functions(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(2.0), use_resource=True)

    @tf.function
    def step(x):
        v.assign_add(1.0)
        return x * v

    @tf.function
    def twice(x):
        return step(step(x))

    x = tf.placeholder(tf.float32, [], name="x")
    tf.identity(twice(x), name="y")
    tf.identity(v.read_value(), name="value")
    tf.group(v.initializer, name="init")
    return [("init", {}), ("y:0", {"x:0": np.float32(2)}), ("value:0", {}), ("y:0", {"x:0": np.float32(1)}), ("value:0", {})]


@program
def counted_loop(tf):
    from tensorflow.python.framework import function
    from tensorflow.python.ops import functional_ops, gen_functional_ops

    @function.Defun(tf.int32, tf.float32)
    def body(i, x):
        return x * 2.0 + tf.cast(i, tf.float32)

    bounds = tf.placeholder(tf.int32, [3], name="bounds")
    start, limit, delta = tf.unstack(bounds)
    tf.identity(functional_ops.For(start, limit, delta, [tf.constant(1.0)], body)[0], name="y")
    words = tf.placeholder(tf.string, name="words")
    tf.identity(gen_functional_ops.to_bool(words), name="truth")
    runs = [("y:0", {"bounds:0": np.int32(b)}) for b in ((0, 5, 1), (5, 0, -2), (3, 3, 1), (3, 3, 0), (0, 5, -1), (0, 5, 0))]
    return runs + [("truth:0", {"words:0": np.array(w, dtype=object)}) for w in ("", "x", [], ["", ""])]


@program
def effects_in_a_branch_of_a_function(tf):
    """What a function's result waits for may be in a branch that is not taken."""
    from tensorflow.python.framework import function

    @function.Defun(tf.float32)
    def checked(x):
        with tf.control_dependencies([tf.Assert(tf.less_equal(x, 10.0), [x])]):
            return tf.identity(x)

    x = tf.placeholder(tf.float32, [], name="x")
    tf.identity(checked(x), name="y")
    return [("y:0", {"x:0": np.float32(1)}), ("y:0", {"x:0": np.float32(100)})]


@program
def lists_add_up(tf):
    """Gradients of elements that are read twice are sums of lists; those of loops begin with lists of zeros."""
    from tensorflow.python.ops import list_ops

    x = tf.placeholder(tf.float32, [3], name="x")
    elements = list_ops.tensor_list_from_tensor(x, element_shape=[])
    read = [list_ops.tensor_list_get_item(elements, i, tf.float32) for i in (0, 2, 0)]
    tf.identity(tf.gradients(read[0] * read[1] + tf.square(read[2]), x)[0], name="dx")
    total = tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * x[i] + t), [0, 1.0])[1]
    first = tf.gradients(total, x)[0]
    tf.identity(tf.gradients(first, x)[0], name="ddx")
    parts = list_ops.tensor_list_split(tf.reshape(x, [3, 1]), element_shape=[None, 1], lengths=[1, 2])
    tf.identity(list_ops.tensor_list_concat(parts, tf.float32), name="joined")
    return [(["dx:0", "ddx:0", "joined:0"], {"x:0": np.float32([1, 2, 3])})]


@program
def sets_of_rows(tf):
    a = tf.placeholder(tf.int64, [None, None], name="a")
    b = tf.placeholder(tf.int64, [None, None], name="b")
    sparse = tf.sparse.from_dense(b)
    names = []
    for kind, result in (
        ("both", tf.sets.intersection(a, b)),
        ("any", tf.sets.union(a, sparse)),
        ("less", tf.sets.difference(a, b)),
        ("rest", tf.sets.difference(tf.sparse.from_dense(a), sparse, aminusb=False)),
    ):
        tf.identity_n([result.indices, result.values, result.dense_shape], name=kind)
        names += [f"{kind}:{i}" for i in range(3)]
    tf.identity(tf.sets.size(sparse), name="sizes")
    full = {"a:0": np.int64([[1, 2, 2], [3, 4, 5]]), "b:0": np.int64([[2, 9], [6, 7]])}
    empty = {"a:0": np.zeros([2, 0], np.int64), "b:0": np.int64([[0, 0], [0, 4]])}
    apart = {"a:0": np.int64([[1]]), "b:0": np.int64([[2], [6]])}
    return [(names + ["sizes:0"], full), (names + ["sizes:0"], empty), (["both:0"], apart), (["any:0"], apart)]


@program
def kernels_instead(tf):
    """Nothing is inlined: the nodes call their functions."""
    n = tf.placeholder(tf.int32, [], name="n")
    p = tf.placeholder(tf.bool, [], name="p")
    total = tf.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, tf.cond(p, lambda: t + i, lambda: t * 2)), [0, 1])[1]
    tf.identity(total, name="total")
    y = tf.switch_case(n, [lambda: tf.constant(10), lambda: n * 100, lambda: tf.constant(-1)])
    tf.identity(y, name="y")
    return [(["total:0", "y:0"], {"n:0": np.int32(k), "p:0": np.bool_(b)}) for k in (0, 1, 7, 300) for b in (True, False)]


def _initializer(tf):
    tf.group(*[v.initializer for v in tf.global_variables()], name="init")


def _call(tf, function, results, stateful=True, **attrs):
    """The node that calls a Defun, whatever it returns."""
    from tensorflow.python.ops import gen_functional_ops

    function.add_to_graph(tf.get_default_graph())
    call = gen_functional_ops.stateful_partitioned_call if stateful else gen_functional_ops.partitioned_call
    call(args=function.captured_inputs, Tout=results, f=function, **attrs)
    return _last_call(tf)


def _last_call(tf):
    return [op for op in tf.get_default_graph().get_operations() if "PartitionedCall" in op.type][-1]


@program
def effects_that_no_result_needs(tf):
    """Functions that do not say what must run: all their effects do when the call is waited for."""
    from tensorflow.python.framework import function

    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=True)

    @function.Defun()
    def add():
        v.assign_add(1.0)

    @function.Defun()
    def double():
        v.assign(v * 2.0)
        return tf.constant(3.0)

    @function.Defun(noinline=True)
    def kept():
        v.assign_add(1.0)

    for name, body, results in (("add", add, []), ("double", double, [tf.float32]), ("kept", kept, [])):
        call = _call(tf, body, results)
        tf.group(call, name=name)
        with tf.control_dependencies([call]):
            tf.identity(v.read_value(), name="after_" + name)
    tf.identity(v.read_value(), name="value")
    _initializer(tf)
    return [("init", {})] + [(fetch, {}) for fetch in (
        "add", "value:0", "after_add:0", "double", "value:0", "after_double:0", "kept", "value:0", "after_kept:0", "value:0")]


@program
def effects_of_a_defun(tf):
    """A call under the function's own name has its effects although only its result is read."""
    from tensorflow.python.framework import function

    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=True)

    @function.Defun()
    def add():
        v.assign_add(1.0)
        return tf.constant(3.0)

    @function.Defun(tf.int32)
    def looped(n):
        v1 = tf.while_loop(lambda i: i < n, lambda i: i + 1, [0])
        v.assign_add(tf.cast(v1, tf.float32))
        return n * 2

    x = add()
    tf.identity(x, name="x")
    with tf.control_dependencies([x]):
        tf.identity(v.read_value(), name="after")
    tf.identity(looped(tf.constant(5)), name="looped_once")
    tf.identity(v.read_value(), name="value")
    _initializer(tf)
    return [("init", {})] + [(fetch, {}) for fetch in ("x:0", "value:0", "after:0", "value:0", "looped_once:0", "value:0")]


@program
def a_defun_in_a_branch_not_taken(tf):
    """What waits for a call without results does not run where the call does not."""
    from tensorflow.python.framework import function

    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=True)
    p = tf.placeholder(tf.bool, [], name="p")

    @function.Defun(tf.float32)
    def add(x):
        v.assign_add(x)
        return x + 1.0

    tf.disable_control_flow_v2()
    try:
        y = tf.cond(p, lambda: add(tf.constant(10.0)), lambda: tf.constant(-1.0))
    finally:
        tf.enable_control_flow_v2()
    tf.identity(y, name="y")
    tf.identity(v.read_value(), name="value")
    _initializer(tf)
    return [("init", {}), ("y:0", {"p:0": np.bool_(False)}), ("value:0", {}), ("y:0", {"p:0": np.bool_(True)}), ("value:0", {})]


@program
def order_of_reads_and_assignments(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=True)
    w = tf.get_variable("w", [], initializer=tf.constant_initializer(10.0), use_resource=True)

    @tf.function
    def inner(x):
        v.assign_add(x)
        w.assign(v.read_value())
        return w.read_value()

    @tf.function
    def outer(x):
        before = v.read_value()
        a = inner(x)
        b = v.read_value()
        v.assign(b * 2.0)
        c = inner(a)
        return before, a, b, c, v.read_value(), w.read_value()

    y = outer(tf.constant(5.0))
    tf.identity_n(list(y), name="y")
    with tf.control_dependencies([y[0]]):
        tf.identity(v.read_value(), name="after")
    _initializer(tf)
    names = ["y:%d" % i for i in range(6)]
    return [("init", {}), (names, {}), ("after:0", {}), (names + ["after:0"], {})]


@program
def calls_one_after_the_other(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=True)

    @tf.function
    def add():
        v.assign_add(1.0)

    @tf.function
    def twice():
        add()
        add()

    @tf.function
    def double():
        v.assign(v * 2.0)

    @tf.function
    def get():
        return v.read_value()

    twice()
    with tf.control_dependencies([_last_call(tf)]):
        double()
        with tf.control_dependencies([_last_call(tf)]):
            first = get()
            with tf.control_dependencies([first]):
                add()
                with tf.control_dependencies([_last_call(tf)]):
                    second = get()
    tf.identity_n([first, second], name="y")
    _initializer(tf)
    return [("init", {}), (["y:0", "y:1"], {}), (["y:0", "y:1"], {})]


@program
def effects_in_control_flow_of_a_function(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=True)
    n = tf.placeholder(tf.int32, [], name="n")

    @tf.function
    def f(n):
        for i in tf.range(n):
            v.assign_add(tf.cast(i, tf.float32))
            if v > 5.0:
                v.assign(v * 0.5)
        return v.read_value()

    tf.identity(f(n), name="y")
    _initializer(tf)
    return [("init", {})] + [("y:0", {"n:0": np.int32(k)}) for k in (3, 0, 5, 1)]


@program
def references_in_branches(tf):
    v = tf.Variable(5.0, use_resource=False)
    p = tf.placeholder(tf.bool, [], name="p")
    r = v._ref()
    y = tf.cond(p, lambda: v * 2.0, lambda: v + 1.0)
    z = tf.cond(p, lambda: r * 2.0, lambda: r + 1.0)
    k = tf.switch_case(tf.cast(p, tf.int32), [lambda: r - 1.0, lambda: r * r])
    nested = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.cond(
        p, lambda: tf.cond(a > 10.0, lambda: a + v, lambda: a * v), lambda: v - a)), [0, 1.0])[1]
    tf.identity_n([y, z, k, nested] + tf.gradients(y, v) + tf.gradients(nested, v), name="y")
    with tf.control_dependencies([y]):
        tf.identity(tf.assign(v, y), name="assigned")
    _initializer(tf)
    names = ["y:%d" % i for i in range(6)]
    feeds = [{"p:0": np.bool_(b)} for b in (True, False)]
    return [("init", {})] + [(names, f) for f in feeds] + [("assigned:0", f) for f in feeds] + [(names, f) for f in feeds]


@program
def reference_without_a_value_in_a_branch(tf):
    x = tf.raw_ops.VariableV2(shape=[1], dtype=tf.float32, name="x")
    y = tf.cond(tf.constant(False), lambda: tf.identity(x), lambda: tf.constant([2.0]))
    tf.identity(y, name="y")
    z = tf.cond(tf.constant(True), lambda: tf.identity(x), lambda: tf.constant([2.0]))
    tf.identity(z, name="z")
    return [("y:0", {}), ("z:0", {})]


@program
def references_given_to_functions(tf):
    from tensorflow.python.framework import function
    from tensorflow.python.ops import gen_functional_ops

    v = tf.Variable(5.0, use_resource=False)
    for name, noinline in (("inlined", False), ("kept", True)):
        @function.Defun(tf.float32, func_name=name + "_double", noinline=noinline)
        def double(x):
            return x * 2.0

        double.add_to_graph(tf.get_default_graph())
        y = gen_functional_ops.partitioned_call(args=[v._ref()], Tout=[tf.float32], f=double)[0]
        tf.identity_n([y, double(v._ref())], name=name)
    _initializer(tf)
    return [("init", {}), (["inlined:0", "inlined:1"], {}), (["kept:0", "kept:1"], {})]


def _control_flow_v1(build):
    """Builds with Switch and Merge."""

    def wrapped(tf):
        tf.disable_control_flow_v2()
        try:
            return build(tf)
        finally:
            tf.enable_control_flow_v2()

    wrapped.__name__ = build.__name__
    return program(wrapped)


@_control_flow_v1
def a_read_outside_a_loop_that_updates(tf):
    """What was read from a reference variable is its memory: the loop sees what it has assigned."""
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(2.0), use_resource=False)
    i0 = tf.constant(0)

    def body(i):
        done = tf.cond(tf.constant(True), lambda: tf.assign(v, tf.square(v)), lambda: v)
        with tf.control_dependencies([done]):
            return i + 1

    with tf.control_dependencies([i0]):
        tf.identity(tf.while_loop(lambda i: i < 4, body, (i0,)), name="i")
    tf.identity(v, name="value")
    _initializer(tf)
    return [("init", {}), ("i:0", {}), ("value:0", {})]


@_control_flow_v1
def a_condition_that_updates(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=False)

    def condition(i):
        with tf.control_dependencies([tf.assign_add(v, 1.0)]):
            return tf.logical_and(i < 10, v.read_value() < 5.0)

    tf.identity(tf.while_loop(condition, lambda i: i + 1, [0]), name="i")
    tf.identity(v, name="value")
    _initializer(tf)
    return [("init", {}), ("i:0", {}), ("value:0", {}), ("i:0", {}), ("value:0", {})]


@_control_flow_v1
def reads_between_updates(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=False)
    p = tf.placeholder(tf.bool, [], name="p")
    early = tf.stop_gradient(tf.identity(v))
    with tf.control_dependencies([early]):
        first = tf.assign_add(v, 1.0)
    with tf.control_dependencies([first]):
        between = tf.identity(v)
        late = early * 10.0
        switched = tf.cond(p, lambda: early + 0.5, lambda: early - 0.5)
    with tf.control_dependencies([between, late, switched]):
        second = tf.assign_add(v, 1.0)
    with tf.control_dependencies([second]):
        tf.identity_n([early + 0.25, between + 0.25, late, switched], name="y")
    _initializer(tf)
    names = ["y:%d" % i for i in range(4)]
    return [("init", {})] + [(names, {"p:0": np.bool_(b)}) for b in (True, False)]


@_control_flow_v1
def nested_loops_that_update(tf):
    v = tf.get_variable("v", [], initializer=tf.constant_initializer(1.0), use_resource=False)
    n = tf.placeholder(tf.int32, [], name="n")

    def inner(i, j):
        with tf.control_dependencies([tf.assign(v, v + 1.0)]):
            return i, j + 1

    def outer(i):
        _, j = tf.while_loop(lambda i, j: j < i, inner, [i, 0])
        with tf.control_dependencies([j]):
            with tf.control_dependencies([tf.assign(v, v * 2.0)]):
                return i + 1

    tf.identity(tf.while_loop(lambda i: i < n, outer, [0], parallel_iterations=1), name="i")
    tf.identity(v, name="value")
    _initializer(tf)
    return [("init", {})] + [x for k in (1, 3, 0, 2) for x in (("i:0", {"n:0": np.int32(k)}), ("value:0", {}))]


@program
def executors(tf):
    from tensorflow.python.framework import function
    from tensorflow.python.ops import gen_functional_ops

    x = tf.placeholder(tf.int32, [None], name="x")
    runs = []
    for i, name in enumerate(("", "DEFAULT", "SINGLE_THREADED_EXECUTOR", "NO_SUCH_EXECUTOR")):
        # TensorFlow's optimizer hides an executor that does not exist where it can inline the call in time.
        for noinline in (True,) if name == "NO_SUCH_EXECUTOR" else (False, True):
            @function.Defun(tf.int32, func_name="add_%d_%d" % (i, noinline), noinline=noinline)
            def add(x):
                return x + 5

            add.add_to_graph(tf.get_default_graph())
            y = gen_functional_ops.partitioned_call(args=[x], Tout=[tf.int32], f=add, executor_type=name)[0]
            tf.identity(y, name="y_%d_%d" % (i, noinline))
            runs.append(("y_%d_%d:0" % (i, noinline), {"x:0": np.int32([1, 2])}))
    return runs


def clear_lowering(graph_def):
    for nodes in [graph_def.node] + [f.node_def for f in graph_def.library.function]:
        for node in nodes:
            if "_lower_using_switch_merge" in node.attr:
                del node.attr["_lower_using_switch_merge"]


def main(out):
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    tf.enable_control_flow_v2()
    cases = []
    for name, build in PROGRAMS.items():
        with tf.Graph().as_default() as graph:
            runs = build(tf)
            graph_def = graph.as_graph_def()
        if name == "kernels_instead":
            clear_lowering(graph_def)
        answers = []
        with tf.Graph().as_default():
            tf.import_graph_def(graph_def, name="")
            with tf.Session() as session:
                for fetches, feeds in runs:
                    try:
                        answers.append((fetches, feeds, session.run(fetches, feeds)))
                    except tf.errors.OpError as error:
                        answers.append((fetches, feeds, type(error).__name__))
        cases.append((name, graph_def.SerializeToString(), answers))
    with open(out, "wb") as file:
        pickle.dump(cases, file)


if __name__ == "__main__":
    main(sys.argv[1])
