//! What a scenario saw, as a list of named records.

use std::fmt;

/// The value of a record.
#[derive(Clone)]
pub enum Payload {
    /// Compared by their bits, so that NaN equals itself and -0 isn't 0.
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Text(String),
    /// What ONNX Runtime answered: code 0 and no message when the call went well.
    Answer {
        code: u32,
        message: String,
    },
    /// The safe layer refused before ONNX Runtime was asked, and this is what it said.
    Refused(String),
}

/// One thing seen.
#[derive(Clone)]
pub struct Record {
    pub name: String,
    pub payload: Payload,
}

/// All that was seen, in order.
#[derive(Clone, Default)]
pub struct Log {
    pub records: Vec<Record>,
}

impl Log {
    fn push(&mut self, name: &str, payload: Payload) {
        self.records.push(Record {
            name: name.to_owned(),
            payload,
        });
    }

    pub fn floats(&mut self, name: &str, values: &[f32]) {
        self.push(name, Payload::Floats(values.to_vec()));
    }

    pub fn float(&mut self, name: &str, value: f32) {
        self.floats(name, &[value]);
    }

    pub fn ints(&mut self, name: &str, values: &[i64]) {
        self.push(name, Payload::Ints(values.to_vec()));
    }

    pub fn int(&mut self, name: &str, value: i64) {
        self.ints(name, &[value]);
    }

    pub fn text(&mut self, name: &str, text: &str) {
        self.push(name, Payload::Text(text.to_owned()));
    }

    /// A call that ONNX Runtime itself is expected to answer. The safe layer refusing by itself is a difference.
    pub fn answer<T>(&mut self, name: &str, result: Result<T, ort_training::Error>) {
        let payload = match result {
            Ok(_) => Payload::Answer {
                code: 0,
                message: String::new(),
            },
            Err(error) if error.is_from_onnx_runtime() => Payload::Answer {
                code: error.code().as_raw(),
                message: error.message().to_owned(),
            },
            Err(error) => Payload::Refused(error.to_string()),
        };
        self.push(name, payload);
    }

    /// A call that the safe layer is expected to refuse before ONNX Runtime sees it, with a message that has all of
    /// `words` in it.
    pub fn refused<T>(
        &mut self,
        name: &str,
        result: Result<T, ort_training::Error>,
        words: &[&str],
    ) {
        let error = match result {
            Ok(_) => panic!("{name}: the safe layer went along"),
            Err(error) => error,
        };
        let text = error.to_string();
        assert!(
            !error.is_from_onnx_runtime(),
            "{name}: ONNX Runtime was asked, and said: {text}"
        );
        for word in words {
            assert!(
                text.contains(word),
                "{name}: {word:?} isn't in the message: {text}"
            );
        }
        self.push(name, Payload::Refused(text));
    }

    /// Something that isn't there: C has an error to say so, Rust has no value.
    pub fn absent(&mut self, name: &str) {
        self.push(name, Payload::Refused("None".to_owned()));
    }

    /// The records of this name.
    pub fn named<'log>(&'log self, name: &'log str) -> impl Iterator<Item = &'log Payload> {
        self.records
            .iter()
            .filter(move |record| record.name == name)
            .map(|record| &record.payload)
    }

    /// All numbers of the records whose name starts so, one after the other, as bits.
    pub fn bits(&self, prefix: &str) -> Vec<u32> {
        let mut bits = Vec::new();
        for record in self
            .records
            .iter()
            .filter(|record| record.name.starts_with(prefix))
        {
            if let Payload::Floats(values) = &record.payload {
                bits.extend(values.iter().map(|value| value.to_bits()));
            }
        }
        assert!(
            !bits.is_empty(),
            "no numbers were recorded under {prefix:?}"
        );
        bits
    }

    /// Reads what the C side wrote: for each record a tag, the length and bytes of the name, and the same of the value.
    pub(crate) fn parse(mut bytes: &[u8]) -> Self {
        fn take<'bytes>(bytes: &mut &'bytes [u8], count: usize) -> &'bytes [u8] {
            let (head, tail) = bytes.split_at(count);
            *bytes = tail;
            head
        }
        fn length(bytes: &mut &[u8]) -> usize {
            u64::from_ne_bytes(take(bytes, 8).try_into().unwrap()) as usize
        }
        fn text(bytes: &[u8]) -> String {
            String::from_utf8(bytes.to_vec()).expect("text from C is UTF-8")
        }
        let mut log = Self::default();
        while !bytes.is_empty() {
            let tag = take(&mut bytes, 1)[0];
            let name_length = length(&mut bytes);
            let name = text(take(&mut bytes, name_length));
            let value_length = length(&mut bytes);
            let value = take(&mut bytes, value_length);
            let payload = match tag {
                b'f' => Payload::Floats(
                    value
                        .chunks_exact(4)
                        .map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()))
                        .collect(),
                ),
                b'i' => Payload::Ints(
                    value
                        .chunks_exact(8)
                        .map(|bytes| i64::from_ne_bytes(bytes.try_into().unwrap()))
                        .collect(),
                ),
                b's' => Payload::Text(text(value)),
                b'e' => Payload::Answer {
                    code: u32::from_ne_bytes(value[..4].try_into().unwrap()),
                    message: text(&value[4..]),
                },
                other => panic!("a record from C has the tag {other}"),
            };
            log.push(&name, payload);
        }
        log
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Floats(values) => write!(
                f,
                "{} floats {:?}",
                values.len(),
                &values[..values.len().min(6)]
            ),
            Self::Ints(values) => write!(
                f,
                "{} ints {:?}",
                values.len(),
                &values[..values.len().min(6)]
            ),
            Self::Text(text) => write!(f, "text {text:?}"),
            Self::Answer { code: 0, .. } => write!(f, "went well"),
            Self::Answer { code, message } => write!(f, "ONNX Runtime's error {code} {message:?}"),
            Self::Refused(message) => write!(f, "refused by the safe layer: {message:?}"),
        }
    }
}

