//! The column lists of stored records. The names are the same in every database, and each list
//! exists only here: a statement says `{send}` where it reads the columns of a send, or `{s.send}`
//! to read them from the table or CTE with the alias `s`.

use std::borrow::Cow;

/// The columns for each placeholder. Names that are keywords in MySQL are quoted.
const LISTS: [(&str, &str); 14] = [
    (
        "boot",
        "boot_id, role, name, pool, concurrency, in_flight, started_at, lease_until, \
         lease_ms, protocol, dead_at",
    ),
    (
        "call",
        "call_id, send_id, round, place, name, arguments, \"repeat\", waits_on, \
         approval, started_epoch, attempt, deadline_at, asked, result, requested_at, \
         settled_at, claim, claimed_until, claim_n",
    ),
    (
        "delivery",
        "tenant, webhook_id, event_id, type, resource, event_at, status, attempts, tried, due_at, \
         answer, error, settled_at",
    ),
    (
        "fold",
        "n, from_seq, to_seq, level, kind, text, model, tokens_before, tokens_after, \
         send_id, created_at, covered_by",
    ),
    (
        "hot",
        "tenant, session_id, owner_boot, token, epoch, next_seq, next_position, \
         next_step, pending, signals, ready_since, lifecycle, pool, priority, spent, \
         writes, context_version",
    ),
    (
        "item",
        "item_id, n, kind, mode, send_id, content, fate, seq, created_at, settled_at",
    ),
    (
        "message",
        "seq, send_id, role, content, tool_calls, tool_call_id, name, failed, round, \
         asked_at_seq, epoch, created_at",
    ),
    ("occurrence", "n, due_at, fate, send_id, fired_at, manual"),
    ("projection", "from_seq, to_seq, send_id, version, digest"),
    (
        "run",
        "tenant, run_id, name, status, spec, dsl_version, input, options, session_id, \
         reports_to, depth, attempt, result, error, \"usage\", counts, alarm_at, \
         created_at, started_at, finished_at",
    ),
    (
        "send",
        "tenant, session_id, send_id, position, status, waiting_on, stop_reason, input, \
         options, agent_version, output_text, output, error, \"usage\", rounds, \
         attempts, crashes, cancel_requested, reports_to, run_id, run_path, \
         run_attempt, deadline_at, alarm_at, first_step, created_at, started_at, \
         finished_at",
    ),
    ("step", "n, send_id, kind, epoch, boot, at, refs"),
    (
        "timer",
        "tenant, timer_id, target, rule, status, next_n, due_at, fire_at, failures, \
         failure, last_send, last_fired_at, ended_at, created_at, updated_at",
    ),
    (
        "webhook",
        "tenant, webhook_id, url, events, secret, previous_secret, previous_until, disabled_at, \
         disabled_reason, created_at",
    ),
];

/// Replaces the placeholders in a statement. Other braces are left alone.
#[must_use]
pub fn expand(text: &str) -> Cow<'_, str> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        let found = from.find('}').and_then(|end| {
            let (of, name) = from[1..end].split_once('.').unwrap_or(("", &from[1..end]));
            let (_, columns) = LISTS.iter().find(|(list, _)| *list == name)?;
            Some((of, *columns, end + 1))
        });
        expanded.push_str(before);
        let read = if let Some((of, columns, end)) = found {
            list(&mut expanded, of, columns);
            end
        } else {
            expanded.push('{');
            1
        };
        rest = &from[read..];
    }
    if expanded.is_empty() {
        return Cow::Borrowed(text);
    }
    expanded.push_str(rest);
    Cow::Owned(expanded)
}

fn list(text: &mut String, of: &str, columns: &str) {
    for (index, column) in columns.split(", ").enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        if !of.is_empty() {
            text.push_str(of);
            text.push('.');
        }
        text.push_str(column);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_becomes_the_columns_of_its_record() {
        let text = "SELECT x.tenant, {x.step} FROM steps x WHERE refs = '{}'";
        assert_eq!(
            expand(text),
            "SELECT x.tenant, x.n, x.send_id, x.kind, x.epoch, x.boot, x.at, x.refs FROM steps x \
             WHERE refs = '{}'"
        );
        assert_eq!(
            expand("{occurrence}"),
            "n, due_at, fate, send_id, fired_at, manual"
        );
    }

    #[test]
    fn a_text_without_placeholders_stays_as_it_is() {
        for text in ["SELECT 1", "SELECT '{\"a\":1}'", "{unknown}", "{", ""] {
            assert_eq!(expand(text), text);
        }
    }
}
