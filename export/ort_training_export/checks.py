"""What is wrong with a model or with the arguments of `export`, found before anything is written."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Mapping, Sequence

import torch

from .reference import Loss, flat_outputs


class ExportError(Exception):
    """The model cannot be exported so that it trains; the message says what was expected and what was found."""


def check_path(path: Path) -> Path:
    """A file that can be written, as far as that can be known without writing it."""
    if path.is_dir():
        raise ExportError(f"path: expected a file, found the folder '{path}'")
    if not path.parent.is_dir():
        raise ExportError(f"path: expected an existing folder, found '{path.parent}'")
    try:
        # Permissions alone do not tell: root may do all, and a file system may still be read-only.
        with open(path.with_name(f".{path.name}.probe"), "wb"):
            pass
        path.with_name(f".{path.name}.probe").unlink()
    except OSError as error:
        raise ExportError(f"path: no file can be written in '{path.parent}': {error.strerror}") from error
    return path


def check_model(model: torch.nn.Module) -> None:
    """A module on the host in single precision, and a NumPy that this PyTorch can use."""
    if not isinstance(model, torch.nn.Module):
        raise ExportError(f"model: expected a torch.nn.Module, found {type(model).__name__}")
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        raise ExportError(f"model: expected the module itself, found it wrapped in {type(model).__name__}; give its .module")
    for name, value in model.named_parameters():
        if value.dtype != torch.float32:
            raise ExportError(f"parameter '{name}': expected torch.float32, found {value.dtype}; export model.float()")
        if value.is_meta:
            raise ExportError(f"parameter '{name}': expected a value, found none (it is on the meta device)")
    try:
        torch.zeros(1).numpy()
    except RuntimeError as error:
        raise ExportError(
            f"PyTorch {torch.__version__} cannot use the NumPy that is installed ({error}); try: pip install 'numpy<2'"
        ) from error


def check_inputs(example_inputs: object) -> tuple[torch.Tensor, ...]:
    """The example inputs as a tuple of tensors."""
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,)
    if isinstance(example_inputs, Mapping) or not isinstance(example_inputs, Sequence):
        raise ExportError(
            f"example_inputs: expected a tensor or a sequence of tensors in the order of forward's arguments, found"
            f" {type(example_inputs).__name__}"
        )
    if not example_inputs:
        raise ExportError("example_inputs: expected at least one tensor, found none")
    for index, value in enumerate(example_inputs):
        if not isinstance(value, torch.Tensor):
            hint = "; wrap the model in a module whose forward takes tensors" if isinstance(value, Mapping) else ""
            raise ExportError(f"example_inputs[{index}]: expected a tensor, found {type(value).__name__}{hint}")
    return tuple(example_inputs)


def run_forward(model: torch.nn.Module, inputs: Sequence[torch.Tensor], gradients: bool = False) -> list[torch.Tensor]:
    """The outputs for the example inputs: of the model itself with `gradients`, else of a copy in evaluation mode."""
    if not gradients:
        model = copy.deepcopy(model).eval()
    try:
        with torch.set_grad_enabled(gradients):
            result = model(*inputs)
    except Exception as error:
        raise ExportError(f"forward fails for the example inputs: {type(error).__name__}: {error}") from error
    try:
        return flat_outputs(result)
    except TypeError as error:
        raise ExportError(f"{error}; wrap the model in a module whose forward returns tensors alone") from error


def check_names(model: torch.nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """In ONNX, inputs, outputs and parameters share one space of names."""
    taken = {name: "a parameter or buffer of the model" for name in model.state_dict()}
    for kind, names in (("input", inputs), ("output", outputs)):
        for name in names:
            if not name:
                raise ExportError(f"{kind}_names: expected names, found an empty one")
            if name in taken:
                raise ExportError(f"{kind}_names: '{name}' is already the name of {taken[name]}; choose another")
            taken[name] = f"an {kind}"


def check_axes(axes: Mapping[str, Mapping[int, str]], tensors: Mapping[str, torch.Tensor]) -> None:
    """Every dynamic axis is one of an input's or an output's."""
    for name, each in axes.items():
        if name not in tensors:
            raise ExportError(f"dynamic_axes: '{name}' is neither an input nor an output ({', '.join(tensors)})")
        for axis in each:
            if not 0 <= axis < tensors[name].dim():
                raise ExportError(f"dynamic_axes: '{name}' has axes 0 to {tensors[name].dim() - 1}, found {axis}")


def check_loss(loss: Loss, outputs: Sequence[torch.Tensor]) -> None:
    """The loss can be computed for the example inputs."""
    if not 0 <= loss.output < len(outputs):
        raise ExportError(f"loss: expected an output from 0 to {len(outputs) - 1}, found {loss.output}")
    try:
        with torch.no_grad():
            loss(outputs[loss.output])
    except Exception as error:
        raise ExportError(
            f"loss '{loss.kind}': the target of shape {list(loss.target.shape)} and {loss.target.dtype} does not fit"
            f" scores of shape {list(outputs[loss.output].shape)}: {error}"
        ) from error


def frozen_batch_norms(model: torch.nn.Module) -> list[str]:
    """Batch normalizations that were put into evaluation mode in a model that is in training mode."""
    if not model.training:
        return []
    kind = torch.nn.modules.batchnorm._BatchNorm
    return [name for name, module in model.named_modules() if isinstance(module, kind) and not module.training]
