//! Imports a tenant. Only one line is in memory at a time; the archive of a session goes through a
//! file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::path::Path;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::versions::Versions;
use super::{AgentLine, Counts, FORMAT, Line, MemoryLine, SkillLine, StateLine, VERSION};
use crate::args::Format;
use crate::client::{Client, Request};
use crate::commands::archives::failed;
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

/// Maximum bytes of a line; more than the largest skill takes.
const LINE_BYTES_MAX: u64 = 64 << 20;

const COLUMNS: [Column; 4] = [
    ("KIND", "kind"),
    ("CREATED", "created"),
    ("KNOWN", "known"),
    ("REFUSED", "refused"),
];

/// The first line.
#[derive(Debug, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

pub(in crate::commands) async fn run(
    file: &Path,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    let reader: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let opened = File::open(file).map_err(|error| failed(file, &error))?;
        Box::new(BufReader::new(opened))
    };
    let mut importing = Importing {
        client,
        lines: Lines {
            reader,
            file,
            number: 0,
        },
        read: Counts::default(),
        report: Report::default(),
        versions: None,
    };
    let ended = importing.run().await;
    // Report what was imported before a failure, since it stays.
    output::list(format, &COLUMNS, &importing.report.rows())?;
    ended?;
    if importing.report.refused() {
        return Err(Failure::silent(Exit::Failure));
    }
    Ok(())
}

/// The lines of an export.
struct Lines<'a> {
    reader: Box<dyn BufRead>,
    file: &'a Path,
    /// The number of lines read so far.
    number: u64,
}

impl Lines<'_> {
    /// The next line with its line end; `None` after the last one.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(LINE_BYTES_MAX);
        let read = bounded.read_until(b'\n', &mut line);
        read.map_err(|error| failed(self.file, &error))?;
        if line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if line.last() != Some(&b'\n') {
            return Err(self.wrong("is cut off, or too long"));
        }
        Ok(Some(line))
    }

    fn wrong(&self, what: &str) -> Failure {
        let message = format!("{}: line {} {what}", self.file.display(), self.number);
        Failure::new(Exit::Failure, message)
    }
}

struct Importing<'a> {
    client: Client,
    lines: Lines<'a>,
    read: Counts,
    report: Report,
    /// The agent whose versions are being read.
    versions: Option<Versions>,
}

