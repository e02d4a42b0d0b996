//! Checkpoints of LangGraph's savers for Postgres and SQLite.
//!
//! A thread is a conversation: the messages are those of one channel of its last checkpoint. Postgres keeps the channels
//! apart from the checkpoint, SQLite within it.

mod convert;
mod serde;

use serde_json::{Map, Value};

use crate::database::{Bind, CELL_BYTES_MAX, Database, ID_BYTES_MAX, short_column, text_column};
use crate::error::Error;
use crate::left_out::LeftOut;
use crate::parts::taken;
use crate::session::{Session, System, read_time, time};
use crate::source::Found;
use crate::transcript::Transcript;

/// Most threads of a database.
const THREADS_MAX: usize = 5_000_000;

/// A database with checkpoints.
#[derive(Debug)]
pub(crate) struct LangGraph {
    database: Database,
    channel: String,
    layout: Layout,
    /// The threads that are left with their last checkpoints, the next one last.
    threads: Vec<(String, String)>,
    count: usize,
    /// Number of threads whose ids are none.
    nameless: u64,
}

/// Where the values of channels are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// In a table of their own, by version.
    Blobs,
    /// In a table of their own that has the last version alone.
    LastBlobs,
    /// In the checkpoint.
    Inline,
}

impl LangGraph {
    pub(crate) async fn open(address: &str, channel: &str) -> Result<Self, Error> {
        let mut database = Database::open(address).await?;
        let checkpoints = database.columns("checkpoints").await?;
        let has = |columns: &[String], name: &str| columns.iter().any(|column| column == name);
        if !has(&checkpoints, "thread_id") || !has(&checkpoints, "checkpoint") {
            return Err(Error::shape("it has no checkpoints of LangGraph"));
        }
        let blobs = database.columns("checkpoint_blobs").await?;
        let layout = match (blobs.is_empty(), has(&blobs, "version")) {
            (true, _) => Layout::Inline,
            (false, true) => Layout::Blobs,
            (false, false) => Layout::LastBlobs,
        };
        // A saver that keeps the last checkpoint alone does not number them.
        let id = if has(&checkpoints, "checkpoint_id") {
            "checkpoint_id"
        } else {
            "''"
        };
        let sql = format!(
            "SELECT {}, {} FROM checkpoints WHERE checkpoint_ns = '' \
             GROUP BY thread_id ORDER BY MAX({id}), thread_id LIMIT {}",
            short_column("thread_id", ID_BYTES_MAX),
            short_column(&format!("MAX({id})"), ID_BYTES_MAX),
            THREADS_MAX + 1
        );
        let rows = database.rows(sql, &[]).await?;
        if rows.len() > THREADS_MAX {
            return Err(Error::shape("it has more than five million threads"));
        }
        let mut threads = Vec::new();
        let mut nameless = 0;
        for row in rows.iter().rev() {
            match (row.text(0), row.text(1)) {
                (Ok(Some(thread)), Ok(Some(checkpoint))) => threads.push((thread, checkpoint)),
                _ => nameless += 1,
            }
        }
        Ok(Self {
            database,
            channel: channel.to_owned(),
            layout,
            count: threads.len(),
            threads,
            nameless,
        })
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Found>, Error> {
        let Some((thread, checkpoint)) = self.threads.pop() else {
            return Ok(None);
        };
        Ok(Some(match self.thread(&thread, &checkpoint).await {
            Ok(session) => Found::Session(Box::new(session)),
            Err(Error::Shape(why)) => Found::Refused { id: thread, why },
            Err(other) => return Err(other),
        }))
    }

    /// Counts what is not part of a thread's last state.
    pub(crate) async fn finish(mut self) -> Result<LeftOut, Error> {
        let mut left = LeftOut::default();
        let of = "SELECT count(*) FROM checkpoints WHERE checkpoint_ns";
        let own = self.database.count(format!("{of} = ''"), &[]).await?;
        let last = self.count as u64 + self.nameless;
        left.add_many("earlier checkpoints", own.saturating_sub(last));
        left.add_many("threads whose id cannot be read", self.nameless);
        let others = self.database.count(format!("{of} <> ''"), &[]).await?;
        left.add_many("checkpoints of subgraphs", others);
        if !self.database.columns("store").await?.is_empty() {
            let items = self
                .database
                .count("SELECT count(*) FROM store".to_owned(), &[])
                .await?;
            left.add_many("items of the store", items);
        }
        self.database.close().await;
        Ok(left)
    }

    async fn thread(&mut self, thread: &str, id: &str) -> Result<Session, Error> {
        let mut state = self.state(thread, id).await?;
        let at = state["ts"].as_str().and_then(read_time).unwrap_or(time(0));
        let mut session = Session::new(System::LangGraph, thread, at);
        session.describe(Map::new());
        let mut transcript = Transcript::new(session);
        let messages = self.messages(thread, &mut state).await?;
        convert::messages(&mut transcript, &messages, at)?;
        self.rest(&mut transcript, &state);
        self.writes(&mut transcript, thread, id).await?;
        Ok(transcript.finish())
    }

    /// The checkpoint: `{ts, channel_values, channel_versions, …}`.
    async fn state(&mut self, thread: &str, id: &str) -> Result<Value, Error> {
        let inline = self.layout == Layout::Inline;
        let columns = if inline {
            format!("{}, {}", text_column("type"), bytes_column("checkpoint"))
        } else {
            // JSON has no length of its own.
            format!("'json', {}", text_column("CAST(checkpoint AS TEXT)"))
        };
        let sql = format!(
            "SELECT {columns} FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' {}",
            if self.layout == Layout::LastBlobs {
                "AND $2 = $2"
            } else {
                "AND checkpoint_id = $2"
            }
        );
        let rows = self
            .database
            .rows(sql, &[Bind::Text(thread), Bind::Text(id)])
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::shape("its checkpoint is gone"))?;
        let unreadable = || Error::shape("its checkpoint cannot be read");
        let kind = row.text(0).map_err(|_| unreadable())?.unwrap_or_default();
        let bytes = if inline {
            row.bytes(1).map_err(|_| unreadable())?
        } else {
            row.text(1)
                .map_err(|_| unreadable())?
                .map(String::into_bytes)
        };
        serde::read(&kind, &bytes.ok_or_else(unreadable)?)
    }

