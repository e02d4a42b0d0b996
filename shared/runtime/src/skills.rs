//! Skills in folders: reading one, and publishing the ones that a process has mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{
    SKILL_BYTES_MAX, SKILL_FILES_MAX, Skill, SkillFault, SkillSource, is_ignored,
};
use mainspring_shared::store::{self, PublishSkill, PublishSkillOutcome, Store};
use mainspring_shared::time::Clock;

/// Maximum depth of folders below a skill's own.
const DEPTH_MAX: usize = 16;

/// Reads the skill in a folder, or returns everything that is wrong with it. Links are followed as
/// long as they stay within the parent of the skill's folder, as links in mounted volumes do.
pub fn read_skill(folder: &Path) -> Result<Skill, Vec<SkillFault>> {
    let broken = |error: &io::Error| vec![SkillFault::of("", format!("cannot be read: {error}"))];
    let real = folder.canonicalize().map_err(|error| broken(&error))?;
    let files = Files::of(&real)?;
    let name = folder.file_name().or_else(|| real.file_name());
    Skill::read(name.and_then(|name| name.to_str()), files.read)
}

/// The files of a folder while they are being read.
struct Files {
    root: PathBuf,
    /// Links must stay within this folder.
    within: PathBuf,
    read: BTreeMap<String, Vec<u8>>,
    faults: Vec<SkillFault>,
    room: u64,
}

impl Files {
    fn of(root: &Path) -> Result<Self, Vec<SkillFault>> {
        let mut files = Self {
            root: root.to_owned(),
            within: root.parent().unwrap_or(root).to_owned(),
            read: BTreeMap::new(),
            faults: Vec::new(),
            room: SKILL_BYTES_MAX as u64,
        };
        files.folder(root, "", 0);
        if files.faults.is_empty() {
            Ok(files)
        } else {
            Err(files.faults)
        }
    }

    fn fault(&mut self, path: &str, detail: impl Into<String>) {
        self.faults.push(SkillFault::of(path, detail));
    }

    fn folder(&mut self, folder: &Path, path: &str, depth: usize) {
        if depth > DEPTH_MAX {
            return self.fault(path, "lies too deep");
        }
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.fault(path, format!("cannot be read: {error}")),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            // That is enough to refuse it.
            if self.faults.len() > SKILL_FILES_MAX || self.read.len() > SKILL_FILES_MAX {
                return;
            }
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                self.fault(path, "contains a file whose name is not valid UTF-8");
                continue;
            };
            if is_ignored(&name) {
                continue;
            }
            let below = if path.is_empty() {
                name
            } else {
                format!("{path}/{name}")
            };
            match self.real(&entry.path()) {
                Ok(real) if real.is_dir() => self.folder(&real, &below, depth + 1),
                Ok(real) if real.is_file() => self.file(&real, below),
                Ok(_) => self.fault(&below, "is neither a file nor a folder"),
                Err(why) => self.fault(&below, why),
            }
        }
    }

    /// The real path behind any links.
    fn real(&self, path: &Path) -> Result<PathBuf, String> {
        let real = path.canonicalize();
        let real = real.map_err(|error| format!("cannot be read: {error}"))?;
        if real.starts_with(&self.within) || real.starts_with(&self.root) {
            Ok(real)
        } else {
            Err("is a link that leads out of the folder of skills".to_owned())
        }
    }

    fn file(&mut self, file: &Path, path: String) {
        let mut content = Vec::new();
        let read = fs::File::open(file);
        let read = read.and_then(|file| file.take(self.room + 1).read_to_end(&mut content));
        match read {
            Err(error) => self.fault(&path, format!("cannot be read: {error}")),
            Ok(read) if read as u64 > self.room => {
                self.fault("", format!("a skill has at most {SKILL_BYTES_MAX} bytes"));
                self.room = 0;
            }
            Ok(read) => {
                self.room -= read as u64;
                self.read.insert(path, content);
            }
        }
    }
}

/// The contents of mounted folders.
#[derive(Debug, Default)]
struct Found {
    skills: Vec<Skill>,
    /// Folders by name, with the faults that make them invalid.
    broken: BTreeMap<String, Vec<SkillFault>>,
}

