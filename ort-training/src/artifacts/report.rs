//! What was made, for people.

use std::fmt;

/// What making artifacts did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Parameters that are trained, in the order of the training model's inputs.
    pub trainable: Vec<String>,
    /// Parameters in the checkpoint that are not trained: those frozen by name, and running statistics.
    pub frozen: Vec<String>,
    /// Floating-point initializers that stay constants of the graphs, and why.
    pub constants: Vec<(String, String)>,
    /// Inputs that a training or evaluation step takes, in order.
    pub inputs: Vec<String>,
    /// Outputs of a training step, in order; the first is the loss.
    pub outputs: Vec<String>,
    /// Outputs of an evaluation step, in order.
    pub eval_outputs: Vec<String>,
    /// Nodes of the forward graph that were rewritten before it was differentiated.
    pub rewrites: Vec<Rewrite>,
    /// Fields of the forward model that a newer ONNX schema has and this crate does not: the artifacts lack them.
    pub unknown_fields: Vec<String>,
}

/// A node that was replaced by an equal form that can be differentiated. Only the training model has that form; the
/// evaluation model keeps the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The operator.
    pub op_type: String,
    /// The node's name, or its first output when it has none.
    pub node: String,
    /// What it became.
    pub form: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "trained: {} parameters", self.trainable.len())?;
        writeln!(f, "kept beside them: {}", self.frozen.len())?;
        for (name, why) in &self.constants {
            writeln!(f, "constant: {name} ({why})")?;
        }
        writeln!(f, "inputs: {}", self.inputs.join(", "))?;
        writeln!(f, "outputs of training: {}", self.outputs.join(", "))?;
        writeln!(f, "outputs of evaluation: {}", self.eval_outputs.join(", "))?;
        for rewrite in &self.rewrites {
            writeln!(
                f,
                "rewritten: {} '{}' as {}",
                rewrite.op_type, rewrite.node, rewrite.form
            )?;
        }
        for field in &self.unknown_fields {
            writeln!(f, "left out, not known: {field}")?;
        }
        Ok(())
    }
}
