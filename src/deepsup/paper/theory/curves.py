"""Measured runs in, plain lists for the figure out."""

from collections.abc import Mapping, Sequence
from typing import Any

from deepsup.paper.theory import bounds
from deepsup.paper.theory.cases import KNOWN, Measured, deviation


def curves(runs: Mapping[str, Sequence[Measured]]) -> dict[str, Any]:
    """Return step rule -> one entry a case, with its errors, bounds and ratios over T."""
    return {step: [curve(run) for run in measured] for step, measured in runs.items()}


def curve(run: Measured) -> dict[str, Any]:
    """Return one case under one step rule."""
    case = run.case
    if run.step == KNOWN:
        printed = [bounds.theorem1_known(case.lambda1, case.lambda2)] * len(run.times)
    else:
        printed = [float(t) ** bounds.theorem1_plain(case.lambda1, case.lambda2) for t in run.times]
    return {
        "case": case.name,
        "lambda1": case.lambda1,
        "lambda2": case.lambda2,
        "times": run.times,
        "error_p": run.p.mean(1).tolist(),
        "error_f": run.f.mean(1).tolist(),
        "deviation_p": deviation(run.p).tolist(),
        "deviation_f": deviation(run.f).tolist(),
        "printed_p": run.printed_p.tolist(),
        "printed_f": run.printed.tolist(),
        "corrected_f": run.corrected.tolist(),
        "recursion_f": run.recursion.tolist(),
        "ratio": run.ratio.tolist(),
        "ratio_deviation": run.ratio_deviation.tolist(),
        "printed_ratio": printed,
    }
