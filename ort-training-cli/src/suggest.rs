//! Near matches for a name that does not exist.

/// `; did you mean 'a' or 'b'?`, or what there is when nothing is close.
pub fn suggest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let limit = (wanted.chars().count() / 3).max(2);
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|name| {
            let (a, b) = (wanted.to_lowercase(), name.to_lowercase());
            (strsim::levenshtein(&a, &b), *name)
        })
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort();
    near.truncate(3);
    if !near.is_empty() {
        let names: Vec<String> = near.iter().map(|(_, name)| format!("'{name}'")).collect();
        return format!("; did you mean {}?", names.join(" or "));
    }
    if known.is_empty() {
        return "; there are none".to_owned();
    }
    const SHOWN: usize = 10;
    let more = if known.len() > SHOWN { ", …" } else { "" };
    let names = known[..known.len().min(SHOWN)].join(", ");
    format!("; there are: {names}{more}")
}

/// Whether `pattern` matches the whole of `name`: `*` stands for any characters, `?` for one.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else {
        return name.is_empty();
    };
    let rest = &pattern[first.len_utf8()..];
    if first == '*' {
        return name
            .char_indices()
            .map(|(at, _)| at)
            .chain([name.len()])
            .any(|at| matches(rest, &name[at..]));
    }
    name.chars()
        .next()
        .is_some_and(|c| (first == '?' || first == c) && matches(rest, &name[c.len_utf8()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first() {
        assert_eq!(
            suggest("lables", ["labels", "images"]),
            "; did you mean 'labels'?"
        );
        assert_eq!(suggest("zzzzzz", ["a", "b"]), "; there are: a, b");
        assert_eq!(suggest("a", []), "; there are none");
    }

    #[test]
    fn patterns() {
        assert!(matches("pixel*", "pixel12") && matches("*", "") && matches("p?x*2", "pixel12"));
        assert!(!matches("pixel", "pixel12") && !matches("p?", "p"));
    }
}
