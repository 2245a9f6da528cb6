"""A supervised net or a run -> one file that runs without deepsup: ONNX, ``.pt2`` or safetensors, with a model card."""

from deepsup.exporting._card import Facts, table
from deepsup.exporting._exporter import Exportable, Exported, export, noise
from deepsup.exporting._formats import check_onnx, onnx_bytes, onnx_model
from deepsup.exporting._graph import Graph, Program
from deepsup.exporting._quantization import Quantized, Trial

__all__ = [
    "Exportable",
    "Exported",
    "Facts",
    "Graph",
    "Program",
    "Quantized",
    "Trial",
    "check_onnx",
    "export",
    "noise",
    "onnx_bytes",
    "onnx_model",
    "table",
]
