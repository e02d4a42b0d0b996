//! A session as JSON lines: its description, its messages, and a proof that nothing is missing.
//!
//! The first line is `{format, version, session}`. It is followed by a line per message, as the API
//! shows it. The last line has the counts of what precedes it and a SHA-256 over those bytes. The
//! content of blobs is in lines with a member `blob`, before the first message that names the blob.

mod blobs;
mod lines;

use std::collections::{BTreeSet, VecDeque};

use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::rebind;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::blob::BlobRef;
use mainspring_shared::id::SendId;
use mainspring_shared::list::{
    Bounds, List, NOTE_CHARS_MAX, NOTES_MAX_DEFAULT, TODO_CHARS_MAX, TODO_MAX, WhenFull,
};
use mainspring_shared::message::{ContentPart, Message, Role, ToolCall};
use mainspring_shared::session::SessionRecord;
use mainspring_shared::session::fold::Fold;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub(super) use self::blobs::Content;
pub(crate) use self::blobs::PIECE_BYTES;
use self::blobs::{Incoming, is_piece};
use self::lines::{Footer, Header, Kind, MessageLine, SessionLine};
use super::validate::{Checks, has_nul};
use crate::extract::parse;

/// The `format` of every archive.
const FORMAT: &str = "mainspring.session";

/// The only version so far.
const VERSION: u32 = 1;

/// The contents of an archive.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) agent: AgentSpec,
    pub(super) metadata: Map<String, Value>,
    pub(super) lists: Lists,
    pub(super) messages: Vec<Message>,
    pub(super) folds: Vec<Fold>,
}

/// The lists that accompany a session's transcript.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) todo: List,
    pub(super) notes: List,
}

/// The limits of lists in an archive.
const fn bounds(entries_max: u32, chars_max: usize) -> Bounds {
    Bounds {
        entries_max,
        chars_max,
        when_full: WhenFull::Reject,
    }
}

/// Writes an archive piece by piece.
#[derive(Debug, Default)]
pub(super) struct Writer {
    hash: Sha256,
    messages: u64,
    calls: u64,
    blobs: u64,
}

impl Writer {
    /// The first line.
    pub(super) fn header(
        &mut self,
        session: SessionRecord,
        lists: Lists,
        folds: Vec<Fold>,
    ) -> serde_json::Result<Vec<u8>> {
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            session: SessionLine {
                id: session.key.session,
                agent: session.agent,
                metadata: session.metadata,
                created_at: session.created_at,
                todo: lists.todo,
                notes: lists.notes,
                folds,
            },
        };
        self.lines(&[header])
    }

    /// The lines of the next messages.
    pub(super) fn messages(&mut self, messages: &[Message]) -> serde_json::Result<Vec<u8>> {
        self.messages += messages.len() as u64;
        self.calls += messages
            .iter()
            .map(|message| message.tool_calls.len() as u64)
            .sum::<u64>();
        self.lines(messages)
    }

    /// The line with a piece of a blob.
    pub(super) fn piece(
        &mut self,
        blob: &BlobRef,
        data: &[u8],
        at: usize,
    ) -> serde_json::Result<Vec<u8>> {
        self.blobs += u64::from(at == 0);
        self.lines(&[blobs::piece(blob, data, at)])
    }

    /// The last line.
    pub(super) fn footer(self) -> serde_json::Result<Vec<u8>> {
        let footer = Footer {
            messages: self.messages,
            calls: self.calls,
            blobs: self.blobs,
            sha256: hex(&self.hash.finalize()),
        };
        let mut line = serde_json::to_vec(&footer)?;
        line.push(b'\n');
        Ok(line)
    }

    fn lines<T: Serialize>(&mut self, values: &[T]) -> serde_json::Result<Vec<u8>> {
        let mut lines = Vec::new();
        for value in values {
            let from = lines.len();
            serde_json::to_writer(&mut lines, value)?;
            // Arguments may stand on several lines; inside of strings JSON has no raw line breaks.
            for byte in &mut lines[from..] {
                if matches!(*byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
            lines.push(b'\n');
        }
        self.hash.update(&lines);
        Ok(lines)
    }
}

/// Bytes in lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads an archive line by line. Faults are reported at the end with their line numbers, because
/// only then is it known whether the archive is complete, which is reported first.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Number of lines received.
    lines: usize,
    hash: Sha256,
    /// The last line received: either the final line, or one like any other.
    held: Vec<u8>,
    header: Option<Box<SessionLine>>,
    transcript: Transcript,
    blobs: Incoming,
    /// Why the archive cannot be read at all.
    unknown: Option<Error>,
    /// The first fault in its contents.
    fault: Option<Error>,
}

