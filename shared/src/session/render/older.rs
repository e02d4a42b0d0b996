//! How finished sends are shown: old tool results are shortened as the agent's policies allow, and
//! whole sends are shown as digests if the agent asks for that.
//!
//! Both boundaries move in blocks, counted from the start of the window or from the end of the
//! digests, so that the requests of one send, and of consecutive sends, share a prefix. Digests
//! change only between sends. Results inside digested sends are not counted, so that a request does
//! not change twice for messages that soon become a digest.
//!
//! Results of the running send count as old up to a message recorded in its row, once the window
//! had no room for all of them. The next send counts all of them, so that what was shortened stays shortened.

use std::sync::Arc;

use crate::agent::{ContextSpec, ToolContext};
use crate::id::SendId;
use crate::message::{ContentPart, Message, Role, digest_of};
use crate::session::fold::digest::{sends, shown};
use crate::session::projection::{self, Projection, blocks};

/// The minimum number of newest results that are not shortened, and the block size.
const HOT_TAIL: usize = 8;

/// Results up to this many characters are not worth shortening.
const SHORT_CHARS: usize = 400;

/// Characters kept of a truncated result's beginning.
const HEAD_CHARS: usize = 600;

/// Characters kept of a truncated result's end.
const TAIL_CHARS: usize = 300;

/// Lines of a result that are shown in place of it.
const SUMMARY_LINES: usize = 3;

/// How many messages, from the first one on, have reached their final form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Settled {
    /// The messages up to the last one that was changed.
    pub(super) now: usize,
    /// The same for the previous send's last request, if that directly precedes this request and
    /// had fewer.
    pub(super) before: Option<usize>,
}

impl Settled {
    fn of(now: usize, before: usize, is_first: bool) -> Self {
        let before = Some(before).filter(|before| is_first && *before < now);
        Self { now, before }
    }
}

/// The window as shown while this send runs: digests of its first sends, then its messages. Also
/// returns how many of these have reached their final form.
pub(super) fn older(
    projections: &[Arc<Projection>],
    mut messages: Vec<Arc<Message>>,
    running: (SendId, i64),
    context: &ContextSpec,
) -> (Vec<Arc<Message>>, Settled) {
    let is_answer = |message: &Arc<Message>| counts_as_answer(message, running.0);
    let is_first = !messages.iter().any(is_answer);
    let ended = projections.len() + ended(&messages, running.0);
    let digested = digested(projections.len(), &messages, running.0, context);
    let forgotten = forget(&mut messages[digested..], running, context);
    if !context.representation.is_stored() {
        let (now, before) = forgotten;
        return (messages, Settled::of(now, before, is_first));
    }
    let digested_before = projection::digested(ended.saturating_sub(1), context);
    let rest = messages.split_off(digested);
    let mut shown = Vec::with_capacity(2 * projections.len() + messages.len() + rest.len());
    let mut before = 0;
    let stored = projections.iter().map(Arc::clone);
    let computed = sends(&messages).filter_map(Projection::of).map(Arc::new);
    for (digest, count) in stored.chain(computed).zip(1..) {
        shown.extend(digest.messages());
        if count == digested_before {
            before = shown.len();
        }
    }
    // Results shortened after the digests do not count: they become part of a digest, too.
    let settled = Settled::of(shown.len(), before, is_first);
    shown.extend(rest);
    (shown, settled)
}

/// Whether the first sends of a window are all shown as digests while this send runs, so that only
/// their projections are needed.
pub(super) fn are_digested(
    projections: usize,
    messages: &[Arc<Message>],
    running: SendId,
    context: &ContextSpec,
) -> bool {
    projections <= projection::digested(projections + ended(messages, running), context)
}

