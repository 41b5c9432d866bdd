"""tf.estimator: Estimators of model functions that the program defines. Canned models and feature columns are not part
of Muster; using one is an error that says so."""
import sys

from muster.names import absent as _absent


def _from(module, attribute):
    def load():
        import importlib

        return getattr(importlib.import_module("muster." + module), attribute)

    return load


_export = _absent.Absent("estimator.export", _absent.REASONS["estimator"], {name: _from("estimator.specs", name) for name in (
    "ClassificationOutput", "ExportOutput", "PredictOutput", "RegressionOutput", "ServingInputReceiver",
    "build_parsing_serving_input_receiver_fn", "build_raw_serving_input_receiver_fn")})
_inputs = _absent.Absent("estimator.inputs", _absent.REASONS["estimator"], {
    "numpy_input_fn": _from("estimator.training", "numpy_input_fn")})
_members = {name: _from("estimator.specs", name) for name in (
    "EstimatorSpec", "EvalSpec", "Exporter", "FinalExporter", "LatestExporter", "ModeKeys", "RunConfig", "TrainSpec")}
_members.update(
    Estimator=_from("estimator.estimators", "Estimator"), train_and_evaluate=_from("estimator.training", "train_and_evaluate"),
    export=lambda: _export, inputs=lambda: _inputs)
sys.modules[__name__] = _absent.Absent("estimator", _absent.REASONS["estimator"], _members)
sys.modules[__name__].__path__ = __path__  # the modules beside this one
