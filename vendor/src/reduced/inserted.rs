//! The operators that are in no model file, and that ONNX Runtime puts into the graph when it opens one.
//!
//! What a transformer inserts, it inserts whether or not the build has a kernel for it; a build without would refuse
//! a model that it was made for. The table errs on the side of more: the kernels in it are small beside what it saves.
//!
//! It follows from the sources of ONNX Runtime 1.21: every operator that is named where a node is made (`AddNode` and its
//! like) below `onnxruntime/core/optimizer`, when a pass for the CPU makes it, and what the passes take for a reason; and
//! every operator whose schema has a function body (`FunctionBody`, `SetContextDependentFunctionBodyBuilder`) while none
//! of the CPU's three kernel lists registers it, with the operators of that body.
//!
//! One round: what a row inserts does not set off other rows, which would bring half of ONNX in.

use super::Operators;

const ONNX: &str = "ai.onnx";
const MICROSOFT: &str = "com.microsoft";
const NCHWC: &str = "com.microsoft.nchwc";

/// Operators that any graph may get: by moving transposes, folding, and replacing one operator by a cheaper one.
const ALWAYS: &[&str] = &[
    "Add",
    "Cast",
    "Concat",
    "Constant",
    "Div",
    "Expand",
    "Gather",
    "Identity",
    "Mul",
    "Not",
    "Reshape",
    "Shape",
    "Slice",
    "Split",
    "Squeeze",
    "Sub",
    "Transpose",
    "Unsqueeze",
    // Between the CPU and a device.
    "MemcpyFromHost",
    "MemcpyToHost",
];

