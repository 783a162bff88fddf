//! What the library does to the process that loads it.
#![cfg(target_os = "linux")]

use ort_training::Environment;

/// A library that asks for an executable stack gets it, for the whole process. Assembly without a note about its stack is
/// enough to make a linker ask for it.
#[test]
fn no_memory_becomes_writable_and_executable() {
    Environment::shared().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("[stack]"), "{maps}");
    // As a program that is linked with `static` has it, there is no file of its own.
    assert!(
        cfg!(feature = "static") || maps.contains("libonnxruntime"),
        "{maps}"
    );
    let both: Vec<&str> = maps.lines().filter(|line| line.contains("rwx")).collect();
    assert!(both.is_empty(), "{both:#?}");
}
