//! The items of a Responses answer, told apart by id and kind.
//!
//! The final list of items need not have them at the places that the stream gave them: gateways leave gaps, drop items,
//! sort them by kind, or use one place for several. So a place is only asked where nothing else tells.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{BLANK_LINE, text_of};
use crate::answer::{ChunkSink, replace};
use crate::exact;
use mainspring_worker::llm::Error;

/// The members of a call that are read; any other is kept as it came. Its item's id and status are of no use to anybody
/// who stores no answers with the provider.
const OF_CALL: &[&str] = &["type", "id", "call_id", "name", "arguments", "status"];

/// What an item holds.
#[derive(Debug)]
pub(super) enum Body {
    Text {
        text: String,
        /// The parts of which something was read.
        parts: BTreeSet<u64>,
        /// What the text is for, in the provider's words; empty if it does not say.
        phase: String,
    },
    Reasoning {
        text: String,
        /// The summary part that the last delta belonged to.
        part: u64,
        encrypted: String,
    },
    Call {
        call_id: String,
        name: String,
        arguments: String,
        /// Further members.
        attached: Map<String, Value>,
    },
    /// An item of a tool that the provider runs itself, or of an unknown kind: it goes back as it came.
    Other(Value),
}

impl Body {
    /// An item of this type before any of it was read.
    fn empty(kind: &str) -> Self {
        match kind {
            "message" => Self::Text {
                text: String::new(),
                parts: BTreeSet::new(),
                phase: String::new(),
            },
            "reasoning" => Self::Reasoning {
                text: String::new(),
                part: 0,
                encrypted: String::new(),
            },
            "function_call" => Self::Call {
                call_id: String::new(),
                name: String::new(),
                arguments: String::new(),
                attached: Map::new(),
            },
            _ => Self::Other(Value::Null),
        }
    }
}

#[derive(Debug)]
pub(super) struct Item {
    /// The place that the stream gave it.
    index: Option<u64>,
    kind: String,
    /// The provider's id; empty if it has none.
    pub(super) id: String,
    pub(super) body: Body,
    /// Whether its end was read; what follows changes it no more.
    closed: bool,
}

impl Item {
    fn call_id(&self) -> &str {
        match &self.body {
            Body::Call { call_id, .. } => call_id,
            Body::Text { .. } | Body::Reasoning { .. } | Body::Other(_) => "",
        }
    }

    /// Whether this id names it; some gateways name a call by the id that its result has.
    fn is_named(&self, id: &str) -> bool {
        !id.is_empty() && (self.id == id || self.call_id() == id)
    }

    /// Whether it may be the same as an item with these ids: no id of theirs differs.
    fn may_be(&self, id: &str, call_id: &str) -> bool {
        let agrees = |own: &str, other: &str| own.is_empty() || other.is_empty() || own == other;
        agrees(&self.id, id) && agrees(self.call_id(), call_id)
    }

    /// Whether it has an id of this item's.
    fn is_of(&self, item: &Value) -> bool {
        self.is_named(text_of(item, "id")) || self.is_named(text_of(item, "call_id"))
    }

    /// Whether nothing speaks against it being this item.
    fn may_be_of(&self, item: &Value) -> bool {
        self.may_be(text_of(item, "id"), text_of(item, "call_id"))
    }

    /// Whether it says the same as this whole item.
    fn says(&self, item: &Value) -> bool {
        match &self.body {
            Body::Text { text, .. } => *text == whole_text(item) && !text.is_empty(),
            Body::Call {
                name, arguments, ..
            } => name == text_of(item, "name") && arguments == text_of(item, "arguments"),
            Body::Reasoning {
                text, encrypted, ..
            } => match text_of(item, "encrypted_content") {
                "" => *text == whole_thought(item) && !text.is_empty(),
                other => encrypted == other,
            },
            Body::Other(own) => own == item,
        }
    }
}

/// The items in the order in which they were first read.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: Vec<Item>,
    pub(super) refused: bool,
}

impl Items {
    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    /// Reads an item of the stream: its beginning, or its end.
    pub(super) fn read(
        &mut self,
        index: Option<u64>,
        item: &Value,
        ends: bool,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        let kind = text_of(item, "type");
        if kind.is_empty() {
            return Ok(());
        }
        let (id, call_id) = (text_of(item, "id"), text_of(item, "call_id"));
        let known = self.named(kind, id).or_else(|| {
            // Some models repeat the id of a call, so it names an item only if nothing else tells them apart.
            self.items.iter().rposition(|it| {
                it.kind == kind
                    && it.is_named(call_id)
                    && it.may_be(id, call_id)
                    && (!it.closed || it.index == index)
            })
        });
        let known = known.or_else(|| {
            self.items.iter().rposition(|it| {
                it.kind == kind && it.index == index && !it.closed && it.may_be(id, call_id)
            })
        });
        let at = match known {
            Some(at) => at,
            None => self.open(index, kind, sink)?,
        };
        if !self.items[at].closed {
            self.fill(at, item, sink)?;
        }
        self.items[at].closed |= ends;
        Ok(())
    }

