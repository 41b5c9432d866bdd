"""Programs that save and restore; whichever program wrote a checkpoint, training goes on from it in the same way."""

import os

import numpy as np

OPTIMIZERS = {
    "momentum": lambda t: t.MomentumOptimizer(0.05, 0.9),
    "nesterov": lambda t: t.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adam": lambda t: t.AdamOptimizer(0.01),
    "adagrad": lambda t: t.AdagradOptimizer(0.1),
    "adadelta": lambda t: t.AdadeltaOptimizer(1.0),
    "rmsprop": lambda t: t.RMSPropOptimizer(0.01, momentum=0.5),
    "centered": lambda t: t.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "ftrl": lambda t: t.FtrlOptimizer(0.1),
    "proximal_adagrad": lambda t: t.ProximalAdagradOptimizer(0.1),
    "adagrad_da": None,  # takes the global step
}
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool",
          "complex64", "complex128", "string")


def _optimizer(tf, name, step):
    if name == "adagrad_da":
        return tf.train.AdagradDAOptimizer(0.1, step)
    return OPTIMIZERS[name](tf.train)


def _variables(tf, call):
    """Weights in parts, a bias, each where the device setter puts it."""
    start = np.random.RandomState(5).randn(6, 4).astype("f")
    parts = call.get("parts", 1)

    def initializer(shape, dtype=None, partition_info=None):
        row = partition_info.var_offset[0] if partition_info is not None else 0
        return tf.constant(start[row:row + int(shape[0])])

    w = tf.get_variable("model/w", [6, 4], initializer=initializer,
                        partitioner=tf.fixed_size_partitioner(parts) if parts > 1 else None,
                        use_resource=call["resource"])
    b = tf.get_variable("model/b", initializer=np.zeros(4, "f"), use_resource=call["resource"])
    return w, b


def training(tf, call):
    """Restores `restore` if that is given, trains `steps` steps and saves into `folder`.

    Gives the losses and the checkpoint's prefix.
    """
    r = np.random.RandomState(0)
    data, labels = r.randn(32, 6).astype("f"), r.randint(0, 4, 32)
    chosen = tf.train.replica_device_setter(ps_tasks=call["ps"], worker_device="/job:worker/task:0") if call["ps"] else None
    with tf.Graph().as_default():
        with tf.device(chosen):
            w, b = _variables(tf, call)
            step = tf.train.get_or_create_global_step()
            logits = tf.matmul(tf.constant(data), tf.convert_to_tensor(w)) + b
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
            train = _optimizer(tf, call["optimizer"], step).minimize(loss, global_step=step)
            init = tf.global_variables_initializer()
        saver = tf.train.Saver(sharded=call.get("sharded", False))
        with tf.Session(call["target"], config=tf.ConfigProto(operation_timeout_in_ms=60000)) as s:
            if call.get("restore"):
                saver.restore(s, call["restore"])
            else:
                s.run(init)
            losses = [float(s.run([loss, train])[0]) for _ in range(call["steps"])]
            path = saver.save(s, os.path.join(call["folder"], "model.ckpt"), global_step=step)
            return {"losses": losses, "path": path, "files": sorted(os.listdir(call["folder"]))}


def imported(tf, call):
    """The other's meta graph, restored and trained on without the program that made it."""
    with tf.Graph().as_default() as graph:
        saver = tf.train.import_meta_graph(call["restore"] + ".meta", clear_devices=True)
        with tf.Session(call["target"]) as s:
            saver.restore(s, call["restore"])
            train = tf.get_collection("train_op")[0]
            loss = [op for op in graph.get_operations() if op.type == "Mean"][0].outputs[0]
            return [float(s.run([loss, train])[0]) for _ in range(call["steps"])]


def loops(tf, call):
    """Writes a graph of loops in branches in loops, differentiated once, or differentiates the other's."""
    with tf.Graph().as_default() as graph:
        if call.get("restore"):
            tf.train.import_meta_graph(call["restore"], import_scope=call.get("scope"))
        else:
            w = tf.get_variable("w", initializer=np.float32([[1.5], [-0.5]]))
            x = tf.placeholder(tf.float32, [None, 2], name="x")

            def inner(a):
                return tf.cond(a > 4.0, lambda: tf.while_loop(lambda b: b < 50.0, lambda b: b * w[0, 0], [a]),
                               lambda: a * tf.reduce_sum(w) + 1.0)

            total = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, inner(a)), [0, tf.reduce_sum(tf.matmul(x, w))])[1]
            y = tf.identity(total * 2.0, name="y")
            tf.gradients(y, w)
        prefix = call["scope"] + "/" if call.get("scope") else ""
        gradient = tf.gradients(graph.get_tensor_by_name(prefix + "y:0"), tf.global_variables()[0])[0]
        path = os.path.join(call["folder"], "graph.meta")
        if not call.get("restore"):
            tf.train.export_meta_graph(path)
        with tf.Session(call["target"]) as s:
            s.run(tf.global_variables_initializer())
            fed = {prefix + "x:0": np.float32([[1, 2], [3, 1]])}
            return {"gradient": s.run(gradient, fed).tolist(), "path": path}


def _typed(tf, name):
    """An array of every kind of value that the type has, and what a variable starts from."""
    if name == "string":
        return tf.constant([[b"", b"a\x00b"], [b"\xff" * 300, "h\u00e9".encode()]])
    if name == "bool":
        return tf.constant([[True, False], [False, True]])
    numbers = np.array([[0, 1], [7, 100]], np.float64)
    if name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        numbers = np.array([[0.0, -1.5], [np.inf, 3.0]])
    if name.startswith("complex"):
        return tf.constant(np.array([[0, -1.5 + 2j], [1e10 - 1j, 3j]]).astype(name))
    if name == "bfloat16":
        return tf.cast(tf.constant(numbers.astype("f")), tf.bfloat16)
    return tf.constant(numbers.astype(name))


def every_type(tf, call):
    """Saves a variable of every type, or restores them and says which differ."""
    with tf.Graph().as_default():
        values = {name: _typed(tf, name) for name in DTYPES}
        found = {name: tf.get_variable("v/" + name, shape=[2, 2], dtype=values[name].dtype, trainable=False,
                                       initializer=tf.zeros_initializer() if name != "string" else
                                       (lambda shape, dtype=None, partition_info=None: tf.fill(shape, "")))
                 for name in DTYPES}
        found["empty"] = tf.get_variable("v/empty", shape=[2, 0, 3], trainable=False)
        found["scalar"] = tf.get_variable("v/scalar", initializer=np.int64(-5), trainable=False)
        saver = tf.train.Saver()
        with tf.Session(call["target"]) as s:
            if not call.get("restore"):
                s.run(tf.global_variables_initializer())
                s.run([found[name].assign(values[name]) for name in DTYPES])
                return saver.save(s, os.path.join(call["folder"], "types"))
            saver.restore(s, call["restore"])
            got, wanted = s.run([{n: found[n] for n in DTYPES}, values])
            assert s.run(found["scalar"]) == -5 and s.run(found["empty"]).shape == (2, 0, 3)
            return [name for name in DTYPES if np.asarray(got[name]).tolist() != np.asarray(wanted[name]).tolist()]


PROGRAMS = {"training": training, "imported": imported, "loops": loops, "every_type": every_type}


def run(tf, call):
    return PROGRAMS[call["program"]](tf, call)
