//! Copies of ONNX Runtime's registration files that register only what is needed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{ML_DOMAIN, Operators, model};
use crate::error::{Error, Result};

/// Where ONNX Runtime's CMake files look for the copies, below the build folder.
const FOLDER: &str = "op_reduction.generated";

/// Where our CMake files look for the copies of headers that register schemas.
const SCHEMAS: &str = "op_reduction.generated/onnx_schemas";

const TYPE_CONTROL: &str = "onnxruntime/core/providers/op_kernel_type_control_overrides.inc";

const ENTRY: &str = "BuildKernelCreateInfo<ONNX_OPERATOR_";

/// The files with the tables of a provider's kernels: ONNX's operators, Microsoft's, those of training.
pub(super) fn tables(provider: &str) -> [String; 3] {
    [
        format!("onnxruntime/core/providers/{provider}/{provider}_execution_provider.cc"),
        format!("onnxruntime/contrib_ops/{provider}/{provider}_contrib_kernels.cc"),
        format!("orttraining/orttraining/training_ops/{provider}/{provider}_training_kernels.cc"),
    ]
}

/// Writes the copies for a build. A copy that is there with the same text is left alone, for ninja's sake.
pub(crate) fn write_reduced_sources(
    operators: &Operators,
    onnxruntime: &Path,
    build_dir: &Path,
    cuda: bool,
) -> Result<()> {
    for provider in ["cpu", "cuda"]
        .into_iter()
        .filter(|name| cuda || *name == "cpu")
    {
        for path in tables(provider) {
            copy(onnxruntime, build_dir, &path, &|text| {
                reduce(operators, text)
            })?;
        }
    }
    copy(onnxruntime, build_dir, TYPE_CONTROL, &|text| {
        restrict_types(&operators.types, text)
    })
}

/// Writes copies of the headers that register schemas, ONNX's and Microsoft's, with those of the operators only. A fifth of a
/// small library is the schemas of others; the artifact maker needs them all, as it is given any model.
pub(crate) fn write_reduced_schemas(
    operators: &Operators,
    onnx: &Path,
    onnxruntime: &Path,
    build_dir: &Path,
) -> Result<()> {
    let onnxruntime = onnxruntime.join("onnxruntime");
    for (root, header, domain, set) in [
        (onnx, "onnx/defs/operator_sets.h", "ai.onnx", "Onnx"),
        (
            &onnxruntime,
            "core/graph/contrib_ops/ms_opset.h",
            "com.microsoft",
            "Microsoft",
        ),
    ] {
        let names = operators.names(domain);
        let text = read(&root.join(header), &|text| {
            reduce_schemas(&names, set, text)
        })?;
        write(&text, &build_dir.join(SCHEMAS).join(header))?;
    }
    Ok(())
}

/// Leaves out the calls `fn(GetOpSchema<ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(SET, VERSION, NAME)>());` of other operators.
fn reduce_schemas(names: &BTreeSet<&str>, set: &str, text: &str) -> Option<String> {
    let call = format!("fn(GetOpSchema<ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME({set},");
    let mut found = false;
    let mut reduced = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if let Some(arguments) = line.trim_start().strip_prefix(&call) {
            found = true;
            let name = arguments.split(')').next()?.rsplit(',').next()?.trim();
            if !names.contains(name) {
                continue;
            }
        }
        reduced.push_str(line);
    }
    found.then_some(reduced)
}

fn copy(
    onnxruntime: &Path,
    build_dir: &Path,
    path: &str,
    change: &dyn Fn(&str) -> Option<String>,
) -> Result<()> {
    let text = read(&onnxruntime.join(path), change)?;
    write(&text, &build_dir.join(FOLDER).join(path))
}

fn write(text: &str, to: &Path) -> Result<()> {
    if fs::read_to_string(to).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let parent = to.parent().expect("below a folder");
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(to, text))
        .map_err(Error::io(format!("writing {}", to.display())))
}

