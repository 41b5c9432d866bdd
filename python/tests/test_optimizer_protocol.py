"""Optimizers that programs write themselves: TF1's protocol of overridable methods, and its errors."""
import copy

import numpy as np
import pytest


def _run(tf, train, fetches, steps=1, feed=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train, feed)
        return session.run(fetches)


def _signed(tf):
    """An optimizer of the program's own: a slot, both kinds of variable, dense and sparse gradients."""

    class SignOptimizer(tf.train.Optimizer):
        def __init__(self, learning_rate, name="Sign"):
            super(SignOptimizer, self).__init__(False, name)
            self._lr = learning_rate
            self.seen = []

        def _create_slots(self, var_list):
            for v in var_list:
                self._zeros_slot(v, "count", self._name)

        def _prepare(self):
            self.seen.append("prepare")
            self._lr_t = tf.convert_to_tensor(self._call_if_callable(self._lr), name="learning_rate")

        def _apply_dense(self, grad, var):
            self.seen.append("dense")
            lr = tf.cast(self._lr_t, var.dtype.base_dtype)
            count = self.get_slot(var, "count")
            return tf.group(tf.assign_sub(var, lr * tf.sign(grad)), tf.assign_add(count, tf.ones_like(grad)))

        def _apply_sparse(self, grad, var):
            self.seen.append("sparse")
            return tf.scatter_sub(var, grad.indices, self._lr_t * tf.sign(grad.values)).op

        def _resource_apply_dense(self, grad, handle):
            self.seen.append("resource_dense")
            return handle.assign_sub(self._lr_t * tf.sign(grad))

        def _resource_apply_sparse(self, grad, handle, indices):
            self.seen.append("resource_sparse")
            return self._resource_scatter_add(handle, indices, -self._lr_t * tf.sign(grad))

        def _finish(self, update_ops, name_scope):
            self.seen.append("finish")
            return super(SignOptimizer, self)._finish(update_ops, name_scope)

    return SignOptimizer


@pytest.mark.parametrize("resource", [False, True], ids=["ref", "resource"])
def test_own_optimizer(resource):
    import muster as tf

    with tf.Graph().as_default():
        v = tf.Variable([1.0, -2.0], name="v", use_resource=resource)
        table = tf.Variable(np.ones((4, 2), np.float32), name="table", use_resource=resource)
        loss = tf.reduce_sum(v * [3.0, -5.0]) + tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 3, 1]))
        optimizer = _signed(tf)(lambda: 0.5)
        train = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
        assert train.name == "Sign"
        kinds = ["resource_dense", "resource_sparse"] if resource else ["dense", "sparse"]
        assert optimizer.seen == ["prepare"] + kinds + ["finish"]
        assert optimizer.get_slot(v, "count").op.name == "v/Sign"
        assert optimizer.get_slot_names() == ["count"]
        assert [x.op.name for x in optimizer.variables()] == ["table/Sign", "v/Sign"]
        values, rows, step = _run(tf, train, [v, table, tf.train.get_global_step()], steps=2)
    np.testing.assert_allclose(values, [0.0, -1.0])
    # Repeated rows are summed before the sign is taken.
    np.testing.assert_allclose(rows, [[1, 1], [0, 0], [1, 1], [0, 0]])
    assert step == 2


def test_subclass_of_a_built_in_one():
    import muster as tf

    class ClippedAdam(tf.train.AdamOptimizer):
        def compute_gradients(self, *args, **kwargs):
            pairs = super(ClippedAdam, self).compute_gradients(*args, **kwargs)
            return [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in pairs if g is not None]

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            update = super(ClippedAdam, self).apply_gradients(grads_and_vars, global_step, name)
            with tf.control_dependencies([update]):
                return tf.group(*[v.assign(v.read_value() * (1.0 - self._lr * 0.1)) for _, v in grads_and_vars])

    def run(own):
        with tf.Graph().as_default():
            v = tf.Variable([1.0, 2.0], name="v")
            loss = tf.reduce_sum(v * [10.0, 0.5])
            if own:
                train = ClippedAdam(0.1).minimize(loss)
            else:
                adam = tf.train.AdamOptimizer(0.1)
                update = adam.apply_gradients([(tf.constant([1.0, 0.5]), v)])
                with tf.control_dependencies([update]):
                    train = v.assign(v.read_value() * 0.99)
            return _run(tf, train, v, steps=3)

    np.testing.assert_allclose(run(True), run(False), rtol=1e-6)


