//! Databases of the Python library `power-loop`.
//!
//! Version 1 has tables without a prefix, in SQLite alone; later ones have `pl_` or one of the user's, in several
//! databases. Between releases columns were added, and what is missing is read as null.

mod convert;
mod lists;
mod rest;

use mainspring_shared::message::Role;

use crate::database::{Bind, Database, ID_BYTES_MAX, Row, short_column, text_column};
use crate::error::Error;
use crate::left_out::LeftOut;
use crate::session::{Session, System, Timer, time};
use crate::source::Found;

use self::convert::{Compaction, Converting, MessageRow};

/// The prefixes that the library uses itself: those of version 1, and of later ones.
const PREFIXES: [&str; 2] = ["pl_", ""];

/// Maximum length of a prefix, as in the library.
const PREFIX_CHARS_MAX: usize = 24;

/// Most sessions of a database.
const SESSIONS_MAX: usize = 5_000_000;

/// Messages per page.
const PAGE: usize = 100;

/// Bytes of a page, unless a single message has more.
const PAGE_BYTES: u64 = 32 << 20;

/// What a row weighs besides its texts, so that empty ones are bounded, too.
const ROW_BYTES: u64 = 512;

/// Maximum bytes of a note and of what a timer says, and the most of them in a session.
const NOTE_BYTES_MAX: u64 = 64 << 10;
const NOTES_MAX: u64 = 1_000;

/// Maximum bytes of a session.
const SESSION_BYTES_MAX: u64 = 256 << 20;

/// A database of the library.
#[derive(Debug)]
pub(crate) struct PowerLoop {
    database: Database,
    layouts: Vec<Layout>,
    /// The sessions that are left, the next one last, with their layout.
    left: Vec<(usize, String)>,
    count: usize,
    /// Number of sessions whose ids are none.
    nameless: u64,
}

/// The tables with one prefix.
#[derive(Debug)]
struct Layout {
    prefix: String,
    has_send_index: bool,
    /// The column with the name of a runtime state: `key` in version 1.
    state_key: &'static str,
    has_timers: bool,
}

impl Layout {
    fn table(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl PowerLoop {
    pub(crate) async fn open(address: &str, prefix: Option<&str>) -> Result<Self, Error> {
        if prefix.is_some_and(|prefix| !is_prefix(prefix)) {
            let what = "a table prefix has letters, digits and underscores, at most 24";
            return Err(Error::Address(what.to_owned()));
        }
        let mut database = Database::open(address).await?;
        let mut layouts = Vec::new();
        for prefix in PREFIXES
            .into_iter()
            .filter(|_| prefix.is_none())
            .chain(prefix)
        {
            layouts.extend(layout(&mut database, prefix).await?);
        }
        if layouts.is_empty() {
            return Err(Error::shape(
                "it has no tables of power-loop; with a table prefix of your own, name it with --prefix",
            ));
        }
        let mut left = Vec::new();
        let mut nameless = 0;
        for (place, layout) in layouts.iter().enumerate() {
            let sql = format!(
                "SELECT {} FROM {} ORDER BY created_at, session_id LIMIT {}",
                short_column("session_id", ID_BYTES_MAX),
                layout.table("sessions"),
                SESSIONS_MAX + 1
            );
            let rows = database.rows(sql, &[]).await?;
            if left.len() + rows.len() > SESSIONS_MAX {
                return Err(Error::shape("it has more than five million sessions"));
            }
            for row in &rows {
                match row.text(0) {
                    Ok(Some(id)) => left.push((place, id)),
                    Ok(None) | Err(_) => nameless += 1,
                }
            }
        }
        left.reverse();
        Ok(Self {
            database,
            layouts,
            count: left.len(),
            left,
            nameless,
        })
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Found>, Error> {
        let Some((place, id)) = self.left.pop() else {
            return Ok(None);
        };
        let mut reading = Reading {
            database: &mut self.database,
            layout: &self.layouts[place],
            id: &id,
        };
        Ok(Some(match reading.session().await {
            Ok(session) => Found::Session(Box::new(session)),
            Err(Error::Shape(why)) => Found::Refused { id, why },
            Err(other) => return Err(other),
        }))
    }

    /// Counts what belongs to no session, or has no counterpart.
    pub(crate) async fn finish(mut self) -> Result<LeftOut, Error> {
        let mut left = LeftOut::default();
        left.add_many("sessions whose id cannot be read", self.nameless);
        for layout in &self.layouts {
            rest::count(&mut self.database, layout, &mut left).await?;
        }
        self.database.close().await;
        Ok(left)
    }
}

fn is_prefix(prefix: &str) -> bool {
    let begins = |first: u8| first.is_ascii_alphabetic() || first == b'_';
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    prefix.is_empty()
        || (prefix.len() <= PREFIX_CHARS_MAX
            && prefix.bytes().next().is_some_and(begins)
            && prefix.bytes().all(fits))
}

/// The tables with this prefix, if they are there.
async fn layout(database: &mut Database, prefix: &str) -> Result<Option<Layout>, Error> {
    let sessions = database.columns(&format!("{prefix}sessions")).await?;
    let messages = database.columns(&format!("{prefix}messages")).await?;
    let has = |columns: &[String], name: &str| columns.iter().any(|column| column == name);
    // Other programs have tables of these names as well.
    let is_ours = has(&sessions, "spawn_depth") && has(&messages, "tool_calls_json");
    if !is_ours {
        return Ok(None);
    }
    let states = database
        .columns(&format!("{prefix}session_runtime_state"))
        .await?;
    let timers = database.columns(&format!("{prefix}timers")).await?;
    Ok(Some(Layout {
        prefix: prefix.to_owned(),
        has_send_index: has(&messages, "send_index"),
        state_key: if has(&states, "state_key") {
            "state_key"
        } else {
            "key"
        },
        has_timers: has(&timers, "interval_s"),
    }))
}

/// A session being read.
struct Reading<'a> {
    database: &'a mut Database,
    layout: &'a Layout,
    id: &'a str,
}

impl Reading<'_> {
    async fn rows(&mut self, sql: String) -> Result<Vec<Row>, Error> {
        self.database.rows(sql, &[Bind::Text(self.id)]).await
    }

    async fn session(&mut self) -> Result<Session, Error> {
        let columns = [
            "system_prompt",
            "model",
            "config_json",
            "status",
            "kind",
            "parent_session_id",
            "metadata_json",
        ];
        let texts = columns.map(text_column).join(", ");
        let table = self.layout.table("sessions");
        let sql = format!(
            "SELECT CAST(created_at AS BIGINT), {texts} FROM {table} WHERE session_id = $1"
        );
        let rows = self.rows(sql).await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::shape("its row is gone"))?;
        let created_at = row.int(0).map_err(|_| unreadable("created_at"))?;
        let mut cells = Vec::new();
        for (place, name) in columns.iter().enumerate() {
            cells.push(row.text(place + 1).map_err(|_| unreadable(name))?);
        }
        let session = Session::new(System::PowerLoop, self.id, time(created_at.unwrap_or(0)));
        let compactions = self.compactions().await?;
        let mut converting = Converting::new(session, compactions);
        converting.describe(&cells);
        self.messages(&mut converting).await?;
        let mut session = converting.finish();
        self.lists(&mut session).await?;
        if self.layout.has_timers {
            self.timers(&mut session).await?;
        }
        Ok(session)
    }