impl Reader {
    /// Takes the next line, without its line break.
    pub(super) fn push(&mut self, line: Vec<u8>) {
        self.lines += 1;
        if self.lines == 1 {
            self.unknown = on(1, kind(&line)).err();
        } else {
            let before = std::mem::take(&mut self.held);
            self.read(&before);
        }
        self.held = line;
    }

    /// Reads a line that is not the last one.
    fn read(&mut self, text: &[u8]) {
        if self.unknown.is_some() {
            return;
        }
        self.hash.update(text);
        self.hash.update(b"\n");
        if self.fault.is_some() {
            return;
        }
        let line = self.lines - 1;
        let read = if line == 1 {
            header(text).map(|session| self.header = Some(Box::new(session)))
        } else {
            match parse::<MessageLine>(text, "") {
                Ok(_) if self.blobs.is_open() => {
                    let detail = "must be the next piece of the blob before it";
                    Err(Error::invalid("/blob", detail))
                }
                Ok(message) => self.transcript.push(message, text.len()),
                Err(_) if is_piece(text) => self.blobs.push(text),
                Err(error) => Err(error),
            }
        };
        self.fault = on(line, read).err();
    }

    /// The agent and the metadata that the first line has, once that was read. The agent is to be
    /// taken for what it is here before anything is stored with it.
    pub(super) fn agent(&mut self) -> Option<(&mut AgentSpec, &Map<String, Value>)> {
        let header = self.header.as_deref_mut()?;
        Some((&mut header.agent, &header.metadata))
    }

    /// Bytes of the lines that are held in memory.
    pub(super) fn kept_bytes(&self) -> usize {
        self.held.len() + self.transcript.bytes + self.blobs.bytes()
    }

    /// Bytes of lines with pieces of blobs, received since the last call.
    pub(super) fn carried(&mut self) -> usize {
        self.blobs.carried()
    }

    /// A completely received blob whose content matches its hash, if there was no fault so far.
    pub(super) fn blob(&mut self) -> Option<Content> {
        self.blobs.take().filter(|_| self.fault.is_none())
    }

    /// A reader that accepts blobs of at most this size.
    pub(super) fn bounded(bytes_max: usize) -> Self {
        Self {
            blobs: Incoming::bounded(bytes_max),
            ..Self::default()
        }
    }

    /// The messages so far, with the agent and the folds that they belong to. None unless they have
    /// reached this size, there was no fault, and no call waits for its result.
    pub(super) fn page(&mut self, bytes: usize) -> Option<(&AgentSpec, &[Fold], Vec<Message>)> {
        let header = self.header.as_ref()?;
        let transcript = &mut self.transcript;
        let is_full = transcript.bytes >= bytes && transcript.open.is_empty();
        if !is_full || self.fault.is_some() {
            return None;
        }
        transcript.bytes = 0;
        let messages = std::mem::take(&mut transcript.messages);
        Some((&header.agent, &header.folds, messages))
    }

