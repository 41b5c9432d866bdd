"""tensorflow.python.tools.freeze_graph: a graph and a checkpoint as one GraphDef with constants."""
from google.protobuf import text_format

import muster as tf
from muster import graph_util
from muster.train import saver as _saver


def _graph_def(path, binary):
    made = tf.GraphDef()
    with open(path, "rb") as file:
        content = file.read()
    if binary:
        made.ParseFromString(content)
    else:
        text_format.Merge(content.decode(), made)
    return made


def freeze_graph_with_def_protos(input_graph_def, input_saver_def, input_checkpoint, output_node_names,
                                 restore_op_name=None, filename_tensor_name=None, output_graph=None, clear_devices=True,
                                 initializer_nodes="", variable_names_whitelist="", variable_names_blacklist="",
                                 input_meta_graph_def=None, **unused):
    if clear_devices:
        for node in (input_meta_graph_def.graph_def if input_meta_graph_def else input_graph_def).node:
            node.device = ""
    names = [name.strip() for name in output_node_names.split(",")]
    with tf.Graph().as_default(), tf.Session() as sess:
        if input_meta_graph_def:
            restorer = _saver.import_meta_graph(input_meta_graph_def, clear_devices=True)
            restorer.restore(sess, input_checkpoint)
            input_graph_def = sess.graph.as_graph_def()
        else:
            tf.import_graph_def(input_graph_def, name="")
            if input_saver_def is not None:
                _saver.Saver(saver_def=input_saver_def).restore(sess, input_checkpoint)
            else:
                reader = tf.train.NewCheckpointReader(input_checkpoint)
                kept = {}
                for key in reader.get_variable_to_shape_map():
                    try:
                        kept[key] = sess.graph.get_tensor_by_name(key + ":0")
                    except KeyError:
                        continue  # a slot of an optimizer that the graph does not have
                _saver.Saver(var_list=kept, write_version=tf.train.SaverDef.V2).restore(sess, input_checkpoint)
        if initializer_nodes:
            sess.run([name.strip() for name in initializer_nodes.split(",")])
        allowed = variable_names_whitelist.replace(" ", "").split(",") if variable_names_whitelist else None
        denied = variable_names_blacklist.replace(" ", "").split(",") if variable_names_blacklist else None
        frozen = graph_util.convert_variables_to_constants(sess, input_graph_def, names, allowed, denied)
    if output_graph:
        with open(output_graph, "wb") as file:
            file.write(frozen.SerializeToString())
    return frozen


def freeze_graph(input_graph, input_saver, input_binary, input_checkpoint, output_node_names, restore_op_name,
                 filename_tensor_name, output_graph, clear_devices, initializer_nodes, variable_names_whitelist="",
                 variable_names_blacklist="", input_meta_graph=None, **unused):
    graph_def = _graph_def(input_graph, input_binary) if input_graph else None
    meta = None
    if input_meta_graph:
        meta = tf.MetaGraphDef()
        with open(input_meta_graph, "rb") as file:
            meta.ParseFromString(file.read())
    saver_def = None
    if input_saver:
        saver_def = tf.train.SaverDef()
        with open(input_saver, "rb") as file:
            if input_binary:
                saver_def.ParseFromString(file.read())
            else:
                text_format.Merge(file.read().decode(), saver_def)
    return freeze_graph_with_def_protos(
        graph_def, saver_def, input_checkpoint, output_node_names, restore_op_name, filename_tensor_name, output_graph,
        clear_devices, initializer_nodes, variable_names_whitelist, variable_names_blacklist, meta)
