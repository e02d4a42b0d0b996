//! Sessions with copied transcripts: forks and imports.

use mainspring_shared::agent::{AgentSpec, ContextSpec};
use mainspring_shared::id::{SessionId, TenantId};
use mainspring_shared::list::List;
use mainspring_shared::message::{ContentPart, Message, NewMessage};
use mainspring_shared::session::{SessionRecord, SessionStatus};
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, AppendCopies, AuditOptions, ClaimOutcome, CopiesOutcome,
    CreateOutcome, IdempotencyKey, ImportSession, Inspect, NewSession, RefuseReason, STAGED_MS,
    SessionPatch, erase_step,
};
use serde_json::{Map, json};

use super::prelude::*;

async fn try_import(store: &dyn Inspect, ms: i64, item: ImportSession) -> CreateOutcome {
    let outcome = store.at(time(ms)).import_session(item).await;
    outcome.expect("the store answers")
}

async fn import(store: &dyn Inspect, ms: i64, n: u128, messages: Vec<Message>) -> SessionRecord {
    match try_import(store, ms, copying(n, messages)).await {
        CreateOutcome::Created(record) => *record,
        other => panic!("a new session was expected: {other:?}"),
    }
}

fn copying(n: u128, messages: Vec<Message>) -> ImportSession {
    ImportSession {
        projections: Vec::new(),
        folds: Vec::new(),
        session: new_session(n),
        messages,
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind: 0,
        more: false,
    }
}

/// What a user said elsewhere, in the send of this number.
pub(in crate::suites::store) fn copied(n: u128) -> Message {
    NewMessage::user(words(n), 0).at(1, send(n), time(3), 0)
}

/// The transcript of session 1, whose first send ended after a round with a call.
async fn told(store: &dyn Inspect) -> Vec<Message> {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    item.round = Some(round_ref(1));
    item.totals = totals(2);
    complete(store, 30, item).await;
    transcript(store, 1).await
}

