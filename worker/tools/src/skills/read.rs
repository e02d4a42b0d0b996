//! `skill_read`.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::skill::{SKILL_FILE, SkillRecord, body};
use mainspring_shared::tool::Repeat;
use mainspring_worker::tool::{Effect, Invocation, Output, Tool, ToolError, ToolSpec, Traits};
use serde::Deserialize;
use serde_json::json;

use super::{Shelf, folder};
use crate::files::text::is_binary;
use crate::files::work::{arguments, invalid};

/// Characters of one page; below the limit at which an output would itself be cut.
const PAGE_CHARS: usize = 40_000;

/// Paths listed together with a skill's instructions.
const LISTED_MAX: usize = 200;

#[derive(Debug, Deserialize)]
struct Arguments {
    name: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    offset: usize,
}

/// `skill_read`: returns the instructions of one of the agent's skills, or another of its files.
#[derive(Debug)]
pub(super) struct SkillRead {
    pub(super) shelf: Arc<Shelf>,
}

#[async_trait]
impl Tool for SkillRead {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "skill_read".into(),
            description: "Reads a skill: its instructions and the list of its files, or with \
                          `path` one of these files. Long texts are paged: the result says how to \
                          continue."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["name"],
                "additionalProperties": false,
                "properties": {
                    "name": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The skill's name.",
                    },
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "A file of the skill, by its path in the skill.",
                    },
                    "offset": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "First character to show, 0 by default.",
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            effect: Effect::ReadSkills,
            ..Traits::new(Repeat::Safe)
        }
    }

    async fn call(&self, mut invocation: Invocation) -> Result<Output, ToolError> {
        let given = std::mem::take(&mut invocation.arguments);
        let wanted: Arguments = arguments(given)?;
        let skills = &invocation.skills.of_agent;
        let skill = skills.iter().find(|skill| skill.name() == wanted.name);
        let Some(skill) = skill.cloned() else {
            let names: Vec<&str> = skills
                .iter()
                .map(mainspring_shared::skill::AgentSkill::name)
                .collect();
            return Err(invalid(match names.as_slice() {
                [] => "this agent has no skills".to_owned(),
                names => format!(
                    "there is no skill {:?}; there are: {}",
                    wanted.name,
                    names.join(", ")
                ),
            }));
        };
        let tenant = invocation.session.tenant;
        let record = self.shelf.record(tenant, &skill).await?;
        let place = self.shelf.places(&invocation).then(|| folder(&skill));
        if place.is_some() {
            self.shelf.place(&invocation, &record).await?;
        }
        let path = path_of(&record, wanted.path.as_deref(), place.as_deref())?;
        let mut files = self
            .shelf
            .files(tenant, &record, vec![path.clone()])
            .await?;
        let content = files.remove(&path).unwrap_or_default();
        let text = text(&record, &path, content, place.as_deref())?;
        let page = page(&text, &path, wanted.offset);
        let list =
            (path == SKILL_FILE && wanted.offset == 0).then(|| list(&record, place.as_deref()));
        let directory = place
            .map(|place| format!(" directory=\"{place}\""))
            .unwrap_or_default();
        let digest = format!("read {path} of the skill {}", record.name);
        Ok(Output::text(format!(
            "<skill name=\"{}\" version=\"{}\" path=\"{path}\"{directory}>\n{}{page}\n</skill>",
            record.name,
            record.hash.short(),
            list.unwrap_or_default(),
        ))
        .with_digest(digest))
    }
}

/// The file that is asked for: the instructions, or a path in the skill or in the workspace.
fn path_of(
    record: &SkillRecord,
    given: Option<&str>,
    place: Option<&str>,
) -> Result<String, ToolError> {
    let Some(given) = given else {
        return Ok(SKILL_FILE.to_owned());
    };
    let inner = place.and_then(|place| given.strip_prefix(place)?.strip_prefix('/'));
    let path = inner.unwrap_or(given);
    let path = path.strip_prefix("./").unwrap_or(path);
    if record.manifest.files.iter().any(|file| file.path == path) {
        return Ok(path.to_owned());
    }
    Err(invalid(format!(
        "the skill {} has no file {given:?}; its {SKILL_FILE} is read without `path`",
        record.name
    )))
}

fn text(
    record: &SkillRecord,
    path: &str,
    content: Vec<u8>,
    place: Option<&str>,
) -> Result<String, ToolError> {
    let bytes = content.len();
    let text = if is_binary(&content) {
        None
    } else {
        String::from_utf8(content).ok()
    };
    match text {
        Some(text) if path == SKILL_FILE => Ok(body(&text).to_owned()),
        Some(text) => Ok(text),
        None => Err(ToolError::reply(match place {
            Some(place) => {
                format!("{path} is a binary file ({bytes} bytes), available at {place}/{path}")
            }
            None => format!(
                "{path} of the skill {} is a binary file ({bytes} bytes)",
                record.name
            ),
        })),
    }
}

/// A page of the text, with a note on how to continue after it.
fn page(text: &str, path: &str, offset: usize) -> String {
    let chars = text.chars().count();
    if offset > 0 && offset >= chars {
        return format!("[{path} has {chars} characters, none after {offset}]");
    }
    let page: String = text.chars().skip(offset).take(PAGE_CHARS).collect();
    let end = offset + page.chars().count();
    if end < chars {
        format!("{page}\n[characters {offset} to {end} of {chars}; continue with offset {end}]")
    } else {
        page.trim_end().to_owned()
    }
}

/// The list above the instructions: the other files, and how to use them.
fn list(record: &SkillRecord, place: Option<&str>) -> String {
    let others = record.manifest.files.iter();
    let others: Vec<_> = others.filter(|file| file.path != SKILL_FILE).collect();
    if others.is_empty() {
        return String::new();
    }
    let mut text = match place {
        Some(place) => format!(
            "The files of this skill lie in the workspace, in {place}. Paths in the instructions are \
             relative to that directory. Run its scripts from there, and write results elsewhere in the \
             workspace: what is changed there is put back.\nFiles:\n"
        ),
        None => "Other files of this skill, to be read with `path`:\n".to_owned(),
    };
    for file in others.iter().take(LISTED_MAX) {
        let program = if file.executable { ", executable" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- {} ({} bytes{program})", file.path, file.bytes);
    }
    if others.len() > LISTED_MAX {
        let _ = writeln!(text, "- and {} more", others.len() - LISTED_MAX);
    }
    text.push('\n');
    text
}
