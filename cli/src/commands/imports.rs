//! `mainspring import power-loop`, `langgraph` and `openai`: conversations of other systems.
//!
//! Each conversation becomes a session by way of an archive. Its metadata name where it comes from, and this is how a
//! later import recognizes it.

mod report;

use std::collections::BTreeMap;
use std::path::Path;

use mainspring_importers::{Error, Found, Session, Source, Timer};
use mainspring_runtime::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use self::report::{Kind, Progress, Report};
use super::lists;
use crate::args::{Format, ImportArgs, ImportFrom};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure, causes};
use crate::output;

/// A session that was imported before.
#[derive(Debug)]
struct Known {
    id: String,
    messages: i64,
    closed: bool,
}

pub(super) async fn run(from: &ImportFrom, format: Format, client: Client) -> Result<(), Failure> {
    let (shown, source, how, timers) = match from {
        ImportFrom::PowerLoop {
            database,
            prefix,
            no_timers,
            how,
        } => {
            let opened = Source::power_loop(database, prefix.as_deref()).await;
            (redacted(database), opened, how, !no_timers)
        }
        ImportFrom::Langgraph {
            database,
            channel,
            how,
        } => {
            let opened = Source::langgraph(database, channel).await;
            (redacted(database), opened, how, false)
        }
        ImportFrom::Openai { file, how } => {
            let shown = file.display().to_string();
            (shown, Source::openai(Path::new(file)), how, false)
        }
    };
    let source = source.map_err(|error| failed(&shown, &error))?;
    let mut importing = Importing {
        client,
        shown,
        how: *how,
        timers,
        known: BTreeMap::new(),
        report: Report::default(),
    };
    let ended = importing.run(source).await;
    // What was imported before a failure stays, so it is told.
    importing.report.print(format, how.dry_run)?;
    ended?;
    if importing.report.refused() {
        return Err(Failure::silent(Exit::Failure));
    }
    Ok(())
}

/// An address without its secrets.
fn redacted(address: &str) -> String {
    if address.contains("://") {
        Secret::new(address.to_owned()).redacted_url()
    } else {
        address.to_owned()
    }
}

fn failed(shown: &str, error: &Error) -> Failure {
    let exit = match error {
        Error::Database(_) => Exit::Unavailable,
        Error::File(error) if error.kind() == std::io::ErrorKind::NotFound => Exit::NotFound,
        Error::Address(_) => Exit::Usage,
        Error::File(_) | Error::Shape(_) => Exit::Failure,
    };
    Failure::new(
        exit,
        format!("{shown}: {}", output::harmless(&causes(error))),
    )
}

struct Importing {
    client: Client,
    shown: String,
    how: ImportArgs,
    timers: bool,
    /// The sessions of this system that are here, by their ids there.
    known: BTreeMap<String, Known>,
    report: Report,
}

impl Importing {
    async fn run(&mut self, mut source: Source) -> Result<(), Failure> {
        if !self.how.dry_run {
            self.known = self.known(&source).await?;
        }
        let mut progress = Progress::new(source.count());
        loop {
            let found = source.next().await;
            match found.map_err(|error| failed(&self.shown, &error))? {
                None => break,
                Some(Found::Refused { id, why }) => {
                    self.report.refuse(&progress, Kind::Sessions, (&id, &why));
                }
                Some(Found::Session(session)) => self.take(&session, &progress).await?,
            }
            progress.step();
        }
        progress.finish();
        let rest = source.finish().await;
        let rest = rest.map_err(|error| failed(&self.shown, &error))?;
        self.report.left_out.merge(&rest);
        Ok(())
    }

    /// The sessions that earlier imports of this system made.
    async fn known(&self, source: &Source) -> Result<BTreeMap<String, Known>, Failure> {
        let (name, text) = source.system().marked();
        let request = Request::get("/v1/sessions").query(&format!("metadata.{name}"), Some(text));
        let rows = lists::rows(&self.client, &request, u32::MAX).await?;
        let known = rows.iter().filter_map(|row| {
            let known = Known {
                id: row["id"].as_str()?.to_owned(),
                messages: row["messages"].as_i64()?,
                closed: row["status"] == "closed",
            };
            Some((Session::source_in(&row["metadata"])?.to_owned(), known))
        });
        Ok(known.collect())
    }

