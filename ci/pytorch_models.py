"""The architectures that ci/pytorch-parity trains, small enough for two cores, their batches, and training in PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Callable, Mapping

import torch
from torch import Tensor, nn

from ort_training_export import Loss

#: AdamW divides by the root of the second moment plus this. With the default of 1e-8, elements whose gradient is zero but for
#: rounding (the bias of attention keys has none) move by whole steps in the direction of the rounding error.
EPSILON = 1e-5
WEIGHT_DECAY = 0.01

Batches = list[tuple[dict[str, Tensor], Tensor]]


@dataclass
class Case:
    """A model, and how a batch for it is made."""

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[int, torch.Generator], dict[str, Tensor]]
    target: Callable[[int, torch.Generator], Tensor]
    loss: str = "cross_entropy"
    class_axis: int = 1
    axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    batch: int = 4
    #: What the learning rates are multiplied with.
    rate: float = 1.0
    #: Relative; of a loss.
    tolerance: float = 1e-4
    #: How many times PyTorch trains it from weights changed by their last bit, to see how far rounding alone takes it.
    perturbed: int = 4


def train(case: Case, model: nn.Module, kind: str, rate: float, batches: Batches) -> list[float]:
    """A step of `adamw` or `sgd` for each batch; the losses."""
    parameters = model.parameters()
    if kind == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(parameters, lr=rate, eps=EPSILON, weight_decay=WEIGHT_DECAY)
    else:
        optimizer = torch.optim.SGD(parameters, lr=rate)
    model.train()
    losses = []
    for inputs, target in batches:
        loss = Loss(case.loss, target, class_axis=case.class_axis)(model(*inputs.values()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def classes(count: int, *shape: int) -> Callable[[int, torch.Generator], Tensor]:
    return lambda rows, rng: torch.randint(count, (rows, *shape), generator=rng)


def images(channels: int, size: int) -> Callable[[int, torch.Generator], dict[str, Tensor]]:
    return lambda rows, rng: {"x": torch.randn(rows, channels, size, size, generator=rng)}


def axes(extra: Mapping[int, str] | None = None, *inputs: str) -> dict[str, dict[int, str]]:
    each = {0: "batch", **(extra or {})}
    return {name: dict(each) for name in (*(inputs or ("x",)), "logits")}


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5))


class LeNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 60), nn.ReLU(), nn.Linear(60, 10),
        )  # fmt: skip


Activation = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.activation(self.bn1(self.conv1(x)))
        return self.activation(self.bn2(self.conv2(x)) + identity)


class ResNet18(nn.Module):
    """ResNet-18's layers, with an eighth of its channels."""

    def __init__(self, width: int = 8, activation: Activation = torch.relu) -> None:
        super().__init__()
        self.activation = activation
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = width
        for index, factor in enumerate((1, 2, 4, 8)):
            out = width * factor
            stride = 1 if index == 0 else 2
            blocks = (Residual(channels, out, stride, activation), Residual(out, out, 1, activation))
            self.add_module(f"layer{index + 1}", nn.Sequential(*blocks))
            channels = out
        self.fc = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.activation(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        batch, length, width = x.shape

        def split(each: Tensor) -> Tensor:
            return each.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = query @ key.transpose(2, 3) / math.sqrt(width // self.heads) + bias
        mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, first: bool) -> None:
        super().__init__()
        self.first = first
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.0))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        if self.first:
            x = x + self.attention(self.norm1(x), bias)
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x, bias))
        return self.norm2(x + self.mlp(x))


class Bert(nn.Module):
    """An encoder with an attention mask over sequences of any length, and a classifier on the first token."""

    def __init__(self, segments: bool = True) -> None:
        super().__init__()
        width = 32
        self.word = nn.Embedding(50, width, padding_idx=0)
        self.position = nn.Embedding(32, width)
        self.segment = nn.Embedding(2, width) if segments else None
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, 4, first=False) for _ in range(2))
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        x = self.word(input_ids) + self.position(positions)
        if self.segment is not None:
            x = x + self.segment(torch.zeros_like(input_ids))
        x = self.norm(x)
        bias = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for block in self.blocks:
            x = block(x, bias)
        first = self.pooler(x[:, 0])
        return self.classifier(torch.tanh(first) if self.segment is not None else torch.relu(first))


