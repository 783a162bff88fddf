//! How much of the compiling is done, by weight: a batch of eight kernels takes fifty times as long as a file of
//! abseil, and an estimate from counts alone would be wrong by a factor of three for the first half.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The objects that a build folder still has to make.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    left: HashMap<String, f64>,
    total: f64,
    done: f64,
}

impl Workload {
    /// Reads `build.ninja`. Objects that exist count as done (ninja may think otherwise of a few).
    pub(crate) fn read(build_dir: &Path) -> Self {
        let text = fs::read_to_string(build_dir.join("build.ninja")).unwrap_or_default();
        let mut workload = Workload::default();
        for object in objects(&text) {
            if !build_dir.join(object).exists() {
                workload.left.insert(object.to_owned(), weight(object));
            }
        }
        workload.total = workload.left.values().sum();
        workload
    }

    /// Takes note of a step that ninja has done, as it describes it: `Building CXX object PATH`.
    pub(crate) fn step(&mut self, step: &str) {
        let object = step.rsplit(' ').next().unwrap_or(step);
        if let Some(weight) = self.left.remove(object) {
            self.done += weight;
        }
    }

    /// The part that is done, from 0 to 1.
    pub(crate) fn fraction(&self) -> f64 {
        if self.total > 0.0 {
            self.done / self.total
        } else {
            0.0
        }
    }
}

/// The object files of the edges that call a compiler.
fn objects(build_ninja: &str) -> impl Iterator<Item = &str> {
    build_ninja.lines().filter_map(|line| {
        let (object, rule) = line.strip_prefix("build ")?.split_once(": ")?;
        let compiles = [
            "C_COMPILER__",
            "CXX_COMPILER__",
            "ASM_COMPILER__",
            "CUDA_COMPILER__",
        ]
        .iter()
        .any(|compiler| rule.starts_with(compiler));
        compiles.then(|| object.split(" |").next().unwrap_or(object))
    })
}

/// Seconds of a core, roughly, as measured for ONNX Runtime 1.21 with gcc 12.
fn weight(object: &str) -> f64 {
    let own = object.starts_with("CMakeFiles/onnxruntime_") || object.contains("/onnx.dir/");
    match (own, object.contains("/Unity/")) {
        (true, true) => 38.0,
        (false, true) => 8.0,
        (true, false) if object.contains("onnxruntime_mlas.dir") => 3.0,
        (true, false) if object.ends_with(".cu.o") => 30.0,
        (true, false) => 14.0,
        (false, false) => 1.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_weigh_more_than_small_files_and_existing_objects_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("build.ninja"),
            "build CMakeFiles/onnxruntime_graph.dir/Unity/unity_0_cxx.cxx.o: CXX_COMPILER__x /s/u.cxx || y\n\
             build absl/base.cc.o: CXX_COMPILER__absl_unscanned_Release /s/base.cc\n\
             build absl/done.cc.o: CXX_COMPILER__absl_unscanned_Release /s/done.cc\n\
             build libx.a: CXX_STATIC_LIBRARY_LINKER__x a.o\n",
        )
        .unwrap();
        fs::create_dir(dir.path().join("absl")).unwrap();
        fs::write(dir.path().join("absl/done.cc.o"), "").unwrap();
        let mut workload = Workload::read(dir.path());
        assert_eq!(workload.fraction(), 0.0);
        workload.step("Building CXX object absl/base.cc.o");
        assert!(workload.fraction() < 0.1, "{}", workload.fraction());
        workload.step("Linking CXX static library libx.a");
        workload
            .step("Building CXX object CMakeFiles/onnxruntime_graph.dir/Unity/unity_0_cxx.cxx.o");
        assert_eq!(workload.fraction(), 1.0);
    }

    #[test]
    fn without_a_build_file_nothing_is_done() {
        assert_eq!(Workload::read(Path::new("/no/such/folder")).fraction(), 0.0);
    }
}
