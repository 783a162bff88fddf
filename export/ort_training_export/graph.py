"""What an exported graph holds: parameters' names, training form, operators that will not train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

# Operators with a gradient in ONNX Runtime 1.21 or an exact rewrite in the artifact maker.
_DIFFERENTIABLE = frozenset(
    """Abs Add Atan AveragePool BatchNormalization Cast Clip Concat Conv ConvTranspose Cos Div Dropout Einsum Erf Exp
    Expand Flatten Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Identity LayerNormalization
    LeakyRelu Log LogSoftmax LSTM GRU MatMul Max MaxPool Min Mul Neg Pad Pow Reciprocal ReduceLogSumExp ReduceMax
    ReduceMean ReduceSum Relu Reshape Resize ScatterElements ScatterND Sigmoid Sin Slice Softmax
    SoftmaxCrossEntropyLoss Split Sqrt Squeeze Sub Tanh Tile TopK Transpose Trilu Unsqueeze Where HardSigmoid HardSwish
    Elu Selu Celu Softplus Softsign Mish ThresholdedRelu PRelu Tan Sinh Cosh Asin Acos Asinh Acosh Atanh Shrink CastLike
    InstanceNormalization GroupNormalization LpNormalization MeanVarianceNormalization Sum Mean ReduceL1
    ReduceL2 ReduceSumSquare ReduceLogSum ReduceMin CumSum NegativeLogLikelihoodLoss DepthToSpace SpaceToDepth""".split()
)
# Their results are integers or truth values, or do not depend on their operands' values.
_STOPS = frozenset(
    """Not And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual IsInf IsNaN NonZero Shape Size ArgMax ArgMin OneHot
    Range ConstantOfShape Constant EyeLike""".split()
)


@dataclass(frozen=True)
class Untrainable:
    """An operator between a parameter and the outputs that ONNX Runtime cannot differentiate."""

    op_type: str
    node: str
    parameter: str

    def __str__(self) -> str:
        return f"{self.op_type} at node '{self.node}', on the way to parameter '{self.parameter}'"


def untrainable(model: onnx.ModelProto, parameters: Iterable[str]) -> list[Untrainable]:
    """Operators on the way from `parameters` to the outputs that have neither a gradient nor a rewrite.

    The artifact maker has the last word: it also knows settings of operators that do not train.
    """
    graph = model.graph
    used = {output.name for output in graph.output}
    for node in reversed(graph.node):
        if used.intersection(node.output) and node.op_type not in _STOPS:
            used.update(node.input)
    origin = {name: name for name in parameters}
    found = []
    for node in graph.node:
        source = next((origin[name] for name in node.input if name in origin), None)
        if source is None or node.op_type in _STOPS or not used.intersection(node.output):
            continue
        if node.domain not in ("", "ai.onnx") or node.op_type not in _DIFFERENTIABLE:
            name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
            found.append(Untrainable(name, node.name, source))
        origin.update((output, source) for output in node.output if output)
    return found


def rename_value(model: onnx.ModelProto, old: str, new: str) -> None:
    """Renames a value of the top graph and of what its subgraphs capture."""

    def rename(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    if name == old:
                        names[index] = new
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    rename(attribute.g)
        for values in (graph.initializer, graph.input, graph.output, graph.value_info):
            for value in values:
                if value.name == old:
                    value.name = new

    rename(model.graph)


def training_form(model: onnx.ModelProto) -> int:
    """Gives BatchNormalization and Dropout their training form; returns how many nodes were changed.

    Exporters differ in what they write for a model in training mode; the form is the same afterwards.
    """
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset < 14:
        return 0
    changed = 0
    for node in model.graph.node:
        if node.op_type != "BatchNormalization" or node.domain not in ("", "ai.onnx"):
            continue
        mode = next((a for a in node.attribute if a.name == "training_mode"), None)
        if mode is not None and mode.i == 1:
            continue
        if mode is not None:
            mode.i = 1
        else:
            node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
        del node.output[1:]
        node.output.extend(f"{node.output[0]}.{what}" for what in ("running_mean", "running_var"))
        changed += 1
    return changed


_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16)


def constants_from_initializers(model: onnx.ModelProto, parameters: Iterable[str]) -> list[str]:
    """Makes `Constant` nodes of the floating-point initializers that are not parameters; returns their names.

    The artifact maker trains initializers that a gradient reaches; buffers are not to be trained. Running statistics
    of batch normalization stay: it knows them.
    """
    graph = model.graph
    kept = set(parameters)
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            kept.update(node.input[3:5])
    made = [t for t in graph.initializer if t.name not in kept and t.data_type in _FLOATS]
    names = [tensor.name for tensor in made]
    nodes = [onnx.helper.make_node("Constant", [], [t.name], name=f"{t.name}/constant", value=t) for t in made]
    nodes += [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    rest = [onnx.TensorProto.FromString(t.SerializeToString()) for t in graph.initializer if t.name not in names]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(rest)
    return names


#: Elements of a constant that `fold_constants` may make: settings such as scales, sizes and axes are smaller.
_SMALL = 64


def fold_constants(model: onnx.ModelProto) -> int:
    """Computes small values that depend on constants alone, such as the scales of a Resize; returns how many.

    Exporters leave them as calculations when they are told to fold no parameters. Initializers, and so parameters, are
    not touched.
    """
    graph = model.graph
    known = {}
    folded = 0
    nodes = []
    for node in graph.node:
        simple = node.domain in ("", "ai.onnx") and not any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None and numpy_helper.to_array(value).size <= _SMALL:
                known[node.output[0]] = value
        elif simple and node.op_type in _FOLDED and node.input and all(name in known for name in node.input if name):
            values = _compute(model, node, known)
            if values is not None:
                for name, value in zip(node.output, values):
                    known[name] = value
                    nodes.append(onnx.helper.make_node("Constant", [], [name], name=f"{node.name}/{name}", value=value))
                folded += 1
                continue
        nodes.append(node)
    if folded:
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(kept)
    return folded


_FOLDED = frozenset(
    "Add Cast Concat ConstantOfShape Div Expand Floor Gather Identity Mul Neg Reshape Shape Slice Squeeze Sub Transpose "
    "Unsqueeze".split()
)


def _compute(
    model: onnx.ModelProto, node: onnx.NodeProto, known: dict[str, onnx.TensorProto]
) -> list[onnx.TensorProto] | None:
    graph = onnx.helper.make_graph(
        [node],
        "constant",
        [],
        [onnx.ValueInfoProto(name=name) for name in node.output],
        [onnx.helper.make_tensor(n, known[n].data_type, known[n].dims, numpy_helper.to_array(known[n]).tobytes(), raw=True)
         for n in dict.fromkeys(node.input) if n],
    )  # fmt: skip
    single = onnx.helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    results = ReferenceEvaluator(single).run(None, {})
    if any(result.size > _SMALL for result in results):
        return None
    return [numpy_helper.from_array(result, name) for result, name in zip(results, node.output)]