    async fn compactions(&mut self) -> Result<Vec<Compaction>, Error> {
        let sql = format!(
            "SELECT CAST(note_seq AS BIGINT), CAST(before_tokens AS BIGINT), CAST(after_tokens AS BIGINT), \
             CAST(created_at AS BIGINT) FROM {} WHERE session_id = $1 ORDER BY compact_seq LIMIT 100000",
            self.layout.table("compactions")
        );
        let rows = self.rows(sql).await?;
        let number = |row: &Row, column| row.int(column).ok().flatten().unwrap_or(0);
        let compactions = rows.iter().map(|row| Compaction {
            note_seq: number(row, 0),
            tokens_before: number(row, 1).max(0),
            tokens_after: number(row, 2).max(0),
            created_at: time(number(row, 3)),
        });
        Ok(compactions.collect())
    }

    async fn messages(&mut self, converting: &mut Converting) -> Result<(), Error> {
        let names = [
            "role",
            "name",
            "content",
            "tool_calls_json",
            "tool_call_id",
            "state",
            "meta_json",
        ];
        let texts = names.map(text_column).join(", ");
        let lengths = names.map(|name| format!("COALESCE(octet_length({name}), 0)"));
        let lengths = lengths.join(" + ");
        let send = if self.layout.has_send_index {
            "CAST(send_index AS BIGINT)"
        } else {
            "CAST(NULL AS BIGINT)"
        };
        let table = self.layout.table("messages");
        let mut after = i64::MIN;
        let mut bytes = 0;
        while let Some((last, weight)) = self.page(&lengths, after).await? {
            // A database may keep anything in a column, and say of it that it is larger than what it is a number of.
            if after != i64::MIN && last <= after {
                return Err(unreadable("seq"));
            }
            bytes += weight;
            if bytes > SESSION_BYTES_MAX {
                return Err(Error::shape("it has more than 256 MiB"));
            }
            let sql = format!(
                "SELECT CAST(seq AS BIGINT), CAST(created_at AS BIGINT), {send}, CAST({lengths} AS BIGINT), {texts} \
                 FROM {table} WHERE session_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq"
            );
            let binds = [Bind::Text(self.id), Bind::Int(after), Bind::Int(last)];
            for row in &self.database.rows(sql, &binds).await? {
                let seq = row.int(0).ok().flatten().unwrap_or_default();
                match message(row, seq) {
                    Ok(message) => converting.message(message),
                    Err(column) => converting.unreadable(seq, column),
                }
            }
            after = last;
        }
        Ok(())
    }

