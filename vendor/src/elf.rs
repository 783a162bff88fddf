//! Enough of the ELF header to tell a library that can be linked from one that cannot.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
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
    if expected.is_some_and(|expected| expected != (machine, head[4])) {
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

/// The names of a 64-bit library's dynamic symbols and symbol versions, each ended by a zero byte; `None` where the
/// file has no section table that leads to them (a stripped one may not), which says nothing about what is in it.
pub(crate) fn dynamic_names(path: &Path) -> io::Result<Option<Vec<u8>>> {
    const SECTION: usize = 64;
    const DYNAMIC_SYMBOLS: u32 = 11;
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut read = |at: u64, length: u64| -> io::Result<Option<Vec<u8>>> {
        if at.checked_add(length).is_none_or(|end| end > size) {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut bytes)?;
        Ok(Some(bytes))
    };
    let u64_at = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    let u32_at = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let Some(head) = read(0, 64)? else {
        return Ok(None);
    };
    let entry = u16::from_le_bytes([head[58], head[59]]);
    let count = u16::from_le_bytes([head[60], head[61]]);
    if head[4] != 2 || usize::from(entry) != SECTION {
        return Ok(None);
    }
    let table = u64_at(&head, 40);
    let Some(sections) = read(table, u64::from(count) * SECTION as u64)? else {
        return Ok(None);
    };
    let names = sections
        .chunks_exact(SECTION)
        .find(|section| u32_at(section, 4) == DYNAMIC_SYMBOLS)
        .and_then(|section| {
            sections
                .chunks_exact(SECTION)
                .nth(u32_at(section, 40) as usize)
        })
        .map(|section| (u64_at(section, 24), u64_at(section, 32)));
    match names {
        Some((at, length)) => read(at, length),
        None => Ok(None),
    }
}