async fn assert_sound(store: &dyn Inspect, ms: i64) {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn a_copied_transcript_reads_back_with_its_sends_and_times(store: &dyn Inspect) {
    let messages = told(store).await;
    assert_eq!(seqs(&messages), [1, 2, 3, 4]);
    let record = import(store, 500, 2, messages.clone()).await;
    let expected = SessionRecord {
        key: key(2),
        status: SessionStatus::Idle,
        agent: new_session(2).agent,
        agent_version: 1,
        metadata: Map::new(),
        messages: 4,
        first_seq: 1,
        parent: None,
        created_at: time(500),
        updated_at: time(500),
    };
    assert_eq!(record, expected);
    let read = store.get_session(key(2)).await.expect("the store answers");
    assert_eq!(read, Some(expected));
    let copied = messages.into_iter().map(|m| Message { epoch: 0, ..m });
    assert_eq!(transcript(store, 2).await, copied.collect::<Vec<_>>());
    assert_sound(store, 501).await;
}

pub async fn any_message_can_be_copied(store: &dyn Inspect) {
    let mut messages = told(store).await;
    messages[1].content = vec![
        ContentPart::Reasoning {
            text: "a \"quoted\"\n\u{1f980}".to_owned(),
            signature: Some("s/+=".to_owned()),
            origin: None,
        },
        ContentPart::text(""),
    ];
    messages[1].tool_calls[0].arguments = json!({ "deep": [1, null, "\u{e9}"], "n": 1.5 }).into();
    messages[2].failed = true;
    messages[2].name = Some("look".to_owned());
    messages[3].content = Vec::new();
    import(store, 500, 2, messages.clone()).await;
    let copied = messages.into_iter().map(|m| Message { epoch: 0, ..m });
    assert_eq!(transcript(store, 2).await, copied.collect::<Vec<_>>());
}

pub async fn a_piece_is_numbered_from_1_and_knows_who_asked(store: &dyn Inspect) {
    let mut messages = told(store).await;
    messages.remove(0);
    import(store, 500, 2, messages).await;
    let copied = transcript(store, 2).await;
    assert_eq!(seqs(&copied), [1, 2, 3]);
    let asked: Vec<_> = copied.iter().map(|message| message.asked_at_seq).collect();
    assert_eq!(asked, [None, Some(1), None]);
    assert_eq!(dumped(store, 2).await.hot.next_seq, 4);
    assert_sound(store, 501).await;
}

pub async fn a_copy_has_nothing_to_do_and_nothing_of_its_own(store: &dyn Inspect) {
    let messages = told(store).await;
    import(store, 500, 2, messages).await;
    let dump = dumped(store, 2).await;
    assert_eq!((dump.sends.len(), dump.steps.len()), (0, 0));
    assert_eq!((dump.calls.len(), dump.usage.len()), (0, 0));
    assert_eq!((dump.inbox.len(), dump.hot.epoch), (0, 0));
    assert_eq!((dump.hot.ready_since, dump.hot.pending), (None, 0));
    assert_eq!(try_claim(store, 501, 1, 2, 2).await, ClaimOutcome::Idle);
}

pub async fn a_session_without_messages_can_be_copied(store: &dyn Inspect) {
    let record = import(store, 0, 1, Vec::new()).await;
    assert_eq!(record.messages, 0);
    assert_eq!(transcript(store, 1).await, []);
    accept(store, 1, sending(1, 1)).await;
    assert_sound(store, 2).await;
}

pub async fn a_copy_goes_on_by_itself(store: &dyn Inspect) {
    let messages = told(store).await;
    import(store, 500, 2, messages).await;
    accept(store, 510, sending(2, 2)).await;
    let claimed = claim(store, 520, 1, 2, 2).await;
    assert_eq!(seqs(&claimed.window), [1, 2, 3, 4]);
    complete(store, 530, ending(&claimed, AfterSend::Release)).await;
    let own = transcript(store, 2).await;
    let epochs: Vec<_> = own.iter().map(|message| message.epoch).collect();
    assert_eq!(epochs, [0, 0, 0, 0, 1, 1]);
    assert_eq!(seqs(&own), [1, 2, 3, 4, 5, 6]);
    assert_eq!(transcript(store, 1).await.len(), 4);
    assert_sound(store, 531).await;
}

pub async fn a_window_over_copies_does_not_split_a_call_from_its_answer(store: &dyn Inspect) {
    let messages = told(store).await;
    let item = ImportSession {
        session: NewSession {
            agent: AgentSpec {
                context: ContextSpec {
                    last_messages: Some(3),
                    ..ContextSpec::default()
                },
                ..AgentSpec::default()
            },
            ..new_session(2)
        },
        ..copying(2, messages)
    };
    try_import(store, 500, item).await;
    accept(store, 510, sending(2, 2)).await;
    let claimed = claim(store, 520, 1, 2, 2).await;
    assert_eq!(seqs(&claimed.window), [2, 3, 4]);
}

pub async fn a_copy_of_a_session_at_work_is_sound_and_outlives_it(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    append(store, 30, asking(&claimed, 1, vec![settled()])).await;
    let mut messages = transcript(store, 1).await;
    messages.truncate(3);
    import(store, 40, 2, messages).await;
    assert_sound(store, 41).await;
    let deleted = store
        .at(time(50))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(transcript(store, 2).await.len(), 3);
    assert_sound(store, 51).await;
}

pub async fn a_copy_of_an_open_call_is_reported(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![settled()])).await;
    let messages = transcript(store, 1).await;
    import(store, 30, 2, messages).await;
    let violations = store.at(time(31)).audit(AuditOptions::default()).await;
    let violations = violations.expect("the store answers");
    let names: Vec<_> = violations.iter().map(|v| v.invariant.as_str()).collect();
    assert_eq!(names, ["call.one_result"]);
}

