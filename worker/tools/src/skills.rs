//! Skills for models: `skill_read`, and the files of skills in workspaces.
//!
//! `skill_read` gives the instructions of a skill, and its other files as text. Where the agent has tools
//! that work with files, the skill's files lie in its workspace too, below [`FOLDER`], in a folder that is
//! named like the version: they are placed when the skill is read, and before a call that names the
//! folder, so that they are there on whichever worker the call is made. What is there already and has the
//! version's content is left; what was changed is put right.

mod place;
mod read;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{AgentSkill, SkillRecord, SkillRef};
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use mainspring_worker::tool::{
    Invocation, Output, Tool, ToolError, ToolSpec, Tools, ToolsError, Traits,
};
use serde_json::{Map, Value, json};

use crate::catalogue::{Listed, NOTHING, insert_all, tool};
use crate::memory::patiently;

pub(crate) use self::place::PlaceFiles;

/// The folder of skills in a workspace.
pub const FOLDER: &str = ".skills";

/// Bytes of files that are placed in one piece.
const PIECE_BYTES: u64 = 4 << 20;

/// The skills that agents of a worker read.
#[derive(Debug)]
pub struct Shelf {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// What writes into workspaces; none on a worker that has none.
    placing: OnceLock<Arc<dyn Tool>>,
}

/// What reads skills.
pub(crate) const READ: &str = "skill_read";

pub(crate) const TOOLS: [Listed<Arc<Shelf>>; 1] = [tool(
    READ,
    NOTHING,
    "reads a skill, or a file of it",
    reader,
)];

/// What reads the skills of this shelf.
pub(crate) fn reader(shelf: &Arc<Shelf>) -> Arc<dyn Tool> {
    Arc::new(read::SkillRead {
        shelf: shelf.clone(),
    })
}

/// Enters `skill_read`.
pub fn register(shelf: &Arc<Shelf>, tools: &mut Tools) -> Result<(), ToolsError> {
    insert_all(&TOOLS, shelf, tools)
}

impl Shelf {
    /// Skills of this store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            placing: OnceLock::new(),
        }
    }

    /// The same, with this tool that writes into workspaces.
    pub(crate) fn placed_by(&self, placing: Arc<dyn Tool>) -> Self {
        Self {
            store: self.store.clone(),
            clock: self.clock.clone(),
            placing: OnceLock::from(placing),
        }
    }

    /// Has this tool write into workspaces.
    pub(crate) fn place_with(&self, placing: Arc<dyn Tool>) {
        // Tools are registered once; of two the first serves the same workspace.
        let _ = self.placing.set(placing);
    }

    /// Whether files of skills are placed for whoever makes this call.
    fn places(&self, invocation: &Invocation) -> bool {
        invocation.skills.in_workspace && self.placing.get().is_some()
    }

    /// A version, as its agent has it.
    async fn record(&self, tenant: TenantId, skill: &AgentSkill) -> Result<SkillRecord, ToolError> {
        let refs = || {
            vec![SkillRef {
                name: skill.name().to_owned(),
                hash: skill.hash(),
            }]
        };
        let find = || self.store.find_skills(tenant, refs());
        let found = patiently(self.clock.as_ref(), "the skill", find).await?;
        found.into_iter().next().flatten().ok_or_else(|| {
            let name = skill.name();
            ToolError::reply(format!(
                "the skill {name} was removed and cannot be read any more"
            ))
        })
    }

    /// The content of files of a version.
    async fn files(
        &self,
        tenant: TenantId,
        record: &SkillRecord,
        paths: Vec<String>,
    ) -> Result<BTreeMap<String, Vec<u8>>, ToolError> {
        let read = || {
            let (name, paths) = (record.name.clone(), paths.clone());
            self.store
                .read_skill_files(tenant, name, record.hash, paths)
        };
        patiently(self.clock.as_ref(), "the skill", read).await
    }

    /// Sees to it that the files of a version are in the session's workspace.
    async fn place(&self, invocation: &Invocation, record: &SkillRecord) -> Result<(), ToolError> {
        let Some(placing) = self.placing.get() else {
            return Ok(());
        };
        let missing = ask(placing, invocation, record, &BTreeMap::new()).await?;
        let mut pieces: Vec<Vec<String>> = Vec::new();
        let mut room = 0;
        for file in &record.manifest.files {
            if !missing.contains(&file.path) {
                continue;
            }
            match pieces.last_mut() {
                Some(piece) if file.bytes <= room => piece.push(file.path.clone()),
                Some(_) | None => {
                    pieces.push(vec![file.path.clone()]);
                    room = PIECE_BYTES;
                }
            }
            room = room.saturating_sub(file.bytes);
        }
        for piece in pieces {
            let files = self.files(invocation.session.tenant, record, piece).await?;
            ask(placing, invocation, record, &files).await?;
        }
        Ok(())
    }

    /// Places the skills that a call's arguments name; all of the agent's where they name the folder
    /// alone.
    async fn place_named(&self, invocation: &Invocation) -> Result<(), ToolError> {
        let arguments = Value::Object(invocation.arguments.clone()).to_string();
        if !arguments.contains(FOLDER) {
            return Ok(());
        }
        let all = invocation.skills.of_agent.iter();
        let named = all
            .clone()
            .filter(|skill| arguments.contains(&folder(skill)));
        let mut wanted: Vec<&AgentSkill> = named.collect();
        if wanted.is_empty() {
            wanted = all.collect();
        }
        for skill in wanted {
            match self.record(invocation.session.tenant, skill).await {
                Ok(record) => self.place(invocation, &record).await?,
                // It was removed: the call finds what is left of it.
                Err(error) => tracing::debug!(%error, "a skill is not placed"),
            }
        }
        Ok(())
    }
}

/// Where a skill's files lie in a workspace.
fn folder(skill: &AgentSkill) -> String {
    let version = skill.hash().map(|hash| hash.short()).unwrap_or_default();
    format!("{FOLDER}/{}@{version}", skill.name())
}

/// Places these files of a version, and says which of all are missing now.
async fn ask(
    placing: &Arc<dyn Tool>,
    invocation: &Invocation,
    record: &SkillRecord,
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<Vec<String>, ToolError> {
    let contents = files.iter();
    let contents: Map<String, Value> = contents
        .map(|(path, content)| (path.clone(), json!(BASE64_STANDARD.encode(content))))
        .collect();
    let arguments = json!({
        "folder": folder(&record.pinned()),
        "files": record.manifest.files,
        "contents": contents,
    });
    let Value::Object(arguments) = arguments else {
        return Err(ToolError::reply("the skill cannot be placed"));
    };
    let answer = placing
        .call(Invocation {
            arguments,
            ..invocation.clone()
        })
        .await?;
    let missing = answer
        .value
        .and_then(|value| serde_json::from_value(value).ok());
    missing.ok_or_else(|| ToolError::reply("the skill's files could not be placed"))
}

/// A tool of the workspace that finds the files of skills there.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) inner: Arc<dyn Tool>,
    pub(crate) shelf: Arc<Shelf>,
}

#[async_trait]
impl Tool for Beside {
    fn spec(&self) -> ToolSpec {
        self.inner.spec()
    }

    fn traits(&self) -> Traits {
        Traits {
            in_workspace: true,
            ..self.inner.traits()
        }
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        if !invocation.skills.of_agent.is_empty() {
            self.shelf.place_named(&invocation).await?;
        }
        self.inner.call(invocation).await
    }
}
