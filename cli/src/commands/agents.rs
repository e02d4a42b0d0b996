//! `mainspring agents …`

mod files;

use std::fmt::Write as _;
use std::path::Path;

use mainspring_shared::agent::{AgentQuery, Pick};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::lists;
use crate::args::{AgentsCommand, ApplyArgs, Format};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

const COLUMNS: [Column; 5] = [
    ("NAME", "name"),
    ("VERSION", "version"),
    ("ALIASES", "aliases"),
    ("UPDATED", "updated_at"),
    ("ARCHIVED", "archived_at"),
];

const VERSION_COLUMNS: [Column; 4] = [
    ("VERSION", "version"),
    ("CREATED", "created_at"),
    ("MODEL", "spec.model"),
    ("HASH", "hash"),
];

const APPLIED_COLUMNS: [Column; 3] = [
    ("NAME", "name"),
    ("VERSION", "version"),
    ("OUTCOME", "outcome"),
];

pub(crate) async fn run(
    command: &AgentsCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        AgentsCommand::Apply(args) => apply(args, format, &client).await,
        AgentsCommand::List { archived, page } => {
            let request = Request::get("/v1/agents").query("archived", archived.then_some(true));
            let mut rows = lists::rows(&client, &request, page.limit).await?;
            if format == Format::Table {
                for row in &mut rows {
                    row["aliases"] = aliases(&row["aliases"]);
                }
            }
            output::list(format, &COLUMNS, &rows)
        }
        AgentsCommand::Show { agent } => {
            let shown = show(&client, agent).await?;
            output::object(format, &shown)
        }
        AgentsCommand::Versions { name, page } => {
            let request = Request::get(format!("/v1/agents/{name}/versions"));
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &VERSION_COLUMNS, &rows)
        }
        AgentsCommand::Diff { name, from, to } => {
            let request = Request::get(format!("/v1/agents/{name}/diff"))
                .query("from", from.as_ref())
                .query("to", to.as_ref());
            let diff = client.ask(request).await?;
            match format {
                Format::Table => output::raw(&lines(&diff)),
                Format::Json | Format::Jsonl => output::object(format, &diff),
            }
        }
        AgentsCommand::Alias {
            name,
            alias,
            number,
            ..
        } => {
            let path = format!("/v1/agents/{name}/aliases/{alias}");
            let request = match number {
                Some(number) => Request::new(Method::PUT, path).body(json!({ "version": number })),
                None => Request::new(Method::DELETE, path),
            };
            output::object(format, &client.ask(request).await?)
        }
        AgentsCommand::Archive { name } => {
            let request = Request::new(Method::DELETE, format!("/v1/agents/{name}"));
            output::object(format, &client.ask(request).await?)
        }
    }
}

/// An agent, or the version that a reference selects.
async fn show(client: &Client, query: &AgentQuery) -> Result<Value, Failure> {
    let name = &query.name;
    let agent = async || client.ask(Request::get(format!("/v1/agents/{name}"))).await;
    let version = match &query.pick {
        Pick::Newest => return agent().await,
        Pick::Version(n) => *n,
        Pick::Alias(alias) => {
            let agent = agent().await?;
            let version = agent["aliases"][alias.as_str()].as_i64();
            let version = version.and_then(|n| i32::try_from(n).ok());
            version.ok_or_else(|| {
                let message = format!("the agent {name} has no alias {alias}");
                Failure::new(Exit::NotFound, message)
                    .next(format!("`mainspring agents show {name}` shows its aliases"))
            })?
        }
    };
    let path = format!("/v1/agents/{name}/versions/{version}");
    client.ask(Request::get(path)).await
}

/// Publishes the agents in files, in order. All files are read before anything is published.
async fn apply(args: &ApplyArgs, format: Format, client: &Client) -> Result<(), Failure> {
    let mut agents = Vec::new();
    for file in &args.files {
        agents.extend(files::agents(file)?);
    }
    if args.dry_run {
        return preview(agents, format, client).await;
    }
    let mut applied = Vec::with_capacity(agents.len());
    for agent in agents {
        let name = agent.name.clone();
        let outcome = publish(client, agent, args).await;
        // Agents published before the failure stay, and are listed.
        match outcome {
            Ok(outcome) => applied.push(outcome),
            Err(failure) => {
                output::list(format, &APPLIED_COLUMNS, &applied)?;
                return Err(failure.about(&name));
            }
        }
    }
    output::list(format, &APPLIED_COLUMNS, &applied)
}

