"""A supervised net or a run -> one file that runs without deepsup: ONNX, ``.pt2`` or safetensors, with a model card."""

from deepsup.exporting.exporter import Exported, export

__all__ = ["Exported", "export"]
