//! A wheel that carries the program: `pip install` puts it on the path of its environment.
//!
//! The name `mainspring` is that of the client, which needs no program and runs on systems that have none: the wheel is
//! `mainspring-server`, an extra of the client.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::contents::{Contents, document};
use super::elf::Needs;
use super::tree::{Effort, Tree};

const NAME: &str = "mainspring-server";
/// The same as the names of files have it.
const FILE_NAME: &str = "mainspring_server";

pub(super) fn make(contents: &Contents, effort: Effort) -> anyhow::Result<(String, Vec<u8>)> {
    let version = &contents.version;
    let tags = tags(&contents.program.needs, contents.program.processor.name);
    let folder = format!("{FILE_NAME}-{version}.dist-info");
    let mut tree = Tree::default();
    tree.program(
        format!("{FILE_NAME}-{version}.data/scripts/mainspring"),
        contents.program.bytes.clone(),
    );
    tree.file(format!("{folder}/METADATA"), metadata(version)?);
    let mut wheel =
        "Wheel-Version: 1.0\nGenerator: mainspring\nRoot-Is-Purelib: false\n".to_owned();
    for tag in &tags {
        writeln!(wheel, "Tag: py3-none-{tag}")?;
    }
    tree.file(format!("{folder}/WHEEL"), wheel.into_bytes());
    tree.file(format!("{folder}/licenses/LICENSE"), document("LICENSE")?);
    tree.file(
        format!("{folder}/sboms/mainspring.cdx.json"),
        contents.sbom.as_slice(),
    );
    let record = format!("{folder}/RECORD");
    let lines = recorded(&tree, &record);
    tree.file(record, lines.into_bytes());
    let name = format!("{FILE_NAME}-{version}-py3-none-{}.whl", tags.join("."));
    Ok((name, tree.zip(effort)?))
}

/// The platforms that the program runs on. One that needs nothing of the system is for those of musl as well.
fn tags(needs: &Needs, processor: &str) -> Vec<String> {
    match needs {
        Needs::Nothing => ["manylinux2014", "manylinux_2_17", "musllinux_1_1"]
            .map(|platform| format!("{platform}_{processor}"))
            .to_vec(),
        Needs::Glibc {
            version: (major, minor),
            ..
        } => {
            vec![format!("manylinux_{major}_{minor}_{processor}")]
        }
    }
}

/// Each file with its hash and size; the record itself has neither.
fn recorded(tree: &Tree, record: &str) -> String {
    let mut lines = String::new();
    for (path, content) in tree.files() {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        let _ = writeln!(lines, "{path},sha256={hash},{}", content.len());
    }
    let _ = writeln!(lines, "{record},,");
    lines
}

fn metadata(version: &str) -> anyhow::Result<Vec<u8>> {
    let mut text = format!(
        "Metadata-Version: 2.4\nName: {NAME}\nVersion: {version}\n\
        Summary: The program of Mainspring: LLM agents as durable, distributed work\n\
        License-Expression: MIT\nLicense-File: LICENSE\nRequires-Python: >=3.8\n\
        Description-Content-Type: text/markdown\n\n"
    )
    .into_bytes();
    text.extend(document("deploy/packages/wheel.md")?);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_program_is_for_every_linux_and_a_linked_one_from_its_glibc_on() {
        let everywhere = tags(&Needs::Nothing, "x86_64");
        assert_eq!(
            everywhere,
            [
                "manylinux2014_x86_64",
                "manylinux_2_17_x86_64",
                "musllinux_1_1_x86_64"
            ]
        );
        let linked = Needs::Glibc {
            version: (2, 34),
            libraries: Vec::new(),
        };
        assert_eq!(tags(&linked, "aarch64"), ["manylinux_2_34_aarch64"]);
    }

    #[test]
    fn a_record_has_the_hash_and_size_of_each_file_and_its_own_name() {
        let mut tree = Tree::default();
        tree.file("a", *b"hello");
        // `printf hello | openssl dgst -sha256 -binary | base64`, of the alphabet for addresses.
        let hash = "LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ";
        let expected = format!("a,sha256={hash},5\nx/RECORD,,\n");
        assert_eq!(recorded(&tree, "x/RECORD"), expected);
    }
}