impl Importing<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let first = self.lines.next()?.unwrap_or_default();
        let header: Option<Header> = serde_json::from_slice(&first).ok();
        match header {
            Some(Header { format, version }) if format == FORMAT => {
                if version != VERSION {
                    let what = format!("names version {version}; this program reads {VERSION}");
                    return Err(self.lines.wrong(&what));
                }
            }
            _ => return Err(self.lines.wrong("is not the first one of an export")),
        }
        while let Some(line) = self.lines.next()? {
            let line = serde_json::from_slice(&line);
            let line = line.map_err(|error| self.lines.wrong(&format!("is invalid: {error}")))?;
            match line {
                Line::Skill(skill) => self.skill(skill).await?,
                Line::Agent(agent) => self.agent(agent).await?,
                Line::AgentState(state) => self.state(state).await?,
                Line::Memory(entry) => self.memory(entry).await?,
                Line::Session(id) => self.session(id).await?,
                Line::SessionEnd(_) => {
                    return Err(self.lines.wrong("ends a session that was not started"));
                }
                Line::End(counts) if counts == self.read => return Ok(()),
                Line::End(_) => {
                    let what = "has other counts than the file: lines are missing";
                    return Err(self.lines.wrong(what));
                }
            }
        }
        let what = "is not the last one of an export: it was cut off";
        Err(self.lines.wrong(what))
    }

    async fn skill(&mut self, skill: SkillLine) -> Result<(), Failure> {
        self.read.skills += 1;
        let version = format!("{}@{}", skill.name, skill.hash);
        let shown = self
            .client
            .ask(Request::get(format!("/v1/skills/{version}")));
        let taken = match shown.await {
            Ok(_) => Ok(false),
            Err(failure) if failure.exit == Exit::NotFound => {
                let request = Request::post("/v1/skills").body(json!({ "files": skill.files }));
                let request = request.key(self.client.fresh_key());
                self.client.make(request).await.map(|(is_new, _)| is_new)
            }
            Err(failure) => Err(failure),
        };
        self.report.take(SKILLS, &version, taken)
    }

    async fn agent(&mut self, line: AgentLine) -> Result<(), Failure> {
        self.read.agents += 1;
        let what = format!("{}@{}", line.name, line.version);
        let taken = self.version(line).await;
        self.report.take(AGENTS, &what, taken)
    }

    async fn version(&mut self, line: AgentLine) -> Result<bool, Failure> {
        let versions = match &mut self.versions {
            Some(versions) if versions.name == line.name => versions,
            other => other.insert(Versions::read(&self.client, &line.name).await?),
        };
        versions.take(&self.client, line).await
    }

    /// Recreates an agent's aliases where the name is free; existing aliases stay.
    async fn state(&mut self, state: StateLine) -> Result<(), Failure> {
        let name = &state.name;
        let versions = self.versions.take().filter(|own| own.name == *name);
        let path = format!("/v1/agents/{name}");
        let Some(versions) = versions else {
            let missing = Err(refusal("its versions were not imported"));
            return self.report.take(ALIASES, name, missing);
        };
        let here = match self.client.ask(Request::get(path.clone())).await {
            Ok(here) => here,
            Err(failure) => return self.report.take(ALIASES, name, Err(failure)),
        };
        for (alias, pointed) in &state.aliases {
            let what = format!("{name}@{alias}");
            let taken = match (versions.number(pointed), here["aliases"][alias].as_i64()) {
                (None, _) => Err(refusal("the version that it points at was not imported")),
                (Some(number), Some(there)) if number == there => Ok(false),
                (Some(_), Some(there)) => {
                    Err(refusal(&format!("it points at version {there} here")))
                }
                (Some(number), None) => {
                    let request = Request::new(Method::PUT, format!("{path}/aliases/{alias}"));
                    let request = request.body(json!({ "version": number }));
                    self.client.ask(request).await.map(|_| true)
                }
            };
            self.report.take(ALIASES, &what, taken)?;
        }
        // An agent that was changed here in the meantime is in use here, so it is not archived.
        if state.archived && here["archived_at"].is_null() && versions.is_newest() {
            self.client.ask(Request::new(Method::DELETE, path)).await?;
        }
        Ok(())
    }

    async fn memory(&mut self, entry: MemoryLine) -> Result<(), Failure> {
        self.read.memories += 1;
        let mut body = json!({ "namespace": entry.namespace, "text": entry.text });
        if !entry.metadata.is_null() {
            body["metadata"] = entry.metadata;
        }
        if let Some(time) = entry.expires_at {
            body["expires_at"] = json!(time);
        }
        let request = Request::post("/v1/memories").body(body);
        let request = request.key(format!("import:{}", entry.id));
        let taken = self.client.make(request).await.map(|(is_new, _)| is_new);
        self.report.take(MEMORIES, &entry.id, taken)
    }

    async fn session(&mut self, id: String) -> Result<(), Failure> {
        self.read.sessions += 1;
        let archive = self.archive(&id)?;
        let request = Request::post("/v1/sessions:import").file(archive.path().to_owned());
        let request = request.key(format!("import:{id}"));
        let taken = self.client.make(request).await;
        if let Ok((true, made)) = &taken {
            let new = made["id"].as_str().unwrap_or_default();
            output::note(&output::harmless(&format!("{id}: imported as {new}")));
        }
        let taken = taken.map(|(is_new, _)| is_new);
        self.report.take(SESSIONS, &id, taken)
    }

    /// Copies the lines of a session's archive to a file that is deleted on drop.
    fn archive(&mut self, id: &str) -> Result<NamedTempFile, Failure> {
        let unwritten =
            |error: &io::Error| Failure::new(Exit::Failure, format!("a temporary file: {error}"));
        let mut file = NamedTempFile::new().map_err(|error| unwritten(&error))?;
        let end = serde_json::to_vec(&Line::SessionEnd(id.to_owned())).unwrap_or_default();
        loop {
            let Some(line) = self.lines.next()? else {
                return Err(self
                    .lines
                    .wrong("is not the last one of an export: it was cut off"));
            };
            if line.strip_suffix(b"\n") == Some(&end) {
                return Ok(file);
            }
            file.write_all(&line).map_err(|error| unwritten(&error))?;
        }
    }
}

fn refusal(why: &str) -> Failure {
    Failure::new(Exit::Conflict, why)
}

const SKILLS: usize = 0;
const AGENTS: usize = 1;
const ALIASES: usize = 2;
const MEMORIES: usize = 3;
const SESSIONS: usize = 4;
const KINDS: [&str; 5] = ["skills", "agents", "aliases", "memories", "sessions"];

/// What became of the lines, by kind.
#[derive(Debug, Default)]
struct Report([Fates; KINDS.len()]);

#[derive(Debug, Default)]
struct Fates {
    created: u64,
    known: u64,
    refused: u64,
}

impl Report {
    /// Records what became of a line. A refused line is reported and skipped; if the server is
    /// unavailable or denies access, the import fails, because the rest would fare no better.
    fn take(
        &mut self,
        kind: usize,
        what: &str,
        taken: Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let fates = &mut self.0[kind];
        match taken {
            Ok(true) => fates.created += 1,
            Ok(false) => fates.known += 1,
            Err(failure) if matches!(failure.exit, Exit::Unavailable | Exit::Unauthorised) => {
                return Err(failure
                    .about(&what)
                    .next("import again: items already imported are skipped"));
            }
            Err(failure) => {
                fates.refused += 1;
                let text = format!("refused: {} {what}: {}", KINDS[kind], failure.message);
                output::note(&output::harmless(&text));
            }
        }
        Ok(())
    }

    fn refused(&self) -> bool {
        self.0.iter().any(|fates| fates.refused > 0)
    }

    fn rows(&self) -> Vec<Value> {
        let rows = KINDS.iter().zip(&self.0);
        rows.map(|(kind, fates)| {
            json!({
                "kind": kind,
                "created": fates.created,
                "known": fates.known,
                "refused": fates.refused,
            })
        })
        .collect()
    }
}
