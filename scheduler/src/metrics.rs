//! Names of this crate's metrics.

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
/// Counter: sessions that were granted, together with their sends, to the workers that keep them.
pub(crate) const DISPATCHED: &str = "mainspring_sessions_dispatched_total";
/// Counter: sessions that were granted to workers that did not listen, and were then released.
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
/// Gauge: seconds that the oldest ready session has waited, by `pool`.
pub(crate) const QUEUE_OLDEST: &str = "mainspring_queue_oldest_ready_age_seconds";
/// Gauge: sessions that wait for one of their tenant's seats.
pub(crate) const SEATS_WAITING: &str = "mainspring_seats_waiting_sessions";
/// Counter: model calls of workers that died; their cost counts as spent.
pub(crate) const MONEY_LEFT: &str = "mainspring_money_left_behind_total";
/// Counter: alarms handled.
pub(crate) const ALARMS: &str = "mainspring_alarms_served_total";
/// Counter: outcomes of timers, by `fate`: `fired`, `merged`, `skipped`, or `failed` for a delivery
/// that was refused.
pub(crate) const TIMERS_FIRED: &str = "mainspring_timers_fired_total";
/// Histogram: seconds from when an occurrence was due until its send was accepted.
pub(crate) const TIMER_LATENESS: &str = "mainspring_timer_lateness_seconds";
/// Counter: rows that retention removed.
pub(crate) const RETIRED: &str = "mainspring_retention_rows_total";
/// Counter: unreferenced blobs that were removed.
pub(crate) const BLOBS_REMOVED: &str = "mainspring_blobs_removed_total";
/// Gauge: sends and runs that were past retention but kept by the last retention pass, by `kind`.
pub(crate) const RETENTION_SKIPPED: &str = "mainspring_retention_skipped";
/// Counter: rows of deleted sessions that were removed.
pub(crate) const ERASED: &str = "mainspring_deleted_rows_total";
/// Gauge: seconds that the oldest unfinished deletion of a session has been due.
pub(crate) const ERASING_SECONDS: &str = "mainspring_deleted_waiting_seconds";
/// Counter: items that the auditor checked, by `kind`.
pub(crate) const AUDITED: &str = "mainspring_audited_total";
/// Counter: distinct violations that the auditor found, by `invariant`.
pub(crate) const AUDIT_VIOLATIONS: &str = "mainspring_audit_violations_total";
/// Gauge: duration in seconds of the auditor's last full pass.
pub(crate) const AUDIT_PASS_SECONDS: &str = "mainspring_audit_pass_seconds";
/// Counter: rows of erased tenants, counted once a tenant is completely erased.
pub(crate) const TENANT_ROWS_ERASED: &str = "mainspring_tenant_rows_erased_total";
/// Counter: failures of background loops, by `loop`.
pub(crate) const LOOP_FAILURES: &str = "mainspring_loop_failures_total";
/// Counter: advances of runs that became durable.
pub(crate) const ADVANCES: &str = "mainspring_run_advances_total";
/// Histogram: ended leaves that were handled in one advance.
pub(crate) const ADVANCE_ENDS: &str = "mainspring_run_advance_leaves";
/// Counter: unreadable runs that were skipped for a while.
pub(crate) const RUNS_ASIDE: &str = "mainspring_runs_aside_total";
/// Counter: advances that were not committed because another scheduler owns the run.
pub(crate) const ADVANCES_LOST: &str = "mainspring_run_advances_lost_total";
/// Counter: webhook attempts, by `outcome`: `delivered`, `failed`, or `dead` for one that is not
/// retried.
pub(crate) const WEBHOOK_ATTEMPTS: &str = "mainspring_webhook_attempts_total";
/// Gauge: seconds that the most overdue webhook delivery has been due.
pub(crate) const WEBHOOK_OLDEST_DUE: &str = "mainspring_webhook_oldest_due_seconds";
/// Counter: endpoints that were disabled because they answered 410.
pub(crate) const WEBHOOKS_DISABLED: &str = "mainspring_webhooks_disabled_total";
/// Counter: lines of the journal.
pub(crate) const JOURNAL_LINES: &str = "mainspring_journal_lines_total";
/// Gauge: seconds since the journal was last complete.
pub(crate) const JOURNAL_BEHIND: &str = "mainspring_journal_behind_seconds";
