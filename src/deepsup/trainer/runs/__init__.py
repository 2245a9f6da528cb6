"""One run: its folder, training, loading, evaluating, predicting.

The names are loaded when they are first used: what reads the folder of a run needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepsup.trainer.runs._environment import environment_now as environment_now
    from deepsup.trainer.runs._evaluate import check_fits as check_fits
    from deepsup.trainer.runs._evaluate import evaluate as evaluate
    from deepsup.trainer.runs._evaluate import predict as predict
    from deepsup.trainer.runs._exits import calibrate_run as calibrate_run
    from deepsup.trainer.runs._exits import export_exits as export_exits
    from deepsup.trainer.runs._exits import load_exits as load_exits
    from deepsup.trainer.runs._exits import predict_early as predict_early
    from deepsup.trainer.runs._folder import Result as Result
    from deepsup.trainer.runs._folder import RunFolder as RunFolder
    from deepsup.trainer.runs._inspect import inspect as inspect
    from deepsup.trainer.runs._inspect import inspect_image as inspect_image
    from deepsup.trainer.runs._lock import LockedError as LockedError
    from deepsup.trainer.runs._lock import owned as owned
    from deepsup.trainer.runs._model import Model as Model
    from deepsup.trainer.runs._model import load_model as load_model
    from deepsup.trainer.runs._run import Preprocess as Preprocess
    from deepsup.trainer.runs._run import Run as Run
    from deepsup.trainer.runs._run_data import data_of as data_of
    from deepsup.trainer.runs._run_data import with_batch_size as with_batch_size
    from deepsup.trainer.runs._shares import shares_line as shares_line
    from deepsup.trainer.runs._start_or_resume import as_settled as as_settled
    from deepsup.trainer.runs._start_or_resume import check_same as check_same
    from deepsup.trainer.runs._start_or_resume import default_name as default_name
    from deepsup.trainer.runs._start_or_resume import with_whole_names as with_whole_names
    from deepsup.trainer.runs._train import RunTraining as RunTraining
    from deepsup.trainer.runs._train import on_error_resume as on_error_resume
    from deepsup.trainer.runs._train import train as train
    from deepsup.trainer.runs.callbacks._snapshots import read_snapshot as read_snapshot
    from deepsup.trainer.runs.callbacks._snapshots import snapshot_files as snapshot_files

_HOME = {
    "LockedError": "_lock",
    "Model": "_model",
    "Preprocess": "_run",
    "Result": "_folder",
    "Run": "_run",
    "RunFolder": "_folder",
    "RunTraining": "_train",
    "as_settled": "_start_or_resume",
    "calibrate_run": "_exits",
    "check_fits": "_evaluate",
    "check_same": "_start_or_resume",
    "data_of": "_run_data",
    "default_name": "_start_or_resume",
    "environment_now": "_environment",
    "evaluate": "_evaluate",
    "export_exits": "_exits",
    "inspect": "_inspect",
    "inspect_image": "_inspect",
    "load_exits": "_exits",
    "load_model": "_model",
    "on_error_resume": "_train",
    "owned": "_lock",
    "predict": "_evaluate",
    "predict_early": "_exits",
    "read_snapshot": "callbacks._snapshots",
    "shares_line": "_shares",
    "snapshot_files": "callbacks._snapshots",
    "train": "_train",
    "with_batch_size": "_run_data",
    "with_whole_names": "_start_or_resume",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