/// The folders of skills that a process has mounted: each folder in one of them is a skill. They
/// are published like uploads, so that every process sees the same. If two skills have the same
/// name, the one in the first of these folders wins; an uploaded one takes precedence over both.
#[derive(Debug)]
pub struct MountedSkills {
    dirs: Vec<PathBuf>,
    every: Duration,
    /// The state of the folders when they were last published.
    seen: Option<Listing>,
}

/// Files with their lengths and modification times.
type Listing = Vec<(PathBuf, u64, Option<SystemTime>)>;

impl MountedSkills {
    /// The skills in these folders, which are checked for changes this often.
    pub fn new(dirs: Vec<PathBuf>, every: Duration) -> Self {
        Self {
            dirs,
            every,
            seen: None,
        }
    }

    /// Publishes the skills in the folders, unless nothing changed since the last time. A broken
    /// one is stored with its faults and does not prevent the others.
    pub async fn publish(&mut self, store: &dyn Store) -> store::Result<()> {
        let dirs = self.dirs.clone();
        let before = self.seen.take();
        let looked = tokio::task::spawn_blocking(move || {
            let listing = listing(&dirs);
            let found = (before.as_ref() != Some(&listing)).then(|| scan(&dirs));
            (listing, found)
        });
        let (listing, found) = match looked.await {
            Ok(looked) => looked,
            Err(error) => {
                tracing::error!(%error, "could not scan the folders of skills");
                return Ok(());
            }
        };
        if let Some(found) = found {
            publish(store, found).await?;
        }
        self.seen = Some(listing);
        Ok(())
    }

    /// Publishes at every interval until `stopping` resolves.
    pub async fn keep(
        mut self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        stopping: impl Future<Output = ()>,
    ) {
        let mut stopping = std::pin::pin!(stopping);
        loop {
            tokio::select! {
                () = clock.sleep(self.every) => {}
                () = &mut stopping => return,
            }
            if let Err(error) = self.publish(store.as_ref()).await {
                tracing::warn!(%error, "could not publish skills; will retry");
            }
        }
    }
}

async fn publish(store: &dyn Store, found: Found) -> store::Result<()> {
    for skill in found.skills {
        for warning in &skill.manifest.warnings {
            tracing::warn!(skill.name, warning, "a skill was accepted with a warning");
        }
        let (name, hash) = (skill.name.clone(), skill.hash);
        let item = PublishSkill {
            tenant: TenantId::DEFAULT,
            skill: Arc::new(skill),
            source: SkillSource::Mounted,
            idempotency: None,
        };
        match store.publish_skill(item).await {
            Ok(PublishSkillOutcome::Published { current: false, .. }) => {
                tracing::info!(
                    skill.name = name,
                    "an uploaded skill takes precedence over this one"
                );
            }
            Ok(_) => tracing::info!(skill.name = name, skill.hash = %hash, "skill published"),
            // Only this skill is affected; continue with the others.
            Err(error) if error.is_of_data() => {
                tracing::error!(
                    skill.name = name,
                    %error,
                    "could not publish a skill; leaving it out"
                );
            }
            Err(error) => return Err(error),
        }
    }
    for (folder, faults) in found.broken {
        for fault in &faults {
            tracing::warn!(skill.folder = folder, %fault, "a skill is broken; leaving it out");
        }
        store
            .note_broken_skill(TenantId::DEFAULT, folder, faults)
            .await?;
    }
    Ok(())
}

/// The folders in a folder, by name.
fn folders(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !is_ignored(&name) && entry.path().is_dir() {
            folders.push((name, entry.path()));
        }
    }
    folders.sort();
    Ok(folders)
}

fn scan(dirs: &[PathBuf]) -> Found {
    let mut found = Found::default();
    let mut names = BTreeSet::new();
    for dir in dirs {
        let folders = match folders(dir) {
            Ok(folders) => folders,
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "could not read a folder of skills");
                continue;
            }
        };
        for (folder, path) in folders {
            match read_skill(&path) {
                Ok(skill) if names.insert(skill.name.clone()) => found.skills.push(skill),
                Ok(skill) => {
                    tracing::warn!(
                        skill.name,
                        skill.folder = %path.display(),
                        "leaving out a skill: another folder has one of this name"
                    );
                }
                Err(faults) => {
                    found.broken.entry(folder).or_insert(faults);
                }
            }
        }
    }
    // A valid skill of the same name in another folder wins.
    found.broken.retain(|folder, _| !names.contains(folder));
    found
}

