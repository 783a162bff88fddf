"""Makes the training artifacts that the examples, tests and benchmarks use.

Run it through ci/make-fixtures, which installs what it needs. Every number in the artifacts follows from the seeds
below, so that running it twice gives the same bytes.

    digits/          8x8 images, 64-48-10, cross-entropy, AdamW; training and eval models give loss and logits
    digits_sgd/      the same with SGD
    regression/      two inputs, five trainable parameters and a frozen one, mean squared error, AdamW
    regression_sgd/  the same with SGD
    dropout/         a dropout layer in training mode between two linear ones, SGD: what a seed decides
    linear1/         one linear layer, batch fixed at 1, the smallest model: for the benchmark and for fixed dimensions
    train_only/      regression without an eval and without an optimizer model

Each holds forward.onnx (the inference model all of it was made from), training_model.onnx, eval_model.onnx,
optimizer_model.onnx and checkpoint; regression/ also nominal_checkpoint.
"""

import filecmp
import itertools
import pathlib
import sys
import tempfile
import types

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

# `import onnxruntime.training` imports torch, which generating artifacts doesn't need: a module object that only says
# where the package lies lets its submodules be imported without running its __init__.
_package = types.ModuleType("onnxruntime.training")
_package.__path__ = [str(pathlib.Path(onnxruntime.__file__).parent / "training")]
sys.modules["onnxruntime.training"] = _package

from onnxruntime.training import artifacts  # noqa: E402
from onnxruntime.training.onnxblock import _graph_utils  # noqa: E402

OPSET = 17
IR_VERSION = 8
FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "ort-training" / "fixtures"

DIGITS_SEED = 20240611
REGRESSION_SEED = 20240612
LINEAR1_SEED = 20240613
DROPOUT_SEED = 20240614


def make_model(name, nodes, inputs, outputs, parameters):
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(value, key) for key, value in parameters.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="ort-training fixtures",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def uniform(rng, fan_in, *shape):
    """Uniform within ±1/sqrt(fan_in), the usual start of a linear layer."""
    bound = 1.0 / np.sqrt(fan_in)
    return rng.uniform(-bound, bound, size=shape).astype(np.float32)


def digits_model():
    rng = np.random.default_rng(DIGITS_SEED)
    hidden = 48
    parameters = {
        "fc1.weight": uniform(rng, 64, hidden, 64),
        "fc1.bias": uniform(rng, 64, hidden),
        "fc2.weight": uniform(rng, hidden, 10, hidden),
        "fc2.bias": uniform(rng, hidden, 10),
    }
    nodes = [
        helper.make_node("Gemm", ["images", "fc1.weight", "fc1.bias"], ["fc1"], "fc1", transB=1),
        helper.make_node("Relu", ["fc1"], ["relu1"], "relu1"),
        helper.make_node("Gemm", ["relu1", "fc2.weight", "fc2.bias"], ["logits"], "fc2", transB=1),
    ]
    inputs = [("images", TensorProto.FLOAT, ["batch", 64])]
    outputs = [("logits", TensorProto.FLOAT, ["batch", 10])]
    return make_model("digits", nodes, inputs, outputs, parameters)


def regression_model():
    rng = np.random.default_rng(REGRESSION_SEED)
    hidden = 8
    parameters = {
        "x_proj.weight": uniform(rng, 4, hidden, 4),
        "x_proj.bias": uniform(rng, 4, hidden),
        "z_proj.weight": uniform(rng, 3, 3, hidden),
        "scale": np.linspace(0.5, 1.5, hidden, dtype=np.float32),
        "head.weight": uniform(rng, hidden, 1, hidden),
        "head.bias": uniform(rng, hidden, 1),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "x_proj.weight", "x_proj.bias"], ["x_proj"], "x_proj", transB=1),
        helper.make_node("MatMul", ["z", "z_proj.weight"], ["z_proj"], "z_proj"),
        helper.make_node("Add", ["x_proj", "z_proj"], ["joined"], "joined"),
        helper.make_node("Tanh", ["joined"], ["activated"], "activated"),
        helper.make_node("Mul", ["activated", "scale"], ["scaled"], "scaled"),
        helper.make_node("Gemm", ["scaled", "head.weight", "head.bias"], ["prediction"], "head", transB=1),
    ]
    inputs = [("x", TensorProto.FLOAT, ["batch", 4]), ("z", TensorProto.FLOAT, ["batch", 3])]
    outputs = [("prediction", TensorProto.FLOAT, ["batch", 1])]
    return make_model("regression", nodes, inputs, outputs, parameters)


