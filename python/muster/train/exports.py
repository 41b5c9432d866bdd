"""What tf.train has beside servers: optimizers, checkpoints, sessions that recover, hooks, threads and input queues."""
from muster.generated.optimizers import *  # noqa: F401,F403
from muster.graph.meta_graph import write_graph  # noqa: F401
from muster.summary import SummaryWriter, summary_iterator  # noqa: F401
from muster.train import queue_runner  # noqa: F401
from muster.train.all_reduce import *  # noqa: F401,F403
from muster.train.basic_session_run_hooks import *  # noqa: F401,F403
from muster.train.checkpoint_init import *  # noqa: F401,F403
from muster.train.checkpoint_management import *  # noqa: F401,F403
from muster.train.checkpoint_utils import *  # noqa: F401,F403
from muster.train.coordinator import *  # noqa: F401,F403
from muster.train.device_setter import *  # noqa: F401,F403
from muster.train.input import *  # noqa: F401,F403
from muster.train.learning_rate_decay import *  # noqa: F401,F403
from muster.train.monitored_session import *  # noqa: F401,F403
from muster.train.moving_averages import *  # noqa: F401,F403
from muster.train.optimizer import Optimizer  # noqa: F401
from muster.train.queue_runner import *  # noqa: F401,F403
from muster.train.saver import *  # noqa: F401,F403
from muster.train.session_manager import *  # noqa: F401,F403
from muster.train.session_run_hook import *  # noqa: F401,F403
from muster.train.supervisor import *  # noqa: F401,F403
from muster.train.sync_replicas import *  # noqa: F401,F403
from muster.train.training_util import *  # noqa: F401,F403
