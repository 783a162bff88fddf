//! Einsum of one or two operands as transpositions, sums and one MatMul.

use super::super::error::Result;
use super::indexing::Part;
use super::{Outcome, Scope};

/// An operand: its value, its labels, and where each label's size can be read.
struct Operand {
    value: String,
    labels: Vec<char>,
}

/// A label's size: a dimension of one of the node's inputs.
type Sizes<'a> = Vec<(char, &'a str, usize)>;

impl Scope<'_, '_> {
    pub(super) fn einsum(&mut self) -> Result<Outcome> {
        let equation: String = self
            .source
            .string("equation")
            .unwrap_or_default()
            .chars()
            .filter(|c| !c.is_whitespace())
            .collect();
        let inputs = self.source.input.clone();
        let (operands, output) = match parse(&equation, &inputs) {
            Ok(parsed) => parsed,
            Err(reason) => {
                return Ok(Outcome::Refuse(format!(
                    "its equation '{equation}' {reason}"
                )));
            }
        };
        let sizes: Sizes = operands
            .iter()
            .zip(&inputs)
            .flat_map(|(operand, input)| {
                operand
                    .labels
                    .iter()
                    .enumerate()
                    .map(move |(axis, &label)| (label, input.as_str(), axis))
            })
            .collect();
        let everywhere: Vec<Vec<char>> = operands.iter().map(|o| o.labels.clone()).collect();
        let mut summed = Vec::new();
        for (index, operand) in operands.into_iter().enumerate() {
            let elsewhere = |label: &char| {
                everywhere
                    .iter()
                    .enumerate()
                    .any(|(other, l)| other != index && l.contains(label))
            };
            summed.push(self.sum_out(operand, |label| output.contains(label) || elsewhere(label)));
        }
        let result = match summed.len() {
            1 => summed.remove(0),
            _ => {
                let (right, left) = (summed.pop().expect("two"), summed.pop().expect("two"));
                match self.contract(left, right, &output, &sizes) {
                    Some(result) => result,
                    None => {
                        return Ok(Outcome::Refuse(format!(
                            "its equation '{equation}' joins axes whose sizes are not known"
                        )));
                    }
                }
            }
        };
        let y = self.order(&result, &output);
        self.finish(&y);
        Ok(Outcome::Done("Transpose and MatMul"))
    }

    /// Sums over the labels that nothing else needs.
    fn sum_out(&mut self, operand: Operand, needed: impl Fn(&char) -> bool) -> Operand {
        let axes: Vec<i64> = operand
            .labels
            .iter()
            .enumerate()
            .filter(|(_, label)| !needed(label))
            .map(|(axis, _)| axis as i64)
            .collect();
        if axes.is_empty() {
            return operand;
        }
        let value = self.reduce("ReduceSum", &operand.value, &axes, false);
        Operand {
            value,
            labels: operand
                .labels
                .into_iter()
                .filter(|label| needed(label))
                .collect(),
        }
    }

    /// [batch…, left…, shared…] times [batch…, shared…, right…].
    fn contract(
        &mut self,
        left: Operand,
        right: Operand,
        output: &[char],
        sizes: &Sizes,
    ) -> Option<Operand> {
        let both = |label: &&char| right.labels.contains(label) && left.labels.contains(label);
        let batch: Vec<char> = left
            .labels
            .iter()
            .filter(both)
            .filter(|l| output.contains(l))
            .copied()
            .collect();
        let shared: Vec<char> = left
            .labels
            .iter()
            .filter(both)
            .filter(|l| !output.contains(l))
            .copied()
            .collect();
        let rows: Vec<char> = left
            .labels
            .iter()
            .filter(|l| !right.labels.contains(l))
            .copied()
            .collect();
        let columns: Vec<char> = right
            .labels
            .iter()
            .filter(|l| !left.labels.contains(l))
            .copied()
            .collect();
        let a = self.group(&left, &batch, &rows, &shared, sizes)?;
        let b = self.group(&right, &batch, &shared, &columns, sizes)?;
        let product = self.op("MatMul", &[&a, &b]);
        let labels: Vec<char> = batch.iter().chain(&rows).chain(&columns).copied().collect();
        if rows.len() == 1 && columns.len() == 1 {
            return Some(Operand {
                value: product,
                labels,
            });
        }
        let shape: Vec<Part> = labels.iter().map(|&label| part(label, sizes)).collect();
        let value = self.reshape_to(&product, &shape);
        Some(Operand { value, labels })
    }

