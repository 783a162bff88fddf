"""`export`: from a `torch.nn.Module` to an ONNX model that trains."""

from __future__ import annotations

import copy
import inspect
import json
import os
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from .graph import Untrainable, constants_from_initializers, fold_constants, rename_value, training_form, untrainable
from .checks import (
    ExportError,
    check_axes,
    check_inputs,
    check_loss,
    check_model,
    check_names,
    check_path,
    frozen_batch_norms,
    run_forward,
)
from .reference import Loss, array, write_reference


@dataclass(frozen=True)
class Exported:
    """What `export` wrote."""

    model: Path
    opset: int
    exporter: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    parameters: tuple[str, ...]
    reference: Path | None = None
    #: Names in the `state_dict` that share another's tensor, and that other name.
    tied: dict[str, str] = field(default_factory=dict)
    #: Parameters that do not require gradients in PyTorch: to be given to the artifact maker as frozen.
    frozen: tuple[str, ...] = ()
    #: Operators that will not train; empty if all will.
    untrainable: tuple[Untrainable, ...] = ()
    #: Parameters that no output depends on: they are not in the model.
    unused: tuple[str, ...] = ()


def torch_version() -> tuple[int, int]:
    """Major and minor version of the installed PyTorch."""
    major, minor = torch.__version__.split("+")[0].split(".")[:2]
    return int(major), int(minor)


def choose_opset(exporter: str = "torchscript", version: tuple[int, int] | None = None) -> int:
    """The newest operator set that this PyTorch writes, and ONNX Runtime 1.21 trains."""
    if exporter == "dynamo":
        return 18
    version = version or torch_version()
    for since, opset in (((2, 1), 17), ((1, 13), 17), ((1, 12), 16), ((1, 11), 15), ((1, 10), 15), ((1, 9), 14)):
        if version >= since:
            return opset
    return 12


