//! Translation of the core's statements to MySQL's dialect.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{LazyLock, Mutex};

use mainspring_store_core::db::{Part, Statement, piece, spelled};

/// Statements that replace those of the core.
const TEXTS: &[&str] = &[
    include_str!("../sql/audit.sql"),
    include_str!("../sql/boots.sql"),
    include_str!("../sql/calibrations.sql"),
    include_str!("../sql/mcp_lists.sql"),
    include_str!("../sql/calls.sql"),
    include_str!("../sql/inbox.sql"),
    include_str!("../sql/lists.sql"),
    include_str!("../sql/memories.sql"),
    include_str!("../sql/messages.sql"),
    include_str!("../sql/runs.sql"),
    include_str!("../sql/sends.sql"),
    include_str!("../sql/sessions.sql"),
    include_str!("../sql/usage.sql"),
];

/// Words of the core's texts with their replacements in MySQL. `not_end` and `reporting` are
/// columns that stand in for the conditions of partial indexes.
const WORDS: &[(&str, &str)] = &[
    ("{lock}", "FOR UPDATE"),
    ("{lock_free}", "FOR UPDATE SKIP LOCKED"),
    (
        "{lock_session}",
        "SELECT epoch FROM session_hot WHERE tenant = $1 AND session_id = $2 FOR UPDATE;",
    ),
    ("{share}", "LOCK IN SHARE MODE"),
    ("{greatest}", "greatest"),
    ("{least}", "least"),
    ("{not_end}", "not_end = 1"),
    ("{reporting}", "reporting = 1"),
    // Within a CTE that has the name of a table, that name refers to the table.
    (" main.", " "),
    (" AS MATERIALIZED (", " AS ("),
    // Tables are joined in the order in which they are written.
    ("CROSS JOIN", "STRAIGHT_JOIN"),
    (" AS INTEGER)", " AS SIGNED)"),
    (" AS REAL)", " AS DOUBLE)"),
    (" AS TEXT)", " AS CHAR)"),
];

/// One statement for MySQL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// The text, with `?` for each parameter.
    pub(crate) sql: String,
    /// The index of the argument for each `?`, from 0.
    pub(crate) arguments: Vec<usize>,
}

/// The sections of `TEXTS` by name.
static OWN: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let sections = TEXTS
        .iter()
        .flat_map(|text| text.split("-- name: ").skip(1));
    let sections = sections.filter_map(|section| section.split_once('\n'));
    sections.map(|(name, text)| (name.trim(), text)).collect()
});

/// The statements translated so far, by their addresses.
static TRANSLATED: LazyLock<Mutex<HashMap<usize, &'static [Command]>>> =
    LazyLock::new(Mutex::default);

/// Translates a statement of the core to the statements to run, in order.
pub(crate) fn commands(statement: &'static Statement) -> &'static [Command] {
    // A statement has no name, but as a static its address is unique and never changes.
    let key = std::ptr::from_ref(statement).addr();
    let mut known = TRANSLATED.lock().expect("nothing panics under the lock");
    known.entry(key).or_insert_with(|| {
        let parts = statement.parts.iter();
        // Each of the few hundred statements is leaked once.
        if statement.is_one {
            return Box::leak(split(&one(statement.parts)).into_boxed_slice());
        }
        Box::leak(parts.flat_map(|part| split(text(part))).collect())
    })
}

/// Joins parts into one statement. In MariaDB 10.11 the CTEs of a subquery do not see those of the
/// enclosing statement, but the tables of the same names, so the outer CTEs are repeated there.
fn one(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| without_comments(piece(text(part))));
    let texts: Vec<String> = texts.collect();
    let Some((head, rest)) = texts.split_first() else {
        return String::new();
    };
    let around = head
        .rsplit_once("\nSELECT")
        .map_or("", |(tables, _)| tables);
    let mut whole = head.clone();
    for text in rest {
        whole.push('\n');
        match text.trim_start().strip_prefix("WITH ") {
            Some(own) => whole.extend([around, ",\n", own]),
            None => whole.push_str(text),
        }
    }
    whole
}

fn text(part: &Part) -> &'static str {
    OWN.get(part.name).copied().unwrap_or(part.text)
}

/// The statements that the server gets for a text of the core.
pub fn translated(text: &str) -> Vec<String> {
    let commands = split(text).into_iter();
    commands.map(|command| command.sql).collect()
}

/// Splits a text into its statements, translates them, and numbers their parameters.
fn split(text: &str) -> Vec<Command> {
    let code = without_comments(&spelled(text, WORDS));
    let statements = code.split(';').map(str::trim);
    statements
        .filter(|sql| !sql.is_empty())
        .map(|sql| numbered(&upserts(scalars(&pairs(&limited(sql))))))
        .collect()
}

