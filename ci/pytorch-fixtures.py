"""Makes the models from PyTorch that the Rust tests train, and what training them in PyTorch gives.

usage: pytorch-fixtures.py FOLDER [NAME…]

For each model a folder:

    model.onnx                   exported for training
    model.reference.safetensors  the exporter's reference: outputs, one step's loss and gradients
    training.safetensors         for those that are trained: batches, losses, parameters afterwards

training.safetensors has the tensors `batch.K.input.NAME` and `batch.K.target` for each step K, `losses` (float64), and
`after.NAME` for each parameter and running mean; its metadata say loss, optimizer and tolerances. The seeds below
decide every number (the order of the metadata in a file is another each time).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import warnings
from pathlib import Path
from typing import Callable

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from ort_training_export import Loss, export
from pytorch_models import CASES, EPSILON, WEIGHT_DECAY, Case, ResNet18, axes, classes, images, train


class Small(nn.Module):
    """All that exporting for training has to take care of, in four layers: for `verify`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Linear(64, 3)
        self.norm.running_mean.uniform_(-0.1, 0.1)
        self.norm.running_var.uniform_(0.8, 1.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.norm(self.conv(x))))
        return self.classifier(self.dropout(x.flatten(1)))


class TwoOutputs(nn.Module):
    """The first output has as many columns as the scores, which are the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 10)
        self.second = nn.Linear(10, 10)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.first(images))
        return hidden, self.second(hidden)


@dataclasses.dataclass
class Fixture:
    """A model and how it is trained."""

    case: Case
    optimizer: str = "adamw"
    rate: float = 1e-3
    steps: int = 8
    #: Furthest element of a parameter, as a part of the largest change of any.
    parameters: float = 1e-3


def changed(name: str, **changes: object) -> Case:
    return dataclasses.replace(next(case for case in CASES if case.name == name), **changes)


TRAINED = {
    "mlp": Fixture(changed("mlp"), "sgd", 1e-2),
    "lenet": Fixture(changed("lenet")),
    # Smaller than the one of the full comparison; the steps are small for the reason that is given there.
    "resnet": Fixture(
        changed("resnet18", model=lambda: ResNet18(4), inputs=images(3, 32), batch=8), "sgd", 1e-3, steps=4
    ),
    "bert": Fixture(changed("bert")),
    "distilbert": Fixture(changed("distilbert")),
    # The bias before batch normalization has a gradient of zero but for rounding, whose direction AdamW follows.
    "unet": Fixture(changed("unet"), parameters=5e-3),
    "lstm": Fixture(changed("lstm"), "sgd", 1e-2),
    "gpt": Fixture(changed("gpt")),
}


def write(folder: Path, fixture: Fixture) -> None:
    case = fixture.case
    torch.manual_seed(7)
    model = case.model()
    rng = torch.Generator().manual_seed(11)
    batches = [(case.inputs(case.batch, rng), case.target(case.batch, rng)) for _ in range(fixture.steps)]
    inputs, target = batches[0]
    exported = export(
        model, tuple(inputs.values()), folder / "model.onnx", input_names=tuple(inputs), dynamic_axes=case.axes,
        loss=Loss(case.loss, target, class_axis=case.class_axis),
    )  # fmt: skip
    losses = train(case, model, fixture.optimizer, fixture.rate, batches)
    tensors = {"losses": np.array(losses)}
    for step, (inputs, target) in enumerate(batches):
        tensors.update((f"batch.{step}.input.{name}", value.numpy()) for name, value in inputs.items())
        tensors[f"batch.{step}.target"] = target.numpy()
    for name, value in model.named_parameters():
        tensors[f"after.{name}"] = value.detach().numpy()
    for name, value in model.named_buffers():
        # The running variance is not: PyTorch's is of another kind.
        if name.endswith("running_mean"):
            tensors[f"after.{name}"] = value.numpy()
    metadata = {
        "torch": torch.__version__,
        "loss": json.dumps({"kind": case.loss, "output": exported.output_names[0], "class_axis": case.class_axis}),
        "optimizer": fixture.optimizer,
        "lr": repr(fixture.rate),
        "eps": repr(EPSILON),
        "weight_decay": repr(WEIGHT_DECAY),
        "loss_tolerance": "1e-4",
        "parameter_tolerance": repr(fixture.parameters),
    }
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "training.safetensors", metadata)


def write_small(folder: Path) -> None:
    torch.manual_seed(3)
    model = Small()
    rng = torch.Generator().manual_seed(5)
    export(
        model, torch.randn(5, 1, 8, 8, generator=rng), folder / "model.onnx", input_names=("x",), dynamic_axes=axes(),
        loss=Loss("cross_entropy", classes(3)(5, rng)),
    )  # fmt: skip


def write_two_outputs(folder: Path) -> None:
    torch.manual_seed(3)
    rng = torch.Generator().manual_seed(5)
    export(
        TwoOutputs(), torch.rand(4, 64, generator=rng), folder / "model.onnx", output_names=("hidden", "logits"),
        loss=Loss("cross_entropy", classes(10)(4, rng), output=1),
    )  # fmt: skip


WRITERS: dict[str, Callable[[Path], None]] = {
    "small": write_small,
    "two_outputs": write_two_outputs,
    **{name: (lambda folder, fixture=fixture: write(folder, fixture)) for name, fixture in TRAINED.items()},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *WRITERS])
    options = parser.parse_args()
    torch.set_num_threads(2)
    for name in options.names or WRITERS:
        folder = options.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            WRITERS[name](folder)
        print(f"{name}: {sum(file.stat().st_size for file in folder.iterdir()) // 1024} KiB", flush=True)


if __name__ == "__main__":
    main()
