//! Names of what this crate measures.

/// Counter: requests rejected because of a limit, by `kind`.
pub(crate) const OVERLOADED: &str = "mainspring_http_overloaded_total";
/// Counter: what was refused because of a limit, by the `limit`'s code.
pub(crate) const LIMITS_HIT: &str = "mainspring_limits_hit_total";
/// Counter: sends that became durable.
pub(crate) const ACCEPTED: &str = "mainspring_sends_accepted_total";
/// Histogram: sends that shared one accept transaction.
pub(crate) const ACCEPT_GROUP: &str = "mainspring_accept_group_sends";
/// Counter: sessions enqueued after a commit.
pub(crate) const ENQUEUED: &str = "mainspring_sessions_rung_total";
/// Counter: sessions that were granted with their sends to the workers that keep them.
pub(crate) const DISPATCHED: &str = "mainspring_sessions_dispatched_total";
/// Counter: sessions that were granted to workers that did not listen, and were given back.
pub(crate) const UNDISPATCHED: &str = "mainspring_sessions_undispatched_total";
/// Counter: sessions not enqueued because a buffer or the queue was full; the sweep enqueues them
/// later.
pub(crate) const ENQUEUES_DROPPED: &str = "mainspring_rings_dropped_total";
/// Counter: sessions that a sweep enqueued.
pub(crate) const SWEPT: &str = "mainspring_sessions_swept_total";
/// Gauge: sessions with work that no worker holds, by `pool`.
pub(crate) const QUEUE_READY: &str = "mainspring_queue_ready_sessions";
/// Gauge: sessions that a worker holds, by `pool`.
pub(crate) const QUEUE_RUNNING: &str = "mainspring_queue_running_sessions";
/// Gauge: seconds for which the oldest of the ready sessions has waited, by `pool`.
pub(crate) const QUEUE_OLDEST: &str = "mainspring_queue_oldest_ready_age_seconds";
/// Gauge: sessions that wait for a seat of their tenants.
pub(crate) const SEATS_WAITING: &str = "mainspring_seats_waiting_sessions";
/// Counter: model calls of workers that died, whose money counts as spent.
pub(crate) const MONEY_LEFT: &str = "mainspring_money_left_behind_total";
/// Counter: alarms handled.
pub(crate) const ALARMS: &str = "mainspring_alarms_served_total";
/// Counter: what timers did, by `fate`: `fired`, `merged`, `skipped`, or `failed` for a delivery that
/// was refused.
pub(crate) const TIMERS_FIRED: &str = "mainspring_timers_fired_total";
/// Histogram: seconds from when an occurrence was due to when its send was accepted.
pub(crate) const TIMER_LATENESS: &str = "mainspring_timer_lateness_seconds";
/// Counter: rows that retention removed.
pub(crate) const RETIRED: &str = "mainspring_retention_rows_total";
/// Counter: blobs that nothing named any more and that were removed.
pub(crate) const BLOBS_REMOVED: &str = "mainspring_blobs_removed_total";
/// Gauge: old sends and runs that the last retention pass kept, by `kind`.
pub(crate) const RETENTION_SKIPPED: &str = "mainspring_retention_skipped";
/// Counter: rows of deleted sessions that were removed.
pub(crate) const ERASED: &str = "mainspring_deleted_rows_total";
/// Gauge: seconds for which the deleted session that has waited the longest has had rows to remove.
pub(crate) const ERASING_SECONDS: &str = "mainspring_deleted_waiting_seconds";
/// Counter: what the auditor has checked, by `kind`.
pub(crate) const AUDITED: &str = "mainspring_audited_total";
/// Counter: violations that the auditor found, each once, by `invariant`.
pub(crate) const AUDIT_VIOLATIONS: &str = "mainspring_audit_violations_total";
/// Gauge: seconds that the auditor's last pass over everything took.
pub(crate) const AUDIT_PASS_SECONDS: &str = "mainspring_audit_pass_seconds";
/// Counter: rows of tenants that were erased, once nothing of them is left.
pub(crate) const TENANT_ROWS_ERASED: &str = "mainspring_tenant_rows_erased_total";
/// Counter: failures of background loops, by `loop`.
pub(crate) const LOOP_FAILURES: &str = "mainspring_loop_failures_total";
/// Counter: advances of runs that became durable.
pub(crate) const ADVANCES: &str = "mainspring_run_advances_total";
/// Histogram: ended leaves that shared one advance.
pub(crate) const ADVANCE_ENDS: &str = "mainspring_run_advance_leaves";
/// Counter: unreadable runs that were skipped for a while.
pub(crate) const RUNS_ASIDE: &str = "mainspring_runs_aside_total";
/// Counter: advances that were not committed because another scheduler owns the run.
pub(crate) const ADVANCES_LOST: &str = "mainspring_run_advances_lost_total";
/// Counter: posts of webhooks, by `outcome`: `delivered`, `failed`, or `dead` for one that no other follows.
pub(crate) const WEBHOOK_ATTEMPTS: &str = "mainspring_webhook_attempts_total";
/// Gauge: seconds for which the delivery that was due the longest was due.
pub(crate) const WEBHOOK_OLDEST_DUE: &str = "mainspring_webhook_oldest_due_seconds";
/// Counter: endpoints that were disabled because they answered 410.
pub(crate) const WEBHOOKS_DISABLED: &str = "mainspring_webhooks_disabled_total";
/// Counter: lines of the journal.
pub(crate) const JOURNAL_LINES: &str = "mainspring_journal_lines_total";
/// Gauge: seconds since the journal was complete.
pub(crate) const JOURNAL_BEHIND: &str = "mainspring_journal_behind_seconds";
