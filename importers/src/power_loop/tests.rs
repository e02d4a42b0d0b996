use mainspring_shared::message::plain_text;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};

use super::*;
use crate::Source;

/// The tables of version 1, as far as they are read.
const SCHEMA: &str = "
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    system_prompt TEXT, model TEXT, config_json TEXT, status TEXT NOT NULL DEFAULT 'active', kind TEXT,
    parent_session_id TEXT, spawn_tool_call_id TEXT, spawn_depth INTEGER NOT NULL DEFAULT 0, lifecycle TEXT, metadata_json TEXT);
CREATE TABLE messages (session_id TEXT NOT NULL, seq INTEGER NOT NULL, role TEXT NOT NULL, name TEXT, content TEXT,
    tool_calls_json TEXT, tool_call_id TEXT, round_index INTEGER, state TEXT NOT NULL DEFAULT 'active', meta_json TEXT,
    created_at INTEGER NOT NULL, PRIMARY KEY (session_id, seq));
CREATE TABLE compactions (session_id TEXT, compact_seq INTEGER, note_seq INTEGER, from_seq INTEGER, to_seq INTEGER,
    before_tokens INTEGER, after_tokens INTEGER, round_index INTEGER, created_at INTEGER);
CREATE TABLE session_runtime_state (session_id TEXT, key TEXT, value_json TEXT, updated_at INTEGER);
CREATE TABLE notes (session_id TEXT, note_id INTEGER, content TEXT, pinned INTEGER, created_at INTEGER, updated_at INTEGER);
CREATE TABLE timers (session_id TEXT, timer_id INTEGER, due_at INTEGER, note TEXT, status TEXT, interval_s INTEGER,
    fire_count INTEGER, last_fired_at INTEGER, created_at INTEGER, updated_at INTEGER);
CREATE TABLE usage_rounds (session_id TEXT, round_index INTEGER);
";

/// Reads a database with these rows; returns the sessions, those refused, and what is left out beside them.
async fn read(rows: &str) -> (Vec<Session>, Vec<String>, LeftOut) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("old.db");
    let options = SqliteConnectOptions::new()
        .filename(&file)
        .create_if_missing(true);
    let mut made = options.connect().await.expect("a database");
    made.execute(SCHEMA).await.expect("a schema");
    made.execute(sqlx::AssertSqlSafe(rows)).await.expect("rows");
    made.close().await.expect("closed");
    let mut source = Source::power_loop(&file.to_string_lossy(), None)
        .await
        .expect("a source");
    let (mut sessions, mut refused) = (Vec::new(), Vec::new());
    while let Some(found) = source.next().await.expect("reads") {
        match found {
            Found::Session(session) => sessions.push(*session),
            Found::Refused { id, why } => refused.push(format!("{id}: {why}")),
        }
    }
    (sessions, refused, source.finish().await.expect("ends"))
}

fn told(session: &Session) -> Vec<String> {
    let told = session.messages.iter();
    told.map(|it| format!("{} {}", it.role.as_str(), plain_text(&it.content)))
        .collect()
}