/// The names of the operators of which a table registers kernels that are needed.
pub(super) fn needed_names(operators: &Operators, table: &Path) -> Result<Vec<String>> {
    read(table, &|text| {
        let mut names = Vec::new();
        for entry in entries(text)? {
            if is_needed(operators, entry.arguments)? {
                let name = entry.arguments.rsplit(',').next()?.trim();
                names.push(name.to_owned());
            }
        }
        Some(names)
    })
}

/// Reads a file of ONNX Runtime's and makes something of it.
fn read<T>(file: &Path, make: &dyn Fn(&str) -> Option<T>) -> Result<T> {
    let text =
        fs::read_to_string(file).map_err(Error::io(format!("reading {}", file.display())))?;
    make(&text).ok_or_else(|| Error::Model {
        file: file.to_owned(),
        problem:
            "expected kernel registrations as in ONNX Runtime 1.21, found none that can be read"
                .into(),
    })
}

/// An entry of a table.
struct Entry<'a> {
    /// Where it lies in the text, with its comma.
    range: std::ops::Range<usize>,
    /// What stands between the parentheses.
    arguments: &'a str,
}

/// The entries of a table; `None` when there are none, or one that is not closed.
fn entries(text: &str) -> Option<Vec<Entry<'_>>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(ENTRY) {
        let start = from + at;
        let open = start + text[start..].find('(')?;
        let close = open + text[open..].find(")>")?;
        from = close + 2 + usize::from(text[close + 2..].starts_with(','));
        found.push(Entry {
            range: start..from,
            arguments: &text[open + 1..close],
        });
    }
    (!found.is_empty()).then_some(found)
}

/// Leaves out the table entries `BuildKernelCreateInfo<ONNX_OPERATOR_..._CLASS_NAME(...)>,` of what is not needed.
fn reduce(operators: &Operators, text: &str) -> Option<String> {
    let mut reduced = String::with_capacity(text.len());
    let mut kept = 0;
    for entry in entries(text)? {
        if !is_needed(operators, entry.arguments)? {
            reduced.push_str(&text[kept..entry.range.start]);
            kept = entry.range.end;
        }
    }
    reduced.push_str(&text[kept..]);
    Some(reduced)
}

/// `provider, domain, first version[, last version][, type...], name`.
fn is_needed(operators: &Operators, arguments: &str) -> Option<bool> {
    let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
    let [_, domain, ref middle @ .., name] = arguments[..] else {
        return None;
    };
    let domain = match domain {
        "kOnnxDomain" => "ai.onnx",
        "kMLDomain" => ML_DOMAIN,
        "kMSDomain" => "com.microsoft",
        "kMSNchwcDomain" => "com.microsoft.nchwc",
        // The same operators as in ONNX's domain, at their versions, for tensors laid out otherwise.
        "kMSInternalNHWCDomain" => "ai.onnx",
        // What is not known is kept.
        _ => return Some(true),
    };
    let versions: Vec<u64> = middle.iter().map_while(|text| text.parse().ok()).collect();
    let first = *versions.first()?;
    let types = middle[versions.len()..].iter().copied();
    Some(
        operators.needs(domain, first, versions.get(1).copied(), name)
            && types
                .into_iter()
                .all(|name| is_type_needed(&operators.types, name)),
    )
}

/// Types in registrations are joined by underscores: `float_int64_t`.
fn is_type_needed(types: &BTreeSet<String>, joined: &str) -> bool {
    if types.is_empty() {
        return true;
    }
    let mut names: Vec<String> = Vec::new();
    for part in joined.split('_') {
        match names.last_mut() {
            Some(last) if part == "t" => last.push_str("_t"),
            _ => names.push(part.to_owned()),
        }
    }
    names.iter().all(|name| {
        let name = match name.as_str() {
            "string" => "std::string",
            name => name,
        };
        !model::is_type(name) || types.contains(name)
    })
}

