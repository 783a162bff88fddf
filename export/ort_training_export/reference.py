"""The sidecar: what PyTorch computes, to be compared with what ONNX Runtime computes."""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Mapping, Sequence

import numpy as np
import torch
from safetensors.numpy import save_file

_KINDS = ("cross_entropy", "bce_with_logits", "mse", "l1")


@dataclass(frozen=True)
class Loss:
    """A loss that the artifact maker has, and its target.

    ``kind`` is ``cross_entropy``, ``bce_with_logits``, ``mse`` or ``l1``. ``class_axis`` is that of cross-entropy's
    scores: 1 for ``[batch, class, …]``, -1 for ``[batch, sequence, class]``.
    """

    kind: str
    target: torch.Tensor
    output: int = 0
    class_axis: int = 1

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"loss kind: expected one of {', '.join(_KINDS)}, found {self.kind!r}")

    def __call__(self, scores: torch.Tensor) -> torch.Tensor:
        functional = torch.nn.functional
        if self.kind == "cross_entropy":
            return functional.cross_entropy(scores.movedim(self.class_axis, 1), self.target)
        if self.kind == "bce_with_logits":
            return functional.binary_cross_entropy_with_logits(scores, self.target)
        if self.kind == "mse":
            return functional.mse_loss(scores, self.target)
        return functional.l1_loss(scores, self.target)


def array(tensor: torch.Tensor) -> np.ndarray:
    """A contiguous copy on the host."""
    return np.array(tensor.detach().cpu().numpy(), order="C", copy=True)


def flat_outputs(outputs: object) -> list[torch.Tensor]:
    """The tensors of a model's result, in order.

    :raises TypeError: there is something else among them.
    """
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, Mapping):
        values = list(outputs.values())
    elif isinstance(outputs, (tuple, list)):
        values = list(outputs)
    else:
        raise TypeError(f"outputs: expected tensors, found {'None' if outputs is None else type(outputs).__name__}")
    return [tensor for value in values for tensor in flat_outputs(value)]


@contextlib.contextmanager
def without_dropout(model: torch.nn.Module) -> Iterator[None]:
    """Dropout passes its input meanwhile, so that results can be compared; all else stays in its mode."""
    kinds = (torch.nn.modules.dropout._DropoutNd,)
    changed = [module for module in model.modules() if isinstance(module, kinds) and module.training]
    rates = []
    for module in model.modules():
        # Attention and recurrent layers apply dropout by a rate of their own.
        rate = getattr(module, "dropout", None)
        if isinstance(rate, float) and rate > 0:
            rates.append((module, rate))
    try:
        for module in changed:
            module.eval()
        for module, _ in rates:
            module.dropout = 0.0
        yield
    finally:
        for module in changed:
            module.train()
        for module, rate in rates:
            module.dropout = rate


def write_reference(
    path: Path,
    model: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    output_names: Sequence[str],
    loss: Loss | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes inputs, outputs in evaluation mode and, with a loss, one training step's loss and gradients.

    Tensors are called ``input.<name>``, ``output.<name>``, ``target.labels`` or ``target.target``, ``loss`` and
    ``grad.<parameter>``. Dropout passes its input. The model is not changed.
    """
    model = copy.deepcopy(model)
    tensors = {f"input.{name}": array(value) for name, value in inputs.items()}
    model.eval()
    with torch.no_grad():
        outputs = flat_outputs(model(*inputs.values()))
    if len(outputs) != len(output_names):
        raise ValueError(f"output names: expected {len(outputs)}, found {len(output_names)}")
    tensors.update((f"output.{name}", array(value)) for name, value in zip(output_names, outputs))
    header = {"format": "pt", "torch": torch.__version__, **(metadata or {})}
    if loss is not None:
        model.train()
        with without_dropout(model):
            value = loss(flat_outputs(model(*inputs.values()))[loss.output])
            value.backward()
        tensors["target.labels" if loss.kind == "cross_entropy" else "target.target"] = array(loss.target)
        tensors["loss"] = array(value)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                tensors[f"grad.{name}"] = array(parameter.grad)
        header["loss"] = json.dumps(
            {"kind": loss.kind, "output": output_names[loss.output], "class_axis": loss.class_axis}
        )
    save_file(tensors, str(path), metadata=header)
