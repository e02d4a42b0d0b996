//! Each invariant reports its violation, planted behind the store's back.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::id::TimerId;
use mainspring_shared::invariants::{INVARIANTS, READABLE, piecewise};
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::store::{
    AcceptSend, AfterSend, AuditKind, AuditOptions, CallBegin, Delivery, Inspect as _, NewSession,
    NewTimer, audit_in_pieces,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{CatchUp, First, Schedule, TimerRule, TimerTarget};
use mainspring_shared::tool::call_id;
use mainspring_store_core::SqlStore;

use super::opened::{Opened, Place, execute, reachable};
use super::steps::*;

/// Statements that violate each invariant.
const PLANTS: &[(&str, &str)] = &[
    ("send.one_final_step", "UPDATE steps SET kind = 'round' WHERE kind = 'finished'"),
    ("send.one_final_step", "UPDATE steps SET kind = 'finished' WHERE n = 1"),
    (
        "send.final_is_last",
        "UPDATE session_hot SET next_seq = next_seq + 1;
         INSERT INTO messages (tenant, session_id, seq, send_id, role, content, round, epoch, created_at)
         SELECT tenant, session_id, 6, send_id, role, content, round, epoch, created_at
         FROM messages WHERE seq = 1",
    ),
    (
        "send.final_is_last",
        "UPDATE session_hot SET next_step = next_step + 1;
         INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
         SELECT tenant, session_id, 6, send_id, 'round', epoch, boot, at, '{}'
         FROM steps WHERE kind = 'finished'",
    ),
    ("session.seq_gap_free", "DELETE FROM messages WHERE seq = 1"),
    ("session.seq_gap_free", "UPDATE session_hot SET next_seq = next_seq + 1"),
    ("session.steps_gap_free", "DELETE FROM steps WHERE n = 2"),
    ("session.positions_unique", "UPDATE sends SET position = 2 WHERE position = 1"),
    ("session.positions_unique", "UPDATE sends SET position = 9 WHERE position = 3"),
    ("session.positions_unique", "UPDATE inbox SET n = 3 WHERE item_id = 'said'"),
    ("session.pending_matches", "UPDATE session_hot SET pending = 2"),
    (
        "session.ready_iff_work",
        "UPDATE session_hot SET owner_boot = NULL, token = NULL, ready_since = NULL",
    ),
    ("session.erased", "UPDATE session_hot SET lifecycle = 2"),
    (
        "session.one_active_send",
        "UPDATE sends SET status = 'running', started_at = 1, agent_version = 1
         WHERE status = 'queued'",
    ),
    (
        "epoch.never_decreases",
        "UPDATE session_hot SET epoch = 2; UPDATE messages SET epoch = 2 WHERE seq = 2",
    ),
    (
        "epoch.never_decreases",
        "UPDATE session_hot SET epoch = 2; UPDATE steps SET epoch = 2 WHERE kind = 'round'",
    ),
    ("epoch.one_boot", "UPDATE steps SET boot = x'00' WHERE kind = 'finished'"),
    ("epoch.granted", "UPDATE messages SET epoch = 2 WHERE seq = 5"),
    ("epoch.granted", "UPDATE steps SET epoch = 2 WHERE kind = 'finished'"),
    ("call.one_result", "UPDATE messages SET tool_call_id = NULL WHERE seq = 3"),
    ("call.one_result", "UPDATE messages SET tool_calls = NULL WHERE seq = 2"),
    (
        "call.one_result",
        "UPDATE messages SET tool_call_id = (SELECT tool_call_id FROM messages WHERE seq = 3)
         WHERE seq = 4",
    ),
    ("call.one_result", "UPDATE messages SET send_id = x'02' WHERE seq = 3"),
    ("call.one_result", "UPDATE tool_calls SET result = NULL, settled_at = NULL"),
    ("call.one_result", "DELETE FROM tool_calls"),
    ("call.settled_shape", "UPDATE tool_calls SET settled_at = NULL"),
    ("call.settled_shape", "UPDATE tool_calls SET result = NULL"),
    ("call.settled_shape", "UPDATE tool_calls SET waits_on = 'tool'"),
    ("call.settled_shape", "UPDATE tool_calls SET started_epoch = NULL"),
    ("inbox.one_fate", "UPDATE inbox SET settled_at = NULL WHERE item_id = 'said'"),
    ("inbox.one_fate", "UPDATE inbox SET seq = NULL WHERE item_id = 'said'"),
    ("inbox.one_fate", "UPDATE inbox SET seq = 9 WHERE item_id = 'said'"),
    ("inbox.one_fate", "UPDATE inbox SET seq = 1 WHERE item_id = 'joined'"),
    ("inbox.one_fate", "UPDATE inbox SET seq = 1 WHERE item_id = 'waits'"),
    ("inbox.one_fate", "UPDATE inbox SET settled_at = 1 WHERE item_id = 'waits'"),
    (
        "child.reported",
        "UPDATE sends SET reported_at = NULL, finished_at = 1 WHERE reports_to IS NOT NULL",
    ),
    ("send.running_has_lease", "UPDATE boots SET lease_until = 0"),
    ("send.running_has_lease", "UPDATE boots SET dead_at = 0"),
    ("send.running_has_lease", "DELETE FROM boots"),
    (
        "send.running_has_lease",
        "UPDATE session_hot SET owner_boot = NULL, token = NULL, ready_since = NULL
         WHERE owner_boot IS NOT NULL",
    ),
    ("usage.matches_rounds", "DELETE FROM usage_rows WHERE round = 1"),
    ("send.shape", "UPDATE sends SET started_at = NULL WHERE status = 'running'"),
    ("send.shape", "UPDATE sends SET agent_version = NULL WHERE status = 'completed'"),
    ("send.shape", "UPDATE sends SET waiting_on = 'tool' WHERE status = 'queued'"),
    ("send.shape", "UPDATE sends SET stop_reason = NULL WHERE status = 'completed'"),
    ("send.shape", "UPDATE sends SET error = '{}' WHERE status = 'completed'"),
    ("send.shape", "UPDATE sends SET alarm_at = 1 WHERE status = 'completed'"),
    ("run.leaf_one_send", "UPDATE sends SET run_id = x'00000000000000000000000000000001', run_path = '/0', run_attempt = 1"),
    (
        "run.final_is_quiet",
        "INSERT INTO runs (tenant, run_id, name, status, spec, dsl_version, input, options, depth,
                           attempt, \"usage\", counts, created_at, finished_at)
         VALUES (1, x'00000000000000000000000000000001', 'r', 'completed', '{}', 1, '0', '{}', 1, 1, '{}', '{}', 0, 1);
         UPDATE sends SET run_id = x'00000000000000000000000000000001', run_path = '/0', run_attempt = 1 WHERE status = 'running'",
    ),
    (
        "run.steps_gap_free",
        "INSERT INTO runs (tenant, run_id, name, status, spec, dsl_version, input, options, depth,
                           attempt, \"usage\", counts, created_at, step)
         VALUES (1, x'00000000000000000000000000000001', 'r', 'running', '{}', 1, '0', '{}', 1, 1, '{}', '{}', 0, 1)",
    ),
    ("timer.fired_once", "DELETE FROM timer_occurrences WHERE n = 2"),
    ("timer.fired_once", "DELETE FROM timer_occurrences WHERE n = 3"),
    ("timer.fired_once", "UPDATE timers SET next_n = next_n + 1"),
    ("timer.fired_once", "UPDATE timer_occurrences SET fate = 'fired'"),
    ("timer.fired_once", "UPDATE timer_occurrences SET send_id = NULL WHERE n = 2"),
    ("timer.never_early", "UPDATE timer_occurrences SET fired_at = due_at - 1 WHERE n = 2"),
    ("timer.shape", "UPDATE timers SET fire_at = NULL"),
    ("timer.shape", "UPDATE timers SET due_at = NULL"),
    ("timer.shape", "UPDATE timers SET ended_at = 1"),
    (
        "timer.never_early",
        "UPDATE timer_occurrences SET due_at = due_at + 1000, fired_at = fired_at + 1000 WHERE n = 1",
    ),
    (
        "timer.never_early",
        "UPDATE timer_occurrences SET due_at = due_at - 500, fired_at = fired_at - 500 WHERE n = 2",
    ),
    (
        "call.asked",
        "INSERT INTO tool_calls (tenant, call_id, session_id, send_id, round, place, name,
                                 arguments, \"repeat\", approval, requested_at)
         SELECT tenant, call_id || 'x', session_id, send_id, round, place + 1, name, arguments, \"repeat\",
                approval, requested_at
         FROM tool_calls LIMIT 1",
    ),
    ("message.has_step", "UPDATE steps SET refs = '{}' WHERE kind = 'round'"),
    (
        "message.has_step",
        "DELETE FROM messages WHERE seq = 5; UPDATE session_hot SET next_seq = 5",
    ),
    (
        "send.unstarted_is_silent",
        "UPDATE messages SET send_id = x'00000000000000000000000000000003'
         WHERE seq = 5",
    ),
    (
        "usage.sums",
        "UPDATE usage_rows SET \"usage\" = '{\"input_tokens\":3,\"output_tokens\":0}' WHERE round = 1",
    ),
    (
        "usage.sums",
        "UPDATE sends SET \"usage\" = '{\"input_tokens\":3,\"output_tokens\":0}'
         WHERE status = 'completed'",
    ),
    (
        "budget.kept",
        "UPDATE sends SET options = '{\"budget\":{\"rounds\":1}}', rounds = 5
         WHERE status = 'completed'",
    ),
    (
        "budget.kept",
        "UPDATE sends SET options = '{\"budget\":{\"tokens\":5}}',
             \"usage\" = '{\"input_tokens\":0,\"output_tokens\":0,\"held\":{\"c\":{\"tokens\":6,\"nano_usd\":0,\"rounds\":0}}}'
         WHERE status = 'completed'",
    ),
    (
        "budget.kept",
        "UPDATE sends SET options = '{\"budget\":{\"tokens\":5}}' WHERE status = 'completed';
         UPDATE usage_rows SET \"usage\" = '{\"input_tokens\":3,\"output_tokens\":3}' WHERE round = 0",
    ),
    (
        "budget.kept",
        "UPDATE tool_calls SET name = 'spawn_agent', result = '{\"value\":{\"status\":\"completed\"}}';
         UPDATE sends SET \"usage\" = '{\"input_tokens\":0,\"output_tokens\":0,\"held\":{\"'
             || (SELECT call_id FROM tool_calls) || '\":{\"tokens\":6,\"nano_usd\":0,\"rounds\":0}}}'
         WHERE status = 'completed'",
    ),
    ("epoch.one_boot", "UPDATE session_hot SET owner_boot = x'09' WHERE owner_boot IS NOT NULL"),
    (
        "epoch.granted",
        "UPDATE session_hot SET epoch = 9;
         UPDATE messages SET epoch = 2 WHERE seq > 2;
         UPDATE steps SET epoch = 2, kind = 'calls' WHERE kind = 'finished'",
    ),
    ("epoch.granted", "UPDATE tool_calls SET started_epoch = 9"),
    (
        "boot.in_flight",
        "UPDATE steps SET at = at - 100000; UPDATE sends SET started_at = started_at - 100000",
    ),
    (
        "send.running_has_lease",
        "UPDATE boots SET started_at = started_at - 100000; UPDATE steps SET at = at - 100000;
         UPDATE session_hot SET owner_boot = NULL, token = NULL, ready_since = ready_since - 100000
         WHERE owner_boot IS NOT NULL",
    ),
    ("usage.matches_rounds", "UPDATE usage_rows SET round = 3 WHERE round = 1"),
    ("usage.matches_rounds", "UPDATE usage_rows SET send_id = x'77' WHERE round = 1"),
    (
        "run.final_is_quiet",
        "INSERT INTO runs (tenant, run_id, name, status, spec, dsl_version, input, options, depth,
                           attempt, \"usage\", counts, created_at, finished_at)
         VALUES (1, x'00000000000000000000000000000001', 'r', 'completed', '{}', 1, '0', '{}', 1, 1, '{}', '{\"live\":1}', 0, 1)",
    ),
    (
        "run.final_is_quiet",
        "INSERT INTO runs (tenant, run_id, name, status, spec, dsl_version, input, options, depth,
                           attempt, \"usage\", counts, created_at, finished_at)
         VALUES (1, x'00000000000000000000000000000001', 'r', 'completed', '{}', 1, '0', '{}', 1, 1, '{}', '{}', 0, 1);
         INSERT INTO run_nodes (tenant, run_id, path, n, state, node)
         VALUES (1, x'00000000000000000000000000000001', '/0', 1, 'waiting', '{}')",
    ),
    ("tenant.own_rows", "UPDATE inbox SET tenant = 2"),
    (
        "tenant.own_rows",
        "UPDATE sends SET tenant = 2 WHERE status = 'queued';
         UPDATE inbox SET send_id = (SELECT send_id FROM sends WHERE tenant = 2 LIMIT 1)",
    ),
    ("send.rounds_in_order", "UPDATE sends SET rounds = 3 WHERE status = 'completed'"),
    (
        "send.rounds_in_order",
        "UPDATE steps SET refs = replace(refs, '\"index\":1', '\"index\":0')",
    ),
    (
        "fold.in_order",
        "INSERT INTO folds (tenant, session_id, n, from_seq, to_seq, level, kind, text, tokens_before,
                            tokens_after, send_id, created_at)
         SELECT h.tenant, h.session_id, x.n, 1, 1, x.n, 'summary', '', 0, 0, h.session_id, 0
         FROM session_hot h, (SELECT 1 AS n UNION ALL SELECT 2) x WHERE h.next_seq > 1",
    ),
    (
        "tenant.own_rows",
        "INSERT INTO memories (tenant, memory_id, namespace, text, metadata, source, words, created_at,
                               updated_at)
         SELECT 2, send_id, 'user/1/', 'x', '{}',
                '{\"session_id\":\"ses_000000000000000000000000000000aa\",\"send_id\":\"snd_'
                    || lower(hex(send_id)) || '\"}', 'x', 0, 0
         FROM sends WHERE status = 'queued'",
    ),
    (
        "agent.versions",
        "INSERT INTO agents_named (tenant, name, version, created_at, updated_at)
         VALUES (1, 'helper', 1, 0, 0)",
    ),
    (
        "agent.versions",
        "INSERT INTO agents_named (tenant, name, version, created_at, updated_at)
         VALUES (1, 'helper', 1, 0, 0);
         INSERT INTO agent_versions (tenant, name, n, spec, hash, created_at)
         VALUES (1, 'helper', 1, '{}', 'h', 0);
         INSERT INTO agent_aliases (tenant, name, alias, version) VALUES (1, 'helper', 'live', 2)",
    ),
    (
        "agent.versions",
        "INSERT INTO agent_versions (tenant, name, n, spec, hash, created_at)
         VALUES (1, 'helper', 1, '{}', 'h', 0)",
    ),
    (
        "skill.complete",
        "INSERT INTO skills (tenant, name, hash, source, listed, updated_at)
         VALUES (1, 'count', 'h', 'uploaded', 1, 0)",
    ),
    (
        "skill.complete",
        "INSERT INTO skill_versions (tenant, name, hash, source, body, created_at)
         VALUES (1, 'count', 'h', 'uploaded', '{\"files\":[{\"path\":\"a\",\"bytes\":1}]}', 0)",
    ),
    (
        "skill.complete",
        "INSERT INTO skill_versions (tenant, name, hash, source, body, created_at)
         VALUES (1, 'count', 'h', 'uploaded', '{\"files\":[{\"path\":\"a\",\"bytes\":1}]}', 0);
         INSERT INTO skill_files (tenant, name, hash, path, content)
         VALUES (1, 'count', 'h', 'a', x'6162')",
    ),
    (
        "skill.complete",
        "INSERT INTO skill_files (tenant, name, hash, path, content)
         VALUES (1, 'count', 'h', 'a', x'61')",
    ),
    (
        "tenant.exists",
        "INSERT INTO agents_named (tenant, name, version, created_at, updated_at)
         VALUES (2, 'helper', 0, 0, 0)",
    ),
    (
        "tenant.exists",
        "INSERT INTO tenants (tenant, created_at, deleted_at) VALUES (2, 0, 1);
         INSERT INTO skills (tenant, name, hash, source, listed, updated_at)
         VALUES (2, 'count', 'h', 'uploaded', 0, 0)",
    ),
    (
        "blob.held",
        "INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at)
         SELECT tenant, x'abababababababababababababababababababababababababababababababab', 0, session_id, 0 FROM sessions",
    ),
    (
        "blob.held",
        "INSERT INTO blobs (tenant, sha256, generation, state, media_type, bytes, created_at, used_at)
         VALUES (1, x'abababababababababababababababababababababababababababababababab', x'000102030405060708090a0b0c0d0e0f', 2, 'image/png', 1, 0, 0);
         INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at)
         SELECT tenant, x'abababababababababababababababababababababababababababababababab', 0, session_id, 0 FROM sessions",
    ),
    ("blob.named", "UPDATE messages SET content = '[{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}}]' WHERE seq = 1"),
    ("blob.named", "UPDATE sends SET input = '[{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}}]' WHERE status = 'queued'"),
    ("blob.named", "UPDATE inbox SET content = '[{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}}]'"),
    (
        "blob.named",
        "UPDATE timers SET target = replace(target, '{\"type\":\"text\",\"text\":\"tick\"}', '{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}}')",
    ),
    (
        "blob.named",
        "UPDATE tool_calls SET result = replace(result, '\"content\":[', '\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}},')",
    ),
    (
        "projection.of_send",
        "INSERT INTO projections (tenant, session_id, from_seq, to_seq, send_id, version, digest)
         SELECT tenant, session_id, 1, 2, send_id, 1, '{\"done\":\"\"}' FROM messages WHERE seq = 1",
    ),
    (
        "projection.of_send",
        "INSERT INTO projections (tenant, session_id, from_seq, to_seq, send_id, version, digest)
         SELECT tenant, session_id, 1, 7, send_id, 1, '{\"done\":\"\"}' FROM messages WHERE seq = 1",
    ),
    (
        "tenant.seats",
        "INSERT INTO seats (tenant, session_id, leaf, waits_since)
         SELECT tenant, session_id, 0, 1 FROM sessions LIMIT 1",
    ),
    (
        "tenant.seats",
        "INSERT INTO seat_limits (tenant, sends_running, set_at) VALUES (1, 1, 0);
         INSERT INTO seats (tenant, session_id, leaf, waits_since)
         SELECT tenant, session_id, 0, 1 FROM sends WHERE status = 'running'",
    ),
    (
        "tenant.seats",
        "INSERT INTO seat_limits (tenant, sends_running, set_at) VALUES (1, 1, -6000)",
    ),
    (
        "tenant.money",
        "INSERT INTO money_aside (tenant, call_id, boot_id, day, amount, at)
         SELECT 1, boot_id, boot_id, 1, 5, started_at FROM boots LIMIT 1",
    ),
    (
        "tenant.money",
        "INSERT INTO money_days (tenant, day, spent) VALUES (1, 1, 0);
         INSERT INTO money_aside (tenant, call_id, boot_id, day, amount, at)
         VALUES (1, x'01', x'02', 1, 5, -1000000)",
    ),
    (
        "tenant.money",
        "INSERT INTO agent_money_aside (tenant, call_id, holder, boot_id, day, amount, tokens, at)
         SELECT 1, boot_id, boot_id, boot_id, 1, 5, 0, started_at FROM boots LIMIT 1",
    ),
    (
        "tenant.money",
        "INSERT INTO agent_money_days (tenant, holder, day, spent, tokens) VALUES (1, x'03', 1, 0, 0);
         INSERT INTO agent_money_aside (tenant, call_id, holder, boot_id, day, amount, tokens, at)
         VALUES (1, x'01', x'03', x'02', 1, 5, 0, -1000000)",
    ),
    ("row.readable", "UPDATE sends SET options = '[]' WHERE status = 'queued'"),
    ("row.readable", "UPDATE agents SET spec = '{\"tools\":[7]}'"),
    ("row.readable", "UPDATE messages SET content = 'x' WHERE seq = 1"),
    ("row.readable", "UPDATE steps SET refs = '7' WHERE n = 1"),
    ("row.readable", "UPDATE tool_calls SET arguments = '{'"),
    ("row.readable", "UPDATE inbox SET content = '{}'"),
    ("row.readable", "UPDATE timers SET rule = '{}'"),
];