/// Shortens old results in messages that are not shown as digests.
///
/// Returns the number of messages up to the last one that was shortened, and what that number was
/// before the last send had ended.
fn forget(
    messages: &mut [Arc<Message>],
    running: (SendId, i64),
    context: &ContextSpec,
) -> (usize, usize) {
    if context.tools.is_empty() {
        return (0, 0);
    }
    let counted = forgettable(messages, running, context).count();
    let last = messages.iter().rev().map(|message| message.send_id);
    let last = last.into_iter().find(|send| *send != running.0);
    let of_last = forgettable(messages, running, context);
    let of_last = of_last.filter(|message| Some(message.send_id) == last);
    let before = blocks(counted - of_last.count(), HOT_TAIL);
    let all = blocks(counted, HOT_TAIL);
    let mut left = all;
    let (mut until, mut until_before) = (0, 0);
    for (place, message) in messages.iter_mut().enumerate() {
        if left == 0 {
            break;
        }
        let policy = policy_of(context, message.name.as_ref());
        let Some(policy) = policy.filter(|_| counts(message, running)) else {
            continue;
        };
        left -= 1;
        let text = shown(&message.content);
        if let Some(text) = shortened(&text, message, policy) {
            *message = Arc::new(Message {
                content: vec![ContentPart::text(text)],
                ..Message::clone(message)
            });
            until = place + 1;
            if all - left <= before {
                until_before = until;
            }
        }
    }
    (until, until_before)
}

/// Whether a message is an answer of the running send.
fn counts_as_answer(message: &Message, running: SendId) -> bool {
    message.send_id == running && message.role == Role::Assistant
}

/// The policy for a tool's old results; `None` if they are shown whole.
fn policy_of(context: &ContextSpec, name: Option<&String>) -> Option<ToolContext> {
    let policy = context.tools.get(name?).copied();
    policy.filter(|policy| *policy != ToolContext::Preserve)
}

/// Whether a result counts as old while this send runs.
fn counts(message: &Message, (running, aged_to): (SendId, i64)) -> bool {
    message.send_id != running || message.seq <= aged_to
}

/// Those of these results that count as old and may be shortened.
fn forgettable<'m>(
    messages: &'m [Arc<Message>],
    running: (SendId, i64),
    context: &'m ContextSpec,
) -> impl Iterator<Item = &'m Arc<Message>> {
    let counted = messages
        .iter()
        .filter(move |message| counts(message, running));
    counted.filter(|message| policy_of(context, message.name.as_ref()).is_some())
}

/// The messages of the running send, up to `last`, at each of which one more block of results is
/// shortened once they count as old, in order.
pub(super) fn steps(
    projections: usize,
    messages: &[Arc<Message>],
    (running, aged_to): (SendId, i64),
    last: i64,
    context: &ContextSpec,
) -> Vec<i64> {
    let digested = digested(projections, messages, running, context);
    let old = forgettable(&messages[digested..], (running, aged_to), context).count();
    let all = forgettable(&messages[digested..], (running, last), context);
    let counts = (1..).zip(all).skip(old);
    let more = counts.filter(|(count, _)| blocks(*count, HOT_TAIL) > blocks(count - 1, HOT_TAIL));
    more.map(|(_, message)| message.seq).collect()
}

/// A result as shown once it is old; `None` if it is not shortened.
fn shortened(text: &str, message: &Message, policy: ToolContext) -> Option<String> {
    let count = text.chars().count();
    if count <= SHORT_CHARS {
        return None;
    }
    let call = message.tool_call_id.as_deref().unwrap_or_default();
    let whole =
        format!("[{count} characters in all: read_output with call_id {call:?} shows them]");
    match policy {
        ToolContext::Preserve => None,
        ToolContext::Truncate if count <= HEAD_CHARS + TAIL_CHARS => None,
        ToolContext::Truncate => {
            let begin: String = text.chars().take(HEAD_CHARS).collect();
            let end: String = text.chars().skip(count - TAIL_CHARS).collect();
            Some(format!("{begin}\n{whole}\n{end}"))
        }
        ToolContext::Archive => Some(whole),
        ToolContext::Summary => {
            if let Some(said) = digest_of(&message.content) {
                return Some(format!("{said}\n{whole}"));
            }
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let lines: Vec<_> = lines.take(SUMMARY_LINES).collect();
            let begin: String = lines.join("\n").chars().take(SHORT_CHARS / 2).collect();
            Some(format!("{begin}\n{whole}"))
        }
    }
}

