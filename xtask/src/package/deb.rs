//! A package for Debian and its derivatives: an ar of a version, a tar of what dpkg reads, and a tar of what it unpacks.

use std::fmt::Write as _;

use md5::{Digest as _, Md5};

use super::contents::{Contents, date, document};
use super::elf::Needs;
use super::hexadecimal;
use super::tree::{self, Effort, Tree};

/// Counts packages of the same version of the program.
const REVISION: u32 = 1;

const MAINTAINER: &str = "The Mainspring authors <authors@mainspring.invalid>";

/// What an administrator changes, which upgrades keep.
const CONFIGURATION: &str = "etc/mainspring/mainspring.toml";

const UNITS: [&str; 2] = ["mainspring-scheduler.service", "mainspring-worker@.service"];

/// Nothing is started or restarted: a service needs its secrets first, and an upgrade `mainspring migrate`.
const RELOADS: &str = "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then\n    systemctl daemon-reload || true\nfi\n";
const STOPS: &str = "#!/bin/sh\nset -e\nif [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then\n    \
    systemctl stop 'mainspring-*.service' || true\nfi\n";

/// What Debian's checker would have otherwise, and why it is not.
const OVERRIDES: &str = "# One program for every system, with whatever C library.\n\
    mainspring: statically-linked-binary [usr/bin/mainspring]\n\
    # `systemctl` is all that the units need; their package is not only for Debian.\n\
    mainspring: maintainer-script-calls-systemctl *\n\
    # It was never asked for there.\n\
    mainspring: initial-upload-closes-no-bugs *\n";

pub(super) fn make(contents: &Contents, effort: Effort) -> anyhow::Result<(String, Vec<u8>)> {
    let version = format!("{}-{REVISION}", contents.version);
    let processor = contents.program.processor.debian;
    let data = data(contents, &version)?.with_folders();
    let mut control = Tree::default();
    control.file(
        "control",
        header(contents, &version, data.size()).into_bytes(),
    );
    control.file("conffiles", format!("/{CONFIGURATION}\n").into_bytes());
    control.file("md5sums", sums(&data).into_bytes());
    control.program("postinst", RELOADS.as_bytes());
    control.program("postrm", RELOADS.as_bytes());
    control.program("prerm", STOPS.as_bytes());
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        (
            "control.tar.gz",
            tree::gzip(&control.tar(contents.epoch)?, effort)?,
        ),
        (
            "data.tar.gz",
            tree::gzip(&data.tar(contents.epoch)?, effort)?,
        ),
    ];
    let name = format!("mainspring_{version}_{processor}.deb");
    Ok((name, ar(&members, contents.epoch)))
}

fn data(contents: &Contents, version: &str) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for (path, content) in contents.installed().files() {
        if path.starts_with("bin/") {
            tree.program(format!("usr/{path}"), content);
        } else if path.starts_with("share/man/") {
            tree.file(format!("usr/{path}.gz"), tree::gzip(content, Effort::All)?);
        } else {
            // What packages bring is elsewhere than what administrators do.
            let path = path.replace("/zsh/site-functions/", "/zsh/vendor-completions/");
            tree.file(format!("usr/{path}"), content);
        }
    }
    for unit in UNITS {
        let text = String::from_utf8(document(&format!("deploy/systemd/{unit}"))?)?;
        let text = text.replace("/usr/local/bin/", "/usr/bin/");
        tree.file(format!("usr/lib/systemd/system/{unit}"), text.into_bytes());
    }
    tree.file(CONFIGURATION, document("deploy/systemd/mainspring.toml")?);
    let documents = "usr/share/doc/mainspring";
    let changes = format!(
        "mainspring ({version}) unstable; urgency=medium\n\n  * Version {}, whose changes are in changelog.gz.\n  * Built from {}.\n\n -- {MAINTAINER}  {}\n",
        contents.version,
        contents.revision,
        date(contents.epoch, "+%a, %d %b %Y %H:%M:%S +0000")?,
    );
    let compressed = [
        ("changelog.Debian.gz", changes.into_bytes()),
        ("changelog.gz", document("CHANGELOG.md")?),
        ("OPERATIONS.md.gz", document("docs/OPERATIONS.md")?),
    ];
    for (name, text) in compressed {
        tree.file(
            format!("{documents}/{name}"),
            tree::gzip(&text, Effort::All)?,
        );
    }
    tree.file(
        format!("{documents}/copyright"),
        copyright(&contents.created)?.into_bytes(),
    );
    tree.file(
        format!("{documents}/mainspring.cdx.json"),
        contents.sbom.as_slice(),
    );
    tree.file(
        "usr/share/lintian/overrides/mainspring",
        OVERRIDES.as_bytes(),
    );
    Ok(tree)
}