def test_subclass_replaces_a_hyperparameter():
    import muster as tf

    class Halved(tf.train.GradientDescentOptimizer):
        def _prepare(self):
            super(Halved, self)._prepare()
            assert self._learning_rate_tensor.op.name == "GradientDescent/learning_rate"
            self._learning_rate_tensor = self._learning_rate_tensor * 0.5

    with tf.Graph().as_default():
        v = tf.Variable([1.0])
        train = Halved(0.5).minimize(tf.reduce_sum(v * 2.0))
        assert _run(tf, train, v) == pytest.approx([0.5])


def test_subclass_overrides_one_update():
    import muster as tf

    class Plain(tf.train.MomentumOptimizer):
        def _apply_dense(self, grad, var):
            update = super(Plain, self)._apply_dense(grad, var)
            assert update.type == "ApplyMomentum"
            return update

        def _apply_sparse(self, grad, var):
            return tf.scatter_sub(var, grad.indices, grad.values)

    with tf.Graph().as_default():
        v, table = tf.Variable([1.0]), tf.Variable([[1.0], [1.0]])
        train = Plain(0.1, 0.9).minimize(tf.reduce_sum(v) + tf.reduce_sum(tf.gather(table, [0, 0])))
        value, rows = _run(tf, train, [v, table])
    assert value == pytest.approx([0.9])
    np.testing.assert_allclose(rows, [[-1.0], [1.0]])


def test_wrapper_that_delegates():
    """The shape of SyncReplicasOptimizer: it owns another optimizer and changes what that is given."""
    import muster as tf

    class Doubling(tf.train.Optimizer):
        def __init__(self, opt, name="doubling"):
            super(Doubling, self).__init__(False, name)
            self._opt = opt

        def compute_gradients(self, *args, **kwargs):
            return self._opt.compute_gradients(*args, **kwargs)

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            with tf.control_dependencies([tf.no_op(name="before")]):
                return self._opt.apply_gradients([(2.0 * g, v) for g, v in grads_and_vars], global_step, name)

        def get_slot(self, *args, **kwargs):
            return self._opt.get_slot(*args, **kwargs)

        def get_slot_names(self, *args, **kwargs):
            return self._opt.get_slot_names(*args, **kwargs)

    with tf.Graph().as_default():
        v = tf.Variable([1.0], name="v")
        optimizer = Doubling(tf.train.MomentumOptimizer(0.1, 0.0))
        train = optimizer.minimize(tf.reduce_sum(v), global_step=tf.train.create_global_step())
        assert optimizer.get_slot_names() == ["momentum"]
        # Slots are made outside of control dependencies.
        assert optimizer.get_slot(v, "momentum").initializer.control_inputs == []
        assert _run(tf, train, v) == pytest.approx([0.8])


def test_exception_of_a_method_comes_out_as_it_is():
    import muster as tf

    class Broken(tf.train.AdamOptimizer):
        def _apply_dense(self, grad, var):
            raise KeyError("mine")

    with tf.Graph().as_default():
        v = tf.Variable([1.0])
        with pytest.raises(KeyError, match="mine"):
            Broken(0.1).minimize(tf.reduce_sum(v))
        base = tf.train.Optimizer(False, "Base")
        with pytest.raises(NotImplementedError):
            base.minimize(tf.reduce_sum(v))


def test_copies_before_and_after_use():
    import muster as tf

    fresh = copy.deepcopy(tf.train.AdamOptimizer(0.25))
    with tf.Graph().as_default():
        v = tf.Variable([1.0])
        fresh.minimize(tf.reduce_sum(v))
        assert fresh.get_slot_names() == ["m", "v"]


