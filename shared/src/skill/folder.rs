//! A skill as a folder of files.

use std::collections::BTreeMap;

use super::front_matter::{self, FrontMatter};
use super::{
    AgentSkill, DESCRIPTION_CHARS_ACCEPTED, DESCRIPTION_CHARS_MAX, Manifest, NAME_CHARS_MAX,
    PATH_BYTES_MAX, SKILL_BYTES_MAX, SKILL_FILE, SKILL_FILES_MAX, SkillFault, SkillFile, SkillHash,
    is_name,
};
use crate::stored::Extra;

/// The folder of programs.
const SCRIPTS: &str = "scripts/";

/// Maximum length of `compatibility` in the format, in characters.
const COMPATIBILITY_CHARS_MAX: usize = 500;

/// Names of files and folders that tools leave behind and that are not part of a skill.
const IGNORED: [&str; 5] = [".git", ".DS_Store", "__MACOSX", "__pycache__", ".svn"];

/// Whether a file or folder with this name is not part of a skill. Names that start with two dots
/// are a mounted volume's own bookkeeping.
pub fn is_ignored(name: &str) -> bool {
    IGNORED.contains(&name) || (name.starts_with("..") && name != "..")
}

/// Whether this is a valid path of a file in a skill: relative, with `/` as the separator, and with
/// names that are valid on every system.
pub fn is_path(path: &str) -> bool {
    let strange = |c: char| c.is_control() || matches!(c, '\\' | ':' | '\u{202a}'..='\u{202e}');
    (1..=PATH_BYTES_MAX).contains(&path.len())
        && !path.contains(strange)
        && path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// If all files are in one folder, as in many archives, removes it from their paths and returns its name.
pub fn unwrapped(files: BTreeMap<String, Vec<u8>>) -> (Option<String>, BTreeMap<String, Vec<u8>>) {
    let folder = files.keys().next().and_then(|path| path.split_once('/'));
    let Some((folder, _)) = folder else {
        return (None, files);
    };
    let prefix = format!("{folder}/");
    if files.keys().any(|path| !path.starts_with(&prefix)) {
        return (None, files);
    }
    let inner = files.iter().map(|(path, content)| {
        let path = &path[prefix.len()..];
        (path.to_owned(), content.clone())
    });
    (Some(folder.to_owned()), inner.collect())
}

/// A skill with its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// Its version.
    pub hash: SkillHash,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its files by path.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Skill {
    /// Reads a skill from its files, or reports everything that is wrong with them. `folder` is the
    /// name of the folder that contains them, which names the skill if its front matter does not.
    ///
    /// A skill is rejected if it could not be stored, placed or shown to a model. Other violations
    /// of the format (a description that is slightly too long, a folder with another name, unknown
    /// members) are warnings.
    pub fn read(
        folder: Option<&str>,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, Vec<SkillFault>> {
        let mut faults = check_files(&files);
        let front = match front_of(&files) {
            Ok(front) => front,
            Err(fault) => {
                faults.push(fault);
                return Err(faults);
            }
        };
        let FrontMatter {
            name,
            description,
            license,
            compatibility,
            metadata,
            allowed_tools,
            mut warnings,
        } = front;
        let mut refuse = |detail: String| faults.push(SkillFault::of(SKILL_FILE, detail));
        let name = match (name, folder) {
            (Some(name), Some(folder)) if name != folder && is_name(&name) => {
                warnings.push(format!("the skill is named {name}, its folder {folder}"));
                name
            }
            (Some(name), _) => name,
            (None, Some(folder)) => {
                warnings.push("the front matter has no name: the folder's is used".to_owned());
                folder.to_owned()
            }
            (None, None) => {
                refuse("the front matter has no name".to_owned());
                "x".to_owned()
            }
        };
        if !is_name(&name) {
            refuse(format!(
                "the name {name:?} must have 1 to {NAME_CHARS_MAX} lower-case letters, digits and \
                 single hyphens between them"
            ));
        }
        let description = description.unwrap_or_default();
        let chars = description.chars().count();
        if chars == 0 {
            refuse("the front matter has no description, by which models choose".to_owned());
        } else if chars > DESCRIPTION_CHARS_ACCEPTED || description.contains('\0') {
            refuse(format!(
                "the description must have at most {DESCRIPTION_CHARS_ACCEPTED} characters, none of \
                 them U+0000"
            ));
        } else if chars > DESCRIPTION_CHARS_MAX {
            warnings.push(format!(
                "the description has {chars} characters; the format allows {DESCRIPTION_CHARS_MAX}"
            ));
        }
        if compatibility
            .as_ref()
            .is_some_and(|text| text.chars().count() > COMPATIBILITY_CHARS_MAX)
        {
            warnings.push(format!(
                "compatibility is longer than the {COMPATIBILITY_CHARS_MAX} characters of the format"
            ));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let listed = files.iter().map(|(path, content)| SkillFile {
            path: path.clone(),
            bytes: content.len() as u64,
            sha256: SkillHash::of_file(content),
            executable: is_program(path, content),
        });
        let manifest = Manifest {
            description,
            license,
            compatibility,
            metadata,
            allowed_tools,
            warnings,
            files: listed.collect(),
            extra: Extra::default(),
        };
        Ok(Self {
            name,
            hash: SkillHash::of(&files),
            manifest,
            files,
        })
    }

    /// Total size of its files in bytes.
    pub fn bytes(&self) -> u64 {
        self.manifest.files.iter().map(|file| file.bytes).sum()
    }

    /// The version as pinned by an agent.
    pub fn pinned(&self) -> AgentSkill {
        AgentSkill::pinned(&self.name, self.hash, &self.manifest.description)
    }
}

fn is_program(path: &str, content: &[u8]) -> bool {
    path.starts_with(SCRIPTS) || content.starts_with(b"#!")
}

fn front_of(files: &BTreeMap<String, Vec<u8>>) -> Result<FrontMatter, SkillFault> {
    let fault = |detail: &str| SkillFault::of(SKILL_FILE, detail);
    let file = files.get(SKILL_FILE);
    let file = file.ok_or_else(|| fault("is missing: it makes a folder a skill"))?;
    let text = std::str::from_utf8(file).map_err(|_| fault("is not UTF-8 text"))?;
    front_matter::read(text).map_err(|detail| fault(&detail))
}

/// What is wrong with the files themselves.
fn check_files(files: &BTreeMap<String, Vec<u8>>) -> Vec<SkillFault> {
    let mut faults = Vec::new();
    let bytes: usize = files.values().map(Vec::len).sum();
    if bytes > SKILL_BYTES_MAX {
        let detail = format!("has {bytes} bytes; a skill has at most {SKILL_BYTES_MAX}");
        faults.push(SkillFault::of("", detail));
    }
    if files.len() > SKILL_FILES_MAX {
        let detail = format!(
            "has {} files; a skill has at most {SKILL_FILES_MAX}",
            files.len()
        );
        faults.push(SkillFault::of("", detail));
    }
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for path in files.keys() {
        if !is_path(path) {
            let detail = format!(
                "must be a relative path of at most {PATH_BYTES_MAX} bytes with / between its names"
            );
            faults.push(SkillFault::of(path, detail));
        } else if let Some(other) = seen.insert(path.to_lowercase(), path) {
            let detail = format!("differs from {other} only by case");
            faults.push(SkillFault::of(path, detail));
        }
    }
    for path in files.keys() {
        let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
        if let Some(file) = above.find(|folder| files.contains_key(*folder)) {
            faults.push(SkillFault::of(
                path,
                format!("is below {file}, which is a file"),
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: &str = "---\nname: pdf\ndescription: Reads PDF files.\n---\n# PDF\n";

    fn files(list: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let files = list.iter();
        files
            .map(|(path, content)| ((*path).to_owned(), content.as_bytes().to_vec()))
            .collect()
    }

    fn faults(list: &[(&str, &str)]) -> Vec<String> {
        let read = Skill::read(None, files(list));
        let faults = read.expect_err("is no skill");
        faults.iter().map(SkillFault::to_string).collect()
    }

    #[test]
    fn a_folder_with_a_skill_file_is_a_skill() {
        let list = [
            (SKILL_FILE, FRONT),
            ("scripts/run.py", "print(1)"),
            ("reference/a.md", "text"),
            ("tool", "#!/bin/sh\n"),
        ];
        let skill = Skill::read(Some("pdf"), files(&list)).expect("a skill");
        assert_eq!(
            (skill.name.as_str(), skill.hash),
            ("pdf", SkillHash::of(&files(&list)))
        );
        let shown = skill.manifest.files.iter();
        let shown: Vec<_> = shown
            .map(|file| (file.path.as_str(), file.executable))
            .collect();
        let expected = [
            (SKILL_FILE, false),
            ("reference/a.md", false),
            ("scripts/run.py", true),
            ("tool", true),
        ];
        assert_eq!(shown, expected);
        assert!(skill.manifest.warnings.is_empty());
        assert_eq!(skill.bytes(), 8 + 4 + 10 + FRONT.len() as u64);
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let list = [
            (SKILL_FILE, "---\nname: PDF\n---\n"),
            ("../evil", ""),
            ("/etc/passwd", ""),
            ("a\\b", ""),
            ("c", ""),
            ("c/d", ""),
            ("README.md", ""),
            ("readme.md", ""),
        ];
        let faults = faults(&list);
        assert_eq!(faults.len(), 7, "{faults:#?}");
        assert_eq!(self::faults(&[("a", "")]).len(), 1);
    }

    #[test]
    fn other_readers_mistakes_are_warnings() {
        let long = format!(
            "---\ndescription: {}\nversion: 1\n---\n",
            "word ".repeat(300)
        );
        let skill = Skill::read(Some("pdf"), files(&[(SKILL_FILE, &long)])).expect("a skill");
        assert_eq!(skill.name, "pdf");
        assert_eq!(skill.manifest.warnings.len(), 3);
        let other = Skill::read(Some("other"), files(&[(SKILL_FILE, FRONT)])).expect("a skill");
        assert_eq!(
            (other.name.as_str(), other.manifest.warnings.len()),
            ("pdf", 1)
        );
    }

    #[test]
    fn a_skill_that_is_too_large_is_refused() {
        let big = "x".repeat(SKILL_BYTES_MAX);
        assert!(faults(&[(SKILL_FILE, FRONT), ("big", &big)])[0].contains("bytes"));
        let mut many = files(&[(SKILL_FILE, FRONT)]);
        many.extend((0..SKILL_FILES_MAX).map(|n| (format!("f{n}"), Vec::new())));
        assert!(Skill::read(None, many).is_err());
    }

    #[test]
    fn what_other_programs_leave_behind_is_no_part_of_it() {
        for name in [".git", "__pycache__", "..data", ".DS_Store"] {
            assert!(is_ignored(name), "{name}");
        }
        for name in ["..", ".env.example", "scripts"] {
            assert!(!is_ignored(name), "{name}");
        }
    }
}
