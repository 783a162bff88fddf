"""What `export` promises, with a small model for each promise."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from safetensors import safe_open
from torch import Tensor, nn

from ort_training_export import ExportError, Loss, choose_opset, export, untrainable
from ort_training_export.exporter import torch_version

DYNAMO = pytest.param(
    "dynamo", marks=pytest.mark.skipif(torch_version() < (2, 6), reason="the dynamo exporter came with PyTorch 2.6")
)
exporters = pytest.mark.parametrize("exporter", ["torchscript", DYNAMO])


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(images)))
        return self.fc(self.drop(x).mean((2, 3)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.word.weight
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.word(tokens) * self.scale)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(5, 2)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return self.left(a) + self.right(b), self.left(a)


class Signs(nn.Module):
    """`det` has no gradient in ONNX Runtime."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3).unsqueeze(0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.det(x @ self.weight)


def initializers(path: Path) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}


def constant(proto: onnx.ModelProto, name: str) -> np.ndarray:
    """The value behind a setting, with casts of it that the exporter left."""
    for tensor in proto.graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    (node,) = [node for node in proto.graph.node if name in node.output]
    if node.op_type in ("Cast", "Identity"):
        return constant(proto, node.input[0])
    return numpy_helper.to_array(node.attribute[0].t)


@exporters
def test_parameters_keep_their_names_and_values(tmp_path: Path, exporter: str) -> None:
    model = Classifier()
    result = export(model, torch.randn(2, 1, 8, 8), tmp_path / "m.onnx", exporter=exporter)
    found = initializers(result.model)
    for name, value in model.state_dict().items():
        if "num_batches" not in name:
            np.testing.assert_array_equal(found[name], value.numpy(), err_msg=name)
    assert result.parameters == tuple(name for name, _ in model.named_parameters())
    onnx.checker.check_model(str(result.model))


@exporters
def test_batch_norm_and_dropout_have_their_training_form(tmp_path: Path, exporter: str) -> None:
    model = Classifier().eval()
    result = export(model, torch.randn(2, 1, 8, 8), tmp_path / "m.onnx", exporter=exporter)
    proto = onnx.load(str(result.model))
    (norm,) = [node for node in proto.graph.node if node.op_type == "BatchNormalization"]
    assert {a.name: a.i for a in norm.attribute}["training_mode"] == 1
    assert len(norm.output) == 3
    (drop,) = [node for node in proto.graph.node if node.op_type == "Dropout"]
    ratio, training = (constant(proto, name) for name in drop.input[1:])
    assert (float(ratio), bool(training)) == (0.25, True)
    assert not model.training, "the caller's model is as it was"


@exporters
def test_names_and_dynamic_axes(tmp_path: Path, exporter: str) -> None:
    result = export(
        Two(), (torch.randn(2, 3), torch.randn(2, 5)), tmp_path / "m.onnx", output_names=("sum", "left"), exporter=exporter
    )
    proto = onnx.load(str(result.model))
    assert [value.name for value in proto.graph.input] == ["a", "b"]
    assert [value.name for value in proto.graph.output] == ["sum", "left"]
    for value in proto.graph.input:
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    outputs = ReferenceEvaluator(proto).run(None, {"a": np.ones((5, 3), np.float32), "b": np.ones((5, 5), np.float32)})
    assert [each.shape for each in outputs] == [(5, 2), (5, 2)]