/// `(when one of these is there, this domain gets, these)`. In ONNX's domain they get the model's opset.
const WHEN: &[(&[&str], &str, &[&str])] = &[
    (
        &["Conv", "FusedConv"],
        MICROSOFT,
        &["FusedConv", "NhwcFusedConv"],
    ),
    (
        &["Conv", "FusedConv"],
        NCHWC,
        &[
            "AveragePool",
            "Conv",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "MaxPool",
            "ReorderInput",
            "ReorderOutput",
            "Upsample",
        ],
    ),
    (
        &[
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "GlobalMaxPool",
        ],
        NCHWC,
        &[
            "AveragePool",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "MaxPool",
            "ReorderInput",
            "ReorderOutput",
        ],
    ),
    (&["MatMul", "Gemm"], ONNX, &["Gemm", "MatMul"]),
    (
        &["MatMul", "Gemm", "FusedMatMul"],
        MICROSOFT,
        &["FusedGemm", "FusedMatMul", "TransposeMatMul"],
    ),
    (
        &["Erf", "Tanh", "Gelu", "FastGelu"],
        MICROSOFT,
        &["BiasGelu", "FastGelu", "Gelu"],
    ),
    (&["Erf", "Tanh"], ONNX, &["Gelu"]),
    (&["Sigmoid"], MICROSOFT, &["QuickGelu"]),
    (
        &[
            "ReduceMean",
            "LayerNormalization",
            "SimplifiedLayerNormalization",
        ],
        ONNX,
        &["LayerNormalization", "SimplifiedLayerNormalization"],
    ),
    (
        &[
            "ReduceMean",
            "LayerNormalization",
            "SimplifiedLayerNormalization",
        ],
        MICROSOFT,
        &[
            "Attention",
            "EmbedLayerNormalization",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
        ],
    ),
    (
        &["SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad"],
        MICROSOFT,
        &[
            "SoftmaxCrossEntropyLossInternal",
            "SoftmaxCrossEntropyLossInternalGrad",
        ],
    ),
    (
        &["ScatterND", "GatherND"],
        ONNX,
        &["GatherElements", "NonZero"],
    ),
    (
        &[
            "QuantizeLinear",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
        ],
        ONNX,
        &[
            "DequantizeLinear",
            "DynamicQuantizeLinear",
            "MatMulInteger",
            "QLinearConv",
            "QLinearMatMul",
            "QuantizeLinear",
            "Round",
        ],
    ),
    (&["IsInf"], MICROSOFT, &["IsAllFinite"]),
    (
        &[
            "QuantizeLinear",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
        ],
        MICROSOFT,
        &[
            "DequantizeLinear",
            "DynamicQuantizeMatMul",
            "MatMulIntegerToFloat",
            "MatMulNBits",
            "NhwcMaxPool",
            "QGemm",
            "QLinearAdd",
            "QLinearAveragePool",
            "QLinearConcat",
            "QLinearConv",
            "QLinearGlobalAveragePool",
            "QLinearLeakyRelu",
            "QLinearMul",
            "QLinearSigmoid",
            "QLinearSoftmax",
            "QLinearWhere",
            "QuantizeLinear",
        ],
    ),
    // Operators that are functions: without a kernel of their own, ONNX Runtime puts their bodies in their place.
    // The gradient of a division is one of them.
    (
        &["DivGrad"],
        ONNX,
        &["Div", "Mul", "Neg", "Reshape", "Shape"],
    ),
    (
        &["DivGrad"],
        MICROSOFT,
        &["BroadcastGradientArgs", "ReduceSumTraining"],
    ),
    (&["Bernoulli"], ONNX, &["Greater", "RandomUniformLike"]),
    (&["CenterCropPad"], ONNX, &["Max", "Pad"]),
    (
        &["SequenceMap"],
        ONNX,
        &[
            "Loop",
            "SequenceAt",
            "SequenceEmpty",
            "SequenceInsert",
            "SequenceLength",
        ],
    ),
    (&["CastLike"], ONNX, &["Cast"]),
    (&["Celu"], ONNX, &["Elu"]),
    (&["GreaterOrEqual"], ONNX, &["Greater", "Or", "Equal"]),
    (&["LessOrEqual"], ONNX, &["Less", "Or", "Equal"]),
    (&["HardSwish"], ONNX, &["HardSigmoid"]),
    (&["Mish"], ONNX, &["Softplus", "Tanh"]),
    (&["PRelu", "ThresholdedRelu"], ONNX, &["Less", "Where"]),
    (
        &["GroupNormalization", "MeanVarianceNormalization"],
        ONNX,
        &["Pow", "ReduceMean", "Sqrt", "InstanceNormalization"],
    ),
    (
        &[
            "NegativeLogLikelihoodLoss",
            "NegativeLogLikelihoodLossInternal",
            "NegativeLogLikelihoodLossInternal2",
            "SoftmaxCrossEntropyLoss",
        ],
        ONNX,
        &[
            "GatherElements",
            "Log",
            "LogSoftmax",
            "Neg",
            "ReduceMean",
            "ReduceSum",
            "Where",
            "Equal",
            "Softmax",
        ],
    ),
];

/// `imported` is the opset of ONNX's domain that the model names.
pub(super) fn add(operators: &mut Operators, imported: Option<u64>) {
    let mut opsets: Vec<u64> = operators
        .by_opset
        .keys()
        .filter(|(domain, _)| domain == ONNX)
        .map(|(_, version)| *version)
        .collect();
    let has = |operators: &Operators, names: &[&str]| {
        operators
            .by_opset
            .values()
            .any(|set| names.iter().any(|name| set.contains(*name)))
    };
    let present: Vec<_> = WHEN
        .iter()
        .filter(|(triggers, _, _)| has(operators, triggers))
        .collect();
    // A graph of Microsoft's operators alone can still get ONNX's, by a function's body.
    if opsets.is_empty() && present.iter().any(|(_, domain, _)| *domain == ONNX) {
        opsets.extend(imported);
    }
    if has(
        operators,
        &[
            "QuantizeLinear",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
        ],
    ) {
        for name in ["int8_t", "uint8_t"] {
            operators.types.insert(name.to_owned());
        }
    }
    let mut insert = |domain: &str, version: u64, names: &[&str]| {
        operators
            .by_opset
            .entry((domain.to_owned(), version))
            .or_default()
            .extend(names.iter().map(|name| (*name).to_owned()));
    };
    for version in &opsets {
        insert(ONNX, *version, ALWAYS);
    }
    for (_, domain, names) in present {
        if *domain == ONNX {
            for version in &opsets {
                insert(ONNX, *version, names);
            }
        } else {
            insert(domain, 1, names);
        }
    }
}
