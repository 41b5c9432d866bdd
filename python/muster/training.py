"""What tf.train has beside servers: optimizers, checkpoints, sessions that recover, hooks, threads and input queues."""
from muster.all_reduce import *  # noqa: F401,F403
from muster.basic_session_run_hooks import *  # noqa: F401,F403
from muster.checkpoint_init import *  # noqa: F401,F403
from muster.checkpoint_management import *  # noqa: F401,F403
from muster.checkpoint_utils import *  # noqa: F401,F403
from muster.coordinator import *  # noqa: F401,F403
from muster.device_setter import *  # noqa: F401,F403
from muster.input import *  # noqa: F401,F403
from muster.learning_rate_decay import *  # noqa: F401,F403
from muster.meta_graph import write_graph  # noqa: F401
from muster.monitored_session import *  # noqa: F401,F403
from muster.moving_averages import *  # noqa: F401,F403
from muster.optimizer import Optimizer  # noqa: F401
from muster.optimizers import *  # noqa: F401,F403
from muster import queue_runner  # noqa: F401
from muster.queue_runner import *  # noqa: F401,F403
from muster.saver import *  # noqa: F401,F403
from muster.session_manager import *  # noqa: F401,F403
from muster.session_run_hook import *  # noqa: F401,F403
from muster.summary import SummaryWriter, summary_iterator  # noqa: F401
from muster.sync_replicas import *  # noqa: F401,F403
from muster.supervisor import *  # noqa: F401,F403
from muster.training_util import *  # noqa: F401,F403
