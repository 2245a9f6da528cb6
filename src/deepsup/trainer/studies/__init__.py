"""Many runs: methods with settings to choose from, chosen on validation images, compared over seeds; sweeps."""

from deepsup.trainer.statistics import (
    LEAST,
    chance_error,
    equivalence,
    error_ratio,
    excludes,
    has_learned,
    holm,
    least_error,
    log_ratios,
    mean_test,
    paired,
    sign_test,
)
from deepsup.trainer.studies._compare import METHODS, compare_methods, for_method, on_one_scale
from deepsup.trainer.studies._comparison_table import ratio_text
from deepsup.trainer.studies._engine import Engine
from deepsup.trainer.studies._grid import regrown
from deepsup.trainer.studies._model_comparison import compare
from deepsup.trainer.studies._pool import pool
from deepsup.trainer.studies._precision import with_precision
from deepsup.trainer.studies._rate_choice import EXTENSIONS, Method, Outcome, Watcher, quarter, run_study, search_jobs
from deepsup.trainer.studies._sweep import sweep
from deepsup.trainer.studies._sweep_space import COMPANIONS

__all__ = [
    "COMPANIONS",
    "EXTENSIONS",
    "LEAST",
    "METHODS",
    "Engine",
    "Method",
    "Outcome",
    "Watcher",
    "chance_error",
    "compare",
    "compare_methods",
    "equivalence",
    "error_ratio",
    "excludes",
    "for_method",
    "has_learned",
    "holm",
    "least_error",
    "log_ratios",
    "mean_test",
    "on_one_scale",
    "paired",
    "pool",
    "quarter",
    "ratio_text",
    "regrown",
    "run_study",
    "search_jobs",
    "sign_test",
    "sweep",
    "with_precision",
]
