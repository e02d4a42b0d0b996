//! Exports a tenant. Only one page of a list, one skill or one piece of an archive is in memory at
//! a time.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::{AgentLine, Counts, FORMAT, Line, MemoryLine, SkillLine, StateLine, VERSION, escaped};
use crate::client::{Client, Request};
use crate::commands::archives::Target;
use crate::failure::{Exit, Failure};

/// Rows per page; small, because rows may be large.
const PAGE: usize = 50;

pub(in crate::commands) async fn run(
    file: Option<&Path>,
    with_sessions: bool,
    client: Client,
) -> Result<(), Failure> {
    let mut exporting = Exporting {
        client,
        target: Target::open(file)?,
        counts: Counts::default(),
    };
    let header = json!({ "format": FORMAT, "version": VERSION });
    exporting.target.write(format!("{header}\n").as_bytes())?;
    exporting.skills().await?;
    exporting.agents().await?;
    exporting.memories().await?;
    if with_sessions {
        exporting.sessions().await?;
    }
    exporting.line(&Line::End(exporting.counts.clone()))?;
    exporting.target.finish()
}

struct Exporting {
    client: Client,
    target: Target,
    counts: Counts,
}

/// A page of a list, and the cursor of the next one.
struct Page {
    rows: Vec<Value>,
    next: Option<String>,
}

