//! Statements that violate each invariant.

pub(super) const FREE_HOT: &str = "ALTER TABLE session_hot
    DROP CONSTRAINT session_hot_check, DROP CONSTRAINT session_hot_check1";
const FREE_SENDS: &str = "ALTER TABLE sends
    DROP CONSTRAINT sends_check, DROP CONSTRAINT sends_check1, DROP CONSTRAINT sends_check2,
    DROP CONSTRAINT sends_check3, DROP CONSTRAINT sends_check4";
const FREE_TIMERS: &str = "ALTER TABLE timers
    DROP CONSTRAINT timers_check, DROP CONSTRAINT timers_check1, DROP CONSTRAINT timers_check2";
/// A second final step of the finished send; the step numbers stay without a gap.
const FINAL_AGAIN: &str = "WITH h AS (
        UPDATE session_hot SET next_step = next_step + 1 WHERE next_step > 1
        RETURNING tenant, session_id, next_step - 1 AS n
    )
    INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
    SELECT h.tenant, h.session_id, h.n, t.send_id, 'finished', t.epoch, t.boot, 0, '{}'
    FROM h JOIN steps t ON t.session_id = h.session_id AND t.kind = 'finished'";
/// A message of the finished send that none of its steps wrote; the transcript has no gap.
const MESSAGE_BEHIND: &str = "WITH h AS (
        UPDATE session_hot SET next_seq = next_seq + 1 WHERE next_seq > 1
        RETURNING tenant, session_id, next_seq - 1 AS seq
    )
    INSERT INTO messages (tenant, session_id, seq, send_id, role, content, round, epoch, created_at)
    SELECT h.tenant, h.session_id, h.seq, t.send_id, 'user', '[]', 0, t.epoch, 0
    FROM h JOIN steps t ON t.session_id = h.session_id AND t.kind = 'finished'";

/// A delivered inbox item whose message was never written.
const ITEM_UNSAID: &str = "INSERT INTO inbox
        (tenant, session_id, item_id, n, kind, mode, content, fate, seq, created_at, settled_at)
    SELECT tenant, session_id, 'i', 9, 'message', 'steer', '[]', 'delivered', next_seq, 0, 0
    FROM session_hot WHERE next_seq > 1";

const FINAL_RUN: &str = "INSERT INTO runs (tenant, run_id, name, status, spec, dsl_version, input,
        options, depth, attempt, usage, counts, created_at, finished_at)
    VALUES (1, gen_random_uuid(), 'r', 'completed', '{}', 1, '0', '{}', 1, 1, '{}', '{}', 0, 1)";