def test_one_optimizer_in_two_graphs():
    import muster as tf

    adam = tf.train.AdamOptimizer(0.1)
    for _ in range(2):
        with tf.Graph().as_default() as graph:
            v = tf.Variable([1.0], name="v")
            train = adam.minimize(tf.reduce_sum(v))
            assert {x.graph for x in adam.variables()} == {graph}
            assert [x.op.name for x in adam.variables()] == ["beta1_power", "beta2_power", "v/Adam", "v/Adam_1"]
            assert _run(tf, train, v) == pytest.approx([0.9], rel=1e-4)


def test_slots_are_made_by_the_scopes_getter():
    import muster as tf

    asked = []

    def getter(getter, name, *args, **kwargs):
        asked.append(name)
        return getter(name, *args, **kwargs)

    with tf.Graph().as_default():
        with tf.variable_scope("model", custom_getter=getter):
            v = tf.get_variable("v", [2])
            tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(v))
    assert asked == ["model/v", "model/model/v/Adagrad/"]


def test_slots_of_parts_are_slices_too():
    import muster as tf

    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
            v = tf.get_variable("v", [5, 2], partitioner=tf.fixed_size_partitioner(2))
            adam = tf.train.AdamOptimizer(0.1)
            adam.minimize(tf.reduce_sum(tf.nn.embedding_lookup(v, [0, 4], partition_strategy="div")))
        for i, part in enumerate(v):
            assert part.device == "/job:ps/task:%d" % i
            for name, slot_name in (("m", "v/Adam"), ("v", "v/Adam_1")):
                slot = adam.get_slot(part, name)
                assert slot.device == part.device
                info = slot._get_save_slice_info()
                assert (info.full_name, info.spec) == (slot_name, part._get_save_slice_info().spec)


@pytest.mark.parametrize("resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("partitioner", ["fixed_size_partitioner(3)", "variable_axis_size_partitioner(32)",
                                         "min_max_variable_partitioner(3, min_slice_size=16)"])
def test_training_a_partitioned_table(partitioner, strategy, resource):
    """Rows are those of the whole table: training in parts is training the whole."""
    import muster as tf

    ids = [0, 6, 3, 3, 1, 6]
    initial = np.arange(14, dtype=np.float32).reshape(7, 2) / 10

    def run(parts):
        with tf.Graph().as_default():
            if parts:
                table = tf.get_variable("t", initializer=tf.constant(initial), use_resource=resource,
                                        partitioner=eval("tf." + partitioner, {"tf": tf}))
                rows = tf.nn.embedding_lookup(table, ids, partition_strategy=strategy)
            else:
                table = tf.get_variable("t", initializer=tf.constant(initial), use_resource=resource)
                rows = tf.nn.embedding_lookup(table, _placed(ids, counts, strategy))
            train = tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows * rows))
            whole = tf.convert_to_tensor(table)
            value = _run(tf, train, whole, steps=3)
            return value, [p.get_shape()[0].value for p in table] if parts else None

    parts, counts = run(True)
    assert sum(counts) == 7 and len(counts) > 1
    np.testing.assert_allclose(parts, run(False)[0], rtol=1e-6)


