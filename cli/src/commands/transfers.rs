//! `mainspring export` and `mainspring import`: what a tenant has, as lines of JSON.
//!
//! The first line is `{format, version}`. Then come a line per version of a skill, the versions and the state of each
//! agent, a line per entry of the memory, and the archive of each session between two lines that name it; the
//! last line has the counts. Whatever is numbered or listed by age comes oldest first, so that an import makes it
//! in the order in which it was made.

mod export;
mod import;
mod versions;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::segment;

pub(super) use self::export::run as export;
pub(super) use self::import::run as import;

/// What every export calls itself.
const FORMAT: &str = "mainspring.tenant";

/// The one version that there is.
const VERSION: u32 = 1;

/// A line between those of sessions' archives.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// A version of a skill.
    Skill(SkillLine),
    /// A version of an agent.
    Agent(AgentLine),
    /// What follows an agent's versions.
    AgentState(StateLine),
    /// An entry of the memory.
    Memory(MemoryLine),
    /// The lines up to the next one of these are the archive of this session.
    Session(String),
    /// The archive of this session ends.
    SessionEnd(String),
    /// The last line.
    End(Counts),
}

/// A version of a skill, with its files as they are published.
#[derive(Debug, Serialize, Deserialize)]
struct SkillLine {
    name: String,
    hash: String,
    files: Map<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AgentLine {
    name: String,
    version: i64,
    hash: String,
    spec: Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct StateLine {
    name: String,
    aliases: Map<String, Value>,
    archived: bool,
}

/// An entry. The conversations that it came from are not part of it: their ids are others after an import.
#[derive(Debug, Serialize, Deserialize)]
struct MemoryLine {
    id: String,
    namespace: String,
    text: String,
    #[serde(default)]
    metadata: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// How many lines of each kind stand before the last one.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    skills: u64,
    agents: u64,
    memories: u64,
    sessions: u64,
}

/// A path whose segments may have any characters.
fn escaped(path: &str) -> String {
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_their_slashes_and_nothing_else_that_means_something() {
        assert_eq!(escaped("a/b c?#%.md"), "a/b%20c%3F%23%25.md");
        assert_eq!(escaped("ä"), "%C3%A4");
    }

    #[test]
    fn a_line_says_what_it_is() {
        let line = serde_json::to_string(&Line::Session("ses_1".into())).expect("JSON");
        assert_eq!(line, r#"{"session":"ses_1"}"#);
        let end: Line =
            serde_json::from_str(r#"{"end":{"skills":0,"agents":1,"memories":2,"sessions":3}}"#)
                .expect("a line");
        assert!(matches!(
            end,
            Line::End(Counts {
                agents: 1,
                sessions: 3,
                ..
            })
        ));
        assert!(serde_json::from_str::<Line>(r#"{"wish":{}}"#).is_err());
    }
}