    /// Reads the list of all items, at the end of a stream or in an answer that was not streamed: what was read is
    /// found again by its id, or by what it says, or, where it has no id, in the order of its kind.
    pub(super) fn read_all(
        &mut self,
        list: &[Value],
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        let streamed = self.items.len();
        let mut found = vec![None; list.len()];
        let mut free = vec![true; streamed];
        for rule in [Item::is_of, Item::says, Item::may_be_of] {
            for (item, place) in list.iter().zip(&mut found) {
                if place.is_some() {
                    continue;
                }
                let kind = text_of(item, "type");
                let at = (0..streamed).find(|at| {
                    let it = &self.items[*at];
                    free[*at] && it.kind == kind && rule(it, item)
                });
                if let Some(at) = at {
                    free[at] = false;
                    *place = Some(at);
                }
            }
        }
        let after = self.items.iter().filter_map(|item| item.index).max();
        for (item, place) in list.iter().zip(found) {
            let kind = text_of(item, "type");
            if kind.is_empty() {
                continue;
            }
            let at = match place {
                Some(at) => at,
                None => self.open(after, kind, sink)?,
            };
            if !self.items[at].closed {
                self.fill(at, item, sink)?;
            }
        }
        Ok(())
    }

    /// Reads a delta of an item, or the end of a part of one, whose words are those of all its deltas. Some compatible
    /// servers omit the item's start.
    pub(super) fn delta(
        &mut self,
        kind: Delta,
        event: &Value,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        let index = event.get("output_index").and_then(Value::as_u64);
        let of = kind.item();
        let at = match self.holder(of, text_of(event, "item_id"), index) {
            Some(at) => at,
            None => self.open(index, of, sink)?,
        };
        let piece = text_of(event, kind.member());
        let part = ["summary_index", "content_index"];
        let part = part.iter().find_map(|name| event.get(name)?.as_u64());
        let part = part.unwrap_or(0);
        let item = &mut self.items[at];
        match (kind, &mut item.body) {
            (Delta::Text | Delta::Refusal, Body::Text { text, parts, .. }) => {
                parts.insert(part);
                self.refused |= kind == Delta::Refusal;
                sink.text(text, piece)
            }
            (Delta::TextEnd | Delta::RefusalEnd, Body::Text { text, parts, .. }) => {
                self.refused |= kind == Delta::RefusalEnd;
                if parts.insert(part) {
                    sink.text(text, piece)
                } else {
                    Ok(())
                }
            }
            (Delta::Arguments, Body::Call { arguments, .. }) if !item.closed => {
                sink.arguments(arguments, piece)
            }
            (
                Delta::ArgumentsEnd,
                Body::Call {
                    arguments, name, ..
                },
            ) if !item.closed => {
                replace(name, text_of(event, "name"), sink)?;
                replace(arguments, piece, sink)
            }
            (
                Delta::Thought,
                Body::Reasoning {
                    text, part: last, ..
                },
            ) => {
                if part != *last && !text.is_empty() {
                    sink.reasoning(text, BLANK_LINE)?;
                }
                *last = part;
                sink.reasoning(text, piece)
            }
            (
                Delta::ThoughtEnd,
                Body::Reasoning {
                    text, part: last, ..
                },
            ) => {
                if text.is_empty() || part > *last {
                    if !text.is_empty() {
                        sink.reasoning(text, BLANK_LINE)?;
                    }
                    *last = part;
                    sink.reasoning(text, piece)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The items in the order in which the model gave them.
    pub(super) fn in_order(mut self) -> Vec<Item> {
        // Stable: where a place is used several times, or unknown, the order of arrival counts.
        let mut last = 0;
        for item in &mut self.items {
            last = item.index.unwrap_or(last);
            item.index = Some(last);
        }
        self.items.sort_by_key(|item| item.index);
        self.items
    }

    fn named(&self, kind: &str, id: &str) -> Option<usize> {
        let is_it = |it: &Item| it.kind == kind && it.is_named(id);
        self.items.iter().rposition(is_it)
    }

    /// The item that a delta belongs to.
    fn holder(&self, kind: &str, id: &str, index: Option<u64>) -> Option<usize> {
        self.named(kind, id).or_else(|| {
            let of_kind = |it: &Item| it.kind == kind && (it.index == index || index.is_none());
            self.items.iter().rposition(of_kind)
        })
    }

    fn open(
        &mut self,
        index: Option<u64>,
        kind: &str,
        sink: &mut ChunkSink<'_>,
    ) -> Result<usize, Error> {
        sink.block()?;
        self.items.push(Item {
            index,
            kind: kind.to_owned(),
            id: String::new(),
            body: Body::empty(kind),
            closed: false,
        });
        Ok(self.items.len() - 1)
    }

    /// Reads what an item has that was not read yet.
    fn fill(&mut self, at: usize, item: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
        let kept = &mut self.items[at];
        replace(&mut kept.id, text_of(item, "id"), sink)?;
        match &mut kept.body {
            Body::Text { text, parts, phase } => {
                replace(phase, text_of(item, "phase"), sink)?;
                for (place, part) in (0..).zip(list(item, "content")) {
                    let refusal = text_of(part, "refusal");
                    self.refused |= !refusal.is_empty();
                    let said = [text_of(part, "text"), refusal].concat();
                    if !said.is_empty() && parts.insert(place) {
                        sink.text(text, &said)?;
                    }
                }
            }
            Body::Reasoning {
                text, encrypted, ..
            } => {
                replace(encrypted, text_of(item, "encrypted_content"), sink)?;
                if text.is_empty() {
                    sink.reasoning(text, &whole_thought(item))?;
                }
            }
            Body::Call {
                call_id,
                name,
                arguments,
                attached,
            } => {
                replace(call_id, text_of(item, "call_id"), sink)?;
                replace(name, text_of(item, "name"), sink)?;
                match item.get("arguments") {
                    Some(object @ Value::Object(_)) => {
                        let text = exact::text(item, "arguments").map(str::to_owned);
                        let text = text.unwrap_or_else(|| object.to_string());
                        replace(arguments, &text, sink)?;
                    }
                    _ => replace(arguments, text_of(item, "arguments"), sink)?,
                }
                for (name, value) in item.as_object().into_iter().flatten() {
                    let is_new = !OF_CALL.contains(&name.as_str()) && !exact::is_text(name);
                    if is_new && !value.is_null() {
                        attached.insert(name.clone(), sink.kept(value)?);
                    }
                }
            }
            Body::Other(kept) => {
                *kept = sink.kept(item)?;
            }
        }
        Ok(())
    }
}

/// What an event says of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delta {
    Text,
    TextEnd,
    Refusal,
    RefusalEnd,
    Arguments,
    ArgumentsEnd,
    Thought,
    ThoughtEnd,
}

impl Delta {
    /// What an event of this kind says; `None` if it says nothing of an item's words.
    pub(super) fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "response.output_text.delta" => Self::Text,
            "response.output_text.done" => Self::TextEnd,
            "response.refusal.delta" => Self::Refusal,
            "response.refusal.done" => Self::RefusalEnd,
            "response.function_call_arguments.delta" => Self::Arguments,
            "response.function_call_arguments.done" => Self::ArgumentsEnd,
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                Self::Thought
            }
            "response.reasoning_summary_text.done" | "response.reasoning_text.done" => {
                Self::ThoughtEnd
            }
            _ => return None,
        })
    }

    /// The type of the item that it belongs to.
    const fn item(self) -> &'static str {
        match self {
            Self::Text | Self::TextEnd | Self::Refusal | Self::RefusalEnd => "message",
            Self::Arguments | Self::ArgumentsEnd => "function_call",
            Self::Thought | Self::ThoughtEnd => "reasoning",
        }
    }

    /// The member with its words.
    const fn member(self) -> &'static str {
        match self {
            Self::Text | Self::Refusal | Self::Arguments | Self::Thought => "delta",
            Self::TextEnd | Self::ThoughtEnd => "text",
            Self::RefusalEnd => "refusal",
            Self::ArgumentsEnd => "arguments",
        }
    }
}

fn list<'a>(item: &'a Value, name: &str) -> &'a [Value] {
    let parts = item.get(name).and_then(Value::as_array);
    parts.map_or(&[][..], Vec::as_slice)
}

/// The text of a whole message.
fn whole_text(item: &Value) -> String {
    let parts = list(item, "content").iter();
    let said = parts.flat_map(|part| [text_of(part, "text"), text_of(part, "refusal")]);
    said.collect()
}

/// The text of a whole thought: its parts, or those of its summary.
fn whole_thought(item: &Value) -> String {
    let parts = list(item, "summary").iter().chain(list(item, "content"));
    let said: Vec<_> = parts
        .map(|part| text_of(part, "text"))
        .filter(|text| !text.is_empty())
        .collect();
    said.join(BLANK_LINE)
}
