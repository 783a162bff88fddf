//! Names: fresh ones for what is added to a graph, and patterns and near matches for those a caller gives.

use std::collections::HashSet;

use super::onnx::GraphProto;

/// Makes names that a model does not use, in the form and order of ONNX Runtime's Python generator
/// (`onnx::<token>::<number>`), so that artifacts of either have the same outputs by name.
pub(crate) struct Names {
    used: HashSet<String>,
    counter: u64,
}

impl Names {
    pub(crate) fn of(graph: &GraphProto) -> Self {
        let mut used = HashSet::new();
        collect(graph, &mut used);
        Self { used, counter: 0 }
    }

    pub(crate) fn fresh(&mut self, token: &str) -> String {
        loop {
            self.counter += 1;
            let name = format!("onnx::{token}::{}", self.counter);
            if self.used.insert(name.clone()) {
                return name;
            }
        }
    }

    /// A name that starts with `base`, for things that have no place in the Python generator's numbering.
    pub(crate) fn derived(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut n = 0u64;
        while !self.used.insert(name.clone()) {
            n += 1;
            name = format!("{base}_{n}");
        }
        name
    }

    /// Lets the next number be `number`.
    pub(crate) fn continue_at(&mut self, number: u64) {
        self.counter = self.counter.max(number.saturating_sub(1));
    }

    pub(crate) fn is_used(&self, name: &str) -> bool {
        self.used.contains(name)
    }

    pub(crate) fn reserve(&mut self, name: &str) {
        self.used.insert(name.to_owned());
    }
}

fn collect(graph: &GraphProto, used: &mut HashSet<String>) {
    for info in graph
        .input
        .iter()
        .chain(&graph.output)
        .chain(&graph.value_info)
    {
        used.insert(info.label().to_owned());
    }
    for tensor in &graph.initializer {
        used.insert(tensor.label().to_owned());
    }
    for tensor in graph
        .sparse_initializer
        .iter()
        .filter_map(|t| t.values.as_ref())
    {
        used.insert(tensor.label().to_owned());
    }
    for node in &graph.node {
        used.extend(node.name.clone());
        used.extend(node.input.iter().chain(&node.output).cloned());
        for attribute in &node.attribute {
            attribute
                .g
                .iter()
                .chain(&attribute.graphs)
                .for_each(|g| collect(g, used));
        }
    }
}

/// Whether `pattern` matches the whole of `name`: `*` stands for any characters, `?` for one.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, from)) = star {
            // Let the last star take one character more.
            star = Some((at, from + 1));
            p = at + 1;
            n = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// ", did you mean 'a' or 'b'?" for names close to `wanted`; what there is when none is close.
pub(crate) fn suggest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let limit = (wanted.chars().count() / 3).max(2);
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|name| {
            let contained = !wanted.is_empty() && (name.contains(wanted) || wanted.contains(name));
            (
                if contained {
                    1
                } else {
                    strsim::levenshtein(wanted, name)
                },
                *name,
            )
        })
        .filter(|(d, name)| *d <= limit && !name.is_empty())
        .collect();
    near.sort();
    near.truncate(3);
    let quoted = |names: &[&str]| {
        names
            .iter()
            .map(|n| format!("'{n}'"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !near.is_empty() {
        let names: Vec<&str> = near.into_iter().map(|(_, name)| name).collect();
        return format!("; did you mean {}?", quoted(&names));
    }
    if known.is_empty() {
        return "; there are none".to_owned();
    }
    let more = if known.len() > 8 { ", …" } else { "" };
    format!(
        "; there are: {}{more}",
        quoted(&known[..known.len().min(8)])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(matches("fc*.weight", "fc1.weight"));
        assert!(matches("*", ""));
        assert!(matches("a?c*", "abcdef"));
        assert!(matches("*bias*", "fc.bias"));
        assert!(!matches("fc*.weight", "fc1.bias"));
        assert!(!matches("a", "ab"));
        assert!(!matches("a?", "a"));
    }

    #[test]
    fn near_matches() {
        let known = ["fc1.weight", "fc1.bias", "fc2.weight"];
        assert_eq!(
            suggest("fc1.wieght", known),
            "; did you mean 'fc1.weight', 'fc2.weight'?"
        );
        assert!(suggest("zzz", known).starts_with("; there are: 'fc1.weight'"));
        assert_eq!(suggest("x", []), "; there are none");
        assert_eq!(strsim::levenshtein("kitten", "sitting"), 3);
    }

    #[test]
    fn fresh_names_avoid_what_the_graph_uses() {
        let graph = GraphProto {
            input: vec![super::super::onnx::tensor_info("onnx::loss::1", 1, None)],
            ..GraphProto::default()
        };
        let mut names = Names::of(&graph);
        assert_eq!(names.fresh("loss"), "onnx::loss::2");
        names.continue_at(23);
        assert_eq!(names.fresh("x"), "onnx::x::23");
        assert_eq!(names.derived("w"), "w");
        assert_eq!(names.derived("w"), "w_1");
    }
}
