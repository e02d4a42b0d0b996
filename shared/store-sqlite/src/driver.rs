//! A connection to the file that runs statements on the calling thread.
//!
//! A statement on cached rows takes a few microseconds. A driver that hands each statement to a
//! thread of its own and the rows back spends several times as long on that, with two context
//! switches each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use mainspring_store_core::db::{StatementResult, Visit};
use mainspring_store_core::{Columns, Row, Value};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Error, OpenFlags, Result};

use crate::options::SqliteOptions;
use crate::split::split;

/// Prepared statements that a connection keeps: all that a busy process uses.
const PREPARED: usize = 512;

/// Pages in the log at which a commit checkpoints it into the file: 32 MiB. With SQLite's default
/// of 4 MiB a busy process writes the same pages back several times a second, and waits for the
/// disk each time.
const LOG_PAGES: i64 = 8_192;

/// The writer's page cache, in KiB; SQLite expects that as a negative number. Its default of 2 MiB
/// does not hold the inner index pages of a few hundred thousand sends.
const WRITER_CACHE: i64 = -32 * 1_024;

/// A connection.
#[derive(Debug)]
pub(crate) struct Driver {
    conn: Connection,
    /// Parsed texts, by their addresses and lengths, which are unique, since texts are part of the
    /// program.
    texts: HashMap<(usize, usize), Vec<Piece>>,
}

/// A statement of a text.
#[derive(Debug)]
struct Piece {
    sql: String,
    /// For each parameter, the index of the text's argument.
    arguments: Vec<usize>,
    columns: Columns,
}

impl Driver {
    /// The connection that writes.
    pub(crate) fn writer(options: &SqliteOptions) -> Result<Self> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, options.creates());
        let driver = Self::open(options, flags)?;
        driver.conn.pragma_update(None, "journal_mode", "WAL")?;
        let kept = SqliteOptions::LOG_KEPT;
        driver
            .conn
            .pragma_update(None, "journal_size_limit", kept)?;
        driver
            .conn
            .pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        driver
            .conn
            .pragma_update(None, "cache_size", WRITER_CACHE)?;
        // A commit does not sync: a separate thread does, for several commits at once.
        driver.conn.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(driver)
    }

    /// A connection that reads.
    pub(crate) fn reader(options: &SqliteOptions) -> Result<Self> {
        Self::open(options, OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    fn open(options: &SqliteOptions, flags: OpenFlags) -> Result<Self> {
        // Only one thread at a time uses it.
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::of(Connection::open_with_flags(&options.file, flags)?)
    }

    /// An in-memory database, which lives as long as the connection.
    pub(crate) fn in_memory() -> Result<Self> {
        Self::of(Connection::open_in_memory()?)
    }

    fn of(conn: Connection) -> Result<Self> {
        conn.busy_timeout(SqliteOptions::BUSY_TIMEOUT)?;
        conn.pragma_update(None, "foreign_keys", false)?;
        conn.set_prepared_statement_cache_capacity(PREPARED);
        Ok(Self {
            conn,
            texts: HashMap::new(),
        })
    }

    /// Runs the statements of a text, which share the arguments, and returns all rows.
    pub(crate) fn run(
        &mut self,
        text: &'static str,
        arguments: &[Value],
    ) -> Result<StatementResult> {
        let mut done = StatementResult::default();
        let (conn, pieces) = self.pieces(text)?;
        for piece in pieces {
            let mut statement = piece.bound(conn, arguments)?;
            if statement.column_count() == 0 {
                done.affected += statement.raw_execute()? as u64;
                continue;
            }
            let writes = !statement.readonly();
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                done.rows.push(read(&mut piece.columns, row)?);
            }
            drop(rows);
            if writes {
                done.affected += conn.changes();
            }
        }
        Ok(done)
    }

    /// Runs a text and passes its rows to `visit` one by one, until that stops.
    pub(crate) fn scan(
        &mut self,
        text: &'static str,
        arguments: &[Value],
        visit: Visit<'_>,
    ) -> Result<()> {
        let (conn, pieces) = self.pieces(text)?;
        for piece in pieces {
            let mut statement = piece.bound(conn, arguments)?;
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                if !visit(&read(&mut piece.columns, row)?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Runs a text that has no arguments and returns no rows.
    pub(crate) fn execute(&mut self, text: &'static str) -> Result<()> {
        self.run(text, &[]).map(drop)
    }

    /// Runs a text and returns the number in its last row.
    pub(crate) fn number(&mut self, text: &'static str, arguments: &[Value]) -> Result<i64> {
        let (conn, pieces) = self.pieces(text)?;
        let mut number = Err(Error::QueryReturnedNoRows);
        for piece in pieces {
            let mut statement = piece.bound(conn, arguments)?;
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                number = row.get(0);
            }
        }
        number
    }

    /// Runs a script that is not part of the program.
    pub(crate) fn script(&self, text: &str) -> Result<()> {
        self.conn.execute_batch(text)
    }

    /// Whether the connection is read-only.
    pub(crate) fn is_read_only(&self) -> Result<bool> {
        self.conn.is_readonly(rusqlite::MAIN_DB)
    }

    /// The connection, for statements that run once and are not worth caching.
    pub(crate) fn raw(&self) -> &Connection {
        &self.conn
    }

    fn pieces(&mut self, text: &'static str) -> Result<(&Connection, &mut Vec<Piece>)> {
        let conn = &self.conn;
        let pieces = match self.texts.entry((text.as_ptr() as usize, text.len())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let pieces = split(text).into_iter().map(|sql| Piece::new(conn, sql));
                new.insert(pieces.collect::<Result<_>>()?)
            }
        };
        Ok((conn, pieces))
    }
}

impl Piece {
    fn new(conn: &Connection, sql: &str) -> Result<Self> {
        let statement = conn.prepare_cached(sql)?;
        let arguments = (1..=statement.parameter_count()).map(|index| {
            let name = statement.parameter_name(index).unwrap_or_default();
            let number = name.strip_prefix('$').and_then(|it| it.parse().ok());
            let number = number.and_then(|number: usize| number.checked_sub(1));
            number.ok_or_else(|| Error::InvalidParameterName(name.to_owned()))
        });
        Ok(Self {
            sql: sql.to_owned(),
            arguments: arguments.collect::<Result<_>>()?,
            columns: Columns::default(),
        })
    }

    fn bound<'c>(&self, conn: &'c Connection, arguments: &[Value]) -> Result<CachedStatement<'c>> {
        let mut statement = conn.prepare_cached(&self.sql)?;
        for (index, argument) in self.arguments.iter().enumerate() {
            let missing = || Error::InvalidParameterCount(arguments.len(), argument + 1);
            let value = arguments.get(*argument).ok_or_else(missing)?;
            statement.raw_bind_parameter(index + 1, Bound(value))?;
        }
        Ok(statement)
    }
}

struct Bound<'v>(&'v Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Real(number) => ValueRef::Real(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn read(columns: &mut Columns, row: &rusqlite::Row<'_>) -> Result<Row> {
    let count = row.as_ref().column_count();
    let values = (0..count).map(|index| value(index, row.get_ref(index)?));
    columns.row(|| row.as_ref().column_names().into_iter(), values)
}

fn value(index: usize, value: ValueRef<'_>) -> Result<Value> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text);
            Value::Text(
                text.map_err(|error| Error::Utf8Error(index, error))?
                    .to_owned(),
            )
        }
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    })
}
