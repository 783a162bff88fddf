//! Exact rewrites: operators that ONNX Runtime cannot differentiate on the CPU become equal ones that it can.
//!
//! Only nodes that a gradient passes through are touched. Equal means by definition, up to rounding.

mod activations;
mod convolution;
mod einsum;
mod indexing;
mod matrices;
mod normalization;
mod pooling;
mod recurrent;
mod reductions;
mod resize;
mod sizes;

use std::collections::HashSet;

use super::analysis::{Types, constant, dependent_values, differentiable_values, used_values};
use super::builder::BatchNorm;
use super::error::{ArtifactsError, RefusedNode, Result};
use super::names::Names;
use super::onnx::{
    AttributeProto, Dimension, GraphProto, NodeProto, TensorProto, TensorValues, data_type,
    initializer_f32, initializer_i64, node,
};
use super::parameters::Parameters;
use super::report::Rewrite;

/// What a rewrite says of a node.
pub(crate) enum Outcome {
    /// The nodes written so far take its place.
    Done(&'static str),
    /// ONNX Runtime differentiates it as it is.
    Keep,
    /// It cannot be differentiated, and not rewritten for this reason.
    Refuse(String),
}

/// Rewrites the nodes of a training graph.
pub(crate) struct Rewriter<'a> {
    graph: &'a mut GraphProto,
    types: &'a Types,
    names: &'a mut Names,
    opset: i64,
    /// Values whose gradient is needed: the loss depends on them, and they on a trained parameter.
    active: HashSet<String>,
    to_loss: HashSet<String>,
    from_parameters: HashSet<String>,
    parameters: &'a Parameters,
}

impl<'a> Rewriter<'a> {
    pub(crate) fn new(
        graph: &'a mut GraphProto,
        types: &'a Types,
        names: &'a mut Names,
        opset: i64,
        parameters: &'a Parameters,
        loss: &str,
    ) -> Self {
        let to_loss = differentiable_values(graph, types, loss);
        let from_parameters = dependent_values(
            graph,
            types,
            parameters.trainable.iter().map(String::as_str),
        );
        let active = to_loss.intersection(&from_parameters).cloned().collect();
        Self {
            graph,
            types,
            names,
            opset,
            active,
            to_loss,
            from_parameters,
            parameters,
        }
    }

    /// Rewrites what can be, and fails for what neither can be rewritten nor differentiated for a reason found here.
    pub(crate) fn run(&mut self, enabled: bool, batch_norm: BatchNorm) -> Result<Vec<Rewrite>> {
        let mut done = Vec::new();
        let mut refused = Vec::new();
        let nodes = std::mem::take(&mut self.graph.node);
        let mut rewritten = Vec::with_capacity(nodes.len());
        // Constants, and sizes computed from shapes, are looked up among the nodes.
        let constants: Vec<NodeProto> = nodes
            .iter()
            .filter(|n| sizes::is_followed(n))
            .cloned()
            .collect();
        self.graph.node.clone_from(&constants);
        for source in nodes {
            if let Some(value) = self.captured(&source) {
                refused.push(RefusedNode {
                    domain: source.domain.clone().unwrap_or_default(),
                    op_type: source.op().to_owned(),
                    node: source.label().to_owned(),
                    parameter: self.parameter_behind(&rewritten, &value),
                    reason: format!(
                        "its subgraphs use '{value}', and no gradient passes through a subgraph"
                    ),
                });
                rewritten.push(source);
                continue;
            }
            let on_path = source.output.iter().any(|o| self.active.contains(o));
            // Off the path, ONNX Runtime would still have it normalize by the batch.
            let frozen = source.op() == "BatchNormalization" && batch_norm == BatchNorm::Frozen;
            if !(on_path || frozen) || !source.is_onnx() {
                rewritten.push(source);
                continue;
            }
            let mut scope = Scope {
                rewriter: self,
                source: &source,
                nodes: Vec::new(),
            };
            let outcome = scope.rewrite(enabled, batch_norm)?;
            let new_nodes = scope.nodes;
            match outcome {
                Outcome::Keep => rewritten.push(source),
                Outcome::Done(form) => {
                    done.push(Rewrite {
                        op_type: source.op().to_owned(),
                        node: source.label().to_owned(),
                        form: form.to_owned(),
                    });
                    rewritten.extend(new_nodes);
                }
                Outcome::Refuse(reason) => {
                    refused.push(RefusedNode {
                        domain: String::new(),
                        op_type: source.op().to_owned(),
                        node: source.label().to_owned(),
                        parameter: source
                            .input
                            .iter()
                            .find_map(|input| self.parameter_behind(&rewritten, input)),
                        reason,
                    });
                    rewritten.push(source);
                }
            }
        }
        self.graph.node = rewritten;
        if refused.is_empty() {
            Ok(done)
        } else {
            Err(ArtifactsError::NotDifferentiable(refused))
        }
    }

