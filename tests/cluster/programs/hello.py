"""One task that is its own cluster."""
import tensorflow as tf

greeting = tf.constant("Hello, distributed TensorFlow!")
server = tf.train.Server.create_local_server()
with tf.Session(server.target) as session:
    print(session.run(greeting))