    /// The contents of the archive, except the pages that were already taken.
    pub(super) fn finish(mut self) -> Result<Archive, Error> {
        if self.lines == 0 {
            self.push(Vec::new());
        }
        if let Some(unknown) = self.unknown {
            return Err(unknown);
        }
        let last = self.lines;
        let footer: Footer = on(last, parse(&self.held, "")).map_err(|error| {
            error.because(
                "the last line must have the counts and the checksum; the archive may be cut off",
            )
        })?;
        if hex(&self.hash.finalize()) != footer.sha256 {
            let detail = "does not match the preceding lines: the archive was modified";
            return on(last, Err(Error::invalid("/sha256", detail)));
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        on(last, self.transcript.finish(&footer))?;
        on(last, self.blobs.finish(footer.blobs))?;
        let header = self.header.ok_or_else(Error::internal)?;
        let beyond = |fold: &Fold| fold.to_seq > self.transcript.count as i64;
        if header.folds.iter().any(beyond) {
            let detail = "must not cover messages missing from the archive";
            return on(1, Err(Error::invalid("/session/folds", detail)));
        }
        Ok(Archive {
            agent: header.agent,
            metadata: header.metadata,
            lists: Lists {
                todo: header.todo,
                notes: header.notes,
            },
            messages: self.transcript.messages,
            folds: header.folds,
        })
    }
}

/// Checks that the first line is that of a supported archive.
fn kind(line: &[u8]) -> Result<(), Error> {
    let kind: Kind = parse(line, "")?;
    if kind.format != FORMAT {
        let detail = format!("must be {FORMAT}: this is not a session archive");
        return Err(Error::invalid("/format", detail));
    }
    if kind.version != VERSION {
        let detail = format!("this server supports version {VERSION}");
        return Err(Error::invalid("/version", detail));
    }
    Ok(())
}

/// Reads the first line.
fn header(line: &[u8]) -> Result<SessionLine, Error> {
    let header: Header = parse(line, "")?;
    let mut session = header.session;
    let mut checks = Checks::at("/session");
    checks.agent("/agent", &session.agent);
    for (place, skill) in session.agent.skills.iter().enumerate() {
        if skill.description().is_none() {
            let detail = "must be an object with name, hash and description, as exports have it";
            checks.refuse(&format!("/agent/skills/{place}"), detail);
        }
    }
    checks.metadata("/metadata", &session.metadata);
    let todo = session.todo.fault(bounds(TODO_MAX, TODO_CHARS_MAX));
    let notes = session
        .notes
        .fault(bounds(NOTES_MAX_DEFAULT, NOTE_CHARS_MAX));
    for (member, fault) in [("/todo", todo), ("/notes", notes)] {
        if let Some(fault) = fault {
            checks.refuse(member, &fault);
        }
    }
    for (place, fault) in session
        .folds
        .iter()
        .zip(fold_faults(&session.folds))
        .enumerate()
    {
        let (fold, fault) = fault;
        let member = format!("/folds/{place}");
        checks.text(&format!("{member}/text"), Some(&fold.text));
        checks.text(&format!("{member}/model"), fold.model.as_deref());
        if let Some((name, detail)) = fault {
            checks.refuse(&format!("{member}/{name}"), detail);
        }
    }
    checks.finish()?;
    // An archive keeps the prompt that its session was shown. A hand-written one has none yet.
    if session.agent.prompt.is_some() && session.agent.bound.is_none() {
        session.agent = rebind(session.agent, None, None, &session.metadata)?;
    }
    Ok(session)
}

/// The fault of each fold in relation to the others, if any.
fn fold_faults(folds: &[Fold]) -> impl Iterator<Item = Option<(&'static str, &'static str)>> {
    let number = |place: usize| place as i64 + 1;
    folds.iter().enumerate().map(move |(place, fold)| {
        let covers = |by: i64| {
            let cover = usize::try_from(by - 1).ok().and_then(|at| folds.get(at));
            cover.is_some_and(|cover| {
                by > fold.n && cover.from_seq <= fold.from_seq && fold.to_seq <= cover.to_seq
            })
        };
        if fold.n != number(place) {
            Some(("n", "must count from 1"))
        } else if fold.from_seq > fold.to_seq {
            Some(("to_seq", "must not be below from_seq"))
        } else if fold.level < 0 {
            Some(("level", "must not be negative"))
        } else if fold.covered_by.is_some_and(|by| !covers(by)) {
            Some((
                "covered_by",
                "must name a later fold that covers the same messages",
            ))
        } else {
            None
        }
    })
}

fn on<T>(line: usize, outcome: Result<T, Error>) -> Result<T, Error> {
    outcome.map_err(|error| error.on_line(line))
}

/// A consistent sequence of messages.
#[derive(Debug, Default)]
struct Transcript {
    /// The latest messages, except those that were taken.
    messages: Vec<Message>,
    /// The size of their lines in bytes.
    bytes: usize,
    count: u64,
    /// The send of the last message.
    send: Option<SendId>,
    /// A part of the hash of each call id so far, because ids may be long.
    calls: BTreeSet<[u8; 16]>,
    /// The calls that wait for their results, in order.
    open: VecDeque<String>,
}

impl Transcript {
    fn push(&mut self, line: MessageLine, bytes: usize) -> Result<(), Error> {
        let mut checks = Checks::new();
        shape(&mut checks, &line);
        let seq = self.count as i64 + 1;
        if line.seq != seq {
            checks.refuse(
                "/seq",
                &format!("must be {seq}: messages are numbered from 1"),
            );
        }
        let asked_by = self.send;
        if let Some(call) = self.open.pop_front() {
            if line.tool_call_id.as_ref() != Some(&call) || asked_by != Some(line.send_id) {
                let detail = format!("must be the result of the call {call}, in the same send");
                checks.refuse("/tool_call_id", &detail);
            }
        } else if line.role == Role::Tool {
            checks.refuse("/tool_call_id", "does not name a call without a result");
        }
        for (place, call) in line.tool_calls.iter().enumerate() {
            let hash = Sha256::digest(&call.id);
            let known = hash
                .first_chunk()
                .is_some_and(|part| !self.calls.insert(*part));
            if known {
                let member = format!("/tool_calls/{place}/id");
                checks.refuse(&member, "is the id of an earlier call");
            }
            self.open.push_back(call.id.clone());
        }
        checks.finish()?;
        self.count += 1;
        self.send = Some(line.send_id);
        self.bytes += bytes;
        self.messages.push(message(line));
        Ok(())
    }

