"""Trains the models of pytorch_models.py in PyTorch and with `ort-training`, from the same start, and compares.

usage: pytorch-parity.py COMMAND FOLDER [--exporter torchscript|dynamo] [CASE…]

COMMAND runs the command-line tool `ort-training`; it may have arguments of its own.
"""

from __future__ import annotations

import argparse
import csv
import platform
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from safetensors.numpy import load_file

from ort_training_export import Loss, export
from pytorch_models import CASES, EPSILON, WEIGHT_DECAY, Case, train

STEPS = 20
RATES = {"adamw": 1e-3, "sgd": 1e-2}
#: Of the largest change that training made to any parameter.
PARAMETER_TOLERANCE = 1e-2
#: Of running means, in deviations of the channel.
MEAN_TOLERANCE = 1e-3
#: Of running variances. PyTorch's is of the unbiased kind, ONNX's is not: they differ by the count of values.
VARIANCE_TOLERANCE = 0.1
#: More is allowed from the step on where runs of PyTorch in single precision are themselves far from PyTorch in double: this
#: many times as far as the furthest of them, because what is compared are two runs in single precision.
OWN = 2.0


class Difference(Exception):
    """What was compared is not the same."""


def command(program: str, *arguments: object) -> None:
    result = subprocess.run([*shlex.split(program), *map(str, arguments)], capture_output=True, text=True)
    if result.returncode:
        raise Difference(f"ort-training {arguments[0]}: {result.stderr.strip() or result.stdout.strip()}")


def relative(found: float, expected: float) -> float:
    return abs(found - expected) / max(abs(expected), 1e-12)