fn header(contents: &Contents, version: &str, size: u64) -> String {
    let depends = match &contents.program.needs {
        Needs::Nothing => String::new(),
        Needs::Glibc {
            version: (major, minor),
            ..
        } => {
            format!("Depends: libc6 (>= {major}.{minor}), libgcc-s1\n")
        }
    };
    format!(
        "Package: mainspring\nVersion: {version}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n\
        Installed-Size: {}\n{depends}Section: net\nPriority: optional\n\
        Description: LLM agents as durable, distributed work\n \
        One program that runs by itself on SQLite, or as any number of schedulers\n \
        and workers on Postgres or MySQL and Redis. Accepted requests survive the\n \
        crash of any process and are answered exactly once.\n \
        .\n \
        The units mainspring-scheduler and mainspring-worker@POOL read\n \
        /etc/mainspring; neither is started before they have their secrets.\n",
        contents.program.processor.debian,
        size.div_ceil(1024),
    )
}

/// In the form that Debian's programs read; the licences of what is linked are in the list beside it.
fn copyright(created: &str) -> anyhow::Result<String> {
    let license = String::from_utf8(document("LICENSE")?)?;
    let year = created.split('-').next().unwrap_or_default();
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
        Upstream-Name: Mainspring\n\
        Comment: The licences of the libraries in the program are in mainspring.cdx.json.\n\n\
        Files: *\nCopyright: {year} the Mainspring authors\nLicense: Expat\n"
    );
    for line in license
        .lines()
        .skip_while(|line| !line.starts_with("Permission"))
    {
        let line = if line.is_empty() { "." } else { line };
        writeln!(text, " {line}")?;
    }
    Ok(text)
}

/// What `md5sum` prints for them, which dpkg compares on demand; configuration is left out.
fn sums(data: &Tree) -> String {
    let mut lines = String::new();
    for (path, content) in data.files().filter(|(path, _)| *path != CONFIGURATION) {
        let _ = writeln!(lines, "{}  {path}", hexadecimal(&Md5::digest(content)));
    }
    lines
}

/// An archive as `ar` makes it, of files whose names are short.
fn ar(members: &[(&str, Vec<u8>)], epoch: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let size = content.len();
        let header = format!(
            "{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
            0, 0, "100644"
        );
        archive.extend(header.as_bytes());
        archive.extend(content);
        // Members begin at even bytes.
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_headers_of_sixty_bytes_and_members_at_even_ones() {
        let archive = ar(
            &[("debian-binary", b"2.0".to_vec()), ("b", b"xy".to_vec())],
            7,
        );
        let expected = "!<arch>\n\
            debian-binary   7           0     0     100644  3         `\n2.0\n\
            b               7           0     0     100644  2         `\nxy";
        assert_eq!(String::from_utf8(archive).expect("text"), expected);
    }

    #[test]
    fn units_run_the_program_of_the_package_and_all_is_where_debian_has_it() {
        let data = data(&Contents::sample(), "1.2.3-1").expect("packed");
        let files: std::collections::BTreeMap<_, _> = data.files().collect();
        for unit in UNITS {
            let unit = files[format!("usr/lib/systemd/system/{unit}").as_str()];
            let unit = String::from_utf8_lossy(unit);
            assert!(unit.contains("ExecStart=/usr/bin/mainspring "), "{unit}");
        }
        for path in [
            "usr/bin/mainspring",
            CONFIGURATION,
            "usr/share/man/man1/mainspring.1.gz",
            "usr/share/bash-completion/completions/mainspring",
            "usr/share/zsh/vendor-completions/_mainspring",
            "usr/share/fish/vendor_completions.d/mainspring.fish",
            "usr/share/doc/mainspring/copyright",
        ] {
            assert!(files.contains_key(path), "{path} is missing");
        }
    }

    #[test]
    fn configuration_has_no_sum_because_it_changes() {
        let mut tree = Tree::default();
        tree.file("usr/a", *b"hello");
        tree.file(CONFIGURATION, *b"");
        // `printf hello | md5sum`
        assert_eq!(sums(&tree), "5d41402abc4b2a76b9719d911017c592  usr/a\n");
    }
}