impl Exporting {
    fn line(&mut self, line: &Line) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(line).map_err(|error| strange(&error.to_string()))?;
        text.push(b'\n');
        self.target.write(&text)
    }

    async fn page(&self, path: &str, cursor: Option<&String>) -> Result<Page, Failure> {
        let request = Request::get(path)
            .query("limit", Some(PAGE))
            .query("cursor", cursor);
        let mut answer = self.client.ask(request).await?;
        let rows = match answer["data"].take() {
            Value::Array(rows) => rows,
            _ => Vec::new(),
        };
        let next = answer["next_cursor"].as_str().map(str::to_owned);
        Ok(Page { rows, next })
    }

    /// Collects the page cursors of a list that is newest first.
    async fn backwards(&self, path: String) -> Result<Backwards, Failure> {
        let newest = self.page(&path, None).await?;
        let mut places = Vec::new();
        let mut next = newest.next;
        while let Some(place) = next {
            next = self.page(&path, Some(&place)).await?.next;
            places.push(place);
        }
        Ok(Backwards {
            path,
            newest: Some(newest.rows),
            places,
            last: None,
        })
    }

    async fn skills(&mut self) -> Result<(), Failure> {
        let mut cursor = None;
        loop {
            let page = self.page("/v1/skills", cursor.as_ref()).await?;
            for row in page.rows {
                self.skill(&text(&row, "name")?).await?;
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// The versions of a skill, with the one that its name refers to last.
    async fn skill(&mut self, name: &str) -> Result<(), Failure> {
        let path = format!("/v1/skills/{name}");
        let Some(shown) = found(self.client.ask(Request::get(path)).await)? else {
            return Ok(());
        };
        let current = text(&shown, "hash")?;
        let versions = shown["versions"].as_array().into_iter().flatten().rev();
        let mut hashes = versions
            .map(|version| text(version, "hash"))
            .collect::<Result<Vec<_>, _>>()?;
        hashes.retain(|hash| *hash != current);
        hashes.push(current);
        for hash in hashes {
            let Some(files) = self.files(&format!("{name}@{hash}")).await? else {
                continue;
            };
            self.counts.skills += 1;
            self.line(&Line::Skill(SkillLine {
                name: name.to_owned(),
                hash,
                files,
            }))?;
        }
        Ok(())
    }

    /// The files of a version; `None` if it was deleted meanwhile.
    async fn files(&self, version: &str) -> Result<Option<Map<String, Value>>, Failure> {
        let path = format!("/v1/skills/{version}");
        let Some(shown) = found(self.client.ask(Request::get(path)).await)? else {
            return Ok(None);
        };
        let mut files = Map::new();
        for file in shown["files"].as_array().into_iter().flatten() {
            let path = text(file, "path")?;
            let request = Request::get(format!("/v1/skills/{version}/files/{}", escaped(&path)));
            let mut content = Vec::new();
            let read = self.client.download(request, |piece| {
                content.extend_from_slice(piece);
                Ok(())
            });
            if found(read.await)?.is_none() {
                return Ok(None);
            }
            let content = match String::from_utf8(content) {
                Ok(text) => Value::String(text),
                Err(bytes) => json!({ "base64": BASE64_STANDARD.encode(bytes.as_bytes()) }),
            };
            files.insert(path, content);
        }
        Ok(Some(files))
    }

    async fn agents(&mut self) -> Result<(), Failure> {
        let mut cursor = None;
        loop {
            let page = self.page("/v1/agents?archived=true", cursor.as_ref());
            let page = page.await?;
            for row in page.rows {
                self.agent(row).await?;
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    async fn agent(&mut self, mut agent: Value) -> Result<(), Failure> {
        let name = text(&agent, "name")?;
        let mut versions = self
            .backwards(format!("/v1/agents/{name}/versions"))
            .await?;
        while let Some(rows) = versions.next(self).await? {
            for mut row in rows {
                self.counts.agents += 1;
                self.line(&Line::Agent(AgentLine {
                    name: name.clone(),
                    version: row["version"].as_i64().ok_or_else(|| strange("version"))?,
                    hash: text(&row, "hash")?,
                    spec: row["spec"].take(),
                }))?;
            }
        }
        let aliases = match agent["aliases"].take() {
            Value::Object(aliases) => aliases,
            _ => Map::new(),
        };
        self.line(&Line::AgentState(StateLine {
            name,
            aliases,
            archived: !agent["archived_at"].is_null(),
        }))
    }

    async fn memories(&mut self) -> Result<(), Failure> {
        let mut entries = self.backwards("/v1/memories".to_owned()).await?;
        while let Some(rows) = entries.next(self).await? {
            for mut row in rows {
                self.counts.memories += 1;
                self.line(&Line::Memory(MemoryLine {
                    id: text(&row, "id")?,
                    namespace: text(&row, "namespace")?,
                    text: text(&row, "text")?,
                    expires_at: row["expires_at"].as_str().map(str::to_owned),
                    metadata: row["metadata"].take(),
                }))?;
            }
        }
        Ok(())
    }

    async fn sessions(&mut self) -> Result<(), Failure> {
        let mut sessions = self.backwards("/v1/sessions".to_owned()).await?;
        while let Some(rows) = sessions.next(self).await? {
            for row in rows {
                self.session(text(&row, "id")?).await?;
            }
        }
        Ok(())
    }

    /// Exports the archive of a session, with the blobs that it references, unless it was deleted
    /// meanwhile.
    async fn session(&mut self, id: String) -> Result<(), Failure> {
        let request = Request::get(format!("/v1/sessions/{id}/export"));
        let begin = serde_json::to_string(&Line::Session(id.clone()));
        let mut begin = begin.ok();
        let target = &mut self.target;
        let read = self.client.download(request, |piece| {
            if let Some(line) = begin.take() {
                target.write(format!("{line}\n").as_bytes())?;
            }
            target.write(piece)
        });
        if found(read.await)?.is_none() {
            return Ok(());
        }
        self.counts.sessions += 1;
        self.line(&Line::SessionEnd(id))
    }
}

/// Reads a newest-first list oldest first. The cursors of all pages and the rows of the newest page
/// are fetched up front, so rows added since are not included and push nothing out.
struct Backwards {
    path: String,
    newest: Option<Vec<Value>>,
    /// The cursors of the other pages.
    places: Vec<String>,
    /// The newest row of the previous page.
    last: Option<Value>,
}

impl Backwards {
    /// The rows of the next page, oldest first.
    async fn next(&mut self, exporting: &Exporting) -> Result<Option<Vec<Value>>, Failure> {
        let mut rows = match self.places.pop() {
            Some(place) => exporting.page(&self.path, Some(&place)).await?.rows,
            None => match self.newest.take() {
                Some(rows) => rows,
                None => return Ok(None),
            },
        };
        // After deletions, a page may overlap the previous one.
        let id = |row: &Value| [&row["id"], &row["version"]].map(Value::clone);
        if let Some(last) = &self.last
            && let Some(place) = rows.iter().position(|row| id(row) == id(last))
        {
            rows.truncate(place);
        }
        if let Some(newest) = rows.first() {
            self.last = Some(json!({ "id": newest["id"], "version": newest["version"] }));
        }
        rows.reverse();
        Ok(Some(rows))
    }
}

/// Turns a missing object, which was deleted meanwhile, into `None`.
fn found<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn text(row: &Value, name: &str) -> Result<String, Failure> {
    let text = row[name].as_str().map(str::to_owned);
    text.ok_or_else(|| strange(name))
}

fn strange(what: &str) -> Failure {
    let message = format!("the server sent an invalid response: {what}");
    Failure::new(Exit::Failure, message)
}
