//! How long the parts of a build took, from ninja's own log: it counts what every run compiled, also those that were cut
//! off, where a clock around one run would say that the last five minutes were all.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

/// Seconds by part, added up over all files; with two compilers at once the clock shows half of it. What a compiler cache
/// answered counts as the moment that it took.
pub(crate) fn seconds(build_dir: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(build_dir.join(".ninja_log")).unwrap_or_default();
    // start, end (milliseconds of the run), mtime, output, hash of the command; a later line of an output replaces it.
    let mut last: HashMap<&str, (u64, u64, &str)> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [start, end, _, output, hash] = fields[..] else {
            continue;
        };
        if let (Ok(start), Ok(end)) = (start.parse(), end.parse()) {
            last.insert(output, (start, end, hash));
        }
    }
    // A command with several outputs has a line for each.
    let mut commands: HashMap<(u64, u64, &str), &str> = HashMap::new();
    for (output, command) in last {
        let known = commands.entry(command).or_insert(output);
        *known = (*known).min(output);
    }
    let mut seconds = BTreeMap::new();
    for ((start, end, _), output) in commands {
        *seconds.entry(part(output)).or_default() += end.saturating_sub(start) as f64 / 1000.0;
    }
    seconds
}

/// The name of the part that a file belongs to: of ONNX Runtime's the target, the others together.
fn part(output: &str) -> String {
    let is_object = output.ends_with(".o");
    let target = output
        .split("CMakeFiles/")
        .nth(1)
        .and_then(|rest| rest.split_once(".dir/"))
        .map(|(target, _)| target);
    match target {
        _ if !is_object => "linking_and_other".to_owned(),
        _ if output.contains("_deps/") => "dependencies".to_owned(),
        Some(target) if output.ends_with(".cu.o") => format!("{target}_kernels"),
        Some(target) => target.to_owned(),
        None => "linking_and_other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_added_by_part_and_each_command_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join(".ninja_log"),
            "# ninja log v7\n\
             0\t4000\t1\t_deps/absl-build/CMakeFiles/absl_base.dir/base.cc.o\ta\n\
             0\t2000\t1\tCMakeFiles/onnxruntime_graph.dir/Unity/unity_0_cxx.cxx.o\tb\n\
             # a run later: compiled again, and its clock begins anew\n\
             500\t3500\t2\tCMakeFiles/onnxruntime_graph.dir/Unity/unity_0_cxx.cxx.o\tb\n\
             3500\t4500\t2\tCMakeFiles/onnxruntime_graph.dir/graph.cc.o\tc\n\
             0\t60500\t2\tCMakeFiles/onnxruntime_providers_cuda.dir/s/core/add.cu.o\td\n\
             0\t500\t2\tlibonnxruntime.so.1\te\n\
             0\t500\t2\tlibonnxruntime.so\te\n\
             cut off\n",
        )
        .unwrap();
        let seconds = seconds(dir.path());
        let list: Vec<_> = seconds
            .iter()
            .map(|(part, time)| format!("{part} {time}"))
            .collect();
        assert_eq!(
            list,
            [
                "dependencies 4",
                "linking_and_other 0.5",
                "onnxruntime_graph 4",
                "onnxruntime_providers_cuda_kernels 60.5"
            ]
        );
    }

    #[test]
    fn without_a_log_there_are_no_times() {
        assert!(seconds(Path::new("/no/such/folder")).is_empty());
    }
}