def perturbed(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The model with weights that are one unit of the last place up, down, or as they were."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            direction = torch.randint(-1, 2, parameter.shape, generator=rng).to(parameter.dtype)
            parameter.copy_(torch.nextafter(parameter, parameter + direction))
    return model


def doubled(batches: list) -> list:
    def each(value: torch.Tensor) -> torch.Tensor:
        return value.double() if value.is_floating_point() else value

    return [({name: each(value) for name, value in inputs.items()}, each(target)) for inputs, target in batches]


def in_rust(
    case: Case, program: str, folder: Path, onnx_path: Path, kind: str, rate: float, steps: int, batches: list
) -> tuple[list[float], dict[str, np.ndarray]]:
    artifacts, run = folder / "artifacts", folder / "run"
    settings = ["--loss", case.loss.replace("_", "-").replace("bce-with-logits", "bce"), "--optimizer", kind]
    settings += ["--extra-output", "logits"]
    if case.loss == "cross_entropy":
        settings += [f"--class-axis={case.class_axis}"]
    if kind == "adamw":
        settings += ["--eps", EPSILON, "--weight-decay", WEIGHT_DECAY, "--adamw-variant", "torch"]
    command(program, "artifacts", onnx_path, "-o", artifacts, *settings)
    rows = {name: torch.cat([inputs[name] for inputs, _ in batches[:steps]]).numpy() for name in batches[0][0]}
    rows["labels" if case.loss == "cross_entropy" else "target"] = torch.cat([t for _, t in batches[:steps]]).numpy()
    data = folder / "data.npz"
    np.savez(data, **rows)
    command(
        program, "train", artifacts, "--data", data, "--epochs", 1, "--batch-size", case.batch, "--no-shuffle", "--lr", rate,
        "--output", run, "--overwrite", "--quiet", "--export", folder / "trained.onnx", "--export-output", "logits",
    )  # fmt: skip
    with open(run / "loss.csv") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    weights = folder / "trained.safetensors"
    command(program, "weights", "export", artifacts, "--checkpoint", run / "epoch-0001.ckpt", "-o", weights)
    return losses, load_file(weights)


@dataclass
class Apart:
    """How far what was trained in two places is apart."""

    #: The largest difference of a parameter, as a part of the largest change that training made to any.
    parameters: float = 0.0
    #: The largest of a running mean, as a part of the channel's deviation, and of a running variance, as a part of it.
    means: float = 0.0
    variances: float = 0.0
    #: The parameter, and the buffers.
    whose: str = "-"
    whose_mean: str = "-"
    whose_variance: str = "-"

    def widen(self, other: "Apart") -> None:
        self.parameters = max(self.parameters, other.parameters)
        self.means = max(self.means, other.means)
        self.variances = max(self.variances, other.variances)


def compare(before: dict[str, np.ndarray], model: torch.nn.Module, found: dict[str, np.ndarray], tied: dict[str, str]) -> Apart:
    """Parameters and running statistics of `model`, which started as `before`, and those that were found elsewhere."""
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    largest = max(np.abs(state[name] - before[name]).max() for name, _ in model.named_parameters())
    apart = Apart()
    for name, _ in model.named_parameters():
        name_there = name if name in found else tied.get(name, name)
        if name_there not in found:
            raise Difference(f"parameter '{name}': expected in the trained weights, found {', '.join(sorted(found)[:5])}")
        far = float(np.abs(found[name_there] - state[name]).max() / largest)
        if far > apart.parameters:
            apart.parameters, apart.whose = far, name
    for name, _ in model.named_buffers():
        if not name.endswith(("running_mean", "running_var")):
            continue
        if name not in found:
            raise Difference(f"buffer '{name}': expected in the trained weights, it is not there")
        variance = state[name.replace("running_mean", "running_var")]
        mean = name.endswith("running_mean")
        far = float((np.abs(found[name] - state[name]) / (np.sqrt(variance) if mean else variance)).max())
        if mean and far > apart.means:
            apart.means, apart.whose_mean = far, name
        if not mean and far > apart.variances:
            apart.variances, apart.whose_variance = far, name
    return apart


def same_outputs(case: Case, program: str, folder: Path, trained: Path, model: torch.nn.Module) -> None:
    """The exported trained model, against PyTorch with the weights that were trained in Rust."""
    rng = torch.Generator().manual_seed(99)
    inputs = case.inputs(3, rng)
    model.eval()
    with torch.no_grad():
        logits = model(*inputs.values())
    reference = folder / "check.npz"
    np.savez(reference, **{name: value.numpy() for name, value in inputs.items()}, logits=logits.numpy())
    command(program, "verify", trained, "--reference", reference, "--rtol", "1e-4", "--atol", "1e-4")


def check(case: Case, program: str, folder: Path, exporter: str) -> None:
    torch.manual_seed(7)
    start = case.model()
    rng = torch.Generator().manual_seed(11)
    batches = [(case.inputs(case.batch, rng), case.target(case.batch, rng)) for _ in range(STEPS)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case.name}.onnx"
    inputs, target = batches[0]
    loss = Loss(case.loss, target, class_axis=case.class_axis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = export(start, tuple(inputs.values()), path, input_names=tuple(inputs), dynamic_axes=case.axes,
                          exporter=exporter, loss=loss)  # fmt: skip
    if exported.untrainable:
        raise Difference("; ".join(map(str, exported.untrainable)))
    onnx.checker.check_model(str(path))
    reference = load_file(str(exported.reference))
    before = {name: value.detach().clone().numpy() for name, value in start.state_dict().items()}

    def fresh() -> torch.nn.Module:
        model = case.model()
        model.load_state_dict(start.state_dict())
        return model

    # One step of SGD at rate 1 shows the gradients.
    (first,), after = in_rust(case, program, folder / "gradients", path, "sgd", 1.0, 1, batches)
    if not relative(first, float(reference["loss"])) <= case.tolerance:
        raise Difference(f"first loss: {first}, PyTorch's is {reference['loss']}")
    largest = max(np.abs(value).max() for name, value in reference.items() if name.startswith("grad."))
    worst_gradient = 0.0
    for name, value in reference.items():
        if name.startswith("grad."):
            own = name[len("grad.") :]
            found = before[own] - after[own if own in after else exported.tied[own]]
            worst_gradient = max(worst_gradient, float(np.abs(found - value).max() / largest))
    if not worst_gradient <= 1e-4:
        raise Difference(f"gradients: furthest apart {worst_gradient:.1e} of the largest")
    for kind, rate in RATES.items():
        rate *= case.rate
        model = fresh()
        expected = train(case, model, kind, rate, batches[:STEPS])
        precise = fresh().double()
        precise_losses = train(case, precise, kind, rate, doubled(batches[:STEPS]))
        own = {name: value.numpy().astype(np.float32) for name, value in precise.state_dict().items()}
        own_apart = compare(before, model, own, exported.tied)
        own_loss = np.array(list(map(relative, expected, precise_losses)))
        for seed in range(case.perturbed):
            other = perturbed(fresh(), seed)
            other_losses = train(case, other, kind, rate, batches[:STEPS])
            own_loss = np.maximum(own_loss, list(map(relative, other_losses, precise_losses)))
            own_apart.widen(compare(before, other, own, exported.tied))
        # Once runs have parted, they may meet again by chance; that says nothing about how far the next one goes.
        own_loss = np.maximum.accumulate(own_loss)
        parted = next((step for step, apart in enumerate(own_loss, 1) if OWN * apart > case.tolerance), None)
        losses, weights = in_rust(case, program, folder / kind, path, kind, rate, STEPS, batches)
        if len(losses) != STEPS:
            raise Difference(f"steps: expected {STEPS}, found {len(losses)}")
        loss_apart = list(map(relative, losses, expected))
        worst_loss = max(loss_apart)
        apart = compare(before, model, weights, exported.tied)
        print(
            f"| {case.name} | {exporter} | {exported.opset} | {kind} | {expected[0]:.4f} → {expected[-1]:.4f} "
            f"| {worst_gradient:.1e} | {worst_loss:.1e} | {own_loss[-1]:.1e} | {parted or '-'} "
            f"| {apart.parameters:.1e} ({apart.whose}) | {own_apart.parameters:.1e} |",
            flush=True,
        )
        for step, (far, of_its_own) in enumerate(zip(loss_apart, own_loss), 1):
            allowed = max(case.tolerance, OWN * of_its_own)
            if not far <= allowed:
                raise Difference(f"{kind}: losses of step {step} are {far:.1e} apart, {allowed:.1e} are allowed")
        for what, far, of_its_own, tolerance in (
            (f"parameter '{apart.whose}'", apart.parameters, own_apart.parameters, PARAMETER_TOLERANCE),
            (f"buffer '{apart.whose_mean}'", apart.means, own_apart.means, MEAN_TOLERANCE),
            (f"buffer '{apart.whose_variance}'", apart.variances, own_apart.variances, VARIANCE_TOLERANCE),
        ):
            allowed = max(tolerance, OWN * of_its_own)
            if not far <= allowed:
                raise Difference(f"{kind}: {what} {far:.1e} apart, {allowed:.1e} are allowed")
        back = fresh()
        missing = back.load_state_dict({n: torch.from_numpy(v.copy()) for n, v in weights.items()}, strict=False)
        if missing.unexpected_keys:
            raise Difference(f"weights from Rust: PyTorch does not know '{missing.unexpected_keys[0]}'")
        # Only the second names of tied weights may be absent. (PyTorch adds batch normalization's counts by itself.)
        lost = [name for name in missing.missing_keys if name not in exported.tied]
        if lost:
            raise Difference(f"weights from Rust: '{lost[0]}' is not among them")
        same_outputs(case, program, folder, folder / kind / "trained.onnx", back)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--exporter", choices=("torchscript", "dynamo"), default="torchscript")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    unknown = set(options.cases) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no case {unknown.pop()!r}; there are {', '.join(case.name for case in CASES)}")
    torch.set_num_threads(2)
    print(f"torch {torch.__version__}, onnx {onnx.__version__}, Python {platform.python_version()}\n")
    columns = "model|exporter|operator set|optimizer|loss, first → last|gradients|losses|(PyTorch's own)|parts at step"
    print(f"| {' | '.join(columns.split('|'))} | parameters | (own) |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    failed = []
    for case in CASES:
        if options.cases and case.name not in options.cases:
            continue
        try:
            check(case, options.program, options.folder / options.exporter / case.name, options.exporter)
        except Difference as difference:
            failed.append(f"{case.name} ({options.exporter}): {difference}")
        except Exception as error:  # noqa: BLE001: an exporter's error is one case's, not the run's
            failed.append(f"{case.name} ({options.exporter}): {type(error).__name__}: {str(error)[:600]}")
    for line in failed:
        print(f"FAILED {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
