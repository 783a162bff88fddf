//! Enough of the ELF header to tell a library that can be linked from one that cannot.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What is wrong with a shared library for `arch` (Rust's name, as in `target_arch`), or `None`.
///
/// The section headers lie at the end of the file in every library that a linker writes, so a file that was cut
/// off is told by a table that would end behind the file's last byte.
pub(crate) fn problem(path: &Path, arch: &str) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut head = [0u8; 64];
    let mut read = 0;
    while read < head.len() {
        match file.read(&mut head[read..])? {
            0 => break,
            n => read += n,
        }
    }
    if read == 0 {
        return Ok(Some("an empty file".into()));
    }
    if read < 4 || head[..4] != *b"\x7fELF" {
        return Ok(Some("a file that is not an ELF library".into()));
    }
    if read < 64 {
        return Ok(Some(format!("an ELF file cut off after {read} bytes")));
    }
    if head[5] != 1 {
        return Ok(Some("a big-endian ELF file".into()));
    }
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if u16_at(16) != 3 {
        return Ok(Some("an ELF file that is not a shared library".into()));
    }
    let machine = u16_at(18);
    let expected = match arch {
        "x86_64" => Some((62, 2)),
        "aarch64" => Some((183, 2)),
        "x86" => Some((3, 1)),
        "arm" => Some((40, 1)),
        "riscv64" => Some((243, 2)),
        _ => None,
    };
    if let Some((expected_machine, expected_class)) = expected
        && (machine != expected_machine || head[4] != expected_class)
    {
        return Ok(Some(format!(
            "a library for {}, while the target is {arch}",
            machine_name(machine)
        )));
    }
    if head[4] == 2 {
        let table = u64::from_le_bytes(head[40..48].try_into().expect("eight bytes"));
        let end = table.saturating_add(u64::from(u16_at(58)).saturating_mul(u64::from(u16_at(60))));
        if end > size {
            return Ok(Some(format!(
                "a library that was cut off ({size} bytes of at least {end})"
            )));
        }
    }
    Ok(None)
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86".into(),
        40 => "arm".into(),
        62 => "x86_64".into(),
        183 => "aarch64".into(),
        243 => "riscv64".into(),
        other => format!("ELF machine {other}"),
    }
}
