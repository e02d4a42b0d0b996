//! Skills: instructions for special tasks, with their resources and scripts, in the open Agent Skills
//! format.
//!
//! A skill is a folder with a file `SKILL.md`: YAML front matter that names and describes it, then
//! the instructions. [`Skill::read`] creates one from a folder's files, or reports everything that
//! is wrong with them. Its content has a [`SkillHash`]; a name and a hash are a version, which
//! never changes. An agent names skills ([`AgentSkill`]), and its model is shown their
//! [`catalogue()`].

mod catalogue;
mod folder;
mod front_matter;
mod reference;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::named::named;
use crate::stored::Extra;
use crate::time::Timestamp;

pub use self::catalogue::catalogue;
pub use self::folder::{Skill, is_ignored, is_path, unwrapped};
pub use self::front_matter::body;
pub use self::reference::{AgentSkill, SkillRef};

/// The file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// Maximum length of a skill's name, in characters.
pub const NAME_CHARS_MAX: usize = 64;

/// Maximum length of a description in the format, in characters.
pub const DESCRIPTION_CHARS_MAX: usize = 1_024;

/// Maximum length of a description that is accepted, with a warning: some published skills exceed
/// the format's limit.
pub const DESCRIPTION_CHARS_ACCEPTED: usize = 4_096;

/// Maximum total size of a skill's files, in bytes.
pub const SKILL_BYTES_MAX: usize = 8 << 20;

/// Maximum number of files of a skill.
pub const SKILL_FILES_MAX: usize = 512;

/// Maximum length of a file's path in a skill, in bytes; every database can have this in a key.
pub const PATH_BYTES_MAX: usize = 255;

/// Maximum number of skills of an agent; each takes a line of its prompt.
pub const AGENT_SKILLS_MAX: usize = 64;

/// Whether a skill may have this name: lower-case letters, digits and single hyphens between them.
pub fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_CHARS_MAX).contains(&text.len())
        && text.bytes().all(fits)
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}

/// The SHA-256 of a skill's content.
///
/// It covers the files in the byte order of their paths; for each the path, a zero byte, the length
/// of the content as eight bytes, big-endian, and the content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkillHash([u8; 32]);

impl SkillHash {
    /// The hash of these files.
    pub fn of(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let mut hash = Sha256::new();
        for (path, content) in files {
            hash.update(path.as_bytes());
            hash.update([0]);
            hash.update((content.len() as u64).to_be_bytes());
            hash.update(content);
        }
        Self(hash.finalize().into())
    }

    /// The hash of one file's content.
    pub fn of_file(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its first twelve digits, for people and for the names of directories.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(12);
        text
    }
}

impl fmt::Display for SkillHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SkillHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("64 lower-case hex digits are expected")]
pub struct ParseHashError;

impl FromStr for SkillHash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        let digits = text.as_bytes();
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 64 || !digits.iter().all(is_hex) {
            return Err(ParseHashError);
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| ParseHashError)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for SkillHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SkillHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// Something that is wrong with a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SkillFault {
    /// The file that it is about; empty for the whole skill.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub path: String,
    /// A message for people.
    pub detail: String,
}

impl SkillFault {
    /// A fault of a file.
    pub fn of(path: &str, detail: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            detail: detail.into(),
        }
    }
}

impl fmt::Display for SkillFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.detail)
        } else {
            write!(f, "{}: {}", self.path, self.detail)
        }
    }
}

/// The description of a version, stored with its files.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// What it is for and when to use it.
    pub description: String,
    /// Its licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Its requirements on the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// Its author's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// The tools that it asks for. Informational only: an agent's own list decides what it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Value>,
    /// Deviations from the format that were accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Its files in the byte order of their paths.
    pub files: Vec<SkillFile>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// A file of a skill, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SkillFile {
    /// Its path in the skill's folder.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// The SHA-256 of its content.
    #[schema(value_type = String)]
    pub sha256: SkillHash,
    /// Whether it is placed into workspaces as a program: it starts with `#!`, or is under `scripts/`.
    pub executable: bool,
}

named! {
    /// Where a skill came from.
    SkillSource {
        /// From the API.
        Uploaded = "uploaded",
        /// From a folder of a process.
        Mounted = "mounted",
    }
}

/// A version of a skill, without its files' content.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillRecord {
    /// Its name.
    pub name: String,
    /// Its version.
    pub hash: SkillHash,
    /// Where the version came from when it was stored.
    pub source: SkillSource,
    /// Its manifest.
    pub manifest: Manifest,
    /// When the version was stored.
    pub created_at: Timestamp,
}

impl SkillRecord {
    /// The version as pinned by an agent.
    pub fn pinned(&self) -> AgentSkill {
        AgentSkill::pinned(&self.name, self.hash, &self.manifest.description)
    }
}

/// A mounted skill that was left out because of faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenSkill {
    /// The folder that it is in, by its name.
    pub folder: String,
    /// What is wrong with it.
    pub faults: Vec<SkillFault>,
    /// When a process last reported them.
    pub seen_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_format() {
        for good in ["a", "pdf", "web-app-2", &"n".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "",
            "PDF",
            "a_b",
            "-a",
            "a-",
            "a--b",
            "a b",
            "ä",
            &"n".repeat(65),
        ] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let files = BTreeMap::from([("a".to_owned(), b"1".to_vec())]);
        let hash = SkillHash::of(&files);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(
            hash.to_string().to_uppercase().parse::<SkillHash>(),
            Err(ParseHashError)
        );
        assert_eq!("ä".repeat(32).parse::<SkillHash>(), Err(ParseHashError));
        assert_eq!(hash.short().len(), 12);
    }

    #[test]
    fn what_belongs_to_a_path_and_what_to_a_content_tells_hashes_apart() {
        let of = |path: &str, content: &str| {
            SkillHash::of(&BTreeMap::from([(
                path.to_owned(),
                content.as_bytes().to_vec(),
            )]))
        };
        assert_ne!(of("a", "bc"), of("ab", "c"));
        assert_ne!(of("a", ""), of("b", ""));
    }
}
