"""tf.keras: not part of Muster; whatever is asked of it says so."""
import sys

from muster import _absent

sys.modules[__name__] = _absent.Absent("keras", _absent.REASONS["keras"])
