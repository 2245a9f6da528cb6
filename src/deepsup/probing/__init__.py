"""Probe a trained net of the user's own, layer by layer."""

from deepsup.probing.layer_probes import probe
from deepsup.probing.probe_result import ProbeResult

__all__ = ["ProbeResult", "probe"]
