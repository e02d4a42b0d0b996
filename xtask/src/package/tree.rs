//! Files of a package, and archives of them: the same files give the same bytes, whoever packs them and when.

use std::collections::BTreeSet;
use std::io::{Cursor, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};
use zip::write::SimpleFileOptions;

/// The mode of a file, and of one that can be run.
const PLAIN: u32 = 0o644;
const PROGRAM: u32 = 0o755;

/// A file or a folder.
#[derive(Debug, Clone)]
struct Entry {
    path: String,
    mode: u32,
    /// The user and the group.
    owner: u32,
    /// `None`: a folder.
    content: Option<Arc<[u8]>>,
}

/// Files in the order in which they were added, with paths relative to where they are unpacked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    entries: Vec<Entry>,
}

impl Tree {
    /// Adds a file.
    pub(crate) fn file(&mut self, path: impl Into<String>, content: impl Into<Arc<[u8]>>) {
        self.add(path.into(), PLAIN, Some(content.into()));
    }

    /// Adds a file that can be run.
    pub(crate) fn program(&mut self, path: impl Into<String>, content: impl Into<Arc<[u8]>>) {
        self.add(path.into(), PROGRAM, Some(content.into()));
    }

    /// Adds a folder with this mode.
    pub(crate) fn folder(&mut self, path: impl Into<String>, mode: u32) {
        self.add(path.into(), mode, None);
    }

    fn add(&mut self, path: String, mode: u32, content: Option<Arc<[u8]>>) {
        self.entries.push(Entry {
            path,
            mode,
            owner: 0,
            content,
        });
    }

    /// The same files below this folder.
    pub(crate) fn below(mut self, folder: &str) -> Self {
        for entry in &mut self.entries {
            entry.path = format!("{folder}/{}", entry.path);
        }
        self
    }

    /// The same files with each folder that they are in before them, as package managers want it.
    pub(crate) fn with_folders(self) -> Self {
        let mut whole = Self::default();
        let mut known: BTreeSet<String> = self
            .entries
            .iter()
            .filter(|entry| entry.content.is_none())
            .map(|entry| entry.path.clone())
            .collect();
        for entry in self.entries {
            let ancestors: Vec<_> = Path::new(&entry.path).ancestors().skip(1).collect();
            for folder in ancestors.into_iter().rev() {
                let folder = folder.to_string_lossy().into_owned();
                if !folder.is_empty() && known.insert(folder.clone()) {
                    whole.folder(folder, PROGRAM);
                }
            }
            whole.entries.push(entry);
        }
        whole
    }

    /// The files, in order, without folders.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries
            .iter()
            .filter_map(|entry| Some((entry.path.as_str(), entry.content.as_deref()?)))
    }

    /// Bytes of all files.
    pub(crate) fn size(&self) -> u64 {
        self.files().map(|(_, content)| content.len() as u64).sum()
    }

    /// A tar of them, all changed at this second of the epoch.
    pub(crate) fn tar(&self, epoch: u64) -> anyhow::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for entry in &self.entries {
            let mut header = Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_uid(u64::from(entry.owner));
            header.set_gid(u64::from(entry.owner));
            header.set_mtime(epoch);
            let content = entry.content.as_deref().unwrap_or_default();
            header.set_size(content.len() as u64);
            header.set_entry_type(match entry.content {
                Some(_) => EntryType::Regular,
                None => EntryType::Directory,
            });
            tar.append_data(&mut header, &entry.path, content)
                .with_context(|| entry.path.clone())?;
        }
        Ok(tar.into_inner()?)
    }

    /// A zip of them.
    pub(crate) fn zip(&self, effort: Effort) -> anyhow::Result<Vec<u8>> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for entry in &self.entries {
            let Some(content) = entry.content.as_deref() else {
                continue;
            };
            let options = SimpleFileOptions::default()
                .last_modified_time(zip::DateTime::default())
                .compression_level(Some(effort.level().into()))
                .unix_permissions(entry.mode);
            zip.start_file(entry.path.as_str(), options)
                .with_context(|| entry.path.clone())?;
            zip.write_all(content)?;
        }
        Ok(zip.finish()?.into_inner())
    }
}

/// How hard packages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For those that are only tried.
    Little,
    /// For those that are published.
    All,
}

impl Effort {
    fn level(self) -> u8 {
        match self {
            Self::Little => 1,
            Self::All => 9,
        }
    }
}

/// Compresses bytes as gzip does, without a name and a time.
pub(crate) fn gzip(content: &[u8], effort: Effort) -> anyhow::Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::new(effort.level().into()));
    gzip.write_all(content)?;
    Ok(gzip.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.program("usr/bin/x", *b"#!/bin/sh");
        tree.folder("tmp", 0o1777);
        tree.file("usr/share/doc/x/copyright", *b"free");
        tree
    }

    fn listed(tar: &[u8]) -> Vec<(String, u32, u64)> {
        let mut archive = tar::Archive::new(tar);
        let entries = archive.entries().expect("an archive");
        entries
            .map(|entry| {
                let entry = entry.expect("an entry");
                let path = entry.path().expect("a path").display().to_string();
                let header = entry.header();
                let mode = header.mode().expect("a mode");
                (path, mode, header.mtime().expect("a time"))
            })
            .collect()
    }

    #[test]
    fn a_tar_has_the_folders_modes_and_time_and_is_the_same_again() {
        let tar = tree().with_folders().tar(7).expect("a tar");
        let expected = [
            ("usr", 0o755),
            ("usr/bin", 0o755),
            ("usr/bin/x", 0o755),
            ("tmp", 0o1777),
            ("usr/share", 0o755),
            ("usr/share/doc", 0o755),
            ("usr/share/doc/x", 0o755),
            ("usr/share/doc/x/copyright", 0o644),
        ];
        let expected = expected.map(|(path, mode)| (path.to_owned(), mode, 7));
        assert_eq!(listed(&tar), expected);
        assert_eq!(tree().with_folders().tar(7).expect("a tar"), tar);
        assert_ne!(tree().with_folders().tar(8).expect("a tar"), tar);
    }

    #[test]
    fn a_path_may_be_longer_than_a_header() {
        let path = format!("{}/page.1", "long".repeat(60));
        let mut tree = Tree::default();
        tree.file(path.clone(), *b"");
        let tar = tree.below("x").tar(0).expect("a tar");
        assert_eq!(listed(&tar), [(format!("x/{path}"), 0o644, 0)]);
    }

    #[test]
    fn a_zip_has_the_modes_and_is_the_same_again() {
        let zip = tree().zip(Effort::Little).expect("a zip");
        assert_eq!(tree().zip(Effort::Little).expect("a zip"), zip);
        let mut read = zip::ZipArchive::new(Cursor::new(zip)).expect("a zip");
        assert_eq!(read.len(), 2, "folders are left out");
        let program = read.by_name("usr/bin/x").expect("the program");
        assert_eq!(program.unix_mode().map(|mode| mode & 0o777), Some(0o755));
    }
}
