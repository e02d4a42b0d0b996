//! What a program needs of the system that runs it, as its headers say.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

type Header = elf::FileHeader64<Endianness>;

/// What a program finds on the systems that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Only the kernel: it is linked statically.
    Nothing,
    /// glibc of at least this version, and these libraries.
    Glibc {
        version: (u32, u32),
        libraries: Vec<String>,
    },
}

/// The processor that a program runs on, with its name in each kind of package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processor {
    /// As the kernel, Rust and Python name it.
    pub(crate) name: &'static str,
    /// As Debian, Go and container images name it.
    pub(crate) debian: &'static str,
    /// As Node names it.
    pub(crate) node: &'static str,
}

pub(super) const X86_64: Processor = Processor {
    name: "x86_64",
    debian: "amd64",
    node: "x64",
};
const AARCH64: Processor = Processor {
    name: "aarch64",
    debian: "arm64",
    node: "arm64",
};

/// Reads the processor from a program's header.
pub(crate) fn processor(program: &[u8]) -> anyhow::Result<Processor> {
    let header = Header::parse(program).context("no ELF of 64 bits")?;
    match header.e_machine(header.endian()?) {
        elf::EM_X86_64 => Ok(X86_64),
        elf::EM_AARCH64 => Ok(AARCH64),
        other => bail!("nothing is published for the processor {other:?}"),
    }
}

/// Reads what a program needs: its interpreter, its libraries, and the versions of glibc's symbols that it asks for.
pub(crate) fn needs(program: &[u8]) -> anyhow::Result<Needs> {
    let header = Header::parse(program).context("no ELF of 64 bits")?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, program)?;
    let is_interpreted = segments
        .iter()
        .any(|segment| segment.p_type(endian) == elf::PT_INTERP);
    let sections = header.sections(endian, program)?;
    let mut libraries = BTreeSet::new();
    let mut version = None;
    let dynamic = sections.dynamic_table(endian, program)?;
    for entry in dynamic.iter().filter(|entry| entry.tag == elf::DT_NEEDED) {
        let name = String::from_utf8_lossy(dynamic.string(entry)?).into_owned();
        libraries.insert(name);
    }
    if let Some((mut files, strings)) = sections.gnu_verneed(endian, program)? {
        let strings = sections.strings(endian, program, strings)?;
        while let Some((_, mut symbols)) = files.next()? {
            while let Some(symbol) = symbols.next()? {
                let name = String::from_utf8_lossy(symbol.name(endian, strings)?).into_owned();
                version = version.max(glibc(&name));
            }
        }
    }
    if !is_interpreted {
        ensure!(libraries.is_empty(), "a library, no program");
        return Ok(Needs::Nothing);
    }
    Ok(Needs::Glibc {
        version: version.context("it asks for no version of glibc")?,
        libraries: libraries.into_iter().collect(),
    })
}

/// The version in a name such as `GLIBC_2.34`; a third part does not count.
fn glibc(name: &str) -> Option<(u32, u32)> {
    let mut parts = name.strip_prefix("GLIBC_")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn compiled(arguments: &[&str]) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("main.c");
        // `stat` got this version when it stopped being a macro of the headers.
        let text =
            "#include <sys/stat.h>\nint main(void) { struct stat s; return stat(\"/\", &s); }";
        std::fs::write(&source, text).expect("written");
        let made = folder.path().join("main");
        let status = Command::new("cc")
            .args(arguments)
            .arg(&source)
            .arg("-o")
            .arg(&made)
            .status();
        assert!(status.expect("a compiler").success());
        std::fs::read(made).expect("compiled")
    }

    #[test]
    fn a_linked_program_needs_the_newest_glibc_that_one_of_its_symbols_has() {
        let program = compiled(&[]);
        let Needs::Glibc { version, libraries } = needs(&program).expect("read") else {
            panic!("it is linked to glibc");
        };
        assert!(version >= (2, 33), "{version:?}");
        assert_eq!(libraries, ["libc.so.6"]);
        let host = std::env::consts::ARCH;
        assert_eq!(processor(&program).expect("read").name, host);
    }

    #[test]
    fn a_static_program_needs_nothing_whether_it_can_be_moved_or_not() {
        for how in ["-static", "-static-pie"] {
            assert_eq!(
                needs(&compiled(&[how])).expect("read"),
                Needs::Nothing,
                "{how}"
            );
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let names = [
            "GLIBC_2.9",
            "GLIBC_2.17",
            "GLIBC_2.2.5",
            "GCC_3.0",
            "GLIBC_PRIVATE",
        ];
        let newest = names.into_iter().filter_map(glibc).max();
        assert_eq!(newest, Some((2, 17)));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        needs(b"#!/bin/sh").expect_err("a script");
        let library = compiled(&["-shared", "-fPIC"]);
        needs(&library).expect_err("a library");
    }
}
