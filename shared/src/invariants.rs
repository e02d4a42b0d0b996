//! What must always hold, by name. Each store runs these as queries (`mainspring audit`); tests
//! plant a violation of each.

/// The one invariant that no query can check.
pub const READABLE: &str = "row.readable";

/// The name and meaning of every invariant.
pub const INVARIANTS: &[(&str, &str)] = &[
    (
        "send.one_final_step",
        "a send has at most one final step, and exactly one once it is final",
    ),
    (
        "send.final_is_last",
        "nothing of a send is written after its final step",
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
        "places in a session are unique and below next_position",
    ),
    (
        "session.pending_matches",
        "the hot row's pending is the number of queued sends with a place",
    ),
    (
        "session.ready_iff_work",
        "a session without an owner is ready exactly when it has work to do",
    ),
    (
        "session.erased",
        "a deleted session has left nothing behind and nothing below it is alive, unless it is still \
         to be looked at",
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
        "the steps of one epoch come from one boot, those of the present one from the owner",
    ),
    (
        "epoch.granted",
        "nothing was written or begun under an epoch that was never granted, and a send goes on under \
         another epoch only with the step that says so",
    ),
    (
        "call.one_result",
        "a message with tool calls, unless it is the last one of the session's active send, is \
         followed directly by one message per call, in order and in the same send; each of these \
         calls is settled",
    ),
    (
        "call.settled_shape",
        "a call has its result exactly when it has its time of settling, waits for nobody then, \
         and has a grant exactly when it was begun",
    ),
    (
        "inbox.one_fate",
        "an item has its time of settling exactly when it has its fate; one that was delivered to \
         a send under way names its message, and no other item names any",
    ),
    (
        "child.reported",
        "a final send that a parent waits for is reported within a minute, unless the parent is \
         gone",
    ),
    (
        "send.running_has_lease",
        "a running send's session has a live owner, or is ready for whoever takes it; within the \
         takeover bound, while a worker of its pool has nothing to do",
    ),
    (
        "usage.matches_rounds",
        "each stored assistant message has the usage row of its round, and each usage row belongs to \
         a send that got as far as its round",
    ),
    ("send.shape", "a send's fields fit its status"),
    (
        "run.leaf_one_send",
        "each attempt of a run's leaf is one send",
    ),
    (
        "run.final_is_quiet",
        "a final run has no send under way, no node, nothing counted as live and no alarm; the sends of \
         one that could not be advanced were asked to end",
    ),
    (
        "run.steps_gap_free",
        "a run's advances are numbered from 1 without gaps up to its step",
    ),
    (
        "timer.fired_once",
        "a timer's occurrences are numbered without gaps up to its own count; each that fired names a \
         send that no other one fired",
    ),
    (
        "timer.never_early",
        "no occurrence has its fate before it is due, and each is due at an instant of its timer's \
         schedule, computed anew, that lies behind the one before",
    ),
    ("timer.shape", "a timer's times fit its status"),
    (
        "call.asked",
        "each call stands in a message of its send that asks for it",
    ),
    (
        "message.has_step",
        "each message was written by a step of its send and epoch, and what a step wrote is there \
         unless it was pruned",
    ),
    (
        "send.unstarted_is_silent",
        "a send that never began has no message",
    ),
    (
        "usage.sums",
        "what a send used is what its usage rows say, and what its children and runs used; a sum that \
         holds an estimate may be more",
    ),
    (
        "budget.kept",
        "the rounds that a send took, what it used before its last answer and what it has set aside \
         keep to its budget; one that completed has nothing set aside for a child that reported to it \
         and below which nothing works on",
    ),
    (
        "boot.in_flight",
        "a worker that renewed its lease was at work for each session that it had owned for longer than \
         the takeover bound",
    ),
    (
        "tenant.own_rows",
        "no row names a session, a send or a run that only another tenant has",
    ),
    (
        "send.rounds_in_order",
        "the steps of a send close its rounds from the first on, each once, as many as it counts",
    ),
    (
        READABLE,
        "every row can be read as what it should be: this release passes over those that cannot",
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
