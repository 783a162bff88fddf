"""Makes forward models and, from each, artifacts with ONNX Runtime's Python generator. See ci/artifacts-parity.

Writes <folder>/<case>/forward.onnx and, beside it, the four files. The case's name says model, loss and optimizer.
"""

import pathlib
import subprocess
import sys
import types

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

# `import onnxruntime.training` imports torch, which making artifacts does not need.
_package = types.ModuleType("onnxruntime.training")
_package.__path__ = [str(pathlib.Path(onnxruntime.__file__).parent / "training")]
sys.modules["onnxruntime.training"] = _package

from onnxruntime.training import artifacts, onnxblock  # noqa: E402

onnxruntime.set_default_logger_severity(3)

OPSET = 17
LOSSES = {
    "ce": artifacts.LossType.CrossEntropyLoss,
    "bce": artifacts.LossType.BCEWithLogitsLoss,
    "mse": artifacts.LossType.MSELoss,
    "l1": artifacts.LossType.L1Loss,
}


def model(name, nodes, inputs, outputs, weights):
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(n, t, d) for n, t, d in inputs],
        [helper.make_tensor_value_info(n, t, d) for n, t, d in outputs],
        [numpy_helper.from_array(v.astype(np.float32) if v.dtype.kind == "f" else v, n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def mlp():
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], "fc1", transB=1),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "fc2.weight", "fc2.bias"], ["logits"], "fc2", transB=1),
    ]
    weights = {
        "fc1.weight": rng.normal(size=(16, 8)) * 0.4,
        "fc1.bias": rng.normal(size=16) * 0.1,
        "fc2.weight": rng.normal(size=(4, 16)) * 0.3,
        "fc2.bias": rng.normal(size=4) * 0.1,
    }
    return model("mlp", nodes, [("x", TensorProto.FLOAT, ["batch", 8])], [("logits", TensorProto.FLOAT, ["batch", 4])], weights)


def convnet():
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["n"], "bn", momentum=0.9
        ),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["logits"], "fc", transB=1),
    ]
    weights = {
        "conv.weight": rng.normal(size=(4, 2, 3, 3)) * 0.3,
        "conv.bias": rng.normal(size=4) * 0.1,
        "bn.weight": np.ones(4),
        "bn.bias": np.zeros(4),
        "bn.mean": np.zeros(4),
        "bn.var": np.ones(4),
        "fc.weight": rng.normal(size=(4, 36)) * 0.2,
        "fc.bias": np.zeros(4),
    }
    return model("convnet", nodes, [("x", TensorProto.FLOAT, ["batch", 2, 6, 6])], [("logits", TensorProto.FLOAT, ["batch", 4])], weights)


def attention():
    """Embedding, one attention layer by hand, layer normalization as PyTorch exports it, Gelu from Erf."""
    rng = np.random.default_rng(3)
    n = helper.make_node
    nodes = [
        n("Gather", ["embedding", "tokens"], ["e"], "embed"),
        n("MatMul", ["e", "q.weight"], ["q"], "q"),
        n("MatMul", ["e", "k.weight"], ["k"], "k"),
        n("MatMul", ["e", "v.weight"], ["v"], "v"),
        n("Transpose", ["k"], ["kt"], "kt", perm=[0, 2, 1]),
        n("MatMul", ["q", "kt"], ["s"], "scores"),
        n("Mul", ["s", "scale"], ["ss"], "scaled"),
        n("Softmax", ["ss"], ["a"], "softmax", axis=-1),
        n("MatMul", ["a", "v"], ["o"], "attend"),
        n("Add", ["o", "e"], ["res"], "residual"),
        n("ReduceMean", ["res"], ["mean"], "mean", axes=[-1]),
        n("Sub", ["res", "mean"], ["centred"], "centre"),
        n("Pow", ["centred", "two"], ["sq"], "square"),
        n("ReduceMean", ["sq"], ["var"], "var", axes=[-1]),
        n("Add", ["var", "eps"], ["vareps"], "vareps"),
        n("Sqrt", ["vareps"], ["std"], "std"),
        n("Div", ["centred", "std"], ["norm"], "norm"),
        n("Mul", ["norm", "ln.weight"], ["scaled_norm"], "ln_scale"),
        n("Add", ["scaled_norm", "ln.bias"], ["ln"], "ln_shift"),
        n("Div", ["ln", "root"], ["g1"], "gelu1"),
        n("Erf", ["g1"], ["g2"], "gelu2"),
        n("Add", ["g2", "one"], ["g3"], "gelu3"),
        n("Mul", ["ln", "g3"], ["g4"], "gelu4"),
        n("Mul", ["g4", "half"], ["gelu"], "gelu5"),
        n("ReduceMean", ["gelu"], ["pooled"], "pool", axes=[1], keepdims=0),
        n("Gemm", ["pooled", "fc.weight", "fc.bias"], ["logits"], "fc", transB=1),
    ]
    weights = {
        "embedding": rng.normal(size=(11, 8)) * 0.5,
        "q.weight": rng.normal(size=(8, 8)) * 0.3,
        "k.weight": rng.normal(size=(8, 8)) * 0.3,
        "v.weight": rng.normal(size=(8, 8)) * 0.3,
        "ln.weight": np.ones(8),
        "ln.bias": np.zeros(8),
        "fc.weight": rng.normal(size=(4, 8)) * 0.4,
        "fc.bias": np.zeros(4),
        "scale": np.array(8**-0.5),
        "two": np.array(2.0),
        "eps": np.array(1e-5),
        "root": np.array(2.0**0.5),
        "one": np.array(1.0),
        "half": np.array(0.5),
    }
    return model("attention", nodes, [("tokens", TensorProto.INT64, ["batch", 5])], [("logits", TensorProto.FLOAT, ["batch", 4])], weights)


def cases():
    for loss in LOSSES:
        for optimizer in ("adamw", "sgd"):
            yield f"mlp-{loss}-{optimizer}"
    yield "mlp-ce-adamw_clip"
    for name in ("convnet", "attention"):
        yield f"{name}-ce-adamw"
        yield f"{name}-mse-sgd"


def make(case, folder):
    name, loss, optimizer = case.split("-")
    forward = {"mlp": mlp, "convnet": convnet, "attention": attention}[name]()
    trained = [t.name for t in forward.graph.initializer if t.dims and not t.name.startswith(("bn.mean", "bn.var"))]
    frozen = [t.name for t in forward.graph.initializer if t.name.startswith(("bn.mean", "bn.var"))]
    optimizers = {
        "adamw": artifacts.OptimType.AdamW,
        "sgd": artifacts.OptimType.SGD,
        "adamw_clip": onnxblock.optim.AdamW(
            betas=(0.8, 0.99), eps=1e-5, weight_decay=0.02, clip_grad=onnxblock.optim.ClipGradNorm(0.3)
        ),
    }
    folder.mkdir(parents=True)
    onnx.save(forward, folder / "forward.onnx")
    artifacts.generate_artifacts(
        forward,
        requires_grad=trained,
        frozen_params=frozen,
        loss=LOSSES[loss],
        optimizer=optimizers[optimizer],
        artifact_directory=folder,
        additional_output_names=["logits"],
    )


def main():
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 2:
        make(sys.argv[2], folder / sys.argv[2])
        return
    # A process for each: the generator numbers the names it makes through the whole process.
    for case in cases():
        subprocess.run([sys.executable, __file__, str(folder), case], check=True)
        print(f"made {case}")


if __name__ == "__main__":
    main()