/// Kernels that hold code for many types compile it for those that are named here.
fn restrict_types(types: &BTreeSet<String>, text: &str) -> Option<String> {
    const BEGIN: &str = "// @@insertion_point_begin(allowed_types)@@\n";
    let at = text.find(BEGIN)? + BEGIN.len();
    if types.is_empty() {
        return Some(text.to_owned());
    }
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    Some(format!(
        "{}ORT_SPECIFY_OP_KERNEL_GLOBAL_ALLOWED_TYPES({});\n{}",
        &text[..at],
        types.join(", "),
        &text[at..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  static const BuildKernelCreateInfoFn function_table[] = {
      BuildKernelCreateInfo<void>,
      BuildKernelCreateInfo<ONNX_OPERATOR_VERSIONED_KERNEL_CLASS_NAME(kCpuExecutionProvider, kOnnxDomain, 6, 10, Clip)>,
      BuildKernelCreateInfo<ONNX_OPERATOR_KERNEL_CLASS_NAME(kCpuExecutionProvider, kOnnxDomain, 11, Clip)>,
      BuildKernelCreateInfo<ONNX_OPERATOR_TYPED_KERNEL_CLASS_NAME(kCpuExecutionProvider, kMSDomain, 1, float_int64_t,
                                                                  Loss)>,
      BuildKernelCreateInfo<ONNX_OPERATOR_TYPED_KERNEL_CLASS_NAME(
          kCpuExecutionProvider, kMSDomain, 1, double_int64_t, Loss)>,
      BuildKernelCreateInfo<ONNX_OPERATOR_KERNEL_CLASS_NAME(kCpuExecutionProvider, kOwnDomain, 1, Own)>};
";

    fn entries_of(text: &str) -> Vec<String> {
        text.split(ENTRY)
            .skip(1)
            .map(|entry| {
                let open = entry.find('(').unwrap();
                let arguments = &entry[open + 1..entry.find(')').unwrap()];
                arguments
                    .split(',')
                    .map(str::trim)
                    .skip(1)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    #[test]
    fn entries_are_kept_by_domain_version_name_and_type() {
        let operators = Operators::parse(
            "ai.onnx;12;Clip\ncom.microsoft;1;Loss\n!globally_allowed_types;float,int64_t",
        )
        .unwrap();
        let reduced = reduce(&operators, TABLE).unwrap();
        assert_eq!(
            entries_of(&reduced),
            [
                "kOnnxDomain 11 Clip",
                "kMSDomain 1 float_int64_t Loss",
                "kOwnDomain 1 Own"
            ]
        );
        assert!(reduced.contains("BuildKernelCreateInfo<void>,") && reduced.ends_with("};\n"));
        let untyped = Operators::parse("ai.onnx;10;Clip\ncom.microsoft;1;Loss").unwrap();
        assert_eq!(
            entries_of(&reduce(&untyped, TABLE).unwrap()),
            [
                "kOnnxDomain 6 10 Clip",
                "kMSDomain 1 float_int64_t Loss",
                "kMSDomain 1 double_int64_t Loss",
                "kOwnDomain 1 Own"
            ]
        );
        assert_eq!(reduce(&operators, "nothing of the kind"), None);
    }

    #[test]
    fn schemas_of_other_operators_are_not_registered() {
        let text = "class ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(Onnx, 1, Abs);
    fn(GetOpSchema<ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(Onnx, 1, Abs)>());
    fn(GetOpSchema<ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(Onnx, 13, Add)>());
    fn(GetOpSchema<ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(OnnxML, 1, Normalizer)>());
";
        let reduced = reduce_schemas(&BTreeSet::from(["Add"]), "Onnx", text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            reduced.lines().collect::<Vec<_>>(),
            [lines[0], lines[2], lines[3]]
        );
        assert_eq!(
            reduce_schemas(&BTreeSet::from(["Add"]), "Onnx", "another header"),
            None
        );
    }

    #[test]
    fn types_go_to_the_insertion_point() {
        let text = "a\n// @@insertion_point_begin(allowed_types)@@\n// @@insertion_point_end(allowed_types)@@\n";
        let types = BTreeSet::from(["float".to_owned(), "bool".to_owned()]);
        assert_eq!(
            restrict_types(&types, text).unwrap(),
            "a\n// @@insertion_point_begin(allowed_types)@@\n\
             ORT_SPECIFY_OP_KERNEL_GLOBAL_ALLOWED_TYPES(bool, float);\n// @@insertion_point_end(allowed_types)@@\n"
        );
        assert_eq!(restrict_types(&types, "a"), None);
    }
}