/// Maximum number of entries that are listed: links may form cycles.
const LISTED_MAX: usize = 100_000;

/// Lists the folders without reading files.
fn listing(dirs: &[PathBuf]) -> Listing {
    let mut listing = Vec::new();
    let mut left: Vec<(PathBuf, usize)> = dirs.iter().map(|dir| (dir.clone(), 0)).collect();
    while let Some((path, depth)) = left.pop() {
        let Ok(data) = fs::metadata(&path) else {
            listing.push((path, 0, None));
            continue;
        };
        if data.is_dir() && depth <= DEPTH_MAX + 1 && listing.len() < LISTED_MAX {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| (entry.path(), depth + 1)));
        }
        listing.push((path, data.len(), data.modified().ok()));
    }
    listing.sort();
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: &str = "---\nname: greeting\ndescription: How to greet.\n---\nHello.\n";

    fn put(root: &Path, path: &str, content: &str) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().expect("has one")).expect("makes");
        fs::write(file, content).expect("writes");
    }

    #[test]
    fn a_folder_is_read_as_it_is_but_for_what_tools_leave_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, content) in [
            ("greeting/SKILL.md", FRONT),
            ("greeting/scripts/run.sh", "#!/bin/sh\n"),
            ("greeting/scripts/__pycache__/x.pyc", "x"),
            ("greeting/.git/config", "x"),
        ] {
            put(dir.path(), path, content);
        }
        let skill = read_skill(&dir.path().join("greeting")).expect("a skill");
        let paths: Vec<_> = skill.files.keys().cloned().collect();
        assert_eq!(paths, ["SKILL.md", "scripts/run.sh"]);
    }

    #[test]
    fn links_of_a_mounted_volume_are_followed_and_those_that_lead_out_are_not() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("skills");
        put(&root, "greeting/..data/SKILL.md", FRONT);
        symlink("..data/SKILL.md", root.join("greeting/SKILL.md")).expect("links");
        assert!(read_skill(&root.join("greeting")).is_ok());
        put(dir.path(), "secret", "what nobody may read");
        symlink(dir.path().join("secret"), root.join("greeting/notes")).expect("links");
        let faults = read_skill(&root.join("greeting")).expect_err("leads out");
        assert_eq!(faults[0].path, "notes");
        // A cycle of folders ends.
        fs::remove_file(root.join("greeting/notes")).expect("removes");
        symlink(".", root.join("greeting/again")).expect("links");
        assert!(read_skill(&root.join("greeting")).is_err());
    }

    #[test]
    fn one_broken_skill_stands_in_nobodys_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let (first, second) = (dir.path().join("1"), dir.path().join("2"));
        put(&first, "greeting/SKILL.md", FRONT);
        put(&first, "broken/SKILL.md", "---\nname: broken\n---\n");
        put(&first, "binary/SKILL.md", "x");
        fs::write(first.join("binary/SKILL.md"), [0xff, 0xfe]).expect("writes");
        put(&first, "README.md", "not a skill");
        put(&second, "hello/SKILL.md", FRONT);
        let found = scan(&[first, second, dir.path().join("none")]);
        let names: Vec<_> = found
            .skills
            .iter()
            .map(|skill| skill.name.as_str())
            .collect();
        assert_eq!(names, ["greeting"]);
        let broken: Vec<_> = found.broken.keys().map(String::as_str).collect();
        assert_eq!(broken, ["binary", "broken"]);
    }

    #[test]
    fn a_change_in_a_folder_is_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        put(dir.path(), "greeting/SKILL.md", FRONT);
        let dirs = [dir.path().to_owned()];
        let before = listing(&dirs);
        assert_eq!(listing(&dirs), before);
        put(dir.path(), "greeting/words/a.txt", "hi");
        assert_ne!(listing(&dirs), before);
    }
}