def export(
    model: torch.nn.Module,
    example_inputs: torch.Tensor | Sequence[torch.Tensor],
    path: str | Path,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] = ("logits",),
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    opset: int | None = None,
    exporter: str = "torchscript",
    loss: Loss | None = None,
    reference: bool = True,
) -> Exported:
    """Writes `model` to `path` so that ONNX Runtime can train it, and `<stem>.reference.safetensors` beside it.

    The model is exported in training mode; its parameters stay initializers under their `state_dict` names. It is not
    changed. `input_names` default to the arguments' names of `forward`. Without `dynamic_axes`, the first axis of each
    input and output is the dynamic `batch`. `opset` is 11 to 22; `exporter` is ``torchscript`` or ``dynamo``. The
    reference holds what PyTorch computes for the example inputs; with `loss`, a training step's loss and gradients, too.

    Operators that ONNX Runtime cannot train are warned about and listed in the result.

    Nothing is written unless all goes well.

    :raises ExportError: an argument is not one that can be had, `forward` or the exporter fails, or a trained parameter
        is missing in what the exporter wrote.
    """
    path = check_path(Path(path))
    check_model(model)
    inputs = check_inputs(example_inputs)
    if exporter not in ("torchscript", "dynamo"):
        raise ExportError(f"exporter: expected 'torchscript' or 'dynamo', found {exporter!r}")
    if exporter == "dynamo" and torch_version() < (2, 6):
        raise ExportError(f"exporter 'dynamo': expected PyTorch 2.6 or newer, found {torch.__version__}")
    opset = opset if opset is not None else choose_opset(exporter)
    if not 11 <= opset <= 22:
        raise ExportError(f"opset: expected 11 to 22, found {opset}")
    names = tuple(input_names) if input_names is not None else _argument_names(model, len(inputs))
    if len(names) != len(inputs):
        raise ExportError(f"input_names: expected {len(inputs)}, one for each example input, found {len(names)}")
    outputs = tuple(output_names)
    results = run_forward(model, inputs)
    if len(results) != len(outputs):
        raise ExportError(
            f"output_names: expected {len(results)}, one for each output, found {len(outputs)} ({', '.join(outputs)})"
        )
    check_names(model, names, outputs)
    axes = {name: dict(each) for name, each in dynamic_axes.items()} if dynamic_axes is not None else None
    if axes is None:
        named = zip(names + outputs, (*inputs, *results))
        axes = {name: {0: "batch"} for name, tensor in named if tensor.dim() > 0}
    check_axes(axes, dict(zip(names + outputs, (*inputs, *results))))
    if loss is not None:
        check_loss(loss, results)

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        # The exporter may leave files beside the model; what is to be kept is moved out at the end.
        written = Path(folder) / path.name
        # A copy: tracing runs the model, which moves running statistics.
        copied = copy.deepcopy(model).train()
        _run_exporter(exporter, copied, inputs, written, names, outputs, axes, opset)
        proto = onnx.load(str(written))
        training_form(proto)
        fold_constants(proto)
        tied = _tied(model)
        trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        frozen = tuple(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
        _restore_names(proto, model)
        _join_tied(proto, tied)
        _restore_values(proto, model)
        unused = _check_parameters(proto, model, inputs, trained, tied)
        trained = [name for name in trained if name not in unused]
        constants_from_initializers(proto, [name for name, _ in model.named_parameters()])
        problems = tuple(untrainable(proto, trained))
        for problem in problems:
            warnings.warn(f"ONNX Runtime will not train this model: {problem}", stacklevel=2)
        for name in frozen_batch_norms(model):
            warnings.warn(
                f"batch normalization '{name}' is in evaluation mode; the export has its training form: for running"
                " statistics that stay, make artifacts with `--batch-norm frozen`",
                stacklevel=2,
            )
        for name in unused:
            warnings.warn(f"parameter '{name}' has no part in the outputs: it is not in the exported model", stacklevel=2)
        _write(proto, written)
        kept = [path.name, f"{path.name}.data"]
        sidecar = path.with_name(f"{path.stem}.reference.safetensors") if reference else None
        if sidecar is not None:
            details = {"exporter": exporter, "opset": str(opset), "rtol": "1e-4", "atol": "1e-5", "tied": json.dumps(tied)}
            write_reference(Path(folder) / sidecar.name, model, dict(zip(names, inputs)), outputs, loss, details)
            kept.append(sidecar.name)
        for name in kept:
            if (Path(folder) / name).exists():
                os.replace(Path(folder) / name, path.with_name(name))
            else:
                # Weights of a model that lay here before.
                path.with_name(name).unlink(missing_ok=True)
    return Exported(path, opset, exporter, names, outputs, tuple(trained), sidecar, tied, frozen, problems, tuple(unused))


def _argument_names(model: torch.nn.Module, count: int) -> tuple[str, ...]:
    names = tuple(inspect.signature(model.forward).parameters)
    if len(names) < count:
        raise ExportError(f"input_names: forward has {len(names)} named arguments, found {count} example inputs; name them")
    return names[:count]


def _run_exporter(
    exporter: str,
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    path: Path,
    names: Sequence[str],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    opset: int,
) -> None:
    """Runs one of PyTorch's exporters; its errors in our words, its warnings only where they say that the result is wrong."""
    write = _dynamo if exporter == "dynamo" else _torchscript
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            write(model, inputs, path, names, outputs, axes, opset)
        except Exception as error:
            raise ExportError(
                f"PyTorch's {exporter} exporter cannot export this model with operator set {opset}: {_cause(error)}"
            ) from error
    for warning in said:
        # Others say that training mode is unusual; here it is what is wanted.
        if not issubclass(warning.category, torch.jit.TracerWarning) or "Python boolean" not in str(warning.message):
            continue
        # PyTorch's own layers decide by shapes, which tracing takes for values.
        if Path(torch.__file__).parent not in Path(warning.filename).parents:
            place = f"{warning.filename}:{warning.lineno}"
            warnings.warn(
                f"{place}: the model decides by a tensor's value; the export has only the way that the example inputs took",
                stacklevel=3,
            )


def _cause(error: BaseException) -> str:
    """The first error of a chain, in one text. (The names of the chain's links end here: PyTorch 1.13 fails in later exports
    while graphs of an earlier one hang in a cycle of references.)"""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    text = str(first).strip() or str(error).strip() or "no message"
    return f"{type(first).__name__}: {text[:1000]}"


def _torchscript(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    path: Path,
    names: Sequence[str],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    opset: int,
) -> None:
    settings: dict[str, object] = {} if torch_version() < (2, 5) else {"dynamo": False}
    torch.onnx.export(
        model,
        tuple(inputs),
        str(path),
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        export_params=True,
        keep_initializers_as_inputs=False,
        input_names=list(names),
        output_names=list(outputs),
        dynamic_axes={name: dict(each) for name, each in axes.items()},
        opset_version=opset,
        **settings,  # type: ignore[arg-type]
    )


def _dynamo(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    path: Path,
    names: Sequence[str],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    opset: int,
) -> None:
    dimensions: dict[str, object] = {}
    shapes = []
    for name in names:
        labels = axes.get(name, {})
        shapes.append({a: dimensions.setdefault(label, torch.export.Dim(label, min=1)) for a, label in labels.items()})
    program = torch.onnx.export(
        model,
        tuple(inputs),
        dynamo=True,
        optimize=False,
        input_names=list(names),
        output_names=list(outputs),
        dynamic_shapes=tuple(shapes),
        opset_version=opset,
        verbose=False,
    )
    program.save(str(path), keep_initializers_as_inputs=False)


def _tied(model: torch.nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    tied = {}
    for name, value in model.state_dict(keep_vars=True).items():
        owner = first.setdefault(id(value), name)
        if owner != name:
            tied[name] = owner
    return tied


def _restore_names(proto: onnx.ModelProto, model: torch.nn.Module) -> None:
    """Gives parameters that the exporter renamed their `state_dict` names again.

    One is taken for another only when exactly one unnamed initializer has its bytes.
    """
    state = model.state_dict()
    present = {tensor.name for tensor in proto.graph.initializer}
    strangers = [tensor for tensor in proto.graph.initializer if tensor.name not in state]
    for name, value in state.items():
        if name in present or not isinstance(value, torch.Tensor):
            continue
        expected = array(value)
        same = [
            tensor
            for tensor in strangers
            if tuple(tensor.dims) == expected.shape and np.array_equal(numpy_helper.to_array(tensor), expected)
        ]
        if len(same) == 1 and expected.size > 1:
            strangers.remove(same[0])
            rename_value(proto, same[0].name, name)


def _join_tied(proto: onnx.ModelProto, tied: Mapping[str, str]) -> None:
    """One initializer for each tied tensor, under the first of its names, whichever the exporter took."""
    for alias, owner in tied.items():
        initializers = proto.graph.initializer
        if all(tensor.name != alias for tensor in initializers):
            continue
        if any(tensor.name == owner for tensor in initializers):
            kept = [onnx.TensorProto.FromString(t.SerializeToString()) for t in initializers if t.name != alias]
            del initializers[:]
            initializers.extend(kept)
        rename_value(proto, alias, owner)


def _restore_values(proto: onnx.ModelProto, model: torch.nn.Module) -> None:
    """Gives buffers the values that the model has.

    Tracing in training mode runs the model, and what PyTorch writes are running statistics after that run.
    """
    buffers = dict(model.named_buffers())
    for tensor in proto.graph.initializer:
        buffer = buffers.get(tensor.name)
        if buffer is not None and tuple(tensor.dims) == tuple(buffer.shape):
            tensor.CopyFrom(numpy_helper.from_array(array(buffer), tensor.name))


def _check_parameters(
    proto: onnx.ModelProto,
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    trained: Sequence[str],
    tied: Mapping[str, str],
) -> list[str]:
    """Every trained parameter is an initializer under its own name (or that of the one it shares its tensor with).

    Returns those that are none because no output depends on them.
    """
    present = {tensor.name for tensor in proto.graph.initializer}
    missing = [name for name in trained if name not in present and tied.get(name) not in present]
    if not missing:
        return []
    copied = copy.deepcopy(model).train()
    parameters = dict(copied.named_parameters())
    total = sum(output.sum() for output in run_forward(copied, inputs, gradients=True) if output.requires_grad)
    gradients = torch.autograd.grad(total, [parameters[name] for name in missing], allow_unused=True)
    folded = [name for name, gradient in zip(missing, gradients) if gradient is not None]
    if folded:
        raise ExportError(
            f"parameter '{folded[0]}': expected as an initializer, found only {', '.join(sorted(present)[:8])}"
            f" ({len(folded)} of {len(trained)} parameters are missing)"
        )
    return missing


def _write(proto: onnx.ModelProto, path: Path) -> None:
    data = path.with_name(f"{path.name}.data")
    data.unlink(missing_ok=True)
    if proto.ByteSize() < 2_000_000_000:
        onnx.save(proto, str(path))
    else:
        onnx.save(proto, str(path), save_as_external_data=True, location=data.name)