/// Each invariant with the statements that plant a violation of it.
pub(super) const PLANTED: &[(&str, &[&str])] = &[
    ("send.one_final_step", &[FINAL_AGAIN]),
    ("send.final_is_last", &[MESSAGE_BEHIND]),
    (
        "session.seq_gap_free",
        &["UPDATE messages SET seq = 20 WHERE seq = 1"],
    ),
    (
        "session.steps_gap_free",
        &["UPDATE session_hot SET next_step = next_step + 1"],
    ),
    (
        "session.positions_unique",
        &["UPDATE sends SET position = 1 WHERE position = 2"],
    ),
    (
        "session.pending_matches",
        &["UPDATE session_hot SET pending = 7 WHERE pending = 1"],
    ),
    (
        "session.ready_iff_work",
        &["UPDATE session_hot SET owner_boot = NULL, token = NULL, ready_since = NULL"],
    ),
    (
        "session.erased",
        &["UPDATE session_hot SET lifecycle = 2 WHERE next_seq > 1"],
    ),
    (
        "session.one_active_send",
        &[
            FREE_SENDS,
            "UPDATE sends SET status = 'running' WHERE status = 'queued'",
        ],
    ),
    (
        "epoch.never_decreases",
        &[
            "UPDATE session_hot SET epoch = 9",
            "UPDATE messages SET epoch = 9 WHERE seq = 1",
        ],
    ),
    (
        "epoch.one_boot",
        &["UPDATE steps SET boot = gen_random_uuid() WHERE kind = 'round'"],
    ),
    ("epoch.granted", &["UPDATE session_hot SET epoch = 0"]),
    (
        "call.one_result",
        &["UPDATE messages SET tool_call_id = 'c2' WHERE role = 'tool'"],
    ),
    (
        "call.settled_shape",
        &["UPDATE tool_calls SET attempt = 1 WHERE started_epoch IS NULL"],
    ),
    ("inbox.one_fate", &[ITEM_UNSAID]),
    (
        "child.reported",
        &[
            "UPDATE sends SET finished_at = 0, reports_to = (SELECT call_id FROM tool_calls)
           WHERE finished_at IS NOT NULL",
        ],
    ),
    (
        "send.running_has_lease",
        &["UPDATE boots SET lease_until = 0"],
    ),
    (
        "usage.matches_rounds",
        &["DELETE FROM usage_rows WHERE round = 1"],
    ),
    (
        "send.shape",
        &["UPDATE sends SET agent_version = NULL WHERE status = 'running'"],
    ),
    (
        "run.leaf_one_send",
        &[
            "UPDATE sends SET run_id = gen_random_uuid(), run_path = '/0', run_attempt = 1
            WHERE send_id = (SELECT min(send_id::text)::uuid FROM sends)",
            "UPDATE sends SET run_path = '/0', run_attempt = 1,
            run_id = (SELECT run_id FROM sends WHERE run_id IS NOT NULL)",
        ],
    ),
    (
        "run.final_is_quiet",
        &[
            FINAL_RUN,
            "UPDATE sends SET run_path = '/0', run_attempt = 1,
            run_id = (SELECT run_id FROM runs) WHERE status = 'running'",
        ],
    ),
    (
        "run.steps_gap_free",
        &[FINAL_RUN, "UPDATE runs SET step = 1"],
    ),
    (
        "timer.fired_once",
        &["DELETE FROM timer_occurrences WHERE n = 2"],
    ),
    (
        "timer.never_early",
        &[
            "ALTER TABLE timer_occurrences DROP CONSTRAINT timer_occurrences_check",
            "UPDATE timer_occurrences SET fired_at = due_at - 1 WHERE n = 2",
        ],
    ),
    (
        "timer.shape",
        &[FREE_TIMERS, "UPDATE timers SET fire_at = NULL"],
    ),
    (
        "call.asked",
        &[
            "INSERT INTO tool_calls (tenant, call_id, session_id, send_id, round, place, name,
               arguments, repeat, approval, requested_at)
           SELECT tenant, call_id || 'x', session_id, send_id, round, place + 1, name, arguments,
               repeat, approval, requested_at
           FROM tool_calls LIMIT 1",
        ],
    ),
    (
        "message.has_step",
        &["UPDATE steps SET refs = '{}' WHERE kind = 'round'"],
    ),
    (
        "send.unstarted_is_silent",
        &[
            "UPDATE messages SET send_id = (SELECT s.send_id FROM sends s WHERE s.status = 'queued'
               AND s.position = 3)
           WHERE role = 'tool'",
        ],
    ),
    (
        "usage.sums",
        &[
            "UPDATE sends SET usage = '{\"input_tokens\":1,\"output_tokens\":0}'
           WHERE status = 'completed'",
        ],
    ),
    (
        "budget.kept",
        &[
            "UPDATE sends SET options = '{\"budget\":{\"rounds\":1}}', rounds = 2
           WHERE status = 'completed'",
        ],
    ),
    (
        "boot.in_flight",
        &[
            "UPDATE steps SET at = at - 100000",
            "UPDATE sends SET started_at = started_at - 100000",
        ],
    ),
    ("tenant.own_rows", &["UPDATE agents SET tenant = 2"]),
    (
        "send.rounds_in_order",
        &["UPDATE sends SET rounds = 3 WHERE status = 'completed'"],
    ),
    (
        "fold.in_order",
        &["INSERT INTO folds (tenant, session_id, n, from_seq, to_seq, level, kind, text, tokens_before,
                            tokens_after, send_id, created_at)
         SELECT h.tenant, h.session_id, x.n, 1, 1, x.n, 'summary', '', 0, 0, h.session_id, 0
         FROM session_hot h, (SELECT 1 AS n UNION ALL SELECT 2) x WHERE h.next_seq > 1"],
    ),
    (
        "agent.versions",
        &[
            "INSERT INTO agents_named (tenant, name, version, created_at, updated_at)
             VALUES (1, 'helper', 1, 0, 0)",
            "INSERT INTO agent_versions (tenant, name, n, spec, hash, created_at)
             VALUES (1, 'helper', 1, '{}', 'h', 0)",
            "INSERT INTO agent_aliases (tenant, name, alias, version) VALUES (1, 'helper', 'live', 2)",
        ],
    ),
    (
        "skill.complete",
        &["INSERT INTO skills (tenant, name, hash, source, listed, updated_at)
           VALUES (1, 'count', 'h', 'uploaded', TRUE, 0)"],
    ),
    (
        "tenant.exists",
        &["INSERT INTO agents_named (tenant, name, version, created_at, updated_at)
           VALUES (2, 'helper', 0, 0, 0)"],
    ),
    (
        "blob.held",
        &["INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at)
           SELECT tenant, '\\xabababababababababababababababababababababababababababababababab', 0, session_id, 0 FROM sessions"],
    ),
    (
        "projection.of_send",
        &["INSERT INTO projections (tenant, session_id, from_seq, to_seq, send_id, version, digest)
         SELECT tenant, session_id, 1, 2, session_id, 1, '{\"done\":\"\"}' FROM messages WHERE seq = 1"],
    ),
    (
        "tenant.seats",
        &["INSERT INTO seat_limits (tenant, sends_running, set_at) VALUES (1, 1, -6000)"],
    ),
    (
        "tenant.money",
        &["INSERT INTO money_aside (tenant, call_id, boot_id, day, amount, at)
         SELECT 1, boot_id, boot_id, 1, 5, started_at FROM boots LIMIT 1"],
    ),
    (
        "blob.named",
        &["UPDATE messages SET content = '[{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}}]' WHERE seq = 1"],
    ),
    (
        "row.readable",
        &["UPDATE sends SET options = '[]' WHERE status = 'queued'"],
    ),
];

/// Further violations of invariants that are planted above.
pub(super) const PLANTED_TOO: &[(&str, &str)] = &[
    (
        "tenant.own_rows",
        "INSERT INTO memories (tenant, memory_id, namespace, text, metadata, source, words, created_at,
                               updated_at)
         SELECT 2, s.send_id, 'user/1/', 'x', '{}',
                json_build_object('send_id', 'snd_' || replace(s.send_id::text, '-', ''))::text,
                'x', 0, 0
         FROM sends s WHERE s.status = 'queued'",
    ),
    (
        "agent.versions",
        "INSERT INTO agents_named (tenant, name, version, created_at, updated_at)
         VALUES (1, 'helper', 1, 0, 0)",
    ),
    (
        "agent.versions",
        "INSERT INTO agent_versions (tenant, name, n, spec, hash, created_at)
         VALUES (1, 'helper', 1, '{}', 'h', 0)",
    ),
    (
        "skill.complete",
        "INSERT INTO skill_versions (tenant, name, hash, source, body, created_at)
         VALUES (1, 'count', 'h', 'uploaded', '{\"files\":[{\"path\":\"a\",\"bytes\":1}]}', 0)",
    ),
    (
        "skill.complete",
        "WITH v AS (
             INSERT INTO skill_versions (tenant, name, hash, source, body, created_at)
             VALUES (1, 'count', 'h', 'uploaded', '{\"files\":[{\"path\":\"a\",\"bytes\":1}]}', 0)
         )
         INSERT INTO skill_files (tenant, name, hash, path, content) VALUES (1, 'count', 'h', 'a', 'ab')",
    ),
    (
        "skill.complete",
        "INSERT INTO skill_files (tenant, name, hash, path, content) VALUES (1, 'count', 'h', 'a', 'a')",
    ),
    (
        "tenant.exists",
        "WITH t AS (INSERT INTO tenants (tenant, created_at, deleted_at) VALUES (2, 0, 1))
         INSERT INTO skills (tenant, name, hash, source, listed, updated_at)
         VALUES (2, 'count', 'h', 'uploaded', FALSE, 0)",
    ),
    (
        "tenant.money",
        "WITH day AS (INSERT INTO money_days (tenant, day, spent) VALUES (1, 1, 0))
         INSERT INTO money_aside (tenant, call_id, boot_id, day, amount, at)
         VALUES (1, gen_random_uuid(), gen_random_uuid(), 1, 5, -1000000)",
    ),
    (
        "tenant.money",
        "INSERT INTO agent_money_aside (tenant, call_id, holder, boot_id, day, amount, tokens, at)
         SELECT 1, boot_id, boot_id, boot_id, 1, 5, 0, started_at FROM boots LIMIT 1",
    ),
    (
        "tenant.money",
        "WITH day AS (
             INSERT INTO agent_money_days (tenant, holder, day, spent, tokens)
             SELECT 1, gen_random_uuid(), 1, 0, 0
             RETURNING holder
         )
         INSERT INTO agent_money_aside (tenant, call_id, holder, boot_id, day, amount, tokens, at)
         SELECT 1, gen_random_uuid(), holder, gen_random_uuid(), 1, 5, 0, -1000000 FROM day",
    ),
    (
        "tenant.seats",
        "INSERT INTO seats (tenant, session_id, leaf, waits_since)
         SELECT tenant, session_id, FALSE, 1 FROM sessions LIMIT 1",
    ),
    (
        "blob.held",
        "WITH b AS (
             INSERT INTO blobs (tenant, sha256, generation, state, media_type, bytes, created_at, used_at)
             VALUES (1, '\\xabababababababababababababababababababababababababababababababab', gen_random_uuid(), 2, 'image/png', 1, 0, 0)
         )
         INSERT INTO blob_holds (tenant, sha256, kind, owner, held_at)
         SELECT tenant, '\\xabababababababababababababababababababababababababababababababab', 0, session_id, 0 FROM sessions",
    ),
    (
        "blob.named",
        "UPDATE sends SET input = '[{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}}]' WHERE status = 'queued'",
    ),
    (
        "blob.named",
        "UPDATE timers SET target = replace(target, '{\"type\":\"text\",\"text\":\"tick\"}', '{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}}')",
    ),
    (
        "blob.named",
        "UPDATE tool_calls SET result = replace(result, '\"content\":[', '\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}},')",
    ),
    (
        "blob.named",
        "INSERT INTO inbox
             (tenant, session_id, item_id, n, kind, mode, content, fate, created_at)
         SELECT tenant, session_id, 'i', 9, 'message', 'steer', '[{\"type\":\"image\",\"source\":{\"type\":\"blob\",\"media_type\":\"image/png\",\"bytes\":1,\"sha256\":\"abababababababababababababababababababababababababababababababab\"}}]', 'pending', 0
         FROM session_hot WHERE next_seq > 1",
    ),
    (
        "call.one_result",
        "UPDATE tool_calls SET result = NULL, settled_at = NULL",
    ),
    (
        "call.one_result",
        "UPDATE messages SET send_id = gen_random_uuid() WHERE role = 'tool'",
    ),
    (
        "call.one_result",
        "UPDATE messages SET seq = seq + 5 WHERE role = 'tool'",
    ),
    (
        "call.one_result",
        "UPDATE messages SET tool_call_id = 'c2', role = 'tool' WHERE role = 'user'",
    ),
    ("row.readable", "UPDATE agents SET spec = '{\"tools\":[7]}'"),
    ("row.readable", "UPDATE messages SET content = 'x' WHERE seq = 1"),
    ("row.readable", "UPDATE steps SET refs = '7' WHERE n = 1"),
    ("row.readable", "UPDATE tool_calls SET arguments = '{'"),
    ("row.readable", "UPDATE timers SET rule = '{}'"),
    (
        "timer.never_early",
        "UPDATE timer_occurrences SET due_at = due_at - 500, fired_at = fired_at - 500 WHERE n = 2",
    ),
    (
        "timer.never_early",
        "UPDATE timer_occurrences SET due_at = due_at + 1000, fired_at = fired_at + 1000 WHERE n = 1",
    ),
    (
        "usage.sums",
        "INSERT INTO usage_rows SELECT tenant, session_id, send_id, round, attempt + 7, model, usage, at
         FROM usage_rows LIMIT 1",
    ),
    (
        "usage.sums",
        "UPDATE usage_rows SET usage = replace(usage, '\"output_tokens\":5', '\"output_tokens\":4')
         WHERE round = 1",
    ),
    ("usage.matches_rounds", "UPDATE usage_rows SET round = 3 WHERE round = 1"),
    ("usage.matches_rounds", "UPDATE usage_rows SET send_id = gen_random_uuid() WHERE round = 1"),
    (
        "budget.kept",
        "UPDATE sends SET options = '{\"budget\":{\"tokens\":7}}' WHERE status = 'completed'",
    ),
    (
        "budget.kept",
        "UPDATE sends SET options = '{\"budget\":{\"tokens\":50}}', usage = '{\"input_tokens\":6,
             \"output_tokens\":10,\"held\":{\"c\":{\"tokens\":60,\"nano_usd\":0,\"rounds\":0}}}'
         WHERE status = 'completed'",
    ),
    (
        "budget.kept",
        "WITH told AS (
             UPDATE tool_calls SET name = 'spawn_agent',
                 result = '{\"content\":[],\"value\":{\"status\":\"completed\"}}'
             RETURNING call_id
         )
         UPDATE sends SET usage = '{\"input_tokens\":6,\"output_tokens\":10,\"held\":{\"' || (
             SELECT call_id FROM told
         ) || '\":{\"tokens\":60,\"nano_usd\":0,\"rounds\":0}}}'
         WHERE status = 'completed'",
    ),
    (
        "epoch.one_boot",
        "UPDATE session_hot SET owner_boot = gen_random_uuid() WHERE owner_boot IS NOT NULL",
    ),
    (
        "epoch.granted",
        "WITH hot AS (UPDATE session_hot SET epoch = 9 WHERE epoch > 0)
         UPDATE steps SET epoch = 2, kind = 'calls' WHERE kind = 'finished'",
    ),
    (
        "epoch.granted",
        "UPDATE tool_calls SET started_epoch = 9, attempt = 1",
    ),
    (
        "message.has_step",
        "WITH m AS (DELETE FROM messages WHERE role = 'assistant' AND round = 1)
         UPDATE session_hot SET next_seq = next_seq - 1 WHERE next_seq > 1",
    ),
    ("message.has_step", "UPDATE steps SET send_id = gen_random_uuid() WHERE kind = 'round'"),
    (
        "send.running_has_lease",
        "WITH idle AS (UPDATE boots SET started_at = started_at - 100000),
              past AS (UPDATE steps SET at = at - 100000)
         UPDATE session_hot SET owner_boot = NULL, token = NULL, ready_since = ready_since - 100000
         WHERE owner_boot IS NOT NULL",
    ),
    (
        "send.running_has_lease",
        "UPDATE session_hot SET owner_boot = NULL, token = NULL, ready_since = NULL
         WHERE owner_boot IS NOT NULL",
    ),
    (
        "run.final_is_quiet",
        "WITH run AS (
             INSERT INTO runs (tenant, run_id, name, status, spec, dsl_version, input, options, depth,
                 attempt, usage, counts, created_at, finished_at)
             VALUES (1, '00000000-0000-0000-0000-000000000001', 'r', 'completed', '{}', 1, '0', '{}',
                 1, 1, '{}', '{}', 0, 1)
         )
         INSERT INTO run_nodes (tenant, run_id, path, n, state, node)
         VALUES (1, '00000000-0000-0000-0000-000000000001', '/0', 1, 'waiting', '{}')",
    ),
    (
        "run.final_is_quiet",
        "INSERT INTO runs (tenant, run_id, name, status, spec, dsl_version, input, options, depth,
             attempt, usage, counts, created_at, finished_at)
         VALUES (1, '00000000-0000-0000-0000-000000000001', 'r', 'completed', '{}', 1, '0', '{}', 1, 1,
             '{}', '{\"live\":1}', 0, 1)",
    ),
    (
        "tenant.own_rows",
        "WITH theirs AS (
             INSERT INTO sends (tenant, send_id, session_id, status, input, options, first_step,
                 created_at, position)
             VALUES (2, '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 'queued', '[]',
                 '{}', 1, 1, 1)
         )
         UPDATE usage_rows SET send_id = '00000000-0000-0000-0000-000000000001' WHERE round = 1",
    ),
    (
        "send.rounds_in_order",
        "UPDATE steps SET refs = replace(refs, '\"index\":1', '\"index\":0')",
    ),
    ("timer.fired_once", "UPDATE timers SET next_n = next_n + 1"),
    (
        "timer.fired_once",
        "UPDATE timer_occurrences SET fate = 'fired'",
    ),
    (
        "inbox.one_fate",
        "INSERT INTO inbox
             (tenant, session_id, item_id, n, kind, mode, content, fate, seq, created_at, settled_at)
         SELECT tenant, session_id, 'i', 9, 'message', 'coalesce', '[]', 'delivered', 1, 0, 0
         FROM session_hot WHERE next_seq > 1",
    ),
];