#[tokio::test]
async fn a_session_is_read_with_all_that_belongs_to_it() {
    let rows = r#"
INSERT INTO sessions VALUES ('sess_1', 1700000000000, 0, 'Be brief.', 'm', '{"max_tokens":100,"temperature":0.5,"odd":1}',
    'active', 'root', NULL, NULL, 0, 'linked', '{"team":"blue"}');
INSERT INTO messages VALUES
    ('sess_1', 1, 'user', NULL, 'weather?', NULL, NULL, NULL, 'active', NULL, 1700000001000),
    ('sess_1', 2, 'assistant', NULL, '', '[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Ulm\"}"}}]',
        NULL, 1, 'active', NULL, 1700000002000),
    ('sess_1', 3, 'tool', 'weather', 'rain', NULL, 'c1', 1, 'active', NULL, 1700000003000),
    ('sess_1', 4, 'assistant', NULL, 'It rains.', NULL, NULL, 2, 'active', NULL, 1700000004000),
    ('sess_1', 5, 'user', NULL, '[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]',
        NULL, NULL, NULL, 'active', NULL, 1700000005000);
INSERT INTO session_runtime_state VALUES
    ('sess_1', 'todo', '{"items":[{"id":"1","text":"look","status":"completed"},{"id":"2","text":"tell","owner":"subagent","ref":"r1"}]}', 1700000006000),
    ('sess_1', 'subagent:run:9', '{}', 0);
INSERT INTO notes VALUES ('sess_1', 3, 'likes rain', 1, 1700000007000, 1700000008000);
INSERT INTO timers VALUES
    ('sess_1', 1, 1800000000000, 'wake', 'armed', NULL, 0, NULL, 0, 0),
    ('sess_1', 2, 1800000000000, 'again', 'firing', 60, 0, NULL, 0, 0),
    ('sess_1', 3, 1600000000000, 'past', 'fired', NULL, 1, NULL, 0, 0);
INSERT INTO usage_rounds VALUES ('sess_1', 1), ('sess_1', 2);
"#;
    let (sessions, refused, rest) = read(rows).await;
    assert!(refused.is_empty(), "{refused:?}");
    let [session] = &sessions[..] else {
        panic!("{sessions:?}");
    };
    let expected = [
        "user weather?",
        "assistant ",
        "tool rain",
        "assistant It rains.",
        "user see",
    ];
    assert_eq!(told(session), expected);
    let call = &session.messages[1].tool_calls[0];
    assert_eq!(
        (call.id.as_str(), &*call.arguments.text()),
        ("c1", r#"{"city": "Ulm"}"#)
    );
    assert_eq!(session.blob_count(), 1);
    assert_ne!(session.messages[3].send_id, session.messages[4].send_id);
    assert_eq!(session.agent.system_prompt.as_deref(), Some("Be brief."));
    assert_eq!(
        (session.agent.max_tokens, session.agent.temperature),
        (Some(100), Some(0.5))
    );
    assert_eq!(session.metadata["team"], "blue");
    let todo: Vec<_> = session
        .todo
        .entries
        .iter()
        .map(|it| (&*it.text, it.status.as_deref(), it.author.as_deref()))
        .collect();
    assert_eq!(
        todo,
        [
            ("look", Some("completed"), None),
            ("tell", Some("pending"), Some("subagent r1"))
        ]
    );
    assert_eq!(
        (
            session.notes.entries[0].id,
            session.notes.entries[0].pinned,
            session.notes.next_id
        ),
        (3, true, 4)
    );
    let timers: Vec<_> = session
        .timers
        .iter()
        .map(|it| (&*it.input, it.at.0, it.every))
        .collect();
    let minute = std::time::Duration::from_mins(1);
    assert_eq!(
        timers,
        [
            ("wake", 1_800_000_000_000, None),
            ("again", 1_800_000_000_000, Some(minute))
        ]
    );
    let left: Vec<_> = session.left_out.iter().collect();
    assert_eq!(left, [("settings: odd", 1), ("timers that are fired", 1)]);
    let rest: Vec<_> = rest.iter().collect();
    assert_eq!(
        rest,
        [("states of tools: subagent", 1), ("usage of rounds", 2)]
    );
}

#[tokio::test]
async fn folded_messages_are_kept_and_covered_by_a_fold() {
    let rows = r"
INSERT INTO sessions (session_id, created_at, updated_at) VALUES ('s', 1700000000000, 0);
INSERT INTO messages (session_id, seq, role, name, content, state, created_at) VALUES
    ('s', 1, 'user', NULL, 'one', 'compacted_out', 1), ('s', 2, 'assistant', NULL, 'two', 'compacted_out', 2),
    ('s', 3, 'user', NULL, 'three', 'compacted_out', 3), ('s', 4, 'assistant', NULL, 'four', 'active', 4),
    ('s', 5, 'system', 'compact_note', 'first', 'compacted_out', 5), ('s', 6, 'user', NULL, 'five', 'active', 6),
    ('s', 7, 'system', 'compact_note', 'so far', 'active', 7), ('s', 8, 'tool', NULL, 'lost', 'dropped', 8);
INSERT INTO compactions VALUES ('s', 1, 5, 1, 2, 90, 9, 1, 5), ('s', 2, 7, 3, 5, 100, 10, 1, 7);
";
    let (sessions, _, _) = read(rows).await;
    let session = &sessions[0];
    assert_eq!(
        told(session),
        [
            "user one",
            "assistant two",
            "user three",
            "assistant four",
            "user five"
        ]
    );
    let [fold] = &session.folds[..] else {
        panic!("{:?}", session.folds);
    };
    assert_eq!(
        (fold.from_seq, fold.to_seq, fold.text.as_str()),
        (1, 3, "so far")
    );
    assert_eq!((fold.tokens_before, fold.tokens_after), (100, 10));
    let left: Vec<_> = session.left_out.iter().collect();
    let expected = [
        ("messages that the library had dropped", 1),
        ("summaries that a later one covers", 1),
    ];
    assert_eq!(left, expected);
}

#[tokio::test]
async fn rows_that_cannot_be_read_are_told_and_the_others_are_read() {
    let rows = r#"
INSERT INTO sessions (session_id, created_at, updated_at, model) VALUES ('bad', 1, 0, CAST(x'ff' AS TEXT)), ('good', 2, 0, NULL);
INSERT INTO sessions (session_id, created_at, updated_at, metadata_json) VALUES ('open', 3, 0, '{"a":');
INSERT INTO messages (session_id, seq, role, content, tool_calls_json, meta_json, created_at) VALUES
    ('good', 1, 'user', 'hello', NULL, NULL, 1), ('good', 2, 'user', CAST(x'ff00' AS TEXT), NULL, NULL, 2),
    ('good', 3, 'assistant', NULL, '[[[', 'x', 3), ('good', 4, 'narrator', 'and then', NULL, NULL, 4),
    ('nobody', 1, 'user', 'hello', NULL, NULL, 1);
INSERT INTO messages (session_id, seq, role, content, tool_calls_json, created_at) VALUES
    ('open', 1, 'assistant', 'asks', '[{"id":"c1","name":"ask","arguments":{}}]', 1);
"#;
    let (sessions, refused, rest) = read(rows).await;
    assert_eq!(refused, ["bad: its model cannot be read"]);
    assert_eq!(
        told(&sessions[0]),
        ["user hello", "assistant ", "user [narrator]\n\nand then"]
    );
    let left: Vec<_> = sessions[0].left_out.iter().map(|(name, _)| name).collect();
    let expected = [
        "calls that cannot be read",
        "messages of role narrator, kept as the user's",
        "unreadable messages: content of 2",
    ];
    assert_eq!(left, expected);
    assert!(sessions[1].messages[1].failed);
    assert_eq!(
        rest.iter().collect::<Vec<_>>(),
        [("messages of sessions that do not exist", 1)]
    );
}

/// SQLite and JSON keep anything anywhere: each of these was an index into something that is no object.
#[tokio::test]
async fn calls_of_any_shape_leave_the_rest_as_it_is() {
    for odd in [
        r#"["x"]"#,
        "[null, 7, [[]]]",
        "[[{}, {}, null]]",
        r#"[{"function": "x", "id": 7}]"#,
        r#"[{"id": "c1", "function": {"arguments": []}}]"#,
        r#"{"id": "c1"}"#,
        r#""x""#,
    ] {
        let rows = format!(
            "INSERT INTO sessions (session_id, created_at, updated_at) VALUES ('s', 1, 0);
             INSERT INTO messages (session_id, seq, role, content, tool_calls_json, created_at) VALUES
                ('s', 1, 'user', 'hello', NULL, 1), ('s', 2, 'assistant', 'here', '{odd}', 2),
                ('s', 3, 'user', 'and then', NULL, 3);"
        );
        let (sessions, refused, _) = read(&rows).await;
        assert!(refused.is_empty(), "{odd}: {refused:?}");
        let told: Vec<_> = told(&sessions[0]);
        for said in ["user hello", "assistant here", "user and then"] {
            assert!(told.iter().any(|it| it == said), "{odd}: {told:?}");
        }
    }
}

#[tokio::test]
async fn a_database_of_something_else_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("other.db");
    std::fs::write(&file, "no database").expect("written");
    let refused = Source::power_loop(&file.to_string_lossy(), None).await;
    assert!(matches!(refused, Err(Error::Database(_))), "{refused:?}");
    let missing = Source::power_loop("/nowhere/at/all.db", None).await;
    assert!(matches!(missing, Err(Error::Address(_))), "{missing:?}");
    let prefix = Source::power_loop("x.db", Some("x; DROP TABLE y")).await;
    assert!(matches!(prefix, Err(Error::Address(_))), "{prefix:?}");
}
