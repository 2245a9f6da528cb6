"""Measure what each layer of a trained net knows: errors, linear probes, feature maps, gradient statistics."""

from deepsup.insight._dense_measure import DenseMeasurement, measure_dense
from deepsup.insight._feature_maps import FeatureMaps, feature_maps, first_convolution
from deepsup.insight._gradients import GradientStatistics
from deepsup.insight._layer_errors import agreement, layer_insight, layers_facts
from deepsup.insight._measure import Measurement, error_percent, measure
from deepsup.insight._model_probes import LayerFeatures, probe
from deepsup.insight._probe_data import ProbeData
from deepsup.insight._probe_result import ProbeResult
from deepsup.insight._probes import fit_probe, layer_outputs, probe_layer

__all__ = [
    "DenseMeasurement",
    "FeatureMaps",
    "GradientStatistics",
    "LayerFeatures",
    "Measurement",
    "ProbeData",
    "ProbeResult",
    "agreement",
    "error_percent",
    "feature_maps",
    "first_convolution",
    "fit_probe",
    "layer_insight",
    "layer_outputs",
    "layers_facts",
    "measure",
    "measure_dense",
    "probe",
    "probe_layer",
]
