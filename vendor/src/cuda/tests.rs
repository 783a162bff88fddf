//! The search and the checks, on folders made to look like toolkits.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::toolkit::{Search, Toolkit};
use crate::compiler::Compiler;
use crate::error::Result;

const HEADERS: &[&str] = &[
    "cuda_runtime_api.h",
    "cublas_v2.h",
    "cublasLt.h",
    "cufft.h",
    "curand.h",
    "cusparse.h",
    "cuda_profiler_api.h",
    "nvtx3/nvToolsExt.h",
    "cudnn.h",
];
const LIBRARIES: &[&str] = &["cudart", "cublas", "cublasLt", "cufft", "curand", "cudnn"];

/// A folder with everything that is looked for, and an nvcc that does what `body` says after the version.
struct Fake(tempfile::TempDir);

impl Fake {
    fn new(version: &str, cudnn: u32) -> Self {
        let fake = Fake(tempfile::tempdir().unwrap());
        fake.nvcc(version, "exit 0");
        for header in HEADERS {
            fake.write(&format!("include/{header}"), "");
        }
        fake.write(
            "include/cudnn_version.h",
            &format!(
                "#define CUDNN_MAJOR {cudnn}\n#define CUDNN_MINOR 3\n#define CUDNN_PATCHLEVEL 1\n"
            ),
        );
        fake.write(
            "include/crt/host_config.h",
            "#if __GNUC__ > 999\n#error\n#endif\n",
        );
        for library in LIBRARIES {
            fake.write(&format!("lib64/lib{library}.so"), "");
        }
        fake
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn nvcc(&self, version: &str, compile: &str) {
        self.write(
            "bin/nvcc",
            &format!(
                "#!/bin/sh\ncase $1 in\n--version) echo 'Cuda compilation tools, release x, V{version}' ;;\n\
                 --list-gpu-arch) echo compute_80; echo compute_90 ;;\n*) {compile} ;;\nesac\n"
            ),
        );
        let nvcc = self.path().join("bin/nvcc");
        fs::set_permissions(nvcc, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The toolkit that is named, with architecture 90.
    fn find(&self) -> Result<Toolkit> {
        search(&[("CUDA_HOME", &self.path().display().to_string())], &[])
    }
}

fn search(vars: &[(&str, &str)], usual: &[PathBuf]) -> Result<Toolkit> {
    Toolkit::search(&Search {
        var: &|name| match vars.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => Some((*value).to_owned()),
            None => (name == "ORT_TRAINING_CUDA_ARCHITECTURES").then(|| "90".to_owned()),
        },
        usual: usual.to_vec(),
        usual_cudnn: Vec::new(),
        cudnn_of_setup: usual.first().cloned().unwrap_or_default(),
    })
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T>, words: &[&str]) {
    let error = result.unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

fn compiler() -> Compiler {
    Compiler::find().expect("a C++ compiler")
}

#[test]
fn a_whole_toolkit_passes_and_its_folder_is_not_in_the_key() {
    let (one, other) = (Fake::new("12.4.131", 9), Fake::new("12.4.131", 9));
    let toolkit = one.find().unwrap();
    toolkit.check(&compiler()).unwrap();
    assert_eq!(toolkit.identity(), "CUDA 12.4.131 cuDNN 9.3.1 for 90");
    assert_eq!(toolkit.identity(), other.find().unwrap().identity());
    let args = toolkit.cmake_args(&compiler());
    assert!(args.contains(&"-DCMAKE_CUDA_ARCHITECTURES=90".to_owned()));
    assert!(args.contains(&"-Donnxruntime_USE_FLASH_ATTENTION=OFF".to_owned()));
}

#[test]
fn without_a_toolkit_the_places_are_named() {
    let empty = tempfile::tempdir().unwrap();
    let folder = empty.path().display().to_string();
    fails(
        search(&[("CUDA_PATH", &folder)], &[]),
        &["CUDA_PATH", &folder, "ci/setup-cuda"],
    );
    fails(
        search(&[], &[empty.path().to_owned()]),
        &["CUDA_HOME", &folder, "PATH", "ci/setup-cuda"],
    );
}

#[test]
fn the_first_usual_place_that_has_one_serves() {
    let (empty, fake) = (tempfile::tempdir().unwrap(), Fake::new("13.0.88", 9));
    let usual = [empty.path().to_owned(), fake.path().to_owned()];
    assert_eq!(search(&[], &usual).unwrap().cuda_home, fake.path());
}

/// As on Debian 12, whose `nvcc` in `/usr/bin` is of CUDA 11.8.
#[test]
fn an_old_toolkit_does_not_hide_one_that_serves() {
    let (old, fake) = (Fake::new("11.8.89", 9), Fake::new("13.0.88", 9));
    let usual = [old.path().to_owned(), fake.path().to_owned()];
    assert_eq!(search(&[], &usual).unwrap().cuda_home, fake.path());
    fails(search(&[], &usual[..1]), &["11.8.89", "12 or 13"]);
    let named = old.path().display().to_string();
    fails(search(&[("CUDA_HOME", &named)], &usual), &["11.8.89"]);
}

#[test]
fn versions_that_do_not_serve_are_named() {
    fails(Fake::new("11.8.89", 9).find(), &["11.8.89", "12 or 13"]);
    fails(Fake::new("14.0.1", 9).find(), &["14.0.1", "12 or 13"]);
    fails(
        Fake::new("12.4.131", 8).find(),
        &["CUDNN_HOME", "8.3.1", "cuDNN 9"],
    );
    let fake = Fake::new("12.4.131", 9);
    fake.write("bin/nvcc", "#!/bin/sh\necho who knows\n");
    fails(fake.find(), &["who knows", "bin/nvcc"]);
    let nvcc = fake.path().join("bin/nvcc");
    fs::set_permissions(nvcc, fs::Permissions::from_mode(0o644)).unwrap();
    fails(fake.find(), &["does not run"]);
}

#[test]
fn without_cudnn_the_places_are_named() {
    let fake = Fake::new("12.4.131", 9);
    fs::remove_file(fake.path().join("include/cudnn.h")).unwrap();
    let folder = fake.path().display().to_string();
    fails(fake.find(), &["CUDNN_HOME", &folder, "cudnn.h"]);
}

/// As Debian's toolkit in `/usr`, with cuDNN as NVIDIA's packages on PyPI have it: no `libcudnn.so`.
#[test]
fn cudnn_apart_from_the_toolkit_is_what_is_linked() {
    let (fake, cudnn) = (Fake::new("12.4.131", 9), tempfile::tempdir().unwrap());
    let home = cudnn.path().join("cudnn-cu12");
    for (from, to) in [
        ("include/cudnn.h", "include/cudnn.h"),
        ("include/cudnn_version.h", "include/cudnn_version.h"),
        ("lib64/libcudnn.so", "lib/libcudnn.so.9"),
    ] {
        fs::create_dir_all(home.join(to).parent().unwrap()).unwrap();
        fs::rename(fake.path().join(from), home.join(to)).unwrap();
    }
    let folder = fake.path().display().to_string();
    let named = home.display().to_string();
    let toolkits = [fake.path().to_owned()];
    let of_setup = Toolkit::search(&Search {
        var: &|name| (name == "ORT_TRAINING_CUDA_ARCHITECTURES").then(|| "90".to_owned()),
        usual: toolkits.to_vec(),
        usual_cudnn: toolkits.to_vec(),
        cudnn_of_setup: cudnn.path().to_owned(),
    });
    let by_name = search(&[("CUDA_HOME", &folder), ("CUDNN_HOME", &named)], &[]);
    for found in [of_setup, by_name] {
        let found = found.unwrap();
        found.check(&compiler()).unwrap();
        let args = found.cmake_args(&compiler());
        for wanted in [
            format!("-DCUDNN_INCLUDE_DIR={named}/include"),
            format!("-Dcudnn_LIBRARY={named}/lib/libcudnn.so.9"),
        ] {
            assert!(args.contains(&wanted), "{wanted} is not in {args:?}");
        }
    }
    let library = home.join("lib/libcudnn_adv.so.9");
    fs::write(library, "\u{7f}ELF libcublasLt.so.13\0").unwrap();
    let found = search(&[("CUDA_HOME", &folder), ("CUDNN_HOME", &named)], &[]).unwrap();
    fails(
        found.check(&compiler()),
        &["CUDNN_HOME", "for CUDA 13", "ci/setup-cuda --cudnn 12"],
    );
    // Without either, the places are named once each, and the command that helps.
    fs::remove_dir_all(home).unwrap();
    fails(
        search(&[], &toolkits),
        &["cudnn-cu12", "ci/setup-cuda --cudnn 12"],
    );
}

#[test]
fn parts_that_a_toolkit_lacks_are_all_named() {
    let fake = Fake::new("12.4.131", 9);
    for gone in ["include/cublasLt.h", "lib64/libcurand.so"] {
        fs::remove_file(fake.path().join(gone)).unwrap();
    }
    fails(
        fake.find().unwrap().check(&compiler()),
        &["cublasLt.h (cuBLAS)", "libcurand.so (cuRAND)"],
    );
    let fake = Fake::new("12.4.131", 9);
    fs::remove_file(fake.path().join("lib64/libcudnn.so")).unwrap();
    fails(fake.find().unwrap().check(&compiler()), &["libcudnn.so"]);
}

/// All of it compiles and links, and fails when the program runs.
#[test]
fn parts_of_another_cuda_are_named() {
    let fake = Fake::new("13.0.88", 9);
    fake.write("lib64/libcudnn_adv.so", "\u{7f}ELF libcublasLt.so.12\0");
    fails(
        fake.find().unwrap().check(&compiler()),
        &[
            "CUDNN_HOME",
            "for CUDA 13",
            "for CUDA 12",
            "nvidia-cudnn-cu13",
        ],
    );
    fake.write("lib64/libcudnn_adv.so", "\u{7f}ELF libcublasLt.so.13\0");
    fake.write(
        "include/cuda_runtime_api.h",
        "#define CUDART_VERSION  13000\n",
    );
    fake.find().unwrap().check(&compiler()).unwrap();
    fake.write(
        "include/cuda_runtime_api.h",
        "#define CUDART_VERSION  12040\n",
    );
    fails(
        fake.find().unwrap().check(&compiler()),
        &["CUDA_HOME", "headers of CUDA 13", "of CUDA 12", "13.0.88"],
    );
}

/// As without nvvm: cicc is missing, and only compiling shows it.
#[test]
fn a_toolkit_that_does_not_compile_shows_what_nvcc_says() {
    let fake = Fake::new("12.4.131", 9);
    fake.nvcc("12.4.131", "echo 'sh: cicc: not found' >&2; exit 127");
    fails(
        fake.find().unwrap().check(&compiler()),
        &["cicc: not found", "compiles a kernel"],
    );
}

#[test]
fn a_compiler_that_is_too_new_is_named_with_one_that_serves() {
    let fake = Fake::new("12.4.131", 9);
    fake.write(
        "include/crt/host_config.h",
        "#if __GNUC__ > 4\n#error\n#endif\n",
    );
    let mut gcc = compiler();
    gcc.cxx = "g++".into();
    fails(
        fake.find().unwrap().check(&gcc),
        &["CXX", "gcc 4 or older", "found \"gcc 1"],
    );
}

#[test]
fn another_host_compiler_is_handed_to_nvcc() {
    let mut other = compiler();
    other.cxx = "/opt/gcc/bin/g++-12".into();
    let args = Fake::new("13.0.88", 9).find().unwrap().cmake_args(&other);
    assert!(args.contains(&"-DCMAKE_CUDA_HOST_COMPILER=/opt/gcc/bin/g++-12".to_owned()));
}