/// A session with a completed send of two rounds, one of them with a call that a child answered
/// (messages 1 to 5, steps up to 5); a second send that is running; and a third that is queued. Its
/// inbox has one item that was delivered, one that joined the third send, and one that is pending.
async fn healthy() -> Option<Opened> {
    let opened = reachable().await?;
    let store = &opened.store;
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    accept(store, 12, sending(3, 1)).await;
    for (id, mode) in [
        ("said", OnBusy::Steer),
        ("joined", OnBusy::Coalesce),
        ("waits", OnBusy::Steer),
    ] {
        deliver(store, 13, words(1, id, mode)).await;
    }
    append(store, 20, calling(&claimed, vec![CallBegin::Started])).await;
    let child = AcceptSend {
        reports_to: Some(call_id(send(1), 0, 0)),
        run: None,
        ..opening(4, 2)
    };
    accept(store, 21, child).await;
    cancel(store, 22, 4).await;
    let reported = store.at(time(23)).report_children(None, 10).await;
    assert_eq!(reported.expect("answers").len(), 1);
    let mut end = ending(&claimed, &claimed.send.record, AfterSend::Continue);
    end.messages = answers(store, 1, 1).await;
    end.messages.push(answer("done", 1));
    end.messages
        .push(NewMessage::user(vec![ContentPart::text("and so on")], 1));
    end.deliveries.push(Delivery {
        item_id: "said".to_owned(),
        message: 2,
    });
    end.usage[0].round = 1;
    (end.round, end.totals.rounds) = (Some(round_ref(1)), 2);
    complete(store, 30, end).await.next.expect("send 2 runs");
    tick(store).await;
    Some(opened)
}

