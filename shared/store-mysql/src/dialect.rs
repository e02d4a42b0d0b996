//! The core's statements in MySQL's dialect.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use mainspring_shared::store::columns::expand;
use mainspring_store_core::REMOVE_ROWS;
use mainspring_store_core::db::{Part, Statement, piece};

/// The texts that differ from the core's.
const TEXTS: &[&str] = &[
    include_str!("../sql/audit.sql"),
    include_str!("../sql/blobs.sql"),
    include_str!("../sql/boots.sql"),
    include_str!("../sql/calibrations.sql"),
    include_str!("../sql/calls.sql"),
    include_str!("../sql/erasures.sql"),
    include_str!("../sql/extractions.sql"),
    include_str!("../sql/idempotency.sql"),
    include_str!("../sql/inbox.sql"),
    include_str!("../sql/lists.sql"),
    include_str!("../sql/memories.sql"),
    include_str!("../sql/messages.sql"),
    include_str!("../sql/money.sql"),
    include_str!("../sql/named.sql"),
    include_str!("../sql/projections.sql"),
    include_str!("../sql/pauses.sql"),
    include_str!("../sql/pieces.sql"),
    include_str!("../sql/provider_keys.sql"),
    include_str!("../sql/runs.sql"),
    include_str!("../sql/seats.sql"),
    include_str!("../sql/sends.sql"),
    include_str!("../sql/sessions.sql"),
    include_str!("../sql/skills.sql"),
    include_str!("../sql/stats.sql"),
    include_str!("../sql/steps.sql"),
    include_str!("../sql/tenants.sql"),
    include_str!("../sql/timers.sql"),
    include_str!("../sql/usage.sql"),
    include_str!("../sql/webhooks.sql"),
];

/// One statement, as MySQL takes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// The text, with `?` for each parameter.
    pub(crate) sql: String,
    /// Which argument each `?` takes, from 0.
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

/// What was translated so far, by the statement's place in memory.
static TRANSLATED: LazyLock<Mutex<HashMap<usize, &'static [Command]>>> =
    LazyLock::new(Mutex::default);

/// The statements that a statement of the core is here, in the order in which they run.
pub(crate) fn commands(statement: &'static Statement) -> &'static [Command] {
    // A statement has no name of its own, but a place that it never leaves.
    let key = std::ptr::from_ref(statement).addr();
    let mut known = TRANSLATED.lock().expect("nothing panics under the lock");
    known.entry(key).or_insert_with(|| {
        let parts = statement.parts.iter();
        // Each of the few hundred statements is leaked once.
        if statement.is_one {
            return Box::leak(split(&one(statement.parts)).into_boxed_slice());
        }
        Box::leak(parts.flat_map(|part| split(&text(part))).collect())
    })
}

/// Parts that are one statement. Common tables of a subquery do not see those of the statement around it, but the tables behind
/// their names (MariaDB 10.11): they are repeated there.
fn one(parts: &[Part]) -> String {
    let texts = parts
        .iter()
        .map(|part| without_comments(piece(&text(part))));
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

fn text(part: &Part) -> Cow<'static, str> {
    if let Some(table) = part.name.strip_prefix(REMOVE_ROWS) {
        // A deletion is limited itself: its subqueries cannot be.
        return format!("DELETE FROM {table} WHERE tenant = $1 LIMIT $2").into();
    }
    OWN.get(part.name).copied().unwrap_or(part.text).into()
}

/// Splits a text into its statements, and numbers their parameters.
pub(crate) fn split(text: &str) -> Vec<Command> {
    let code = without_comments(&expand(text));
    let statements = code.split(';').map(str::trim);
    statements
        .filter(|sql| !sql.is_empty())
        .map(numbered)
        .collect()
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
        // A `$` of a JSON path has no number behind it.
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