class DistilBert(Bert):
    """As DistilBERT differs: no segments, masked_fill of the scores, a rectified classifier."""

    def __init__(self) -> None:
        super().__init__(segments=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0).expand_as(input_ids)
        x = self.norm(self.word(input_ids) + self.position(positions))
        hidden = (attention_mask == 0)[:, None, None, :]
        bias = torch.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden, torch.finfo(torch.float32).min)
        for block in self.blocks:
            x = block(x, bias)
        return self.classifier(torch.relu(self.pooler(x[:, 0])))


def sentences(rows: int, rng: torch.Generator) -> dict[str, Tensor]:
    length = 12
    ids = torch.randint(1, 50, (rows, length), generator=rng)
    lengths = torch.randint(4, length + 1, (rows, 1), generator=rng)
    mask = (torch.arange(length).unsqueeze(0) < lengths).to(torch.int64)
    return {"input_ids": ids * mask, "attention_mask": mask}


class Gpt(nn.Module):
    """A decoder whose output layer shares the word embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        width = 32
        self.word = nn.Embedding(40, width)
        self.position = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width, 4, first=True) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 40, bias=False)
        self.head.weight = self.word.weight
        # One constant, sliced to the sequence: it is a buffer, not a parameter.
        future = torch.full((16, 16), -10000.0).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.word(tokens) + self.position(torch.arange(length, device=tokens.device))
        for block in self.blocks:
            x = block(x, self.future[:length, :length])
        return self.head(self.norm(x))


class UNet(nn.Module):
    """Two levels; one goes up by interpolation, the other by transposed convolution."""

    def __init__(self) -> None:
        super().__init__()

        def double(channels: int, out: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
                nn.Conv2d(out, out, 3, padding=1), nn.ReLU(),
            )  # fmt: skip

        self.down1, self.down2, self.bottom = double(1, 8), double(8, 16), double(16, 16)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.up1 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join2, self.join1 = double(32, 16), double(16, 8)
        self.classes = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(self.pool(first))
        x = self.up2(self.bottom(self.pool(second)))
        x = self.join2(torch.cat([x, second], 1))
        x = self.join1(torch.cat([self.up1(x), first], 1))
        return self.classes(x)


class LstmClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16)
        self.classifier = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x.transpose(0, 1))
        return self.classifier(hidden[-1])


CASES = [
    Case("mlp", Mlp, lambda n, rng: {"x": torch.randn(n, 16, generator=rng)}, classes(5), axes=axes()),
    Case("lenet", LeNet, images(1, 28), classes(10), axes=axes()),
    Case("resnet18", ResNet18, images(3, 64), classes(10), axes=axes(),
         # Of 7.5 million values that are rectified in twenty steps, some lie so near zero that rounding decides on which side;
         # from there on runs part, in PyTorch alone, too: docs/pytorch-parity.md.
         batch=16, rate=0.1, perturbed=8),
    # The same without the corners, where rounding stays small, so that the tolerance holds for every step.
    Case("resnet18-smooth", lambda: ResNet18(activation=nn.functional.silu), images(3, 64), classes(10), axes=axes(),
         batch=16, rate=0.1),
    Case("bert", Bert, sentences, classes(3),
         axes={"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"},
               "logits": {0: "batch"}}),
    Case("distilbert", DistilBert, sentences, classes(3),
         axes={"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"},
               "logits": {0: "batch"}}),
    Case("unet", UNet, images(1, 16), classes(3, 16, 16), axes=axes()),
    Case("lstm", LstmClassifier, lambda n, rng: {"x": torch.randn(n, 10, 8, generator=rng)}, classes(4), axes=axes()),
    Case("gpt", Gpt, lambda n, rng: {"tokens": torch.randint(40, (n, 12), generator=rng)}, classes(40, 12),
         class_axis=-1, axes=axes({1: "sequence"}, "tokens")),
]  # fmt: skip
