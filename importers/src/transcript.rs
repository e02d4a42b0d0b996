//! Builds a transcript that an archive may have from messages in the order of their source.
//!
//! An archive wants each message with calls to be followed by one result per call, in order, and each id of a call
//! once. Sources do not: results are missing, come late or in another order, and models repeat ids.

use std::collections::BTreeSet;

use mainspring_shared::blob::BlobHash;
use mainspring_shared::id::SendId;
use mainspring_shared::message::{Arguments, ContentPart, Message, Role, ToolCall};
use mainspring_shared::time::Timestamp;

use crate::session::{Blob, Session, System, derived};

/// The result of a call that has none in the source.
const NO_RESULT: &str =
    "There is no result of this call: the conversation was imported before it had one.";

/// A message with calls waits for the results of these.
#[derive(Debug)]
struct Open {
    /// The id in the source.
    source: String,
    call: ToolCall,
    result: Option<Message>,
}

/// A call as the source has it.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Arguments,
}

/// The result of a call as the source has it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) call: String,
    /// The tool's name, if the source repeats it.
    pub(crate) name: Option<String>,
    pub(crate) content: Vec<ContentPart>,
    pub(crate) failed: bool,
}

/// A transcript being built, in the session that it will be part of.
#[derive(Debug)]
pub(crate) struct Transcript {
    pub(crate) session: Session,
    system: System,
    /// The number of the current send, in the source or counted.
    number: i64,
    send: SendId,
    round: i32,
    open: Vec<Open>,
    /// What was said while calls were open.
    held: Vec<Message>,
    calls: BTreeSet<String>,
    blobs: BTreeSet<BlobHash>,
}