    async fn take(&mut self, session: &Session, progress: &Progress) -> Result<(), Failure> {
        self.report.left_out.merge(&session.left_out);
        if self.how.dry_run {
            self.report.contents(session, true);
            if self.timers {
                self.report.add(Kind::Timers, true, session.timers.len());
            } else {
                self.leave_timers(session);
            }
            return Ok(());
        }
        let made = if let Some(known) = self.known.get(session.source()) {
            if session.message_count() as i64 > known.messages {
                let (id, here) = (session.source(), &known.id);
                progress.note(&format!(
                    "{id}: has grown since it was imported as {here}, which stays as it is"
                ));
                self.report
                    .left_out
                    .add_many("conversations that have grown since", 1);
            }
            // One that has grown here is in use.
            let is_used = known.messages > session.message_count() as i64;
            Some((false, known.id.clone(), known.closed || is_used))
        } else {
            let made = self.create(session, progress).await?;
            made.map(|(is_new, id)| (is_new, id, false))
        };
        let Some((is_new, id, is_closed)) = made else {
            return Ok(());
        };
        self.report.contents(session, is_new);
        if self.timers {
            self.timers(session, &id, is_new, progress).await?;
        } else {
            self.leave_timers(session);
        }
        // An import that was killed may have left it open. Who reopens it says so by its next message.
        if session.closed && !is_closed {
            let request = Request::new(Method::PATCH, format!("/v1/sessions/{id}"));
            self.client
                .ask(request.body(json!({ "closed": true })))
                .await?;
        }
        Ok(())
    }

    fn leave_timers(&mut self, session: &Session) {
        if !session.timers.is_empty() {
            let count = session.timers.len() as u64;
            self.report
                .left_out
                .add_many("timers, which were not wanted", count);
        }
    }

    /// Creates the session; none if the server refuses it.
    async fn create(
        &mut self,
        session: &Session,
        progress: &Progress,
    ) -> Result<Option<(bool, String)>, Failure> {
        let archive = session.archive();
        // A repeat with the same content is the same session, also if the first response was lost.
        let key = session.key(&archive);
        let request = Request::post("/v1/sessions:import").lines(archive);
        let mut made = self.client.make(request.clone().key(key)).await;
        if matches!(&made, Err(failure) if failure.exit == Exit::NotFound) {
            // That session was deleted in the meantime.
            let key = self.client.fresh_key();
            made = self.client.make(request.key(key)).await;
        }
        match made {
            Ok((is_new, made)) => {
                let id = made["id"].as_str().unwrap_or_default().to_owned();
                Ok(Some((is_new, id)))
            }
            Err(failure) => {
                let id = session.source();
                self.report.fail(progress, Kind::Sessions, id, failure)?;
                Ok(None)
            }
        }
    }

    /// Creates the timers that the session does not have yet.
    async fn timers(
        &mut self,
        session: &Session,
        id: &str,
        is_new: bool,
        progress: &Progress,
    ) -> Result<(), Failure> {
        if session.timers.is_empty() {
            return Ok(());
        }
        let mut there = Vec::new();
        if !is_new {
            let request = Request::get("/v1/timers").query("session_id", Some(id));
            let rows = lists::rows(&self.client, &request, u32::MAX).await?;
            there = rows.iter().map(said).collect();
        }
        for timer in &session.timers {
            let is_here = there.iter().position(|said| *said == timer.input);
            if let Some(place) = is_here {
                there.remove(place);
                self.report.add(Kind::Timers, false, 1);
                continue;
            }
            let key = session.key(format!("timer {} {id}", timer.id).as_bytes());
            let request = Request::post("/v1/timers").body(body(timer, id)).key(key);
            match self.client.make(request).await {
                Ok((is_new, _)) => self.report.add(Kind::Timers, is_new, 1),
                Err(failure) => {
                    let what = format!("{} of {}", timer.id, session.source());
                    self.report.fail(progress, Kind::Timers, &what, failure)?;
                }
            }
        }
        Ok(())
    }
}

fn body(timer: &Timer, session: &str) -> Value {
    let mut body = json!({ "session_id": session, "input": timer.input, "at": timer.at });
    if let Some(every) = timer.every {
        body["every"] = json!(format!("{}s", every.as_secs()));
    }
    body
}

/// What a timer says.
fn said(timer: &Value) -> String {
    let parts = timer["input"].as_array().into_iter().flatten();
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    texts.join("\n\n")
}