@exporters
def test_tied_weights_and_buffers(tmp_path: Path, exporter: str) -> None:
    model = Tied()
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    axes = {"tokens": {0: "batch", 1: "sequence"}, "logits": {0: "batch", 1: "sequence"}}
    result = export(model, tokens, tmp_path / "m.onnx", dynamic_axes=axes, exporter=exporter)
    assert result.tied == {"head.weight": "word.weight"}
    found = initializers(result.model)
    assert "word.weight" in found and "head.weight" not in found
    # Initializers are trained; a buffer is not one.
    assert "scale" not in found
    np.testing.assert_array_equal(constant(onnx.load(str(result.model)), "scale"), model.scale.numpy())
    longer = torch.tensor([[1, 2, 3, 4, 5]])
    (logits,) = ReferenceEvaluator(str(result.model)).run(None, {"tokens": longer.numpy()})
    np.testing.assert_allclose(logits, model(longer).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_reference_holds_what_pytorch_computes(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = Classifier()
    images, labels = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    result = export(model, images, tmp_path / "m.onnx", loss=Loss("cross_entropy", labels))
    assert result.reference == tmp_path / "m.reference.safetensors"
    with safe_open(str(result.reference), "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        header = file.metadata()
    assert header["torch"] == torch.__version__ and header["opset"] == str(result.opset)
    np.testing.assert_array_equal(tensors["input.images"], images.numpy())
    np.testing.assert_array_equal(tensors["target.labels"], labels.numpy())
    assert {n for n in tensors if n.startswith("grad.")} == {f"grad.{n}" for n, _ in model.named_parameters()}
    # Central differences of the loss without dropout: an independent way to the same gradient.
    model.train()
    model.drop.eval()
    step = 1e-2
    with torch.no_grad():
        losses = []
        for sign in (1, -1):
            model.fc.bias[1] += sign * step
            losses.append(nn.functional.cross_entropy(model(images), labels).item())
            model.fc.bias[1] -= sign * step
    assert tensors["grad.fc.bias"][1] == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-4)


def test_frozen_parameters_are_listed(tmp_path: Path) -> None:
    model = Classifier()
    model.conv.weight.requires_grad_(False)
    result = export(model, torch.randn(2, 1, 8, 8), tmp_path / "m.onnx")
    assert result.frozen == ("conv.weight",)
    assert "conv.weight" not in result.parameters and "conv.weight" in initializers(result.model)


def test_the_model_is_not_changed(tmp_path: Path) -> None:
    model = Classifier()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loss = Loss("cross_entropy", torch.tensor([0, 1]))
    export(model, torch.randn(2, 1, 8, 8), tmp_path / "m.onnx", loss=loss)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training and model.drop.training and model.drop.p == 0.25


def test_scales_of_an_upsampling_are_constants(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Upsample(scale_factor=2, mode="bilinear"))
    result = export(model, torch.randn(1, 1, 6, 6), tmp_path / "m.onnx", input_names=["x"])
    graph = onnx.load(str(result.model)).graph
    (resize,) = [node for node in graph.node if node.op_type == "Resize"]
    constants = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
    settings = [name for name in resize.input[1:] if name in constants]
    values = [numpy_helper.to_array(constants[name].attribute[0].t).tolist() for name in settings]
    assert [1.0, 1.0, 2.0, 2.0] in values


def test_what_will_not_train_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Det at node .* on the way to parameter 'weight'"):
        result = export(Signs(), torch.randn(2, 3, 3), tmp_path / "m.onnx")
    assert [(each.op_type, each.parameter) for each in result.untrainable] == [("Det", "weight")]


def test_operators_off_the_way_of_parameters_do_not_count() -> None:
    node = onnx.helper.make_node
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node("Det", ["x"], ["d"]), node("Mul", ["d", "w"], ["y"]), node("Round", ["y"], ["unused"])],
        "g",
        [value("x", 1, [2, 2])],
        [value("y", 1, [])],
    )
    model = onnx.helper.make_model(graph)
    assert untrainable(model, ["w"]) == []
    assert [each.op_type for each in untrainable(model, ["x"])] == ["Det"]