/// A timer with three occurrences.
async fn tick(store: &SqlStore) {
    let session = key(3);
    let new = NewSession {
        key: session,
        agent: AgentSpec::default(),
        metadata: serde_json::Map::new(),
        parent: None,
    };
    let made = store.at(time(31)).create_sessions(vec![(new, None)]).await;
    made.expect("answers");
    let every = Schedule::Every {
        every: Span(Duration::from_secs(1)),
        first: Some(First::After(Span(Duration::ZERO))),
    };
    let timer = NewTimer {
        id: TimerId(uuid::Uuid::from_u128(7)),
        tenant: session.tenant,
        target: TimerTarget::Send {
            session: session.session,
            input: vec![ContentPart::text("tick")],
            options: Box::default(),
        },
        rule: TimerRule {
            catch_up: CatchUp::All,
            ..TimerRule::new(every)
        },
        armed_max: None,
    };
    let made = store
        .at(time(31 - 2_000))
        .create_timers(vec![(timer, None)])
        .await;
    made.expect("answers");
    let fired = store
        .at(time(31))
        .fire_timers(boot(1), 10)
        .await
        .expect("answers");
    assert_eq!((fired.sends.len(), fired.merged), (1, 2));
}

async fn violated(store: &SqlStore, rows_max: u32) -> Vec<(String, usize)> {
    let options = AuditOptions {
        rows_max,
        ..AuditOptions::default()
    };
    let violations = store.at(time(40)).audit(options).await.expect("answers");
    let names = violations.into_iter().map(|v| (v.invariant, v.rows.len()));
    names.collect()
}

