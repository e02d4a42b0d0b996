//! Ownership: who works on what, and to which tenant it belongs.

use std::collections::BTreeSet;

use mainspring_shared::id::{RunId, SendId, SessionId, TenantId};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::{AuditOptions, BootRecord, Dump, DumpAside, DumpSession, Role};
use mainspring_shared::time::Timestamp;
use serde_json::json;

use super::{Findings, Found};

/// A running send is being worked on: by a live owner or, once it was released, soon by an idle
/// worker. Either may take as long as the bound.
pub(super) fn leases(found: &mut Found<'_>, dump: &Dump, now: Timestamp, options: AuditOptions) {
    let session = found.session;
    let running = session
        .sends
        .iter()
        .filter(|send| send.status == SendStatus::Running);
    for send in running {
        let missed = match session.hot.owner {
            Some(owner) => {
                let boot = dump.boots.iter().find(|boot| boot.id == owner);
                let ended = boot.map(|boot| {
                    let declared = boot.dead_at.unwrap_or(boot.lease_until);
                    declared.min(boot.lease_until)
                });
                ended.is_none_or(|ended| ended.after(options.takeover_bound) < now)
            }
            None => session.hot.ready_since.is_none_or(|ready_since| {
                let last = last_step(session, |_| true);
                let since = last.map_or(ready_since, |last| last.max(ready_since));
                // A send during which workers crashed waits for a worker without another such send.
                send.crashes == 0
                    && dump.boots.iter().any(|boot| {
                        let since = since.max(boot.started_at).after(options.takeover_bound);
                        boot.pool == session.hot.pool
                            && works(boot, now)
                            && boot.in_flight == 0
                            && since < renewed(boot)
                    })
            }),
        };
        if missed {
            let row = json!({ "send": send.id, "owner": session.hot.owner });
            found.add("send.running_has_lease", row);
        }
    }
}

/// Whether the boot is a live worker that takes sends. A renewal in the future comes from a clock
/// that was set back since, so it proves nothing.
fn works(boot: &BootRecord, now: Timestamp) -> bool {
    let lives = boot.dead_at.is_none() && boot.lease_until >= now && renewed(boot) <= now;
    lives && boot.role == Role::Worker && boot.concurrency > 0
}

/// When the boot last renewed its lease.
fn renewed(boot: &BootRecord) -> Timestamp {
    let ttl = i64::try_from(boot.ttl.as_millis()).unwrap_or(i64::MAX);
    Timestamp(boot.lease_until.0.saturating_sub(ttl))
}

fn last_step(session: &DumpSession, of: impl Fn(SendId) -> bool) -> Option<Timestamp> {
    let steps = session.steps.iter().filter(|step| of(step.send_id));
    steps.map(|step| step.at).max()
}

/// A worker that renewed its lease was working on each session that it had owned for longer than
/// the bound.
pub(super) fn in_flight(
    findings: &mut Findings,
    dump: &Dump,
    now: Timestamp,
    options: AuditOptions,
) {
    for boot in dump.boots.iter().filter(|boot| works(boot, now)) {
        let owned = dump.sessions.iter().filter(|session| {
            let mut sends = session.sends.iter();
            let runs = sends.find(|send| send.status == SendStatus::Running);
            runs.is_some_and(|send| {
                let last = last_step(session, |of| of == send.id);
                let since = last.max(send.started_at);
                session.hot.owner == Some(boot.id)
                    && since.is_some_and(|at| at.after(options.takeover_bound) < renewed(boot))
            })
        });
        let owned = owned.count();
        if owned > boot.in_flight as usize {
            let row = json!({ "boot": boot.id, "in_flight": boot.in_flight, "owned": owned });
            findings.entry("boot.in_flight").or_default().push(row);
        }
    }
}

/// How long after a limit was set a running send may be without a seat, since it may have begun
/// before; in milliseconds.
const SEATS_GRACE_MS: i64 = 5_000;

/// A session that waits for a seat does not run, and every running session of a tenant with a limit
/// has a seat.
pub(super) fn seats(findings: &mut Findings, dump: &Dump) {
    let mut add = |session: SessionId, why: &str| {
        let row = json!({ "session": session, "why": why });
        findings.entry("tenant.seats").or_default().push(row);
    };
    let since = |tenant: TenantId| {
        let mut limits = dump.seat_limits.iter();
        limits
            .find(|(id, _)| *id == tenant)
            .map(|(_, since)| *since)
    };
    for (key, waits) in &dump.seats {
        if waits.is_none() {
            continue;
        }
        if since(key.tenant).is_none() {
            add(key.session, "waits without a limit");
        }
        let mut sessions = dump.sessions.iter();
        let session = sessions.find(|session| session.key == *key);
        let runs = |send: &SendRecord| send.status == SendStatus::Running;
        if session.is_some_and(|session| session.sends.iter().any(runs)) {
            add(key.session, "waits and runs");
        }
    }
    for session in &dump.sessions {
        let Some(since) = since(session.key.tenant) else {
            continue;
        };
        let runs = session.sends.iter().any(|send| {
            let is_later = |at: Timestamp| at.0 > since.0 + SEATS_GRACE_MS;
            send.status == SendStatus::Running && send.started_at.is_some_and(is_later)
        });
        if runs && !dump.seats.iter().any(|(key, _)| *key == session.key) {
            add(session.key.session, "runs without a seat");
        }
    }
}