def test_all_that_is_known_to_train_says_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert export(Classifier(), torch.randn(2, 1, 8, 8), tmp_path / "m.onnx").untrainable == ()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"opset": 10}, "opset: expected 11 to 22, found 10"),
        ({"exporter": "onnx"}, "expected 'torchscript' or 'dynamo', found 'onnx'"),
        ({"input_names": ["a", "b"]}, "input_names: expected 1, .* found 2"),
        ({"output_names": ["a", "b"]}, "output_names: expected 1, .* found 2"),
        ({"dynamic_axes": {"imges": {0: "batch"}}}, "'imges' is neither an input nor an output"),
        ({"dynamic_axes": {"images": {4: "batch"}}}, "'images' has axes 0 to 3, found 4"),
        ({"output_names": ["images"]}, "'images' is already the name of an input"),
        ({"output_names": ["fc.bias"]}, "'fc.bias' is already the name of a parameter or buffer"),
        ({"loss": Loss("cross_entropy", torch.zeros(3, dtype=torch.int64))}, r"target of shape \[3\] .* scores of shape"),
        ({"loss": Loss("mse", torch.zeros(2, 3), output=1)}, "expected an output from 0 to 0, found 1"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, settings: dict, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        export(Classifier(), torch.randn(2, 1, 8, 8), tmp_path / "m.onnx", **settings)
    assert not (tmp_path / "m.onnx").exists()


def test_wrong_loss_is_named() -> None:
    with pytest.raises(ValueError, match="expected one of cross_entropy.* found 'hinge'"):
        Loss("hinge", torch.zeros(1))


def test_operator_set_follows_pytorch() -> None:
    assert choose_opset(version=(1, 13)) == 17
    assert choose_opset(version=(1, 8)) == 12
    assert choose_opset("dynamo") == 18


def test_another_operator_set(tmp_path: Path) -> None:
    result = export(Classifier(), torch.randn(2, 1, 8, 8), tmp_path / "m.onnx", opset=14)
    assert onnx.load(str(result.model)).opset_import[0].version == 14


class Around(nn.Module):
    """A linear layer behind whatever the given function does with its input and output."""

    def __init__(self, function: Callable[[nn.Module, object], object]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.function = function

    def forward(self, x: object) -> object:
        return self.function(self.linear, x)


plain = Around(lambda linear, x: linear(x))


@pytest.mark.parametrize(
    ("model", "inputs", "words"),
    [
        (Around(plain.function).half(), torch.ones(2, 3), "expected torch.float32, found torch.float16; export model.float"),
        (Around(plain.function).double(), torch.ones(2, 3), "'linear.weight': expected torch.float32, found torch.float64"),
        (nn.DataParallel(plain), torch.ones(2, 3), "found it wrapped in DataParallel"),
        (lambda x: x, torch.ones(2, 3), "expected a torch.nn.Module, found function"),
        (plain, {"x": torch.ones(2, 3)}, "expected a tensor or a sequence of tensors .* found dict"),
        (plain, ({"x": torch.ones(2, 3)},), r"example_inputs\[0\]: expected a tensor, found dict; wrap"),
        (plain, (None,), r"example_inputs\[0\]: expected a tensor, found NoneType"),
        (plain, (), "expected at least one tensor, found none"),
        (plain, np.ones((2, 3), np.float32), "found ndarray"),
        (plain, torch.ones(2, 7), "forward fails for the example inputs: RuntimeError: .*mat1"),
        (Around(lambda linear, x: (linear(x), None)), torch.ones(2, 3), "outputs: expected tensors, found None; wrap"),
        (Around(lambda linear, x: (linear(x), 3)), torch.ones(2, 3), "outputs: expected tensors, found int; wrap"),
    ],
)
def test_wrong_models_and_inputs_are_named(tmp_path: Path, model: nn.Module, inputs: object, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        export(model, inputs, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_an_input_with_a_parameters_name_is_refused_and_can_be_renamed(tmp_path: Path) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.x

    with pytest.raises(ExportError, match="'x' is already the name of a parameter"):
        export(Scale(), torch.ones(2, 3), tmp_path / "m.onnx")
    result = export(Scale(), torch.ones(2, 3), tmp_path / "m.onnx", input_names=["values"])
    assert result.parameters == ("x",)


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="expected an existing folder, found .*/none'"):
        export(plain, torch.ones(2, 3), tmp_path / "none" / "m.onnx")
    with pytest.raises(ExportError, match="expected a file, found the folder"):
        export(plain, torch.ones(2, 3), tmp_path)
    with pytest.raises(ExportError, match="no file can be written in '/proc'"):
        export(plain, torch.ones(2, 3), "/proc/m.onnx")


@exporters
def test_an_operator_that_cannot_be_exported(tmp_path: Path, exporter: str) -> None:
    gamma = Around(lambda linear, x: torch.igamma(linear(x).abs() + 1, torch.ones(2)))
    (tmp_path / "m.onnx").write_bytes(b"what was there")
    with pytest.raises(ExportError, match=f"PyTorch's {exporter} exporter cannot export this model .*igamma"):
        export(gamma, torch.ones(2, 3), tmp_path / "m.onnx", exporter=exporter)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"what was there"]
    # And the exporter still works.
    assert export(Classifier(), torch.randn(2, 1, 8, 8), tmp_path / "m.onnx", exporter=exporter).untrainable == ()


class Decides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else self.linear(-x)


def test_a_decision_by_a_value_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"test_export.py:\d+: the model decides by a tensor's value"):
        export(Decides(), torch.ones(2, 3), tmp_path / "m.onnx")


@pytest.mark.skipif(torch_version() < (2, 6), reason="the dynamo exporter came with PyTorch 2.6")
def test_a_decision_by_a_value_is_an_error_of_dynamo(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="dynamo exporter cannot export this model .*data-dependent"):
        export(Decides(), torch.ones(2, 3), tmp_path / "m.onnx", exporter="dynamo")


@exporters
def test_unused_parameters_are_said(tmp_path: Path, exporter: str) -> None:
    model = Around(plain.function)
    model.more = nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="parameter 'more.weight' has no part in the outputs"):
        result = export(model, torch.ones(2, 3), tmp_path / "m.onnx", exporter=exporter)
    assert result.unused == ("more.weight", "more.bias")
    assert result.parameters == ("linear.weight", "linear.bias")


def test_frozen_batch_norm_is_said(tmp_path: Path) -> None:
    model = Classifier()
    model.norm.eval()
    with pytest.warns(UserWarning, match="batch normalization 'norm' is in evaluation mode; .*--batch-norm frozen"):
        export(model, torch.randn(2, 1, 8, 8), tmp_path / "m.onnx")