    fn finish(&self, footer: &Footer) -> Result<(), Error> {
        let mut checks = Checks::new();
        if let Some(call) = self.open.front() {
            checks.refuse(
                "",
                &format!("the call {call} has no result before this line"),
            );
        }
        let counts = [
            ("/messages", footer.messages, self.count),
            ("/calls", footer.calls, self.calls.len() as u64),
        ];
        for (member, said, found) in counts {
            if said != found {
                checks.refuse(member, &format!("there are {found}"));
            }
        }
        checks.finish()
    }
}

/// Checks which members a message may have, by its role.
fn shape(checks: &mut Checks, line: &MessageLine) {
    if line.round < 0 {
        checks.refuse("/round", "must not be negative");
    }
    if line.role != Role::Assistant && !line.tool_calls.is_empty() {
        checks.refuse("/tool_calls", "is only allowed in an assistant message");
    }
    let of_tool = [
        ("/tool_call_id", line.tool_call_id.is_some()),
        ("/name", line.name.is_some()),
        ("/failed", line.failed),
    ];
    for (member, given) in of_tool {
        if given && line.role != Role::Tool {
            checks.refuse(member, "is only allowed in a tool message");
        }
    }
    for (place, part) in line.content.iter().enumerate() {
        let member = format!("/content/{place}");
        match part {
            ContentPart::Text { text } => checks.text(&member, Some(text)),
            ContentPart::Attached(attached) => {
                checks.text(&member, Some(&attached.json));
                if line.role != Role::Assistant {
                    checks.refuse(&member, "is only allowed in an assistant message");
                }
            }
            ContentPart::Reasoning {
                text, signature, ..
            } => {
                checks.text(&member, Some(text));
                checks.text(&member, signature.as_deref());
                if line.role != Role::Assistant {
                    checks.refuse(&member, "is only allowed in an assistant message");
                }
            }
            ContentPart::Digest { text } => {
                checks.text(&member, Some(text));
                if line.role != Role::Tool {
                    checks.refuse(&member, "is only allowed in a tool message");
                }
            }
            ContentPart::Image { .. } | ContentPart::File { .. } => {
                if line.role == Role::Assistant {
                    checks.refuse(&member, "is only allowed in a user or tool message");
                }
                checks.media(&member, part);
            }
        }
    }
    checks.text("/tool_call_id", line.tool_call_id.as_deref());
    checks.text("/name", line.name.as_deref());
    for (place, call) in line.tool_calls.iter().enumerate() {
        let member = format!("/tool_calls/{place}");
        checks.text(&member, Some(&call.id));
        checks.text(&member, Some(&call.name));
        if has_nul(&call.arguments) {
            checks.text(&member, Some("\0"));
        }
        if let Some(attached) = &call.attached {
            checks.text(&member, attached.id.as_deref());
            checks.text(&member, attached.json.as_deref());
        }
    }
}

fn message(line: MessageLine) -> Message {
    let calls = line.tool_calls.into_iter().map(|call| ToolCall {
        after: call.after,
        attached: call.attached,
        ..ToolCall::new(call.id, call.name, call.arguments)
    });
    Message {
        seq: line.seq,
        send_id: line.send_id,
        role: line.role,
        content: line.content,
        tool_calls: calls.collect(),
        tool_call_id: line.tool_call_id,
        name: line.name,
        failed: line.failed,
        round: line.round,
        created_at: line.created_at,
        // The importing store counts these itself.
        asked_at_seq: None,
        epoch: 0,
    }
}
