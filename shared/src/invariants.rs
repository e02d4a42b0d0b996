//! The invariants of the database, by name. Each store checks them with queries
//! (`mainspring audit`); tests plant a violation of each.

use crate::store::AuditKind;

/// The invariant that every row can be read; checked by reading all rows.
pub const READABLE: &str = "row.readable";

/// The invariant that blobs which rows refer to are held; checked while reading all rows.
pub const NAMED: &str = "blob.named";

/// Passes the names of the invariants that apply to one session, run or timer alone to a macro:
/// these can be checked piece by piece on a live system. The others compare rows of several, and
/// need an audit of everything; so do the sends of a run, and the schedules of timers.
#[macro_export]
macro_rules! piecewise_invariants {
    (sessions, $apply:ident) => {
        $apply!(
            "send.one_final_step",
            "send.final_is_last",
            "session.seq_gap_free",
            "session.steps_gap_free",
            "session.positions_unique",
            "session.pending_matches",
            "session.ready_iff_work",
            "session.erased",
            "session.one_active_send",
            "epoch.never_decreases",
            "epoch.one_boot",
            "epoch.granted",
            "call.one_result",
            "call.settled_shape",
            "inbox.one_fate",
            "send.running_has_lease",
            "usage.matches_rounds",
            "send.shape",
            "call.asked",
            "message.has_step",
            "send.unstarted_is_silent",
            "usage.sums",
            "budget.kept",
            "send.rounds_in_order",
            "fold.in_order",
            "projection.of_send",
        )
    };
    (runs, $apply:ident) => {
        $apply!("run.final_is_quiet", "run.steps_gap_free")
    };
    (timers, $apply:ident) => {
        $apply!("timer.fired_once", "timer.never_early", "timer.shape")
    };
}

macro_rules! listed {
    ($($name:literal),+ $(,)?) => {
        &[$($name),+]
    };
}

/// The invariants that pieces of this kind are checked against.
pub fn piecewise(kind: AuditKind) -> &'static [&'static str] {
    match kind {
        AuditKind::Sessions => piecewise_invariants!(sessions, listed),
        AuditKind::Runs => piecewise_invariants!(runs, listed),
        AuditKind::Timers => piecewise_invariants!(timers, listed),
    }
}