    /// The last message of the next page, and the bytes of the page.
    async fn page(&mut self, lengths: &str, after: i64) -> Result<Option<(i64, u64)>, Error> {
        let table = self.layout.table("messages");
        let sql = format!(
            "SELECT CAST(seq AS BIGINT), CAST({lengths} AS BIGINT) FROM {table} \
             WHERE session_id = $1 AND seq > $2 ORDER BY seq LIMIT {PAGE}"
        );
        let binds = [Bind::Text(self.id), Bind::Int(after)];
        let mut page = None;
        let mut bytes = 0;
        for row in &self.database.rows(sql, &binds).await? {
            // What a page is continued from has to be known.
            let seq = row.int(0).ok().flatten();
            let seq = seq.ok_or_else(|| unreadable("seq"))?;
            let more = row.int(1).ok().flatten().unwrap_or(0);
            let more = u64::try_from(more).unwrap_or(0) + ROW_BYTES;
            if page.is_some() && bytes + more > PAGE_BYTES {
                break;
            }
            bytes += more;
            page = Some((seq, bytes));
        }
        Ok(page)
    }

    async fn lists(&mut self, session: &mut Session) -> Result<(), Error> {
        let sql = format!(
            "SELECT {}, CAST(updated_at AS BIGINT) FROM {} WHERE session_id = $1 AND {} = 'todo' LIMIT 1",
            text_column("value_json"),
            self.layout.table("session_runtime_state"),
            self.layout.state_key
        );
        for row in self.rows(sql).await? {
            let at = time(row.int(1).ok().flatten().unwrap_or(0));
            match row.text(0) {
                Ok(Some(json)) => lists::todo(session, &json, at),
                Ok(None) => {}
                Err(_) => session.left_out.add("unreadable to-do lists"),
            }
        }
        let sql = format!(
            "SELECT CAST(note_id AS BIGINT), {}, CAST(pinned AS BIGINT), CAST(created_at AS BIGINT), \
             CAST(updated_at AS BIGINT) FROM {} WHERE session_id = $1 ORDER BY note_id LIMIT {NOTES_MAX}",
            short_column("content", NOTE_BYTES_MAX),
            self.layout.table("notes")
        );
        let rows = self.rows(sql).await?;
        lists::notes(session, &rows);
        Ok(())
    }

    async fn timers(&mut self, session: &mut Session) -> Result<(), Error> {
        let sql = format!(
            "SELECT CAST(timer_id AS BIGINT), CAST(due_at AS BIGINT), CAST(interval_s AS BIGINT), {}, {} \
             FROM {} WHERE session_id = $1 ORDER BY timer_id LIMIT {NOTES_MAX}",
            short_column("note", NOTE_BYTES_MAX),
            short_column("status", ID_BYTES_MAX),
            self.layout.table("timers")
        );
        for row in self.rows(sql).await? {
            let number = |column| row.int(column).ok().flatten();
            let status = row.text(4).ok().flatten().unwrap_or_default();
            let (Some(id), Some(due), Ok(Some(note))) = (number(0), number(1), row.text(3)) else {
                session.left_out.add("unreadable timers");
                continue;
            };
            match status.as_str() {
                "armed" | "firing" if session.closed => {
                    session.left_out.add("timers of archived sessions");
                }
                "armed" | "firing" => session.timers.push(Timer {
                    id: id.to_string(),
                    input: note.replace('\0', "\u{fffd}"),
                    at: time(due),
                    every: number(2)
                        .and_then(|seconds| u64::try_from(seconds).ok())
                        .filter(|seconds| *seconds > 0)
                        .map(std::time::Duration::from_secs),
                }),
                other => session.left_out.add(&format!("timers that are {other}")),
            }
        }
        Ok(())
    }
}

fn unreadable(column: &str) -> Error {
    Error::shape(format!("its {column} cannot be read"))
}

/// Reads a row; the name of the column that cannot be read otherwise.
fn message(row: &Row, seq: i64) -> Result<MessageRow, &'static str> {
    let text = |column, name| row.text(column).map_err(|_| name);
    let bytes = row.int(3).ok().flatten().unwrap_or(0);
    let bytes = u64::try_from(bytes).unwrap_or(0);
    let content = text(6, "content")?;
    let role = text(4, "role")?.unwrap_or_default();
    Ok(MessageRow {
        seq,
        created_at: time(row.int(1).map_err(|_| "created_at")?.unwrap_or(0)),
        send_index: row.int(2).ok().flatten(),
        is_cut: content.is_none() && bytes > crate::database::CELL_BYTES_MAX,
        role: match role.as_str() {
            "user" => Some(Role::User),
            "assistant" => Some(Role::Assistant),
            "tool" => Some(Role::Tool),
            _ => None,
        },
        role_name: role,
        name: text(5, "name")?,
        content,
        calls: text(7, "tool_calls_json")?,
        call_id: text(8, "tool_call_id")?,
        state: text(9, "state")?.unwrap_or_default(),
        meta: text(10, "meta_json")?,
    })
}

#[cfg(test)]
mod tests;