    /// A value that depends on a trained parameter and that the loss depends on through a subgraph of `source`.
    fn captured(&self, source: &NodeProto) -> Option<String> {
        if !source
            .output
            .iter()
            .any(|output| self.to_loss.contains(output))
        {
            return None;
        }
        let mut used = HashSet::new();
        for attribute in &source.attribute {
            attribute
                .g
                .iter()
                .chain(&attribute.graphs)
                .for_each(|g| used_values(g, &mut used));
        }
        used.into_iter()
            .filter(|value| self.from_parameters.contains(value))
            .min()
    }

    /// A trained parameter that `value` depends on.
    fn parameter_behind(&self, before: &[NodeProto], value: &str) -> Option<String> {
        let mut queue: Vec<&str> = vec![value];
        let mut seen: HashSet<&str> = HashSet::new();
        while let Some(value) = queue.pop() {
            if self.parameters.trainable.iter().any(|p| p == value) {
                return Some(value.to_owned());
            }
            if !self.from_parameters.contains(value) || !seen.insert(value) {
                continue;
            }
            let producer = before.iter().find(|n| n.output.iter().any(|o| o == value));
            queue.extend(producer.iter().flat_map(|n| &n.input).map(String::as_str));
        }
        None
    }
}

/// One node while it is rewritten, and the nodes that take its place.
pub(crate) struct Scope<'a, 'b> {
    rewriter: &'a mut Rewriter<'b>,
    source: &'a NodeProto,
    nodes: Vec<NodeProto>,
}

impl Scope<'_, '_> {
    fn rewrite(&mut self, enabled: bool, batch_norm: BatchNorm) -> Result<Outcome> {
        if self.source.op() == "BatchNormalization" {
            // Asked for by the caller, so whether rewrites are on or not.
            return match batch_norm {
                BatchNorm::Train => Ok(Outcome::Keep),
                BatchNorm::Frozen => self.frozen_batch_normalization(),
            };
        }
        if !enabled {
            return Ok(Outcome::Keep);
        }
        if let Some(outcome) = self.activation() {
            return Ok(outcome);
        }
        match self.source.op() {
            "Resize" => self.resize(),
            "ConvTranspose" => self.conv_transpose(),
            "InstanceNormalization" => self.instance_normalization(),
            "GroupNormalization" => self.group_normalization(),
            "LpNormalization" => self.lp_normalization(),
            "MeanVarianceNormalization" => self.mean_variance_normalization(),
            "Where" => self.where_with_broadcast(),
            "Pad" => self.pad(),
            "ScatterND" | "ScatterElements" => self.scatter_with_reduction(),
            "Einsum" => self.einsum(),
            "NegativeLogLikelihoodLoss" => self.negative_log_likelihood(),
            "MatMul" => self.product_with_vectors(),
            "Conv" => self.convolution(),
            "MaxPool" => self.max_pool(),
            "AveragePool" => self.average_pool(),
            "LayerNormalization" => self.layer_normalization_without_bias(),
            "Split" => self.split_in_part(),
            "CumSum" => self.cumulative_sum(),
            "Slice" => self.slice_backwards(),
            "LSTM" | "GRU" => Ok(self.recurrent()),
            "DepthToSpace" => self.depth_to_space(),
            "SpaceToDepth" => self.space_to_depth(),
            "Sum" | "Mean" => self.sum_or_mean(),
            "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "ReduceLogSum" | "ReduceLogSumExp"
            | "ReduceMin" => self.reduction(),
            _ => Ok(Outcome::Keep),
        }
    }

    fn input(&self, index: usize) -> Option<&str> {
        self.source.input_name(index)
    }

    /// The first input, which every operator here has.
    fn x(&self) -> String {
        self.source.input.first().cloned().unwrap_or_default()
    }

    fn y(&self) -> String {
        self.source.output.first().cloned().unwrap_or_default()
    }

    fn opset(&self) -> i64 {
        self.rewriter.opset
    }

    fn constant(&self, name: &str) -> Option<TensorValues> {
        constant(self.rewriter.graph, name)
    }

    /// The numbers of a computed shape.
    fn sizes(&self, name: &str) -> Option<Vec<sizes::Size>> {
        sizes::sizes(self.rewriter.graph, self.rewriter.types, name)
    }

    fn elem_type(&self, name: &str) -> i32 {
        self.rewriter
            .types
            .elem_type(name)
            .unwrap_or(data_type::FLOAT)
    }

    fn dims(&self, name: &str) -> Option<Vec<Dimension>> {
        self.rewriter.types.dims(name).map(<[_]>::to_vec)
    }

    fn rank(&self, name: &str) -> Option<usize> {
        self.rewriter.types.rank(name)
    }

    fn known_dim(&self, name: &str, axis: usize) -> Option<i64> {
        self.rewriter.types.dims(name)?.get(axis)?.known()
    }

