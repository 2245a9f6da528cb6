"""A trained net -> numbers: its scores, its errors, those of every companion, and what each layer knows."""

from deepsup.evaluation.linear import layer_outputs, probe_layer
from deepsup.evaluation.maps import FeatureMaps, feature_maps, first_convolution
from deepsup.evaluation.metrics import Measurement, error_percent, measure
from deepsup.evaluation.probes import agreement, knowledge, layers_facts

__all__ = [
    "FeatureMaps",
    "Measurement",
    "agreement",
    "error_percent",
    "feature_maps",
    "first_convolution",
    "knowledge",
    "layer_outputs",
    "layers_facts",
    "measure",
    "probe_layer",
]
