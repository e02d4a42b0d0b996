//! `mainspring export` and `mainspring import`: a tenant's data as lines of JSON.
//!
//! The first line is `{format, version}`. Then come one line per version of a skill, the versions
//! and the state of each agent, one line per memory entry, and the archive of each session between
//! two lines that name it; the last line has the counts. Everything that is numbered or ordered by
//! age comes oldest first, so that an import creates it in the original order.

mod export;
mod import;
mod versions;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::segment;

pub(super) use self::export::run as export;
pub(super) use self::import::run as import;

/// The format name in every export.
const FORMAT: &str = "mainspring.tenant";

/// The only version of the format.
const VERSION: u32 = 1;

/// A line outside the archives of sessions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// A version of a skill.
    Skill(SkillLine),
    /// A version of an agent.
    Agent(AgentLine),
    /// The state of an agent, which follows its versions.
    AgentState(StateLine),
    /// An entry of the memory.
    Memory(MemoryLine),
    /// The lines up to the next one of these kinds are the archive of this session.
    Session(String),
    /// The end of this session's archive.
    SessionEnd(String),
    /// The last line.
    End(Counts),
}

/// A version of a skill, with its files in the form in which they are published.
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

/// A memory entry. It does not include the conversations that it came from, because an import
/// changes their ids.
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

/// The number of lines of each kind before the last line.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    skills: u64,
    agents: u64,
    memories: u64,
    sessions: u64,
}

/// Encodes a path segment by segment.
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