def _placed(ids, counts, strategy):
    """Where the rows of a partitioned table are in the parts' concatenation."""
    if strategy == "div":
        return ids
    starts = np.concatenate([[0], np.cumsum(counts)])
    return [int(starts[i % len(counts)] + i // len(counts)) for i in ids]


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_gates(gate):
    import muster as tf

    with tf.Graph().as_default() as graph:
        v, table = tf.Variable([[2.0]]), tf.Variable([[1.0], [2.0]])
        loss = tf.reduce_sum(tf.matmul(tf.gather(table, [1]), v))
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        train = optimizer.minimize(loss, gate_gradients=gate)
        tuples = [op.name for op in graph.get_operations() if op.name.startswith("tuple/")]
        assert bool(tuples) == (gate == 2)
        if gate == 0:
            return  # Values depend on which update comes first.
        value, rows = _run(tf, train, [v, table])
    np.testing.assert_allclose(value, [[0.0]])
    np.testing.assert_allclose(rows, [[1.0], [0.0]])


def test_errors():
    import muster as tf

    with tf.Graph().as_default() as graph:
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        with pytest.raises(ValueError, match="^Must specify the optimizer name$"):
            tf.train.Optimizer(False, "")
        with pytest.raises(ValueError, match="^No variables to optimize.$"):
            optimizer.minimize(tf.constant(1.0))
        v, w = tf.Variable(1.0, name="v"), tf.Variable(1.0, name="w")
        with pytest.raises(ValueError, match="^No variables provided.$"):
            optimizer.apply_gradients([])
        with pytest.raises(ValueError, match=r"^No gradients provided for any variable: \[\"<tf.Variable 'v:0' shape=\(\) "
                                             r"dtype=float32_ref>\"\]\.$"):
            optimizer.apply_gradients([(None, v)])
        with pytest.raises(ValueError, match="^No gradients provided for any variable, check your graph for ops that do "
                                             "not support gradients, between variables "):
            optimizer.minimize(tf.constant(1.0), var_list=[v])
        with pytest.raises(TypeError, match="^Gradient must be convertible to a Tensor or IndexedSlices, or None: "):
            optimizer.apply_gradients([(object(), v)])
        with pytest.raises(ValueError, match="^gate_gradients must be one of"):
            optimizer.minimize(v * 1.0, gate_gradients=7)
        with pytest.raises(AttributeError):
            optimizer.compute_gradients(v * 1.0, var_list=[3])
        count = tf.Variable(1, name="count")
        assert optimizer.compute_gradients(v * 2.0, var_list=[count, v])[0][0] is None
        pairs = optimizer.compute_gradients(w * v, var_list=[v.value()])
        assert pairs[0][0] is not None
        with pytest.raises(NotImplementedError, match="Trying to update a Tensor"):
            optimizer.apply_gradients(pairs)
        with pytest.raises(ValueError, match="^Invalid type tf.int32 for count:0, expected: "):
            optimizer.minimize(count)
        with pytest.raises(ValueError, match="must be positive"):
            tf.train.AdagradOptimizer(0.1, initial_accumulator_value=0.0)
        graph.finalize()
        with pytest.raises(RuntimeError, match="finalized"):
            optimizer.minimize(v * w)


def test_constraint():
    import muster as tf

    with tf.Graph().as_default():
        for resource in (False, True):
            v = tf.Variable([1.0, 2.0], constraint=lambda x: tf.clip_by_value(x, 0.5, 1.5), use_resource=resource)
            train = tf.train.MomentumOptimizer(1.0, 0.9).minimize(tf.reduce_sum(v), var_list=[v])
            np.testing.assert_allclose(_run(tf, train, v), [0.5, 1.0])
            table = tf.Variable([[1.0]], constraint=tf.abs, use_resource=resource)
            with pytest.raises(RuntimeError, match="^Cannot use a constraint function on a sparse variable.$"):
                tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(tf.gather(table, [0])), var_list=[table])


@pytest.mark.parametrize("make", ["MomentumOptimizer(0.1, 0.9)", "AdagradOptimizer(0.1)", "RMSPropOptimizer(0.1)",
                                  "AdamOptimizer(0.1)", "AdadeltaOptimizer(0.1)"])
def test_variable_of_unknown_shape(make):
    import muster as tf

    with tf.Graph().as_default():
        initial = tf.placeholder_with_default(np.ones((2, 3), np.float32), [None, None])
        v = tf.Variable(initial, validate_shape=False, name="v")
        optimizer = eval("tf.train." + make, {"tf": tf})
        train = optimizer.minimize(tf.reduce_sum(v * v))
        slot = optimizer.get_slot(v, optimizer.get_slot_names()[0])
        value, slots = _run(tf, train, [v, slot])
    assert value.shape == slots.shape == (2, 3)
    assert (value < 1).all()
