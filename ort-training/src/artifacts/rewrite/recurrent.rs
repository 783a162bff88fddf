//! Recurrent layers in the one form that ONNX Runtime differentiates: forward in time, time first.

use super::super::onnx::{NodeProto, attribute};
use super::{Outcome, Scope};

impl Scope<'_, '_> {
    /// A layer that runs backwards is one that runs forwards over the reversed sequence; one that runs both ways is
    /// two layers.
    pub(super) fn recurrent(&mut self) -> Outcome {
        if self.source.int("layout") == Some(1) {
            return Outcome::Refuse(
                "its layout is batch first (layout = 1), which its gradient does not know"
                    .to_owned(),
            );
        }
        if self
            .source
            .find("activations")
            .is_some_and(|a| !self.has_default_activations(&a.strings))
        {
            return Outcome::Refuse(
                "it sets activations, of which its gradient knows only the default".to_owned(),
            );
        }
        for setting in ["clip", "input_forget"] {
            if self
                .source
                .find(setting)
                .is_some_and(|a| a.i.unwrap_or(1) != 0)
            {
                return Outcome::Refuse(format!(
                    "it sets '{setting}', which its gradient does not know"
                ));
            }
        }
        if self.input(4).is_some() {
            return Outcome::Refuse(
                "its sequences have lengths of their own (sequence_lens)".to_owned(),
            );
        }
        let direction = self
            .source
            .string("direction")
            .unwrap_or("forward")
            .to_owned();
        if direction == "forward" {
            return Outcome::Keep;
        }
        let ways: &[bool] = if direction == "bidirectional" {
            &[false, true]
        } else {
            &[true]
        };
        let outputs = if self.source.op() == "LSTM" { 3 } else { 2 };
        let mut results: Vec<Vec<String>> = vec![Vec::new(); outputs];
        for (way, &backwards) in ways.iter().enumerate() {
            let made = self.one_way(way as i64, ways.len(), backwards);
            for (result, value) in results.iter_mut().zip(made) {
                result.push(value);
            }
        }
        for (index, values) in results.iter().enumerate() {
            let Some(output) = self.source.output_name(index).map(str::to_owned) else {
                continue;
            };
            // Y has the direction as its second axis, the final states as their first.
            let axis = attribute::int("axis", i64::from(index == 0));
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if values.len() == 1 {
                self.op_to("Identity", &values, &output, []);
            } else {
                self.op_to("Concat", &values, &output, [axis]);
            }
        }
        Outcome::Done("layers that run forwards")
    }

    fn has_default_activations(&self, names: &[prost::bytes::Bytes]) -> bool {
        let default: &[&[u8]] = if self.source.op() == "LSTM" {
            &[b"sigmoid", b"tanh", b"tanh"]
        } else {
            &[b"sigmoid", b"tanh"]
        };
        !names.is_empty()
            && names.chunks(default.len()).all(|way| {
                way.len() == default.len()
                    && way
                        .iter()
                        .zip(default)
                        .all(|(a, b)| a.to_ascii_lowercase() == *b)
            })
    }

    /// The layer of one direction, forwards: its outputs, Y first.
    fn one_way(&mut self, way: i64, ways: usize, backwards: bool) -> Vec<String> {
        let mut inputs = Vec::new();
        for (index, input) in self.source.input.clone().iter().enumerate() {
            inputs.push(match index {
                0 if backwards => self.reverse_time(input),
                // All but the sequence and its lengths have the direction as their first axis.
                1.. if index != 4 && !input.is_empty() && ways > 1 => self.gather(input, 0, &[way]),
                _ => input.clone(),
            });
        }
        let outputs = if self.source.op() == "LSTM" { 3 } else { 2 };
        let names: Vec<String> = (0..outputs)
            .map(|i| self.fresh(&format!("way{way}.output{i}")))
            .collect();
        let layer = NodeProto {
            input: inputs,
            output: names.clone(),
            name: Some(self.fresh(&format!("way{way}"))),
            op_type: self.source.op_type.clone(),
            attribute: self
                .source
                .attribute
                .iter()
                .filter(|a| !matches!(a.name.as_deref(), Some("direction" | "activations")))
                .cloned()
                .collect(),
            ..NodeProto::default()
        };
        self.nodes.push(layer);
        let mut made = names;
        if backwards {
            made[0] = self.reverse_time_of(&made[0].clone(), &self.x());
        }
        made
    }

    fn reverse_time(&mut self, value: &str) -> String {
        self.reverse_time_of(value, value)
    }

    /// Reverses the first axis, which is as long as that of `like`.
    fn reverse_time_of(&mut self, value: &str, like: &str) -> String {
        if let Some(steps) = self.known_dim(like, 0) {
            let reversed: Vec<i64> = (0..steps).rev().collect();
            return self.gather(value, 0, &reversed);
        }
        let shape = self.op("Shape", &[like]);
        let [zero, minus_one] = [0, -1].map(|n| self.integer(n));
        let steps = self.op_with("Gather", &[&shape, &zero], [attribute::int("axis", 0)]);
        let last = self.op("Add", &[&steps, &minus_one]);
        let indices = self.op("Range", &[&last, &minus_one, &minus_one]);
        self.op_with("Gather", &[value, &indices], [attribute::int("axis", 0)])
    }
}
