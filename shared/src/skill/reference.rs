//! References to skills.

use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{NAME_CHARS_MAX, SkillHash, is_name};

/// A skill by its name, or a version of it: `NAME` or `NAME@HASH`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkillRef {
    /// Its name.
    pub name: String,
    /// The version; the current one when absent.
    pub hash: Option<SkillHash>,
}

/// A text that is not a valid reference to a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseRefError {
    /// The name is invalid.
    #[error(
        "the name of a skill has 1 to {NAME_CHARS_MAX} lower-case letters, digits and single hyphens \
         between them"
    )]
    Name,
    /// The part after the @ is not a hash.
    #[error("after @, the hash of a version is expected: 64 lower-case hex digits")]
    Hash,
}

impl FromStr for SkillRef {
    type Err = ParseRefError;

    fn from_str(text: &str) -> Result<Self, ParseRefError> {
        let (name, hash) = match text.split_once('@') {
            None => (text, None),
            Some((name, hash)) => (name, Some(hash.parse().map_err(|_| ParseRefError::Hash)?)),
        };
        if !is_name(name) {
            return Err(ParseRefError::Name);
        }
        Ok(Self {
            name: name.to_owned(),
            hash,
        })
    }
}

impl fmt::Display for SkillRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.hash.map_or(Ok(()), |hash| write!(f, "@{hash}"))
    }
}

/// A skill of an agent.
///
/// A request names it as `"NAME"` or `"NAME@HASH"`. The stored form has the version that the name
/// referred to then and its description for the model, so that the prompt depends on the agent
/// alone: `{"name", "hash", "description"}`. Both forms can be read. It is shown as `"NAME@HASH"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSkill {
    /// The name. An invalid reference is kept as it is, and reported when the request is checked.
    name: String,
    hash: Option<SkillHash>,
    description: Option<String>,
}

impl AgentSkill {
    /// A version with its description.
    pub fn pinned(name: &str, hash: SkillHash, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            hash: Some(hash),
            description: Some(description.to_owned()),
        }
    }

    /// The reference.
    pub fn reference(&self) -> Result<SkillRef, ParseRefError> {
        match self.hash {
            None => self.name.parse(),
            Some(_) if !is_name(&self.name) => Err(ParseRefError::Name),
            hash => Ok(SkillRef {
                name: self.name.clone(),
                hash,
            }),
        }
    }

    /// Its name, valid once it was checked.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version; `None` before the name is resolved.
    pub fn hash(&self) -> Option<SkillHash> {
        self.hash
    }

    /// The description for the model; `None` before the name is resolved.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The form shown to people, without its description.
    #[must_use]
    pub fn shown(self) -> Self {
        Self {
            description: None,
            ..self
        }
    }
}

impl FromStr for AgentSkill {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, hash) = match text.parse::<SkillRef>() {
            Ok(SkillRef { name, hash }) => (name, hash),
            Err(_) => (text.to_owned(), None),
        };
        Ok(Self {
            name,
            hash,
            description: None,
        })
    }
}

impl Serialize for AgentSkill {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (&self.hash, &self.description) {
            (Some(hash), Some(description)) => {
                let mut fields = serializer.serialize_struct("AgentSkill", 3)?;
                fields.serialize_field("name", &self.name)?;
                fields.serialize_field("hash", hash)?;
                fields.serialize_field("description", description)?;
                fields.end()
            }
            (Some(hash), None) => serializer.collect_str(&format_args!("{}@{hash}", self.name)),
            (None, _) => serializer.serialize_str(&self.name),
        }
    }
}

impl<'de> Deserialize<'de> for AgentSkill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Pinned {
            name: String,
            hash: SkillHash,
            description: String,
        }

        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = AgentSkill;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("NAME or NAME@HASH")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AgentSkill, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AgentSkill, A::Error> {
                let Pinned {
                    name,
                    hash,
                    description,
                } = Pinned::deserialize(MapAccessDeserializer::new(map))?;
                if !is_name(&name) {
                    return Err(A::Error::custom(ParseRefError::Name));
                }
                Ok(AgentSkill::pinned(&name, hash, &description))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> AgentSkill {
        serde_json::from_str(json).expect(json)
    }

    #[test]
    fn a_skill_is_named_stored_and_shown() {
        let hash = SkillHash::of_file(b"x");
        let named = read("\"pdf\"");
        assert_eq!(named.reference().map(|named| named.hash), Ok(None));
        assert_eq!(serde_json::to_string(&named).expect("json"), "\"pdf\"");
        let version = read(&format!("\"pdf@{hash}\""));
        assert_eq!(version.hash(), Some(hash));
        let pinned = AgentSkill::pinned("pdf", hash, "Reads \"PDF\".");
        let stored = serde_json::to_string(&pinned).expect("json");
        assert_eq!(read(&stored), pinned);
        let shown = serde_json::to_string(&pinned.shown()).expect("json");
        assert_eq!(shown, format!("\"pdf@{hash}\""));
    }

    #[test]
    fn what_names_no_skill_says_so() {
        assert_eq!(read("\"PDF\"").reference(), Err(ParseRefError::Name));
        for text in ["", "a@", "a@b", "@"] {
            assert!(text.parse::<SkillRef>().is_err(), "{text}");
            assert!(read(&format!("{text:?}")).reference().is_err(), "{text}");
        }
        for json in [
            "7",
            "{}",
            "{\"name\":\"a\",\"hash\":\"b\",\"description\":\"\"}",
        ] {
            assert!(serde_json::from_str::<AgentSkill>(json).is_err(), "{json}");
        }
    }
}