/// A row to which other rows refer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Session(SessionId),
    Send(SendId),
    Run(RunId),
}

/// Every row refers to rows of its own tenant, or to rows that exist for no tenant.
pub(super) fn tenants(findings: &mut Findings, dump: &Dump) {
    let mut has: BTreeSet<(TenantId, Named)> = BTreeSet::new();
    let mut names: BTreeSet<(TenantId, Named)> = BTreeSet::new();
    for session in &dump.sessions {
        let tenant = session.key.tenant;
        has.insert((tenant, Named::Session(session.key.session)));
        has.extend(
            session
                .sends
                .iter()
                .map(|send| (send.key.tenant, Named::Send(send.id))),
        );
        let mut name = |named| names.insert((tenant, named));
        if let Some(parent) = &session.parent {
            name(Named::Session(parent.session));
            name(Named::Session(parent.root));
        }
        for message in session.messages.iter().filter(|m| m.epoch > 0) {
            name(Named::Send(message.send_id));
        }
        for step in &session.steps {
            name(Named::Send(step.send_id));
        }
        for call in &session.calls {
            name(Named::Send(call.send_id));
        }
        for send in session.inbox.iter().filter_map(|item| item.send_id) {
            name(Named::Send(send));
        }
        for (send, ..) in &session.usage {
            name(Named::Send(*send));
        }
        for leaf in session.sends.iter().filter_map(|send| send.run.as_ref()) {
            name(Named::Run(leaf.run));
        }
        for send in &session.sends {
            names.insert((send.key.tenant, Named::Session(send.key.session)));
        }
    }
    for run in &dump.runs {
        let key = run.run.key;
        has.insert((key.tenant, Named::Run(key.run)));
        names.extend(run.run.session.map(|of| (key.tenant, Named::Session(of))));
    }
    for (key, send, _) in &dump.extractions {
        names.insert((key.tenant, Named::Session(key.session)));
        names.insert((key.tenant, Named::Send(*send)));
    }
    for (tenant, entry) in &dump.memories {
        if let Some(source) = &entry.source {
            names.insert((*tenant, Named::Session(source.session_id)));
            names.insert((*tenant, Named::Send(source.send_id)));
        }
    }
    for (timer, _) in &dump.timers {
        names.extend(
            timer
                .target
                .session()
                .map(|of| (timer.tenant, Named::Session(of))),
        );
    }
    let had: BTreeSet<Named> = has.iter().map(|(_, named)| *named).collect();
    for (tenant, named) in names
        .difference(&has)
        .filter(|(_, named)| had.contains(named))
    {
        let row = match named {
            Named::Session(id) => json!({ "tenant": tenant, "session": id }),
            Named::Send(id) => json!({ "tenant": tenant, "send": id }),
            Named::Run(id) => json!({ "tenant": tenant, "run": id }),
        };
        findings.entry("tenant.own_rows").or_default().push(row);
    }
}

/// How long a reservation of a boot without a lease may remain, in milliseconds; the sweep that
/// removes it is far quicker.
const UNSWEPT_MAX_MS: i64 = 60_000;

/// Every reservation is for a day that has begun, and belongs to a boot that is alive or has just
/// died.
pub(super) fn money(findings: &mut Findings, dump: &Dump, now: Timestamp) {
    let mut add = |aside: &DumpAside, why: &str| {
        let row = json!({ "tenant": aside.tenant, "call": aside.call.simple(), "why": why });
        findings.entry("tenant.money").or_default().push(row);
    };
    let since = Timestamp(now.0 - UNSWEPT_MAX_MS);
    let is_of_boot = |aside: &DumpAside| {
        let boot = dump.boots.iter().find(|boot| boot.id == aside.boot);
        let ended = boot.map(|boot| boot.dead_at.unwrap_or(boot.lease_until));
        aside.at >= since || ended.is_some_and(|ended| ended >= since)
    };
    for aside in &dump.money_aside {
        let mut days = dump.money_days.iter();
        if !days.any(|(tenant, day, _)| (*tenant, *day) == (aside.tenant, aside.day)) {
            add(aside, "of no day");
        }
        if !is_of_boot(aside) {
            add(aside, "of no boot");
        }
    }
    for (holder, aside) in &dump.agent_money_aside {
        let of = (aside.tenant, *holder, aside.day);
        let mut days = dump.agent_money_days.iter();
        if !days.any(|(tenant, holder, day, _)| (*tenant, *holder, *day) == of) {
            add(aside, "of no day of its agent");
        }
        if !is_of_boot(aside) {
            add(aside, "of no boot, for its agent");
        }
    }
}