/// The name and meaning of every invariant.
pub const INVARIANTS: &[(&str, &str)] = &[
    (
        "send.one_final_step",
        "a send has at most one final step, and exactly one once it is final",
    ),
    (
        "send.final_is_last",
        "nothing of a send is written after its final step, except folds of its session at rest",
    ),
    (
        "session.seq_gap_free",
        "messages are numbered from 1 without gaps up to the hot row's next_seq",
    ),
    (
        "session.steps_gap_free",
        "steps are numbered from 1 without gaps up to the hot row's next_step",
    ),
    (
        "session.positions_unique",
        "positions in a session are unique and below next_position",
    ),
    (
        "session.pending_matches",
        "the hot row's pending is the number of queued sends with a position",
    ),
    (
        "session.ready_iff_work",
        "a session without an owner is ready exactly when it has work to do",
    ),
    (
        "session.erased",
        "a deleted session has no rows left and nothing below it is active, unless its \
         deletion is still due",
    ),
    (
        "session.one_active_send",
        "a session has at most one running or waiting send",
    ),
    (
        "epoch.never_decreases",
        "epochs never decrease along a transcript or a session's steps",
    ),
    (
        "epoch.one_boot",
        "all steps of one epoch come from one boot, those of the current epoch from the owner",
    ),
    (
        "epoch.granted",
        "nothing was written or started under an epoch that was never granted, and a send \
         only continues under another epoch after a step that records it",
    ),
    (
        "call.one_result",
        "a message with tool calls, unless it is the last one of the session's active send, is \
         followed directly by one message per call, in order and in the same send; each of these \
         calls is settled",
    ),
    (
        "call.settled_shape",
        "a call has a result exactly when it has a settlement time; it then waits for no one, and \
         it has a grant exactly when it was started",
    ),
    (
        "inbox.one_fate",
        "an item has a settlement time exactly when it has an outcome; one that was delivered \
         to a running send names its message, and no other item names one",
    ),
    (
        "child.reported",
        "a final send that a parent waits for is reported within a minute, unless the parent \
         no longer exists",
    ),
    (
        "send.running_has_lease",
        "a running send's session has a live owner, or is ready to be claimed; within the \
         takeover bound, if a worker of its pool is idle",
    ),
    (
        "usage.matches_rounds",
        "each stored assistant message has the usage row of its round, and each usage row \
         belongs to a send that reached its round",
    ),
    ("send.shape", "a send's fields fit its status"),
    (
        "run.leaf_one_send",
        "each attempt of a run's leaf is one send",
    ),
    (
        "run.final_is_quiet",
        "a final run has no active send, no active node, nothing counted as live and no \
         alarm; the sends of one that could not be advanced were cancelled",
    ),
    (
        "run.steps_gap_free",
        "a run's advances are numbered from 1 without gaps up to its step",
    ),
    (
        "timer.fired_once",
        "a timer's occurrences are numbered without gaps up to its own count; each that fired \
         names a send that no other one names",
    ),
    (
        "timer.never_early",
        "no occurrence has an outcome before it is due, and each is due at an instant of its \
         timer's schedule, recomputed, later than the previous one",
    ),
    ("timer.shape", "a timer's times fit its status"),
    (
        "call.asked",
        "each call is requested in a message of its send",
    ),
    (
        "message.has_step",
        "each message was written by a step of its send and epoch, and what a step wrote \
         exists unless it was pruned",
    ),
    (
        "send.unstarted_is_silent",
        "a send that never started has no message",
    ),
    (
        "usage.sums",
        "the usage of a send is the sum of its usage rows and of the usage of its children \
         and runs; a sum that includes an estimate may be higher",
    ),
    (
        "budget.kept",
        "a send's rounds, its usage before its last response and its reserved amounts are within \
         its budget, unless a hook granted it rounds beyond that; a completed send has nothing \
         reserved for a child that reported to it and below which nothing is active",
    ),
    (
        "boot.in_flight",
        "a worker that renewed its lease was working on each session that it had owned for \
         longer than the takeover bound",
    ),
    (
        "tenant.own_rows",
        "no row refers to a session, a send or a run that only exists in another tenant",
    ),
    (
        "send.rounds_in_order",
        "the steps of a send end its rounds in order from the first one, each once, as many \
         as the send counts",
    ),
    (
        "fold.in_order",
        "no two folds of one level, nor two folds that no other one covers, cover the same \
         message; none ends between a call and its results",
    ),
    (
        "agent.versions",
        "the versions of a published agent are numbered from 1 without gaps up to its own \
         number, and its aliases point at some of them",
    ),
    (
        "skill.complete",
        "a listed skill has the version that it means, a version has the files that it lists \
         in their lengths, and no file is without its version",
    ),
    (
        "tenant.exists",
        "sessions, runs, timers that have not ended, published agents, skills and memories \
         belong to a tenant that exists",
    ),
    ("blob.held", "every reference to a blob is to a stored one"),
    (
        "projection.of_send",
        "a stored digest covers exactly the messages of a final send that no fold covers",
    ),
    (
        "tenant.seats",
        "a session that waits for a seat is not running, and belongs to a tenant with a limit of \
         sends in flight; a send of such a tenant that runs has a seat, unless it began before \
         there was a limit",
    ),
    (
        "tenant.money",
        "money that a call has reserved belongs to a day whose spending is recorded, and its boot \
         has a lease, or lost it less than a minute ago",
    ),
    (
        NAMED,
        "a blob that a session's own message, open send, call or inbox item, or an active timer \
         refers to is kept for it",
    ),
    (
        READABLE,
        "every row can be parsed; this release skips those that cannot",
    ),
];

#[cfg(test)]
mod tests {
    use super::INVARIANTS;

    #[test]
    fn the_manual_lists_every_invariant_with_its_meaning() {
        let manual = include_str!("../../docs/OPERATIONS.md");
        let row = |line: &str| line.starts_with("| `") && line.contains('.');
        let begin = manual
            .split_once("## What the audit checks")
            .map(|(_, s)| s);
        let section = begin.and_then(|s| s.split("\n## ").next());
        let listed = section
            .into_iter()
            .flat_map(str::lines)
            .filter(|line| row(line));
        let wanted = INVARIANTS
            .iter()
            .map(|(name, meaning)| format!("| `{name}` | {meaning} |"));
        assert_eq!(listed.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    }
}