    fn fixed_shape(&self, name: &str) -> Option<Vec<i64>> {
        self.rewriter.types.fixed_shape(name)
    }

    fn fresh(&mut self, suffix: &str) -> String {
        let base = format!("{}.{suffix}", self.source.label());
        self.rewriter.names.derived(&base)
    }

    /// Adds a node; returns its output.
    fn op(&mut self, op_type: &str, inputs: &[&str]) -> String {
        self.op_with(op_type, inputs, [])
    }

    fn op_with(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = AttributeProto>,
    ) -> String {
        let output = self.fresh(&op_type.to_lowercase());
        self.op_to(op_type, inputs, &output, attributes);
        output
    }

    /// Adds a node whose output has a given name.
    fn op_to(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        output: &str,
        attributes: impl IntoIterator<Item = AttributeProto>,
    ) {
        let name = self.fresh(&format!("{op_type}.node"));
        let mut added = node(op_type, name, inputs, &[output]);
        added.attribute.extend(attributes);
        self.nodes.push(added);
    }

    /// A constant of the element type of `like`.
    fn number(&mut self, like: &str, value: f64) -> String {
        self.numbers(like, &[], &[value])
    }

    fn numbers(&mut self, like: &str, dims: &[i64], values: &[f64]) -> String {
        let name = self.fresh("constant");
        let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        let elem_type = self.elem_type(like);
        if elem_type == data_type::DOUBLE {
            let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            self.rewriter.graph.initializer.push(TensorProto {
                name: Some(name.clone()),
                data_type: Some(data_type::DOUBLE),
                dims: dims.to_vec(),
                raw_data: Some(raw.into()),
                ..TensorProto::default()
            });
            return name;
        }
        self.rewriter
            .graph
            .initializer
            .push(initializer_f32(&name, dims, &narrow));
        if elem_type == data_type::FLOAT {
            return name;
        }
        // Half precision: rounded once, by ONNX Runtime.
        self.op_with(
            "Cast",
            &[&name],
            [super::onnx::attribute::int("to", elem_type.into())],
        )
    }

    fn integers(&mut self, values: &[i64]) -> String {
        let name = self.fresh("integers");
        self.rewriter.graph.initializer.push(initializer_i64(
            &name,
            &[values.len() as i64],
            values,
        ));
        name
    }

    /// A whole number without dimensions.
    fn integer(&mut self, value: i64) -> String {
        let name = self.fresh("integer");
        self.rewriter
            .graph
            .initializer
            .push(initializer_i64(&name, &[], &[value]));
        name
    }

    /// A reduction over `axes`, keeping them: an attribute or an input, as the operator set has it.
    fn reduce(&mut self, op_type: &str, value: &str, axes: &[i64], keep: bool) -> String {
        let keepdims = super::onnx::attribute::int("keepdims", keep.into());
        let as_input = self.opset() >= if op_type == "ReduceSum" { 13 } else { 18 };
        if as_input {
            let axes = self.integers(axes);
            self.op_with(op_type, &[value, &axes], [keepdims])
        } else {
            self.op_with(
                op_type,
                &[value],
                [super::onnx::attribute::ints("axes", axes), keepdims],
            )
        }
    }

    fn unsqueeze(&mut self, value: &str, axes: &[i64]) -> String {
        if self.opset() >= 13 {
            let axes = self.integers(axes);
            self.op("Unsqueeze", &[value, &axes])
        } else {
            self.op_with(
                "Unsqueeze",
                &[value],
                [super::onnx::attribute::ints("axes", axes)],
            )
        }
    }

    fn squeeze(&mut self, value: &str, axes: &[i64]) -> String {
        if self.opset() >= 13 {
            let axes = self.integers(axes);
            self.op("Squeeze", &[value, &axes])
        } else {
            self.op_with(
                "Squeeze",
                &[value],
                [super::onnx::attribute::ints("axes", axes)],
            )
        }
    }

    fn reshape(&mut self, value: &str, shape: &[i64]) -> String {
        let shape = self.integers(shape);
        self.op("Reshape", &[value, &shape])
    }

    fn transpose(&mut self, value: &str, order: &[i64]) -> String {
        self.op_with(
            "Transpose",
            &[value],
            [super::onnx::attribute::ints("perm", order)],
        )
    }

    /// Elements of an axis picked by constant indices.
    fn gather(&mut self, value: &str, axis: i64, indices: &[i64]) -> String {
        let indices = self.integers(indices);
        self.op_with(
            "Gather",
            &[value, &indices],
            [super::onnx::attribute::int("axis", axis)],
        )
    }

    /// Gives `value` the name of the source node's output.
    fn finish(&mut self, value: &str) {
        let output = self.y();
        // The last node made it: its output is renamed, without one more node.
        match self.nodes.last_mut() {
            Some(last) if last.output.len() == 1 && last.output[0] == value => {
                last.output[0] = output
            }
            _ => self.op_to("Identity", &[value], &output, []),
        }
    }
}