/// How many messages, from the first one on, belong to sends shown as digests, after `projections`
/// sends already shown as such.
fn digested(
    projections: usize,
    messages: &[Arc<Message>],
    running: SendId,
    context: &ContextSpec,
) -> usize {
    let all = projections + ended(messages, running);
    let digested = projection::digested(all, context).saturating_sub(projections);
    sends(messages).take(digested).map(<[_]>::len).sum()
}

/// How many sends of a window have ended.
fn ended(messages: &[Arc<Message>], running: SendId) -> usize {
    let all = sends(messages);
    all.filter(|send| send[0].send_id != running).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::agent::{FoldSpec, Representation};
    use crate::message::{NewMessage, plain_text};
    use crate::time::Timestamp;

    const RUNNING: SendId = SendId(Uuid::from_u128(1_000));

    /// So many sends of a question, a call, its result and an answer, and the one that runs.
    fn window(ended: usize) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for n in 0..=ended {
            let send = if n == ended {
                RUNNING
            } else {
                SendId(Uuid::from_u128(n as u128))
            };
            let texts = [
                (Role::User, format!("question {n}")),
                (Role::Assistant, "calling".to_owned()),
                (Role::Tool, format!("result {n}\n{}", "x".repeat(2_000))),
                (Role::Assistant, format!("answer {n}")),
            ];
            for (role, text) in texts {
                let seq = messages.len() as i64 + 1;
                let mut message = NewMessage {
                    role,
                    ..NewMessage::user(vec![ContentPart::text(text)], 0)
                }
                .at(seq, send, Timestamp(0), 1);
                if role == Role::Tool {
                    message.name = Some("look".to_owned());
                    message.tool_call_id = Some(format!("call_{n}"));
                }
                messages.push(Arc::new(message));
            }
        }
        messages
    }

    fn texts(ended: usize, context: &ContextSpec) -> Vec<String> {
        let (shown, _) = older(&[], window(ended), (RUNNING, 0), context);
        shown
            .iter()
            .map(|message| plain_text(&message.content))
            .collect()
    }

    fn forgetting(policy: ToolContext) -> ContextSpec {
        ContextSpec {
            tools: BTreeMap::from([("look".to_owned(), policy)]),
            ..ContextSpec::default()
        }
    }

    fn projecting() -> ContextSpec {
        ContextSpec {
            representation: Representation::Projection,
            ..ContextSpec::default()
        }
    }

    #[test]
    fn without_a_word_all_is_as_it_was_stored() {
        let context = ContextSpec::default();
        for context in [context, forgetting(ToolContext::Preserve)] {
            assert_eq!(
                older(&[], window(30), (RUNNING, 0), &context),
                (window(30), Settled::default())
            );
        }
    }

    #[test]
    fn older_results_are_shown_as_their_tool_is_declared() {
        for (policy, begins) in [
            (
                ToolContext::Archive,
                "[2009 characters in all: read_output with call_id \"call_0\"",
            ),
            (ToolContext::Summary, "result 0\nxxx"),
            (ToolContext::Truncate, "result 0\nxxx"),
        ] {
            let texts = texts(20, &forgetting(policy));
            assert!(texts[2].starts_with(begins), "{}", texts[2]);
            assert!(texts[2].contains("read_output") && texts[2].len() < 1_100);
            // The hot tail and the running send are not shortened.
            assert!(texts[4 * 12 + 2].len() > 2_000);
            assert!(texts[4 * 20 + 2].len() > 2_000);
        }
    }

    #[test]
    fn older_sends_are_digests_and_the_newest_stay() {
        let texts = texts(9, &projecting());
        // Nine sends, of which at least four stay: one block of four is digested.
        assert_eq!(texts.len(), 4 * 2 + 6 * 4);
        assert_eq!(texts[0], "[#1] question 0");
        assert!(texts[1].ends_with("[#4] answer 0"), "{}", texts[1]);
        assert_eq!(texts[8], "question 4");
    }

    /// The result is the same however many of the digested sends are given as projections only.
    #[test]
    fn projections_show_what_their_messages_do() {
        let both = ContextSpec {
            representation: Representation::Projection,
            ..forgetting(ToolContext::Archive)
        };
        let mut most = 0;
        for context in [projecting(), both] {
            for ended in 0..40 {
                let whole = window(ended);
                let shown = older(&[], whole.clone(), (RUNNING, 0), &context);
                let rows = sends(&whole).take(ended).filter_map(Projection::of);
                let rows: Vec<_> = rows.map(Arc::new).collect();
                let digested = projection::digested(ended, &context);
                for known in 0..=digested {
                    let (rows, rest) = (&rows[..known], whole[known * 4..].to_vec());
                    assert!(are_digested(known, &rest, RUNNING, &context));
                    assert_eq!(
                        older(rows, rest, (RUNNING, 0), &context),
                        shown,
                        "{ended} {known}"
                    );
                    most = most.max(known);
                }
                let rest = &whole[(digested + 1).min(ended) * 4..];
                assert!(
                    !are_digested(digested + 1, rest, RUNNING, &context),
                    "{ended}"
                );
            }
        }
        assert!(most > 20, "{most}");
    }

    #[test]
    fn what_is_settled_stays_as_it_is() {
        let both = ContextSpec {
            representation: Representation::Projection,
            ..forgetting(ToolContext::Archive)
        };
        for context in [forgetting(ToolContext::Archive), projecting(), both] {
            let mut most = 0;
            for ended in 0..40 {
                let (before, settled) = older(&[], window(ended), (RUNNING, 0), &context);
                let (after, _) = older(&[], window(ended + 1), (RUNNING, 0), &context);
                let settled = settled.now;
                assert_eq!(before[..settled], after[..settled], "{ended}");
                most = most.max(settled);
            }
            assert!(most > 50, "{most}");
        }
    }

    /// A running send with `calls` calls and their results, after one that has ended.
    fn long(calls: usize) -> Vec<Arc<Message>> {
        let mut messages = window(1);
        messages.truncate(5);
        for n in 0..calls {
            let call = [(5, Role::Assistant), (6, Role::Tool)].map(|(from, role)| {
                let mut message = Message::clone(&window(1)[from]);
                message.role = role;
                message.seq = messages.len() as i64 + from as i64 - 4;
                message.tool_call_id = message.tool_call_id.map(|_| format!("call_long_{n}"));
                Arc::new(message)
            });
            messages.extend(call);
        }
        messages
    }

    #[test]
    fn results_of_the_running_send_are_forgotten_up_to_the_message_that_its_row_names() {
        let context = forgetting(ToolContext::Archive);
        let shown = |calls, aged_to| older(&[], long(calls), (RUNNING, aged_to), &context);
        let forgotten = |messages: &[Arc<Message>]| {
            let texts = messages.iter().map(|m| plain_text(&m.content));
            texts.filter(|text| text.contains("read_output")).count()
        };
        assert_eq!(shown(30, 0), (long(30), Settled::default()));
        let last = |calls| long(calls).last().map_or(0, |last| last.seq);
        let mut before = 0;
        for calls in 0..60 {
            let (messages, settled) = shown(calls, last(calls));
            let count = forgotten(&messages);
            // Including the ended send's: the hot tail is kept, and at most one more block.
            assert!(
                count == 0 || (8..16).contains(&(calls + 1 - count)),
                "{calls} {count}"
            );
            assert!(count >= before, "{calls}");
            before = count;
            // Later messages change nothing.
            let (later, _) = shown(calls + 9, last(calls));
            assert_eq!(messages[..], later[..messages.len()]);
            // The next send shortens at least as much.
            let next = SendId(Uuid::from_u128(2_000));
            let (next, _) = older(&[], long(calls), (next, 0), &context);
            let settled = settled.now;
            assert_eq!(messages[..settled], next[..settled], "{calls}");
        }
        assert!(before > 40, "{before}");
    }

    #[test]
    fn each_step_forgets_one_block_more() {
        let context = forgetting(ToolContext::Archive);
        let forgotten = |calls, aged_to| {
            let (messages, _) = older(&[], long(calls), (RUNNING, aged_to), &context);
            let texts = messages.iter().map(|m| plain_text(&m.content));
            texts.filter(|text| text.contains("read_output")).count()
        };
        for calls in 0..50 {
            let messages = long(calls);
            let last = messages.last().map_or(0, |last| last.seq);
            let from = |aged_to| steps(0, &messages, (RUNNING, aged_to), last, &context);
            let all = from(0);
            assert_eq!(all.len(), blocks(calls + 1, HOT_TAIL) / HOT_TAIL, "{calls}");
            for (place, seq) in all.iter().enumerate() {
                assert_eq!(forgotten(calls, seq - 1), place * HOT_TAIL, "{calls}");
                assert_eq!(forgotten(calls, *seq), (place + 1) * HOT_TAIL, "{calls}");
                assert_eq!(from(*seq), all[place + 1..], "{calls}");
            }
            assert_eq!(forgotten(calls, last), all.len() * HOT_TAIL, "{calls}");
        }
        let preserving = forgetting(ToolContext::Preserve);
        assert!(steps(0, &long(50), (RUNNING, 0), 200, &preserving).is_empty());
    }

    /// Only the first request of a send reports the previous count, if the count has grown since.
    #[test]
    fn the_first_request_of_a_send_says_where_its_change_begins() {
        let both = ContextSpec {
            representation: Representation::Projection,
            ..forgetting(ToolContext::Archive)
        };
        for context in [forgetting(ToolContext::Archive), projecting(), both] {
            let mut moved = 0;
            for ended in 1..40 {
                let (was, earlier) = older(&[], window(ended - 1), (RUNNING, 0), &context);
                let mut begins = window(ended);
                begins.truncate(4 * ended + 1);
                let (now, settled) = older(&[], begins, (RUNNING, 0), &context);
                let is_more = earlier.now < settled.now;
                assert_eq!(settled.before, is_more.then_some(earlier.now), "{ended}");
                if let Some(before) = settled.before {
                    assert_eq!(now[..before], was[..before], "{ended}");
                    moved += 1;
                }
                let (_, later) = older(&[], window(ended), (RUNNING, 0), &context);
                assert_eq!((later.now, later.before), (settled.now, None), "{ended}");
            }
            assert!(moved >= 3, "{moved}");
        }
    }

    /// What turns into a digest soon is not shortened first, so that a request changes once for both.
    #[test]
    fn results_are_counted_behind_the_digests() {
        let of = |tools| ContextSpec {
            representation: Representation::Projection,
            fold: FoldSpec {
                keep_sends: Some(6),
                ..FoldSpec::default()
            },
            ..ContextSpec {
                tools,
                ..ContextSpec::default()
            }
        };
        let archive = forgetting(ToolContext::Archive).tools;
        for ended in 0..40 {
            // Of at most eleven sends that are shown whole, no eight results are old.
            let (both, digests) = (of(archive.clone()), of(BTreeMap::new()));
            assert_eq!(texts(ended, &both), texts(ended, &digests), "{ended}");
        }
    }

    #[test]
    fn a_summary_is_what_the_tool_says_of_its_result() {
        let mut said = window(20);
        let result = Arc::make_mut(&mut said[2]);
        let text = "looked at 9 things".to_owned();
        result.content.push(ContentPart::Digest { text });
        let shown = |policy| {
            let (shown, _) = older(&[], said.clone(), (RUNNING, 0), &forgetting(policy));
            plain_text(&shown[2].content)
        };
        let summary = shown(ToolContext::Summary);
        assert!(
            summary.starts_with("looked at 9 things\n[2009 characters"),
            "{summary}"
        );
        assert!(!shown(ToolContext::Truncate).contains("looked at"));
    }

    #[test]
    fn requests_after_each_other_begin_alike_but_for_a_block() {
        for context in [forgetting(ToolContext::Archive), projecting()] {
            let mut changes = 0;
            for ended in 0..40 {
                let (before, after) = (texts(ended, &context), texts(ended + 1, &context));
                changes += usize::from(!after.starts_with(&before));
            }
            assert!((2..=10).contains(&changes), "{changes}");
        }
    }
}