async fn publish(
    client: &Client,
    agent: files::AgentFile,
    args: &ApplyArgs,
) -> Result<Value, Failure> {
    let request = Request::post("/v1/agents")
        .body(agent.body())
        .key(client.fresh_key());
    let (status, version) = client.ask_status(request).await?;
    let outcome = match (status, version["version"].as_i64()) {
        (StatusCode::CREATED, Some(1)) => "created",
        (StatusCode::CREATED, _) => "updated",
        (_, _) => "unchanged",
    };
    if let Some(alias) = &args.alias {
        let path = format!("/v1/agents/{}/aliases/{alias}", agent.name);
        let body = json!({ "version": version["version"] });
        client
            .ask(Request::new(Method::PUT, path).body(body))
            .await?;
    }
    Ok(json!({ "name": agent.name, "version": version["version"], "outcome": outcome }))
}

async fn preview(
    agents: Vec<files::AgentFile>,
    format: Format,
    client: &Client,
) -> Result<(), Failure> {
    for agent in agents {
        let request = Request::post("/v1/agents:diff").body(agent.body());
        let diff = client.ask(request).await?;
        match format {
            Format::Table => output::raw(&lines(&diff))?,
            Format::Json | Format::Jsonl => output::object(Format::Jsonl, &diff)?,
        }
    }
    Ok(())
}

/// A diff for people: `-` lines for the old state, `+` lines for the new one.
fn lines(diff: &Value) -> String {
    let name = diff["name"].as_str().unwrap_or_default();
    let (from, to) = (&diff["from"], &diff["to"]);
    let has_changes = diff["changes"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    let mut text = match (from.as_i64(), from == to) {
        (Some(0), _) => format!("{name}: new\n"),
        (_, true) if has_changes => format!("{name}@{from}: no new version\n"),
        (_, true) => format!("{name}@{from}: unchanged\n"),
        (_, false) => format!("{name}@{from} → {name}@{to}\n"),
    };
    for change in diff["changes"].as_array().into_iter().flatten() {
        let pointer = change["pointer"].as_str().unwrap_or_default();
        let _ = writeln!(text, "  {pointer}");
        for (sign, member) in [("-", "before"), ("+", "after")] {
            let Some(value) = change.get(member) else {
                continue;
            };
            let shown = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            for line in shown.lines() {
                let _ = writeln!(text, "    {sign} {line}");
            }
        }
    }
    output::harmless(&text)
}

/// The aliases of an agent on one line.
fn aliases(aliases: &Value) -> Value {
    let all = aliases.as_object().into_iter().flatten();
    let all: Vec<String> = all.map(|(name, n)| format!("{name}={n}")).collect();
    Value::String(all.join(" "))
}

/// Whether a text names an agent file rather than a published agent: it looks like a path, or such
/// a file exists.
pub(super) fn is_file(text: &str) -> bool {
    let path = Path::new(text);
    let ends = path.extension().and_then(|end| end.to_str());
    let ends = ends.is_some_and(|end| files::KINDS.contains(&end.to_ascii_lowercase().as_str()));
    text.contains(['/', '\\']) || ends || path.is_file()
}

/// The members of the only agent in a file, without its limits, which apply to published agents
/// only.
pub(super) fn read_one(file: &Path) -> Result<serde_json::Map<String, Value>, Failure> {
    let mut members = files::object(file)?;
    members.remove("limits");
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_files_are_no_names() {
        for file in [
            "./reviewer",
            "agents/reviewer",
            "reviewer.json",
            "x.TOML",
            "a.yml",
            "src/main.rs",
        ] {
            assert!(is_file(file), "{file}");
        }
        for name in ["reviewer", "reviewer@live", "reviewer@3", "reviewer.v2"] {
            assert!(!is_file(name), "{name}");
        }
    }

    #[test]
    fn a_diff_shows_what_was_and_what_is() {
        let diff = json!({ "name": "reviewer", "from": 1, "to": 2, "changes": [
            { "pointer": "/system_prompt", "before": "Review.\nBe kind.", "after": "Review." },
            { "pointer": "/tools", "after": ["core"] },
        ] });
        insta::assert_snapshot!(lines(&diff));
        let same = json!({ "name": "reviewer", "from": 2, "to": 2, "changes": [] });
        assert_eq!(lines(&same), "reviewer@2: unchanged\n");
        let limits = json!({ "name": "reviewer", "from": 2, "to": 2, "changes": [
            { "pointer": "/limits/sends_open", "before": 5, "after": 20 },
        ] });
        let shown = "reviewer@2: no new version\n  /limits/sends_open\n    - 5\n    + 20\n";
        assert_eq!(lines(&limits), shown);
        let new = json!({ "name": "reviewer", "from": 0, "to": 1, "changes": [] });
        assert_eq!(lines(&new), "reviewer: new\n");
    }
}