/// How two values differ, or None.
fn difference(c: &Payload, rust: &Payload) -> Option<String> {
    fn first<T: PartialEq>(c: &[T], rust: &[T]) -> Option<usize> {
        (0..c.len().max(rust.len())).find(|&at| c.get(at) != rust.get(at))
    }
    let bits = |values: &[f32]| {
        values
            .iter()
            .map(|value| value.to_bits())
            .collect::<Vec<_>>()
    };
    match (c, rust) {
        (Payload::Floats(c), Payload::Floats(rust)) => first(&bits(c), &bits(rust)).map(|at| {
            format!(
                "float {at}: C {:?} ({} in all), Rust {:?} ({} in all)",
                c.get(at),
                c.len(),
                rust.get(at),
                rust.len()
            )
        }),
        (Payload::Ints(c), Payload::Ints(rust)) => {
            first(c, rust).map(|at| format!("int {at}: C {:?}, Rust {:?}", c.get(at), rust.get(at)))
        }
        (Payload::Text(c), Payload::Text(rust)) if c == rust => None,
        (
            Payload::Answer { code, message },
            Payload::Answer {
                code: rust_code,
                message: rust_message,
            },
        ) if code == rust_code && message == rust_message => None,
        // Both refuse, each in its own words; the scenario said that it should be so.
        (Payload::Answer { code, .. }, Payload::Refused(_)) if *code != 0 => None,
        _ => Some(format!("C: {c}\n    Rust: {rust}")),
    }
}

/// Panics with every difference between the two sides, or when there was nothing to compare.
#[track_caller]
pub fn assert_same(c: &Log, rust: &Log) {
    assert!(!c.records.is_empty(), "the C side recorded nothing");
    let mut differences = Vec::new();
    for at in 0..c.records.len().max(rust.records.len()) {
        match (c.records.get(at), rust.records.get(at)) {
            (Some(c), Some(rust)) if c.name != rust.name => {
                differences.push(format!(
                    "record {at}: C has {:?} ({}), Rust {:?} ({})",
                    c.name, c.payload, rust.name, rust.payload
                ));
                // The sides are out of step; what follows would only repeat it.
                break;
            }
            (Some(c), Some(rust)) => {
                if let Some(found) = difference(&c.payload, &rust.payload) {
                    differences.push(format!("record {at}, {:?}:\n    {found}", c.name));
                }
            }
            (Some(c), None) => differences.push(format!(
                "record {at}, {:?}: only in C: {}",
                c.name, c.payload
            )),
            (None, Some(rust)) => differences.push(format!(
                "record {at}, {:?}: only in Rust: {}",
                rust.name, rust.payload
            )),
            (None, None) => unreachable!(),
        }
    }
    assert!(
        differences.is_empty(),
        "C and Rust differ:\n{}",
        differences.join("\n")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(write: impl FnOnce(&mut Log)) -> Log {
        let mut log = Log::default();
        write(&mut log);
        log
    }

    #[test]
    fn equal_logs_pass() {
        let write = |log: &mut Log| {
            log.floats("f", &[f32::NAN, 1.0]);
            log.text("t", "x");
        };
        assert_same(&log(write), &log(write));
    }

    #[test]
    #[should_panic(expected = "float 1")]
    fn one_different_bit_is_found() {
        let next = f32::from_bits(1.0f32.to_bits() + 1);
        assert_same(
            &log(|log| log.floats("f", &[0.0, 1.0])),
            &log(|log| log.floats("f", &[0.0, next])),
        );
    }

    #[test]
    #[should_panic(expected = "only in C")]
    fn a_missing_record_is_found() {
        assert_same(
            &log(|log| {
                log.int("a", 1);
                log.int("b", 2)
            }),
            &log(|log| log.int("a", 1)),
        );
    }

    #[test]
    #[should_panic(expected = "C has \"a\"")]
    fn another_name_is_found() {
        assert_same(&log(|log| log.int("a", 1)), &log(|log| log.int("b", 1)));
    }

    #[test]
    #[should_panic(expected = "nothing")]
    fn two_empty_logs_are_no_agreement() {
        assert_same(&Log::default(), &Log::default());
    }
}