impl Transcript {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            system: session.system,
            send: SendId(derived(session.created_at, &[])),
            session,
            number: -1,
            round: 0,
            open: Vec::new(),
            held: Vec::new(),
            calls: BTreeSet::new(),
            blobs: BTreeSet::new(),
        }
    }

    /// Counts something that is left out or kept in another form.
    pub(crate) fn leave(&mut self, name: &str) {
        self.session.left_out.add(name);
    }

    /// What follows belongs to the send with this number.
    pub(crate) fn send(&mut self, number: i64, at: Timestamp) {
        if number == self.number {
            return;
        }
        self.settle();
        self.number = number;
        self.round = 0;
        let words = [
            self.system.as_str(),
            self.session.source(),
            &number.to_string(),
        ];
        self.send = SendId(derived(at, &words));
    }

    /// What follows belongs to a new send, if what the user says answers something.
    fn advance(&mut self, at: Timestamp) {
        let said = self.session.messages.last().or(self.held.last());
        let answers = said.is_none_or(|message| message.role != Role::User);
        if self.number < 0 || (answers && self.open.is_empty()) {
            self.send(self.number + 1, at);
        }
    }

    /// What the user says. `sends` tells whether it begins a send of its own.
    pub(crate) fn user(&mut self, content: Vec<ContentPart>, at: Timestamp, sends: bool) {
        if sends {
            self.advance(at);
        }
        let message = self.message(Role::User, content, at);
        self.push(message);
    }

    /// What the model says.
    pub(crate) fn assistant(
        &mut self,
        content: Vec<ContentPart>,
        calls: Vec<Called>,
        at: Timestamp,
    ) {
        self.settle();
        if self.number < 0 {
            self.send(0, at);
        }
        let last = self.session.messages.last();
        if last.is_some_and(|last| last.role == Role::Tool && last.send_id == self.send) {
            self.round += 1;
        }
        let content = self.of_model(content);
        let mut message = self.message(Role::Assistant, content, at);
        for called in calls {
            // No vendor takes it back.
            if called.name.trim().is_empty() {
                self.leave("calls without the name of a tool");
                continue;
            }
            let id = self.fresh(&called.id);
            let name = self.clean(called.name);
            let call = ToolCall::new(id, name, called.arguments);
            message.tool_calls.push(call.clone());
            self.open.push(Open {
                source: called.id,
                call,
                result: None,
            });
        }
        self.session.messages.push(message);
    }

    /// The result of a call.
    pub(crate) fn result(&mut self, answered: Answered, at: Timestamp) {
        let Answered {
            call,
            name,
            content,
            failed,
        } = answered;
        let place = self
            .open
            .iter()
            .position(|open| open.source == call && open.result.is_none());
        let Some(place) = place else {
            self.leave("results without a call, kept as messages of the user");
            let tool = name.as_deref().unwrap_or("an unknown tool");
            let mut parts = vec![ContentPart::text(format!("[result of {tool}]"))];
            parts.extend(content);
            let message = self.message(Role::User, parts, at);
            self.push(message);
            return;
        };
        let mut message = self.message(Role::Tool, content, at);
        let open = &mut self.open[place];
        message.tool_call_id = Some(open.call.id.clone());
        message.name = Some(open.call.name.clone());
        message.failed = failed;
        open.result = Some(message);
        if self.open.iter().all(|open| open.result.is_some()) {
            self.settle();
        }
    }

    /// Whether a call with this id waits for its result.
    pub(crate) fn waits_for(&self, call: &str) -> bool {
        let mut open = self.open.iter();
        open.any(|open| open.source == call && open.result.is_none())
    }

    /// Number of messages so far.
    pub(crate) fn len(&self) -> usize {
        self.session.messages.len() + self.held.len()
    }

    /// Keeps bytes that a message names.
    pub(crate) fn keep(&mut self, blob: Blob) {
        if self.blobs.insert(blob.name.sha256) {
            self.session.blobs.push(blob);
        }
    }

    /// The session with its messages, numbered.
    pub(crate) fn finish(mut self) -> Session {
        self.settle();
        for (message, seq) in self.session.messages.iter_mut().zip(1..) {
            message.seq = seq;
        }
        self.session
    }

    fn push(&mut self, message: Message) {
        if self.open.is_empty() {
            self.session.messages.push(message);
        } else {
            self.held.push(message);
        }
    }

    /// Puts the results behind their calls, in order, and then what was said meanwhile.
    fn settle(&mut self) {
        for open in std::mem::take(&mut self.open) {
            let result = open.result.unwrap_or_else(|| {
                self.session
                    .left_out
                    .add("calls without a result, answered with a note");
                let asked = self.session.messages.last();
                let at = asked.map_or(self.session.created_at, |asked| asked.created_at);
                let mut message = self.message(Role::Tool, vec![ContentPart::text(NO_RESULT)], at);
                message.tool_call_id = Some(open.call.id.clone());
                message.name = Some(open.call.name.clone());
                message.failed = true;
                message
            });
            self.session.messages.push(result);
        }
        self.session.messages.append(&mut self.held);
    }

    fn message(&mut self, role: Role, content: Vec<ContentPart>, at: Timestamp) -> Message {
        let content = content.into_iter().map(|part| self.clean_part(part));
        let content = content.collect();
        Message {
            seq: 0,
            send_id: self.send,
            role,
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            failed: false,
            round: self.round,
            created_at: at,
            asked_at_seq: None,
            epoch: 0,
        }
    }

    /// The parts that a message of a model may have.
    fn of_model(&mut self, content: Vec<ContentPart>) -> Vec<ContentPart> {
        let mut parts = Vec::new();
        for part in content {
            if matches!(part, ContentPart::Image { .. } | ContentPart::File { .. }) {
                self.leave("images and files of the model");
                parts.push(ContentPart::text("[an image or a file]"));
            } else {
                parts.push(part);
            }
        }
        parts
    }

    fn clean_part(&mut self, part: ContentPart) -> ContentPart {
        match part {
            ContentPart::Text { text } => ContentPart::Text {
                text: self.clean(text),
            },
            ContentPart::Reasoning {
                text,
                signature,
                origin,
            } => ContentPart::Reasoning {
                text: self.clean(text),
                signature,
                origin,
            },
            other @ (ContentPart::Image { .. }
            | ContentPart::File { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_)) => other,
        }
    }

    /// Text without U+0000, which databases do not store.
    fn clean(&mut self, text: String) -> String {
        if !text.contains('\0') {
            return text;
        }
        self.leave("texts in which U+0000 was replaced");
        text.replace('\0', "\u{fffd}")
    }

    /// An id for a call that no other call of the session has.
    fn fresh(&mut self, source: &str) -> String {
        let mut id = self.clean(source.to_owned());
        if id.is_empty() {
            id = format!("call_{}", self.calls.len() + 1);
        }
        let mut fresh = id.clone();
        let mut n = 1;
        while !self.calls.insert(fresh.clone()) {
            n += 1;
            fresh = format!("{id}~{n}");
        }
        if fresh != source {
            self.leave("calls that got another id, because theirs was not unique");
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::message::settled_len;
    use proptest::prelude::*;

    use super::*;

    const AT: Timestamp = Timestamp(1_700_000_000_000);

    fn transcript() -> Transcript {
        Transcript::new(Session::new(System::PowerLoop, "sess_1", AT))
    }

    fn text(text: &str) -> Vec<ContentPart> {
        vec![ContentPart::text(text)]
    }

    fn called(id: &str) -> Called {
        Called {
            id: id.to_owned(),
            name: "look".to_owned(),
            arguments: Arguments::read("{}"),
        }
    }

    fn answered(call: &str) -> Answered {
        Answered {
            call: call.to_owned(),
            name: None,
            content: text(call),
            failed: false,
        }
    }

    fn told(session: &Session) -> Vec<String> {
        let told = session.messages.iter().map(|message| {
            let said = message.tool_call_id.as_deref();
            let said = said.map_or_else(
                || mainspring_shared::message::plain_text(&message.content),
                str::to_owned,
            );
            format!("{} {said}", message.role.as_str())
        });
        told.collect()
    }

    #[test]
    fn results_stand_behind_their_calls_in_the_order_of_these() {
        let mut transcript = transcript();
        transcript.user(text("go"), AT, true);
        transcript.assistant(Vec::new(), vec![called("a"), called("b")], AT);
        transcript.result(answered("b"), AT);
        transcript.user(text("and?"), AT, true);
        transcript.result(answered("a"), AT);
        transcript.assistant(text("done"), Vec::new(), AT);
        let session = transcript.finish();
        let expected = [
            "user go",
            "assistant ",
            "tool a",
            "tool b",
            "user and?",
            "assistant done",
        ];
        assert_eq!(told(&session), expected);
        assert_eq!(settled_len(&session.messages), session.messages.len());
        assert!(session.left_out.is_empty());
    }

    #[test]
    fn calls_without_a_result_get_a_note_and_results_without_a_call_are_kept() {
        let mut transcript = transcript();
        transcript.result(answered("lost"), AT);
        transcript.assistant(Vec::new(), vec![called("a"), called("a"), called("")], AT);
        transcript.result(answered("a"), AT);
        transcript.assistant(text("on"), vec![called("a")], AT);
        let session = transcript.finish();
        let expected = [
            "user [result of an unknown tool]\n\nlost",
            "assistant ",
            "tool a",
            "tool a~2",
            "tool call_3",
            "assistant on",
            "tool a~3",
        ];
        assert_eq!(told(&session), expected);
        assert_eq!(settled_len(&session.messages), session.messages.len());
        let failed = session.messages.iter().filter(|message| message.failed);
        assert_eq!(failed.count(), 3);
        let left: Vec<_> = session.left_out.iter().map(|(_, count)| count).collect();
        assert_eq!(left, [3, 3, 1]);
    }

    #[test]
    fn a_send_begins_where_the_user_answers_and_a_round_behind_results() {
        let mut transcript = transcript();
        for _ in 0..2 {
            transcript.user(text("go"), AT, true);
            transcript.assistant(Vec::new(), vec![called("a")], AT);
            transcript.result(answered("a"), AT);
            transcript.assistant(text("done"), Vec::new(), AT);
        }
        let session = transcript.finish();
        let sends: BTreeSet<SendId> = session.messages.iter().map(|it| it.send_id).collect();
        assert_eq!(sends.len(), 2);
        let rounds: Vec<i32> = session.messages.iter().map(|it| it.round).collect();
        assert_eq!(rounds, [0, 0, 0, 1, 0, 0, 0, 1]);
    }

    /// What a source may say, with calls by numbers so that they repeat.
    #[derive(Debug, Clone)]
    enum Said {
        User(bool),
        Assistant(Vec<u8>),
        Result(u8),
        Send(i64),
    }

    fn said() -> impl Strategy<Value = Said> {
        prop_oneof![
            any::<bool>().prop_map(Said::User),
            prop::collection::vec(0_u8..4, 0..4).prop_map(Said::Assistant),
            (0_u8..4).prop_map(Said::Result),
            (0_i64..3).prop_map(Said::Send),
        ]
    }

    proptest! {
        #[test]
        fn whatever_a_source_says_an_archive_may_have(all in prop::collection::vec(said(), 0..40)) {
            let mut transcript = transcript();
            let mut results = 0;
            for one in &all {
                match one {
                    Said::User(sends) => transcript.user(text("go"), AT, *sends),
                    Said::Assistant(calls) => {
                        let calls = calls.iter().map(|id| called(&id.to_string()));
                        transcript.assistant(text("on"), calls.collect(), AT);
                    }
                    Said::Result(id) => {
                        results += 1;
                        transcript.result(answered(&id.to_string()), AT);
                    }
                    Said::Send(number) => transcript.send(*number, AT),
                }
            }
            let session = transcript.finish();
            let messages = &session.messages;
            prop_assert_eq!(settled_len(messages), messages.len());
            let mut calls = BTreeSet::new();
            for call in messages.iter().flat_map(|message| &message.tool_calls) {
                prop_assert!(calls.insert(call.id.clone()), "{} occurs twice", call.id);
            }
            // Nothing that was said is lost.
            let told = messages.iter().filter(|message| !message.failed).count();
            let spoken = all.iter().filter(|one| matches!(one, Said::User(_) | Said::Assistant(_)));
            prop_assert_eq!(told, spoken.count() + results);
        }
    }
}