    /// The operand as a stack of matrices with one axis for each of two groups of labels; `None` when sizes that have
    /// to be multiplied are not known.
    fn group(
        &mut self,
        operand: &Operand,
        batch: &[char],
        first: &[char],
        second: &[char],
        sizes: &Sizes,
    ) -> Option<String> {
        let order: Vec<char> = batch.iter().chain(first).chain(second).copied().collect();
        let ordered = self.order(operand, &order);
        if first.len() == 1 && second.len() == 1 {
            return Some(ordered);
        }
        let mut shape: Vec<Part> = batch.iter().map(|&label| part(label, sizes)).collect();
        let mut open = false;
        for labels in [first, second] {
            let known: Option<i64> = labels
                .iter()
                .map(|&label| match part(label, sizes) {
                    Part::Times(of, axis, _) => self.known_dim(of, axis),
                    Part::Fixed(size) => Some(size),
                })
                .product();
            shape.push(match (labels, known) {
                ([label], _) => part(*label, sizes),
                (_, Some(size)) => Part::Fixed(size),
                _ if !open => {
                    open = true;
                    Part::Fixed(-1)
                }
                _ => return None,
            });
        }
        Some(self.reshape_to(&ordered, &shape))
    }

    /// The operand with its axes in the order of `labels`.
    fn order(&mut self, operand: &Operand, labels: &[char]) -> String {
        if operand.labels == labels {
            return operand.value.clone();
        }
        let order: Vec<i64> = labels
            .iter()
            .filter_map(|label| operand.labels.iter().position(|l| l == label))
            .map(|axis| axis as i64)
            .collect();
        self.transpose(&operand.value, &order)
    }
}

fn part<'a>(label: char, sizes: &Sizes<'a>) -> Part<'a> {
    let &(_, value, axis) = sizes
        .iter()
        .find(|(l, _, _)| *l == label)
        .expect("a label of an operand");
    Part::Times(value, axis, 1)
}

/// The operands and the output's labels.
fn parse(equation: &str, inputs: &[String]) -> Result<(Vec<Operand>, Vec<char>), &'static str> {
    if equation.contains('.') {
        return Err("has an ellipsis, for which there is no rewrite");
    }
    let (terms, output) = match equation.split_once("->") {
        Some((terms, output)) => (terms, Some(output)),
        None => (equation, None),
    };
    let terms: Vec<Vec<char>> = terms
        .split(',')
        .map(|term| term.chars().collect())
        .collect();
    if terms.len() != inputs.len() || terms.len() > 2 {
        return Err("has more than two operands");
    }
    let repeated = |labels: &[char]| {
        labels
            .iter()
            .enumerate()
            .any(|(i, l)| labels[..i].contains(l))
    };
    if terms.iter().any(|term| repeated(term)) {
        return Err("takes a diagonal, for which there is no rewrite");
    }
    let output: Vec<char> = match output {
        Some(output) => output.chars().collect(),
        None => {
            // What appears once, in alphabetical order.
            let mut once: Vec<char> = terms
                .iter()
                .flatten()
                .filter(|label| terms.iter().flatten().filter(|l| l == label).count() == 1)
                .copied()
                .collect();
            once.sort_unstable();
            once
        }
    };
    if repeated(&output)
        || !output
            .iter()
            .all(|label| terms.iter().flatten().any(|l| l == label))
    {
        return Err("has an output that its operands do not give");
    }
    let operands = terms
        .into_iter()
        .zip(inputs)
        .map(|(labels, value)| Operand {
            value: value.clone(),
            labels,
        })
        .collect();
    Ok((operands, output))
}