fn is_piecewise(invariant: &str) -> bool {
    let mut kinds = AuditKind::ALL.into_iter();
    kinds.any(|kind| piecewise(kind).contains(&invariant))
}

async fn plant(place: &Place, sql: &'static str) {
    execute(place, sql).await;
}

#[tokio::test]
async fn a_healthy_store_violates_nothing() {
    let Some(Opened {
        store,
        place: _place,
    }) = healthy().await
    else {
        return;
    };
    assert_sound(&store, 40).await;
}

#[tokio::test]
async fn every_planted_violation_is_found_by_its_invariant() {
    if reachable().await.is_none() {
        return;
    }
    // Most of the time is spent creating databases, which a server can do in parallel.
    let plants = futures::stream::iter(PLANTS);
    let checked = plants.map(|(invariant, sql)| async move {
        let Opened { store, place } = healthy().await.expect("it was there before");
        plant(&place, sql).await;
        let found = violated(&store, 20).await;
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(invariant), "{sql}: {names:?}");
        // A violation within one session, run or timer is found by an audit of that object alone,
        // which reports nothing else.
        let store = store.at(time(40));
        let (_, alone) = audit_in_pieces(&*store, 1).await.expect("answers");
        let alone: BTreeSet<String> = alone.into_iter().map(|found| found.invariant).collect();
        let known = |name: &String| name == READABLE || names.contains(&name.as_str());
        assert!(alone.iter().all(known), "{sql}: {alone:?} of {names:?}");
        let missed = |name: &&&str| is_piecewise(name) && !alone.contains(**name);
        let missed: Vec<&str> = names.iter().filter(missed).copied().collect();
        if alone.contains(READABLE) {
            return Vec::new();
        }
        missed.into_iter().map(str::to_owned).collect()
    });
    let missed: Vec<Vec<String>> = checked.buffer_unordered(8).collect().await;
    assert_eq!(missed.len(), PLANTS.len());
    let mut missed: Vec<String> = missed.into_iter().flatten().collect();
    missed.sort_unstable();
    // These need the sends of a run, rows that belong to no session of their tenant, or the timer's
    // schedule.
    let known = [
        "run.final_is_quiet",
        "session.positions_unique",
        "session.positions_unique",
        "timer.never_early",
        "timer.never_early",
    ];
    assert_eq!(missed, known);
}

#[test]
fn every_invariant_has_a_plant() {
    let planted: BTreeSet<&str> = PLANTS.iter().map(|(name, _)| *name).collect();
    let wanted: BTreeSet<&str> = INVARIANTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(planted, wanted);
}

#[tokio::test]
async fn no_more_rows_are_shown_than_asked_for() {
    let Some(Opened { store, place }) = healthy().await else {
        return;
    };
    plant(&place, "DELETE FROM usage_rows").await;
    let two = vec![("usage.matches_rounds".to_owned(), 2)];
    assert_eq!(violated(&store, 20).await, two);
    let one = vec![("usage.matches_rounds".to_owned(), 1)];
    assert_eq!(violated(&store, 1).await, one);
}