/// Rewrites a `DELETE` of the rows that a subquery with `LIMIT` selects: in MySQL the `DELETE`
/// itself can have a `LIMIT`, but such a subquery cannot.
fn limited(sql: &str) -> Cow<'_, str> {
    let inner = || {
        let (table, rest) = sql
            .strip_prefix("DELETE FROM ")?
            .split_once(char::is_whitespace)?;
        let (_, named) = rest.split_once(" IN (\n    SELECT ")?;
        let (_, rows) = named.split_once(&format!(" FROM {table}"))?;
        let rows = rows.strip_suffix(')')?.trim_end();
        rows.contains(" LIMIT $")
            .then(|| format!("DELETE FROM {table}{rows}"))
    };
    inner().map_or(Cow::Borrowed(sql), Cow::Owned)
}

/// Expands `(a, b) > ($1, $2)`: a comparison of pairs does not use an index, the separate
/// conditions do.
fn pairs(sql: &str) -> String {
    let mut said = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find(") >") {
        let (before, after) = rest.split_at(at);
        let pair = || {
            let (before, columns) = before.rsplit_once('(')?;
            let (than, values) = after.strip_prefix(") ")?.split_once(" ($")?;
            let (values, behind) = values.split_once(')')?;
            let (a, b) = columns.split_once(", ")?;
            let (x, y) = values.split_once(", ")?;
            let is_pair = [">", ">="].contains(&than) && !b.contains(',') && !y.contains(',');
            let text = format!("{before}({a} > ${x} OR {a} = ${x} AND {b} {than} {y})");
            is_pair.then_some((text, behind))
        };
        let (text, behind) = pair().unwrap_or_else(|| {
            let (text, behind) = rest.split_at(at + 1);
            (text.to_owned(), behind)
        });
        said.push_str(&text);
        rest = behind;
    }
    said + rest
}

/// Translates `a ->> 'b'` and `a ->> '$.b'`: the scalar at that path as text, NULL if there is
/// none.
fn scalars(sql: &str) -> String {
    let mut said = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once(" ->> '") {
        let (path, behind) = after.split_once('\'').unwrap_or((after, ""));
        let document = before.trim_end_matches(is_of_name).len();
        let (before, document) = before.split_at(document);
        let root = if path.starts_with('$') { "" } else { "$." };
        // Writing to a string cannot fail.
        let _ = write!(said, "{before}JSON_VALUE({document}, '{root}{path}')");
        rest = behind;
    }
    said + rest
}

/// Translates upserts. MySQL runs assignments from left to right, and each sees the values assigned
/// before it.
fn upserts(sql: String) -> String {
    let Some((insert, rest)) = sql.split_once("ON CONFLICT (") else {
        return sql;
    };
    let (key, action) = rest.split_once(") DO ").unwrap_or((rest, ""));
    let mut said = format!("{insert}ON DUPLICATE KEY UPDATE");
    let Some(assigned) = action.strip_prefix("UPDATE SET") else {
        // Leaves the row unchanged. INSERT IGNORE would ignore other errors, too.
        let column = key.split(", ").next().unwrap_or(key);
        let _ = write!(said, " {column} = {column}");
        return said;
    };
    let mut parts = assigned.split("excluded.");
    said.extend(parts.next());
    for part in parts {
        let name = part.find(|c| !is_of_name(c)).unwrap_or(part.len());
        let (name, behind) = part.split_at(name);
        let _ = write!(said, "VALUES({name}){behind}");
    }
    said
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.\"".contains(c)
}

