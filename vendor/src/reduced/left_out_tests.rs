use super::*;

/// A tree as ONNX Runtime's, small: three kernels, one of them with a helper that it shares with another.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        (
            "onnxruntime/core/providers/cpu/cpu_execution_provider.cc",
            "#include \"core/providers/cpu/cpu_execution_provider.h\"
             BuildKernelCreateInfo<ONNX_OPERATOR_KERNEL_CLASS_NAME(kCpuExecutionProvider, kOnnxDomain, 7, Add)>,
             BuildKernelCreateInfo<ONNX_OPERATOR_KERNEL_CLASS_NAME(kCpuExecutionProvider, kOnnxDomain, 7, Gemm)>,
             BuildKernelCreateInfo<ONNX_OPERATOR_KERNEL_CLASS_NAME(kCpuExecutionProvider, kOnnxDomain, 9, Einsum)>,",
        ),
        ("onnxruntime/core/providers/cpu/cpu_execution_provider.h", ""),
        (FACTORY, ""),
        (PROVIDER_HOST, "#include \"core/providers/cpu/math/einsum.h\"\n"),
        (
            "onnxruntime/core/providers/cpu/math/add.cc",
            "#define REGISTER(name) \\\n  KERNEL(name, 7)\n\nREGISTER(\n  Add)\n",
        ),
        (
            "onnxruntime/core/providers/cpu/math/gemm.cc",
            "  // Add and Einsum are elsewhere: Add(x)\n#include \"../math/gemm_helper.h\"\nKERNEL(Gemm, 7)\n",
        ),
        ("onnxruntime/core/providers/cpu/math/gemm_helper.h", "#pragma once\n"),
        ("onnxruntime/core/providers/cpu/math/gemm_helper.cc", "int Broadcast() { return 1; }\n"),
        (
            "onnxruntime/core/providers/cpu/math/einsum.cc",
            "#include \"core/providers/cpu/math/einsum.h\"\nKERNEL(Einsum, 9)\nint EinsumHelper() { return 1; }\n",
        ),
        ("onnxruntime/core/providers/cpu/math/einsum.h", ""),
        (
            "onnxruntime/contrib_ops/cpu/cpu_contrib_kernels.cc",
            "BuildKernelCreateInfo<ONNX_OPERATOR_KERNEL_CLASS_NAME(kCpuExecutionProvider, kMSDomain, 1, Sampling)>,",
        ),
        ("onnxruntime/contrib_ops/cpu/sampling.cc", "KERNEL(Sampling, 1)\n"),
        ("onnxruntime/contrib_ops/cpu/sampling_parameters.h", ""),
        ("onnxruntime/contrib_ops/cpu/sampling_parameters.cc", ""),
        (
            "orttraining/orttraining/training_ops/cpu/cpu_training_kernels.cc",
            "BuildKernelCreateInfo<ONNX_OPERATOR_KERNEL_CLASS_NAME(kCpuExecutionProvider, kMSDomain, 1, ReluGrad)>,",
        ),
        ("orttraining/orttraining/training_ops/cpu/relu_grad.cc", "KERNEL(ReluGrad, 1)\n"),
        // A schema's function body needs a kernel's file.
        ("onnxruntime/core/graph/defs.cc", "#include \"contrib_ops/cpu/sampling_parameters.h\"\n"),
        // A public header, in a tree of its own.
        ("onnxruntime/core/session/api.cc", "#include \"core/providers/cpu/factory.h\"\n"),
        ("include/onnxruntime/core/providers/cpu/factory.h", ""),
        ("onnxruntime/core/providers/cpu/factory.cc", ""),
        // Not part of a CPU build.
        ("onnxruntime/core/providers/cuda/einsum.cc", "#include \"core/providers/cpu/math/einsum.h\"\n"),
    ] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn names(files: &[PathBuf]) -> Vec<&str> {
    files
        .iter()
        .map(|file| file.file_name().unwrap().to_str().unwrap())
        .collect()
}

#[test]
fn what_registers_a_needed_kernel_or_is_included_is_compiled() {
    let tree = tree();
    let gemm = Operators::parse("ai.onnx;13;Gemm\ncom.microsoft;1;ReluGrad").unwrap();
    assert_eq!(
        names(&left_out(&gemm, tree.path()).unwrap()),
        [
            "sampling.cc",
            "cpu_provider_shared.cc",
            "add.cc",
            "einsum.cc"
        ]
    );
    let add = Operators::parse("ai.onnx;13;Add").unwrap();
    assert_eq!(
        names(&left_out(&add, tree.path()).unwrap()),
        [
            "sampling.cc",
            "cpu_provider_shared.cc",
            "einsum.cc",
            "gemm.cc",
            "gemm_helper.cc",
            "relu_grad.cc"
        ]
    );
}

#[test]
fn what_the_linker_misses_comes_back() {
    let tree = tree();
    let list = tree.path().join("left-out.txt");
    let add = Operators::parse("ai.onnx;13;Add").unwrap();
    let files = left_out(&add, tree.path()).unwrap();
    write_list(&list, files.iter().map(PathBuf::as_path)).unwrap();
    let said = |text: &str| vec!["FAILED: libonnxruntime.so".to_owned(), text.to_owned()];
    // Another failure is no reason.
    assert_eq!(
        bring_back(&list, &said("no space left on device")).unwrap(),
        0
    );
    let line =
        "x.cc:(.text+0x1): undefined reference to `onnxruntime::EinsumHelper(int, float const*)'";
    assert_eq!(bring_back(&list, &said(line)).unwrap(), 1);
    let left = fs::read_to_string(&list).unwrap();
    assert!(
        !left.contains("einsum.cc") && left.contains("gemm_helper.cc"),
        "{left}"
    );
    // lld's words.
    let line = "ld.lld: error: undefined symbol: onnxruntime::Broadcast()";
    assert_eq!(bring_back(&list, &said(line)).unwrap(), 1);
    // Nobody has it: all come back, and then there is nothing more to try.
    let line = "undefined reference to `vtable for onnxruntime::Unheard<float>'";
    assert_eq!(bring_back(&list, &said(line)).unwrap(), files.len() - 2);
    assert_eq!(bring_back(&list, &said(line)).unwrap(), 0);
}