pub async fn a_repeated_import_names_the_first_session(store: &dyn Inspect) {
    let messages = told(store).await;
    let keyed = |n: u128, hash: u8| ImportSession {
        idempotency: Some(IdempotencyKey {
            tenant: TenantId::DEFAULT,
            route: "POST /v1/sessions:import".to_owned(),
            key: "k".to_owned(),
            body_hash: [hash; 32],
        }),
        ..copying(n, messages.clone())
    };
    let first = try_import(store, 500, keyed(2, 1)).await;
    assert!(matches!(first, CreateOutcome::Created(_)), "{first:?}");
    let before = store.dump().await.expect("the store answers");
    let SessionId(made) = key(2).session;
    let repeat = try_import(store, 501, keyed(3, 1)).await;
    assert_eq!(repeat, CreateOutcome::Replayed(SessionId(made)));
    let other = try_import(store, 502, keyed(4, 2)).await;
    assert_eq!(other, CreateOutcome::Mismatch);
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

/// Imports one page of a transcript that comes in several.
async fn page(store: &dyn Inspect, ms: i64, item: ImportSession) -> CreateOutcome {
    let outcome = store.at(time(ms)).import_session(item).await;
    outcome.expect("the store answers")
}

/// A transcript to import: a question, a call with its result, and an answer.
async fn whole(store: &dyn Inspect, session: u128) -> ImportSession {
    accept(store, 0, opening(900, 900)).await;
    let claimed = claim(store, 1, 1, 900, 900).await;
    append(store, 2, round(&claimed, 0)).await;
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    (item.round, item.totals) = (Some(round_ref(1)), totals(2));
    complete(store, 3, item).await;
    copying(session, transcript(store, 900).await)
}

async fn audited(store: &dyn Inspect, ms: i64) {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn a_transcript_comes_in_pages_that_nobody_sees_before_the_last(store: &dyn Inspect) {
    register(store, 1).await;
    let whole = whole(store, 1).await;
    assert!(matches!(
        page(store, 10, whole.clone()).await,
        CreateOutcome::Created(_)
    ));
    let expected = transcript(store, 1).await;
    let paged = |from: usize, to: usize, more: bool| ImportSession {
        session: new_session(2),
        messages: whole.messages[from..to].to_vec(),
        behind: from as i64,
        more,
        ..whole.clone()
    };
    let last = whole.messages.len();
    for _ in 0..2 {
        assert_eq!(
            page(store, 10, paged(0, 1, true)).await,
            CreateOutcome::Staged
        );
        assert_eq!(
            page(store, 11, paged(1, last - 1, true)).await,
            CreateOutcome::Staged
        );
        audited(store, 12).await;
        let found = store.get_session(key(2)).await;
        assert_eq!(found.expect("the store answers"), None);
        assert_eq!(transcript(store, 2).await, []);
        let refused = offer(store, 12, sending(5, 2)).await;
        let not_found = AcceptOutcome::Refused(RefuseReason::SessionNotFound);
        assert_eq!(refused, not_found);
    }
    let due = store
        .at(time(9 + STAGED_MS))
        .deleted_sessions(None, 9)
        .await;
    assert_eq!(due.expect("the store answers"), []);
    let outcome = page(store, 13, paged(last - 1, last, false)).await;
    let CreateOutcome::Created(record) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(record.messages, last as i64);
    assert_eq!(transcript(store, 2).await, expected);
    let due = store
        .at(time(13 + STAGED_MS))
        .deleted_sessions(None, 9)
        .await;
    assert_eq!(due.expect("the store answers"), []);
    audited(store, 14).await;
    accept(store, 15, sending(5, 2)).await;
    let claimed = claim(store, 16, 1, 2, 5).await;
    assert_eq!(claimed.counters.next_seq, last as i64 + 1);
}

pub async fn copies_are_added_behind_a_transcript_of_which_nothing_runs(store: &dyn Inspect) {
    let messages = told(store).await;
    let adding = |session: u128, of: u128| {
        let copies = messages.iter().cloned();
        AppendCopies {
            key: key(session),
            messages: copies
                .map(|message| Message {
                    send_id: send(of),
                    ..message
                })
                .collect(),
        }
    };
    let add = async |ms: i64, item: AppendCopies| {
        let outcome = store.at(time(ms)).append_copies(item).await;
        outcome.expect("the store answers")
    };
    assert_eq!(add(40, adding(9, 70)).await, CopiesOutcome::NotFound);
    let there = CopiesOutcome::Appended { first_seq: 5 };
    assert_eq!(add(50, adding(1, 70)).await, there);
    // A repeat adds nothing.
    assert_eq!(add(60, adding(1, 70)).await, there);
    let all = transcript(store, 1).await;
    let expected = adding(1, 70).messages.into_iter().map(|message| Message {
        seq: message.seq + 4,
        asked_at_seq: message.asked_at_seq.map(|seq| seq + 4),
        epoch: 0,
        ..message
    });
    assert_eq!(all[4..], expected.collect::<Vec<_>>());
    let record = store.get_session(key(1)).await.expect("the store answers");
    assert_eq!(record.expect("it is there").messages, 8);
    assert_sound(store, 70).await;
    accept(store, 80, sending(2, 1)).await;
    assert_eq!(add(90, adding(1, 71)).await, CopiesOutcome::Busy);
    let claimed = claim(store, 100, 1, 1, 2).await;
    assert_eq!(claimed.counters.next_seq, 9);
    assert_eq!(seqs(&claimed.window), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(add(110, adding(1, 71)).await, CopiesOutcome::Busy);
    // A repeat of what was added before is none the less known.
    assert_eq!(add(110, adding(1, 70)).await, there);
    complete(store, 120, ending(&claimed, AfterSend::Release)).await;
    let behind = CopiesOutcome::Appended { first_seq: 11 };
    assert_eq!(add(130, adding(1, 71)).await, behind);
    assert_sound(store, 140).await;
    let close = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    let closed = store.at(time(150)).update_session(key(1), close).await;
    closed.expect("the store answers");
    assert_eq!(add(160, adding(1, 72)).await, CopiesOutcome::Closed);
    assert_eq!(transcript(store, 1).await.len(), 14);
}

pub async fn what_a_worker_keeps_of_a_session_is_not_used_once_copies_were_added(
    store: &dyn Inspect,
) {
    told(store).await;
    accept(store, 40, sending(2, 1)).await;
    let claimed = claim(store, 50, 1, 1, 2).await;
    let done = complete(store, 60, ending(&claimed, AfterSend::Release)).await;
    let kept = claimed.counters.context_version;
    let item = AppendCopies {
        key: key(1),
        messages: vec![copied(70)],
    };
    let outcome = store.at(time(70)).append_copies(item).await;
    let first_seq = done.first_seq + 2;
    assert_eq!(
        outcome.expect("the store answers"),
        CopiesOutcome::Appended { first_seq }
    );
    accept(store, 80, sending(3, 1)).await;
    let claimed = claim(store, 90, 1, 1, 3).await;
    assert_eq!(claimed.counters.context_version, kept + 1);
}

pub async fn pages_that_no_other_follows_are_removed(store: &dyn Inspect) {
    register(store, 1).await;
    let whole = whole(store, 1).await;
    let last = whole.messages.len();
    let paged = |from: usize, to: usize, more: bool| ImportSession {
        messages: whole.messages[from..to].to_vec(),
        behind: from as i64,
        more,
        ..whole.clone()
    };
    for broke_off in [1, last - 1] {
        page(store, 10, paged(0, 1, true)).await;
        if broke_off > 1 {
            page(store, 20, paged(1, broke_off, true)).await;
        }
        let late = 20 + STAGED_MS;
        for more in [true, false] {
            let outcome = page(store, late, paged(broke_off, last, more)).await;
            assert_eq!(outcome, CreateOutcome::Gone);
        }
        let due = store.at(time(late)).deleted_sessions(None, 9).await;
        assert_eq!(due.expect("the store answers").len(), 1);
        let step = erase_step(&*store.at(time(late)), boot(SCHEDULER), key(1), 100).await;
        assert_eq!(step.expect("the store answers").page.rows, broke_off as u64);
        audited(store, late).await;
        let due = store.at(time(late)).deleted_sessions(None, 9).await;
        assert_eq!(due.expect("the store answers"), []);
        assert_eq!(dumped(store, 1).await.messages, []);
        let outcome = page(store, late, paged(broke_off, last, false)).await;
        assert_eq!(outcome, CreateOutcome::Gone);
        audited(store, late).await;
    }
}
