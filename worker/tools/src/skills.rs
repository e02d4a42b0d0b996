//! Skills for models: `skill_read`, and the files of skills in workspaces.
//!
//! `skill_read` returns a skill's instructions, and its other files as text. If the agent has tools
//! that work with files, the skill's files are also placed in its workspace, below [`FOLDER`], in a
//! folder named after the version. They are placed when the skill is read, and before any call that
//! names the folder, so that they are there whichever worker makes the call. Files that already
//! have the version's content are left alone; modified ones are restored.

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
use crate::memory::retry_while_unavailable;

pub(crate) use self::place::PlaceFiles;

/// The folder of skills in a workspace.
pub const FOLDER: &str = ".skills";

/// Bytes of file content placed by one call.
const PIECE_BYTES: u64 = 4 << 20;

/// The skills that a worker's agents read.
#[derive(Debug)]
pub struct Shelf {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Writes into workspaces; unset on a worker that has none.
    placing: OnceLock<Arc<dyn Tool>>,
}

/// The name of the tool that reads skills.
pub(crate) const READ: &str = "skill_read";

pub(crate) const TOOLS: [Listed<Arc<Shelf>>; 1] = [tool(
    READ,
    NOTHING,
    "reads a skill, or a file of it",
    reader,
)];

/// The tool that reads skills from this shelf.
pub(crate) fn reader(shelf: &Arc<Shelf>) -> Arc<dyn Tool> {
    Arc::new(read::SkillRead {
        shelf: shelf.clone(),
    })
}

/// Registers `skill_read`.
pub fn register(shelf: &Arc<Shelf>, tools: &mut Tools) -> Result<(), ToolsError> {
    insert_all(&TOOLS, shelf, tools)
}

impl Shelf {
    /// A shelf of the skills in this store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            placing: OnceLock::new(),
        }
    }

    /// A copy of this shelf that writes into workspaces with this tool.
    pub(crate) fn placed_by(&self, placing: Arc<dyn Tool>) -> Self {
        Self {
            store: self.store.clone(),
            clock: self.clock.clone(),
            placing: OnceLock::from(placing),
        }
    }

    /// Sets the tool that writes into workspaces.
    pub(crate) fn place_with(&self, placing: Arc<dyn Tool>) {
        // Tools are registered once; if there are two, the first serves the same workspace.
        let _ = self.placing.set(placing);
    }

    /// Whether skill files are placed for the agent that makes this call.
    fn places(&self, invocation: &Invocation) -> bool {
        invocation.skills.in_workspace && self.placing.get().is_some()
    }

    /// The record of a skill, in the version that the agent has.
    async fn record(&self, tenant: TenantId, skill: &AgentSkill) -> Result<SkillRecord, ToolError> {
        let refs = || {
            vec![SkillRef {
                name: skill.name().to_owned(),
                hash: skill.hash(),
            }]
        };
        let find = || self.store.find_skills(tenant, refs());
        let found = retry_while_unavailable(self.clock.as_ref(), "the skill", find).await?;
        found.into_iter().next().flatten().ok_or_else(|| {
            let name = skill.name();
            ToolError::reply(format!(
                "the skill {name} was removed and cannot be read any more"
            ))
        })
    }

    /// The content of some files of a version.
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
        retry_while_unavailable(self.clock.as_ref(), "the skill", read).await
    }

    /// Makes sure that the files of a version are in the session's workspace.
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

    /// Places the skills that a call's arguments name, or all of the agent's skills if the
    /// arguments name only the folder.
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
                // The skill was deleted: the call finds whatever is left of it.
                Err(error) => tracing::debug!(%error, "could not read a skill; not placing it"),
            }
        }
        Ok(())
    }
}

/// The workspace folder that holds a skill's files.
fn folder(skill: &AgentSkill) -> String {
    let version = skill.hash().map(|hash| hash.short()).unwrap_or_default();
    format!("{FOLDER}/{}@{version}", skill.name())
}

/// Places these files of a version, and returns the files of the version that are still missing.
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

/// A workspace tool that places the files of skills before a call that names them.
#[derive(Debug)]
pub(crate) struct WithSkillFiles {
    pub(crate) inner: Arc<dyn Tool>,
    pub(crate) shelf: Arc<Shelf>,
}

#[async_trait]
impl Tool for WithSkillFiles {
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
