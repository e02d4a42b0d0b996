//! `mainspring skills …`

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mainspring_runtime::read_skill;
use mainspring_shared::error::Code;
use mainspring_shared::skill::{SKILL_FILE, Skill, SkillFault};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{archives, lists};
use crate::args::{Format, SkillsCommand};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

const COLUMNS: [Column; 6] = [
    ("NAME", "name"),
    ("HASH", "hash"),
    ("SOURCE", "source"),
    ("FILES", "files"),
    ("BYTES", "bytes"),
    ("CREATED", "created_at"),
];

const CHECKED_COLUMNS: [Column; 3] = [("NAME", "name"), ("HASH", "hash"), ("FILES", "files")];

pub(crate) async fn run(
    command: &SkillsCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        SkillsCommand::Add { path } => {
            let key = client.fresh_key();
            let published = client.ask(upload(path)?.key(key)).await?;
            for warning in published["warnings"].as_array().into_iter().flatten() {
                let text = warning.as_str().unwrap_or_default();
                output::note(&output::harmless(&format!("warning: {text}")));
            }
            output::object(format, &published)
        }
        SkillsCommand::List { page } => {
            let request = Request::get("/v1/skills");
            warn_of_broken(&client).await?;
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &COLUMNS, &rows)
        }
        SkillsCommand::Show { name } => {
            let request = Request::get(format!("/v1/skills/{name}"));
            output::object(format, &client.ask(request).await?)
        }
        SkillsCommand::Read { name, path } => {
            let request = Request::get(format!("/v1/skills/{name}/files/{path}"));
            client.download(request, output::bytes).await
        }
        SkillsCommand::Remove { name, versions } => {
            let request = Request::new(Method::DELETE, format!("/v1/skills/{name}"))
                .query("versions", versions.then_some("true"));
            client.ask(request).await.map(drop)
        }
        SkillsCommand::Check { dirs } => check(dirs, format),
    }
}

/// Warns of mounted skills that could not be loaded.
async fn warn_of_broken(client: &Client) -> Result<(), Failure> {
    let request = Request::get("/v1/skills").query("limit", Some(1));
    let answer = client.ask(request).await?;
    for broken in answer["warnings"].as_array().into_iter().flatten() {
        let name = broken["name"].as_str().unwrap_or_default();
        for error in broken["errors"].as_array().into_iter().flatten() {
            let path = error["path"].as_str().unwrap_or_default();
            let fault = SkillFault::of(path, error["detail"].as_str().unwrap_or_default());
            let text = format!("warning: the skill {name} was left out: {fault}");
            output::note(&output::harmless(&text));
        }
    }
    Ok(())
}

/// The request that publishes the skill at a path.
fn upload(path: &Path) -> Result<Request, Failure> {
    let request = Request::post("/v1/skills");
    if !path.is_dir() {
        return Ok(request.archive(archives::read(path)?));
    }
    let skill = read_skill(path).map_err(|faults| refused(path, &faults))?;
    let files = skill.files.into_iter().map(|(path, content)| {
        let content = match String::from_utf8(content) {
            Ok(text) => Value::String(text),
            Err(bytes) => json!({ "base64": BASE64_STANDARD.encode(bytes.as_bytes()) }),
        };
        (path, content)
    });
    let files: Map<String, Value> = files.collect();
    Ok(request.body(json!({ "files": files })))
}

fn refused(path: &Path, faults: &[SkillFault]) -> Failure {
    let faults: Vec<String> = faults.iter().map(SkillFault::to_string).collect();
    let message = format!("{} is no skill: {}", path.display(), faults.join("; "));
    Failure::new(Exit::Failure, message).code(Code::SkillInvalid)
}

/// Checks skills without a server.
pub(crate) fn check(dirs: &[PathBuf], format: Format) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut sound = true;
    for folder in dirs
        .iter()
        .map(|dir| folders(dir))
        .collect::<Result<Vec<_>, _>>()?
        .concat()
    {
        let shown = folder.display();
        match read_skill(&folder) {
            Ok(skill) => {
                for warning in &skill.manifest.warnings {
                    output::note(&output::harmless(&format!("{shown}: warning: {warning}")));
                }
                rows.push(row(&skill));
            }
            Err(faults) => {
                sound = false;
                for fault in faults {
                    output::note(&output::harmless(&format!("{shown}: {fault}")));
                }
            }
        }
    }
    output::list(format, &CHECKED_COLUMNS, &rows)?;
    if sound {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Failure))
    }
}

fn row(skill: &Skill) -> Value {
    json!({
        "name": skill.name,
        "hash": skill.hash,
        "files": skill.files.len(),
        "bytes": skill.bytes(),
        "description": skill.manifest.description,
        "warnings": skill.manifest.warnings,
    })
}

/// The skill folders: the folder itself, or those in it.
fn folders(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    if dir.join(SKILL_FILE).exists() {
        return Ok(vec![dir.to_owned()]);
    }
    let failed = |error: std::io::Error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Failure,
        };
        Failure::new(exit, format!("{}: {error}", dir.display()))
    };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_dir() && !hidden {
            folders.push(path);
        }
    }
    folders.sort();
    // A folder without subfolders is taken for a skill whose file is missing.
    Ok(if folders.is_empty() {
        vec![dir.to_owned()]
    } else {
        folders
    })
}