fn without_comments(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split("-- ").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

fn numbered(sql: &str) -> Command {
    let mut command = Command {
        sql: String::with_capacity(sql.len()),
        arguments: Vec::new(),
    };
    let mut rest = sql;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        command.sql.push_str(before);
        let digits = from[1..].bytes().take_while(u8::is_ascii_digit).count();
        // The `$` of a JSON path is not followed by a number.
        match from[1..=digits].parse::<usize>() {
            Ok(number) => {
                command.sql.push('?');
                command.arguments.push(number - 1);
            }
            Err(_) => command.sql.push('$'),
        }
        rest = &from[1 + digits..];
    }
    command.sql.push_str(rest);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_in_the_order_in_which_they_appear() {
        let commands =
            split("-- Why.\nUPDATE t SET a = $2, b = $10 WHERE c = $2; -- and\nDELETE FROM t;\n");
        let [update, delete] = &commands[..] else {
            panic!("{commands:?}")
        };
        assert_eq!(update.sql, "UPDATE t SET a = ?, b = ? WHERE c = ?");
        assert_eq!(update.arguments, [1, 9, 1]);
        assert_eq!(delete.sql, "DELETE FROM t");
    }

    #[test]
    fn what_the_dialects_say_differently_is_translated() {
        for (core, mysql) in [
            (
                "SELECT a FROM t WHERE b = $1 {lock};",
                "SELECT a FROM t WHERE b = ? FOR UPDATE",
            ),
            (
                "WITH u AS MATERIALIZED (SELECT * FROM main.u)\nSELECT {least}(1, 2) FROM u",
                "WITH u AS (SELECT * FROM u)\nSELECT least(1, 2) FROM u",
            ),
            (
                "SELECT CAST(t.a ->> 'b' AS INTEGER), sum(t.\"c\" ->> '$.d.e') FROM t WHERE a ->> 'f' IS NULL",
                "SELECT CAST(JSON_VALUE(t.a, '$.b') AS SIGNED), sum(JSON_VALUE(t.\"c\", '$.d.e')) FROM t \
                 WHERE JSON_VALUE(a, '$.f') IS NULL",
            ),
            (
                "INSERT INTO t (a, b) VALUES ($1, $2)\nON CONFLICT (a, b) DO NOTHING;",
                "INSERT INTO t (a, b) VALUES (?, ?)\nON DUPLICATE KEY UPDATE a = a",
            ),
            (
                "INSERT INTO t (a, b) VALUES ($1, $2)\n\
                 ON CONFLICT (a) DO UPDATE SET b = t.b + excluded.b, \"c\" = excluded.\"c\";",
                "INSERT INTO t (a, b) VALUES (?, ?)\n\
                 ON DUPLICATE KEY UPDATE b = t.b + VALUES(b), \"c\" = VALUES(\"c\")",
            ),
            (
                "DELETE FROM t\nWHERE a = $1 AND (b, c) IN (\n    SELECT b, c FROM t\n    \
                 WHERE a = $1 AND d IN (3, 4)\n    ORDER BY b\n    LIMIT $2\n);",
                "DELETE FROM t\n    WHERE a = ? AND d IN (3, 4)\n    ORDER BY b\n    LIMIT ?",
            ),
            (
                "SELECT a FROM t WHERE x(b) AND (t.a, b) >= ($1, $2) AND (a, b, c) > ($1, $2, $3) AND d > ($4)",
                "SELECT a FROM t WHERE x(b) AND (t.a > ? OR t.a = ? AND b >= ?) \
                 AND (a, b, c) > (?, ?, ?) AND d > (?)",
            ),
            // A subquery without a limit is kept.
            (
                "DELETE FROM t WHERE a IN (\n    SELECT a FROM t\n    WHERE b = $1\n)",
                "DELETE FROM t WHERE a IN (\n    SELECT a FROM t\n    WHERE b = ?\n)",
            ),
        ] {
            let commands = split(core);
            let texts: Vec<&str> = commands.iter().map(|it| it.sql.as_str()).collect();
            assert_eq!(texts, [mysql], "{core}");
        }
    }

    #[test]
    fn a_session_is_locked_before_it_is_read() {
        let commands =
            split("-- Why.\n{lock_session}\nSELECT {h.hot} FROM session_hot h WHERE h.tenant = $1");
        let [lock, read] = &commands[..] else {
            panic!("{commands:?}")
        };
        assert!(lock.sql.ends_with("FOR UPDATE"), "{}", lock.sql);
        assert_eq!(lock.arguments, [0, 1]);
        assert_eq!(read.arguments, [0]);
    }

    #[test]
    fn a_subquery_with_tables_of_its_own_gets_those_around_it() {
        let part = |text| Part { name: "", text };
        let parts = [
            part("-- Why.\nWITH a AS (SELECT 1)\nSELECT 2 FROM a;\n"),
            part("UNION ALL SELECT * FROM ("),
            part("-- Why.\nWITH b AS (SELECT 3 FROM a)\nSELECT 4 FROM b;\n"),
            part(") v UNION ALL SELECT * FROM ("),
            part("SELECT 5 FROM a;\n"),
            part(") v"),
        ];
        let commands = split(&one(&parts));
        assert_eq!(commands.len(), 1, "{commands:?}");
        let words: Vec<&str> = commands[0].sql.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "WITH a AS (SELECT 1) SELECT 2 FROM a UNION ALL SELECT * FROM ( \
             WITH a AS (SELECT 1), b AS (SELECT 3 FROM a) SELECT 4 FROM b ) v \
             UNION ALL SELECT * FROM ( SELECT 5 FROM a ) v"
        );
    }

    #[test]
    fn paths_into_json_are_no_parameters() {
        let commands = split("SELECT JSON_VALUE(a, '$.b'), '$[*]' FROM t WHERE c = $1");
        assert_eq!(
            commands[0].sql,
            "SELECT JSON_VALUE(a, '$.b'), '$[*]' FROM t WHERE c = ?"
        );
        assert_eq!(commands[0].arguments, [0]);
    }

    #[test]
    fn every_own_text_is_one_of_the_core() {
        let core = concat!(env!("CARGO_MANIFEST_DIR"), "/../store-core/sql");
        for name in OWN.keys() {
            let file = std::path::Path::new(core).join(format!("{name}.sql"));
            assert!(file.exists(), "{name}");
        }
    }
}
