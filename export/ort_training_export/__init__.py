"""Exports PyTorch models to ONNX in the form that ONNX Runtime trains."""

from .checks import ExportError
from .exporter import Exported, choose_opset, export
from .graph import Untrainable, untrainable
from .reference import Loss, write_reference

__all__ = ["ExportError", "Exported", "Loss", "Untrainable", "choose_opset", "export", "untrainable", "write_reference"]
