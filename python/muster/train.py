"""tf.train, as far as it exists: optimizers, learning rates, averages and the global step."""
from muster.learning_rate_decay import *  # noqa: F401,F403
from muster.moving_averages import *  # noqa: F401,F403
from muster.optimizer import Optimizer  # noqa: F401
from muster.optimizers import *  # noqa: F401,F403
from muster.training_util import *  # noqa: F401,F403