    /// The value of the channel with the messages.
    async fn messages(&mut self, thread: &str, state: &mut Value) -> Result<Value, Error> {
        let channel = self.channel.clone();
        let values = state.get_mut("channel_values");
        let inline = values.map_or(Value::Null, |values| taken(values, channel.as_str()));
        // `true` stands for a value that is a snapshot with later writes elsewhere.
        if self.layout == Layout::Inline || inline.is_array() {
            if inline.is_null() {
                return Err(no_channel(&channel, state));
            }
            return Ok(inline);
        }
        let version = match &state["channel_versions"][&channel] {
            Value::Null => return Err(no_channel(&channel, state)),
            Value::String(version) => version.clone(),
            other => other.to_string(),
        };
        let versioned = if self.layout == Layout::Blobs {
            "version = $3"
        } else {
            "$3 = $3"
        };
        let sql = format!(
            "SELECT {}, {}, CAST(octet_length(blob) AS BIGINT) FROM checkpoint_blobs \
             WHERE thread_id = $1 AND checkpoint_ns = '' AND channel = $2 AND {versioned}",
            text_column("type"),
            bytes_column("blob")
        );
        let binds = [
            Bind::Text(thread),
            Bind::Text(&channel),
            Bind::Text(&version),
        ];
        let rows = self.database.rows(sql, &binds).await?;
        let Some(row) = rows.first() else {
            return Err(Error::shape(format!(
                "the channel {channel} has no value of its own: a DeltaChannel is not read"
            )));
        };
        let kind = row.text(0).ok().flatten().unwrap_or_default();
        if kind == "empty" {
            return Ok(Value::Array(Vec::new()));
        }
        let length = row.int(2).ok().flatten().unwrap_or(0);
        match row.bytes(1) {
            Ok(Some(bytes)) => serde::read(&kind, &bytes),
            Ok(None) if length > CELL_BYTES_MAX as i64 => {
                Err(Error::shape("its messages have more than 32 MiB"))
            }
            _ => Err(Error::shape("its messages cannot be read")),
        }
    }

    /// Counts the other channels of the state, but those that LangGraph uses itself.
    fn rest(&self, transcript: &mut Transcript, state: &Value) {
        let versions = state["channel_versions"].as_object();
        for name in versions.into_iter().flat_map(Map::keys) {
            let own = ["__", "branch:", "start:", "join:"];
            let is_own = own.iter().any(|begin| name.starts_with(begin));
            if *name != self.channel && !is_own {
                transcript.leave(&format!("state channels: {name}"));
            }
        }
    }

    /// Counts what was written behind the checkpoint: steps that have not ended, and interrupts.
    async fn writes(
        &mut self,
        transcript: &mut Transcript,
        thread: &str,
        id: &str,
    ) -> Result<(), Error> {
        let table = match self.layout {
            Layout::Inline => "writes",
            Layout::Blobs => "checkpoint_writes",
            Layout::LastBlobs => return Ok(()),
        };
        if self.database.columns(table).await?.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT {}, count(*) FROM {table} WHERE thread_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2 \
             GROUP BY channel LIMIT 1000",
            short_column("channel", ID_BYTES_MAX)
        );
        let binds = [Bind::Text(thread), Bind::Text(id)];
        for row in self.database.rows(sql, &binds).await? {
            let name = match row.text(0).ok().flatten().as_deref() {
                Some("__interrupt__") => "interrupts that wait for an answer",
                Some("__error__") => "errors of steps",
                _ => "writes of steps that had not ended",
            };
            let count = row.int(1).ok().flatten().unwrap_or(0);
            transcript.session.left_out.add_many(name, count as u64);
        }
        Ok(())
    }
}

fn no_channel(channel: &str, state: &Value) -> Error {
    let versions = state["channel_versions"].as_object();
    let names: Vec<&str> = versions
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .filter(|name| !name.contains(':') && !name.starts_with("__"))
        .take(20)
        .collect();
    Error::shape(format!(
        "it has no channel {channel}, but {}",
        names.join(", ")
    ))
}

/// A column as bytes, or null if it is longer than a cell may be.
fn bytes_column(name: &str) -> String {
    format!("CASE WHEN octet_length({name}) <= {CELL_BYTES_MAX} THEN {name} END")
}
