"""Measure what each layer of a trained net knows: errors, linear probes, feature maps, gradient statistics."""

from deepsup.insight.dense_measure import DenseMeasurement, measure_dense
from deepsup.insight.feature_maps import FeatureMaps, feature_maps, first_convolution
from deepsup.insight.layer_errors import agreement, layer_insight, layers_facts
from deepsup.insight.layer_probes import probe
from deepsup.insight.measure import Measurement, error_percent, measure
from deepsup.insight.probe_result import ProbeResult
from deepsup.insight.probes import layer_outputs, probe_layer

__all__ = [
    "DenseMeasurement",
    "FeatureMaps",
    "Measurement",
    "ProbeResult",
    "agreement",
    "error_percent",
    "feature_maps",
    "first_convolution",
    "layer_insight",
    "layer_outputs",
    "layers_facts",
    "measure",
    "measure_dense",
    "probe",
    "probe_layer",
]