def dropout_model():
    rng = np.random.default_rng(DROPOUT_SEED)
    hidden = 16
    parameters = {
        "fc1.weight": uniform(rng, 4, hidden, 4),
        "fc1.bias": uniform(rng, 4, hidden),
        "fc2.weight": uniform(rng, hidden, 1, hidden),
        "fc2.bias": uniform(rng, hidden, 1),
    }
    # Constants as nodes: an initializer would be taken for a parameter.
    constants = [
        helper.make_node("Constant", [], ["ratio"], "ratio", value=numpy_helper.from_array(np.float32(0.5))),
        helper.make_node("Constant", [], ["training"], "training", value=numpy_helper.from_array(np.array(True))),
    ]
    nodes = constants + [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["fc1"], "fc1", transB=1),
        helper.make_node("Dropout", ["fc1", "ratio", "training"], ["dropped", "mask"], "dropout"),
        helper.make_node("Gemm", ["dropped", "fc2.weight", "fc2.bias"], ["y"], "fc2", transB=1),
    ]
    inputs = [("x", TensorProto.FLOAT, ["batch", 4])]
    outputs = [("y", TensorProto.FLOAT, ["batch", 1])]
    return make_model("dropout", nodes, inputs, outputs, parameters)


def linear1_model():
    rng = np.random.default_rng(LINEAR1_SEED)
    parameters = {"weight": uniform(rng, 4, 1, 4), "bias": uniform(rng, 4, 1)}
    nodes = [helper.make_node("Gemm", ["x", "weight", "bias"], ["y"], "linear", transB=1)]
    inputs = [("x", TensorProto.FLOAT, [1, 4])]
    outputs = [("y", TensorProto.FLOAT, [1, 1])]
    return make_model("linear1", nodes, inputs, outputs, parameters)


def generate(directory, model, frozen, loss, optimizer, **more):
    directory.mkdir(parents=True, exist_ok=True)
    onnx.save(model, directory / "forward.onnx")

    # The generator names what it adds by a counter of the process; starting it at zero for each set makes a set's
    # bytes independent of the sets made before it.
    counter = itertools.count()
    _graph_utils._get_token = lambda: next(counter)

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = [i.name for i in model.graph.initializer]
    artifacts.generate_artifacts(
        copy,
        requires_grad=[name for name in names if name not in frozen],
        frozen_params=list(frozen),
        loss=loss,
        optimizer=optimizer,
        artifact_directory=directory,
        **more,
    )


def make_all(root):
    loss, optim = artifacts.LossType, artifacts.OptimType
    for suffix, optimizer in (("", optim.AdamW), ("_sgd", optim.SGD)):
        generate(
            root / f"digits{suffix}",
            digits_model(),
            [],
            loss.CrossEntropyLoss,
            optimizer,
            additional_output_names=["logits"],
        )
        generate(
            root / f"regression{suffix}",
            regression_model(),
            ["scale"],
            loss.MSELoss,
            optimizer,
            nominal_checkpoint=not suffix,
        )
    generate(root / "dropout", dropout_model(), [], loss.MSELoss, optim.SGD)
    generate(root / "linear1", linear1_model(), [], loss.MSELoss, optim.AdamW)
    generate(root / "train_only", regression_model(), ["scale"], loss.MSELoss, None)
    (root / "train_only" / "eval_model.onnx").unlink()


def files(root):
    return sorted(p.relative_to(root) for p in root.rglob("*") if p.is_file() and p.suffix != ".md")


def check():
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        make_all(root)
        made, committed = files(root), files(FIXTURES)
        if made != committed:
            sys.exit(f"fixtures differ: made {[str(m) for m in made]}, committed {[str(c) for c in committed]}")
        different = [str(f) for f in made if not filecmp.cmp(root / f, FIXTURES / f, shallow=False)]
        if different:
            sys.exit(f"fixtures differ from what ci/make-fixtures.py makes: {', '.join(different)}")
        print(f"{len(made)} files in ort-training/fixtures are what ci/make-fixtures.py makes")


def main():
    if sys.argv[1:] == ["--check"]:
        check()
    elif sys.argv[1:]:
        sys.exit("usage: ci/make-fixtures [--check]")
    else:
        make_all(FIXTURES)
        for file in files(FIXTURES):
            print(f"{(FIXTURES / file).stat().st_size:8}  {file}")


if __name__ == "__main__":
    main()
