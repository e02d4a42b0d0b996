//! A file of an older release is migrated with all its data.

use mainspring_shared::error::Code;
use mainspring_shared::message::ContentPart;
use mainspring_shared::store::Inspect as _;
use mainspring_shared::store::prelude::*;
use mainspring_shared::tool::{Approval, CallResult, Repeat};
use mainspring_store_sqlite::SqliteOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use crate::sqlite::opened::open_in;
use crate::sqlite::steps::*;

/// Rows in the first release's schema after a round in which the model called a tool that did not
/// exist.
const HELD: &str = r#"
INSERT INTO sessions (tenant, session_id, agent_version, metadata, created_at, updated_at)
VALUES (1, x'00000000000000000000000000000001', 1, '{}', 5, 5);
INSERT INTO agents (tenant, session_id, version, spec)
VALUES (1, x'00000000000000000000000000000001', 1, '{}');
INSERT INTO session_hot (tenant, session_id, next_seq, next_position, next_step, pool)
VALUES (1, x'00000000000000000000000000000001', 5, 2, 4, 'default');
INSERT INTO session_hot (tenant, session_id, pool, lifecycle)
VALUES (1, x'00000000000000000000000000000002', 'default', 2);
UPDATE session_hot SET epoch = 1 WHERE next_seq = 5;
INSERT INTO sends (tenant, send_id, session_id, position, status, stop_reason, input, options,
                   agent_version, output_text, rounds, first_step, created_at, started_at,
                   finished_at)
VALUES (1, x'00000000000000000000000000000001', x'00000000000000000000000000000001', 1, 'completed',
        'end', '[{"type":"text","text":"go"}]', '{}', 1, 'done', 2, 1, 10, 20, 40);
INSERT INTO messages (tenant, session_id, seq, send_id, role, content, tool_calls, tool_call_id, name,
                      round, asked_at_seq, epoch, created_at)
VALUES
    (1, x'00000000000000000000000000000001', 1, x'00000000000000000000000000000001', 'user', '[]',
     NULL, NULL, NULL, 0, NULL, 1, 30),
    (1, x'00000000000000000000000000000001', 2, x'00000000000000000000000000000001', 'assistant', '[]',
     '[{"id":"call_00000000000000000000000000000001_0_0","name":"look","arguments":{"a":1}}]',
     NULL, NULL, 0, NULL, 1, 30),
    (1, x'00000000000000000000000000000001', 3, x'00000000000000000000000000000001', 'tool', '[]',
     NULL, 'call_00000000000000000000000000000001_0_0', 'look', 0, 2, 1, 30),
    (1, x'00000000000000000000000000000001', 4, x'00000000000000000000000000000001', 'assistant', '[]',
     NULL, NULL, NULL, 1, NULL, 1, 40);
INSERT INTO tool_calls (tenant, session_id, call_id, send_id, round, place, name, arguments, result,
                        failed, settled_at)
VALUES (1, x'00000000000000000000000000000001', 'call_00000000000000000000000000000001_0_0',
        x'00000000000000000000000000000001', 0, 0, 'look', '{"a":1}',
        '{"code":"tool.not_found","message":"there is none"}', 1, 30);
INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, usage, at)
VALUES (1, x'00000000000000000000000000000001', x'00000000000000000000000000000001', 0, 1, 'm',
        '{"input_tokens":0,"output_tokens":0}', 30),
       (1, x'00000000000000000000000000000001', x'00000000000000000000000000000001', 1, 1, 'm',
        '{"input_tokens":0,"output_tokens":0}', 40);
INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
VALUES
    (1, x'00000000000000000000000000000001', 1, x'00000000000000000000000000000001', 'accepted', 0,
     x'00000000000000000000000000000009', 10, '{}'),
    (1, x'00000000000000000000000000000001', 2, x'00000000000000000000000000000001', 'round', 1,
     x'00000000000000000000000000000009', 30,
     '{"first_seq":1,"messages":3,"round":{"index":0,"model":"m","usage":{"input_tokens":0,"output_tokens":0}}}'),
    (1, x'00000000000000000000000000000001', 3, x'00000000000000000000000000000001', 'finished', 1,
     x'00000000000000000000000000000009', 40,
     '{"first_seq":4,"messages":1,"status":"completed","round":{"index":1,"model":"m","usage":{"input_tokens":0,"output_tokens":0}}}');
"#;

#[tokio::test]
async fn a_file_of_the_first_release_keeps_what_it_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = SqliteOptions::dir(dir.path());
    let made = SqliteConnectOptions::new()
        .filename(&options.file)
        .create_if_missing(true);
    let mut conn = made.connect().await.expect("connects");
    let ddl = mainspring_store_sqlite::ddl();
    let (first, _) = ddl.split_once("\n-- 0002 ").expect("a second migration");
    let sql = AssertSqlSafe(format!("{first}{HELD}"));
    sqlx::raw_sql(sql).execute(&mut conn).await.expect("runs");
    conn.close().await.expect("closes");

    let store = open_in(&dir).await;
    assert_eq!(
        store.check().await.expect("is sound").schema,
        crate::sqlite::newest()
    );
    let call = call(&store, 1, 0).await;
    assert_eq!((call.session, call.send_id), (key(1).session, send(1)));
    assert_eq!(
        (call.name.as_str(), call.arguments),
        ("look", serde_json::json!({ "a": 1 }).into())
    );
    assert_eq!(
        (call.repeat, call.approval),
        (Repeat::Keyed, Approval::None)
    );
    assert_eq!(
        (call.requested_at.0, call.settled_at.map(|at| at.0)),
        (30, Some(30))
    );
    let result = CallResult {
        content: vec![ContentPart::text("there is none")],
        ..CallResult::error(Code::ToolNotFound, "")
    };
    assert_eq!(call.result, Some(result));
    let record = stored(&store, 1).await;
    assert_eq!(
        (record.output_text.as_deref(), record.reports_to),
        (Some("done"), None)
    );
    let transcript = transcript(&store, 1).await;
    assert_eq!(transcript.len(), 4);
    assert!(transcript.iter().all(|message| !message.failed));
    let dump = store.dump().await.expect("answers");
    assert_eq!((dump.sessions.len(), &dump.sessions[0].parent), (2, &None));
    assert_sound(&store, 0).await;
}
