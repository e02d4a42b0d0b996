//! Reads which part of a request a refusal is about.

use std::sync::LazyLock;

use serde::Deserialize;

use super::part::{
    Amendment, Cut, EFFORTS, FILES, LIMITS, PICTURES, Protocol, REASONING, THOUGHTS, tool_name,
};
use super::place::{Place, places, quoted};
use super::tree::Node;
use crate::status::Refusal;

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let table = toml::from_str(include_str!("../amendments.toml"));
    let table: Table = table.expect("a test reads each entry");
    table.part
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    part: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    is: Remedy,
    words: Vec<String>,
    #[serde(default)]
    and: Vec<String>,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for whoever checks whether it still holds")
    )]
    source: String,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for whoever checks whether it still holds")
    )]
    date: String,
}

/// What helps where no place is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Remedy {
    /// Calls get the signature that is not checked.
    DummySignatures,
    /// Answers get an empty reasoning.
    EmptyReasoning,
    /// The model is not asked to think.
    NoThinking,
    /// The reasoning of this request is left out; at the second time, all of it.
    Reasoning,
    /// The model decides how much it thinks.
    Adaptive,
    /// `top_p` is left out.
    NoTopP,
    /// The effort is `none`.
    EffortNone,
    /// The token limit leaves room for the request.
    Together,
    /// The schema of the answer is told in words.
    NoSchema,
    ShortIds,
    Bridge,
    SystemAsUser,
    Alternate,
    EndWithUser,
    NoEmpty,
    NoPictures,
    /// The newest message's pictures are left out; at the second time, all.
    Picture,
    /// Likewise files.
    File,
    /// `tool_choice` is left out.
    ToolChoice,
    /// The nearest effort that is listed, or none.
    Effort,
    /// Schemas are cut.
    Schemas,
    NoTools,
    Whole,
}

/// Words by which a refusal says that it does not know something, rather than its value.
const UNKNOWN: [&str; 14] = [
    "extra",
    "unknown",
    "unrecognized",
    "unsupported",
    "not supported",
    "unexpected",
    "not permitted",
    "not allowed",
    "unavailable",
    "deprecated",
    "cannot find field",
    "additional propert",
    "no such",
    "disallowed",
];

/// Members without which there is no request.
const ESSENTIAL: [&str; 9] = [
    "model",
    "messages",
    "input",
    "tools",
    "system",
    "instructions",
    "stream",
    "max_tokens",
    "max_output_tokens",
];

/// Members of messages without which there are none.
const ESSENTIAL_OF_MESSAGE: [&str; 22] = [
    "role",
    "content",
    "type",
    "text",
    "tool_calls",
    "function",
    "arguments",
    "input",
    "output",
    "source",
    "data",
    "image_url",
    "file",
    "name",
    "id",
    "tool_call_id",
    "tool_use_id",
    "call_id",
    "signature",
    "thinking",
    "encrypted_content",
    "summary",
];

/// What may be changed, the most likely first.
pub(super) fn named(body: &Node<'_>, protocol: Protocol, refusal: &Refusal) -> Vec<Amendment> {
    let mut found = Vec::new();
    let read = Read {
        body,
        protocol,
        refusal,
    };
    for entry in ENTRIES.iter() {
        let holds = |words: &[String]| words.is_empty() || refusal.has_any(words);
        // These say less than a place does.
        let is_weak = matches!(
            entry.is,
            Remedy::Schemas | Remedy::File | Remedy::ToolChoice | Remedy::Effort
        );
        if !is_weak && holds(&entry.words) && holds(&entry.and) {
            found.extend(read.remedy(entry.is));
        }
    }
    for place in places(body, refusal) {
        read.at(&place, &mut found);
    }
    for name in quoted(refusal.words()) {
        read.quoted(&name, &mut found);
    }
    for entry in ENTRIES.iter() {
        let holds = |words: &[String]| words.is_empty() || refusal.has_any(words);
        if holds(&entry.words) && holds(&entry.and) {
            found.extend(read.remedy(entry.is));
        }
    }
    found
}

struct Read<'r, 'b> {
    body: &'r Node<'b>,
    protocol: Protocol,
    refusal: &'r Refusal,
}

impl Read<'_, '_> {
    fn list(&self) -> &[Node<'_>] {
        self.body.list(self.protocol.conversation())
    }

    fn remedy(&self, remedy: Remedy) -> Vec<Amendment> {
        match remedy {
            Remedy::DummySignatures => vec![Amendment::DummySignatures],
            Remedy::EmptyReasoning => vec![Amendment::EmptyReasoning],
            Remedy::NoThinking => vec![
                Amendment::NoThinkingInLoop,
                Amendment::Without("thinking".to_owned()),
            ],
            Remedy::Reasoning => {
                let hashes = hashes(self.list(), &REASONING);
                vec![Amendment::Reasoning(hashes, 1), Amendment::NoReasoning]
            }
            Remedy::Adaptive => vec![Amendment::Adaptive],
            Remedy::NoTopP => vec![Amendment::Without("top_p".to_owned())],
            Remedy::EffortNone => vec![Amendment::Effort(vec!["none"])],
            Remedy::Together => self.together().into_iter().collect(),
            Remedy::NoSchema => vec![Amendment::NoSchema],
            Remedy::ShortIds => vec![Amendment::ShortIds],
            Remedy::Bridge => vec![Amendment::Bridge, Amendment::Alternate],
            Remedy::SystemAsUser => vec![Amendment::SystemAsUser],
            Remedy::Alternate => vec![Amendment::Alternate],
            Remedy::EndWithUser => vec![Amendment::EndWithUser],
            Remedy::NoEmpty => vec![Amendment::NoEmpty],
            Remedy::NoPictures => vec![Amendment::NoPictures],
            Remedy::Picture => self.newest(&PICTURES, Amendment::NoPictures),
            Remedy::File => self.newest(&FILES, Amendment::NoFiles),
            Remedy::ToolChoice => vec![
                Amendment::Without("tool_choice".to_owned()),
                Amendment::Schemas(Cut::Out),
            ],
            Remedy::Effort => self.effort(),
            Remedy::Schemas => {
                let cuts = [Cut::Plain, Cut::Simplest];
                cuts.map(Amendment::Schemas).to_vec()
            }
            Remedy::NoTools => vec![Amendment::Schemas(Cut::Out)],
            Remedy::Whole => vec![Amendment::Whole],
        }
    }

    /// The parts of the newest message that has any, unless a place says which; then all.
    fn newest(&self, types: &[&str], all: Amendment) -> Vec<Amendment> {
        let each = self.list().iter().rev();
        let newest = each.map(|node| hashes(std::slice::from_ref(node), types));
        let newest = newest.into_iter().find(|hashes| !hashes.is_empty());
        let mut found = Vec::new();
        for place in places(self.body, self.refusal) {
            found.extend(Self::part(&place));
        }
        found.extend(newest.map(Amendment::Parts));
        found.push(all);
        found
    }

    /// The part with a picture or a file that a place is in.
    fn part(place: &Place<'_, '_>) -> Option<Amendment> {
        let part = place.nodes.iter().rev().find(|node| {
            let is = |types: &[&str]| types.iter().any(|kind| node.is("type", kind));
            is(&PICTURES) || is(&FILES)
        })?;
        Some(Amendment::Parts(vec![part.content_hash()]))
    }

    fn together(&self) -> Option<Amendment> {
        let lower = self.refusal.lower();
        let number = |mark: &str| {
            let (_, rest) = lower.split_once(mark)?;
            numbers(rest).into_iter().next()
        };
        let (tokens, asked) = (number("limit ")?, number("requested ")?);
        let most = LIMITS.iter().find_map(|name| self.body.get(name)?.number());
        let request = asked.checked_sub(most?)?.max(1);
        let length = u64::try_from(self.body.json().len()).ok()?;
        (request + 64 < tokens).then(|| Amendment::Together {
            tokens,
            bytes: length.saturating_mul(1_000) / request,
        })
    }

    /// What is at a place.
    fn at(&self, place: &Place<'_, '_>, found: &mut Vec<Amendment>) {
        let steps: Vec<&str> = place.steps.iter().map(String::as_str).collect();
        let Some((top, rest)) = steps.split_first() else {
            return;
        };
        match *top {
            "tools" => self.tool(place, rest, found),
            "messages" | "input" => self.message(place, rest, found),
            top => self.member(top, rest, found),
        }
    }

    fn tool(&self, place: &Place<'_, '_>, rest: &[&str], found: &mut Vec<Amendment>) {
        let tool = place.nodes.iter().find_map(|node| tool_name(node));
        let Some(name) = tool else {
            found.extend(self.remedy(Remedy::Schemas));
            found.push(Amendment::Schemas(Cut::Out));
            return;
        };
        let inner = rest.iter().copied().find(|step| {
            *step != "function" && *step != "custom" && step.parse::<usize>().is_err()
        });
        match inner {
            Some("description") => {
                let most = numbers(self.refusal.lower())
                    .into_iter()
                    .find(|n| (64..100_000).contains(n));
                let most = most.and_then(|n| usize::try_from(n).ok()).unwrap_or(1_024);
                found.push(Amendment::Descriptions(most));
            }
            Some("name") => {}
            None | Some("parameters" | "input_schema" | "type") => {
                found.push(Amendment::Tool(name.clone(), Cut::Plain));
                found.push(Amendment::Tool(name.clone(), Cut::Simplest));
            }
            Some(member) => found.push(Amendment::ToolMember(member.to_owned())),
        }
        found.push(Amendment::Tool(name, Cut::Out));
    }

    fn message(&self, place: &Place<'_, '_>, rest: &[&str], found: &mut Vec<Amendment>) {
        let names = rest
            .iter()
            .copied()
            .filter(|step| step.parse::<usize>().is_err());
        let names: Vec<&str> = names.collect();
        let has = |name: &str| names.contains(&name);
        let is_thought = place
            .nodes
            .iter()
            .any(|node| REASONING.iter().any(|kind| node.is("type", kind)));
        let last = names.last().copied();
        if has("cache_control") {
            found.push(Amendment::Member("cache_control".to_owned()));
        } else if is_thought {
            found.extend(self.remedy(Remedy::Reasoning));
        } else if last.is_some_and(|last| THOUGHTS.contains(&last)) && !self.is_missing() {
            found.extend(last.map(|last| Amendment::Member(last.to_owned())));
            found.push(Amendment::NoReasoning);
        } else if let Some(part) = Self::part(place) {
            found.push(part);
        } else if ["id", "tool_call_id", "tool_use_id", "call_id"]
            .iter()
            .any(|id| last == Some(id))
        {
            found.push(Amendment::ShortIds);
        } else if last == Some("role") {
            let about_system = self.refusal.has(&["system", "developer"]);
            found.extend(about_system.then_some(Amendment::SystemAsUser));
            found.push(Amendment::Alternate);
        } else if let Some(last) = last.filter(|last| !ESSENTIAL_OF_MESSAGE.contains(last)) {
            if self.is_missing() && last == "reasoning_content" {
                found.push(Amendment::EmptyReasoning);
            } else {
                found.push(Amendment::Member(last.to_owned()));
            }
        } else if last == Some("content") {
            found.push(Amendment::NoEmpty);
        }
    }

    fn member(&self, top: &str, rest: &[&str], found: &mut Vec<Amendment>) {
        if LIMITS.contains(&top) {
            self.limit(top, found);
            return;
        }
        let leaf = rest
            .iter()
            .copied()
            .find(|step| step.parse::<usize>().is_err());
        let path = leaf.map_or_else(|| top.to_owned(), |leaf| format!("{top}.{leaf}"));
        if leaf == Some("cache_control") || rest.contains(&"cache_control") {
            found.push(Amendment::Member("cache_control".to_owned()));
            return;
        }
        if matches!(
            path.as_str(),
            "reasoning_effort" | "reasoning.effort" | "output_config.effort"
        ) {
            found.extend(self.effort());
        }
        let is_schema =
            top == "response_format" || path.starts_with("text.") || path == "output_config.format";
        if is_schema || (top == "text" && leaf.is_none()) {
            found.push(Amendment::NoSchema);
            return;
        }
        if ESSENTIAL.contains(&top) {
            if top == "stream" && leaf.is_none() && self.is_unknown() {
                found.push(Amendment::Whole);
            }
            return;
        }
        if leaf.is_some() && top != "tool_choice" && top != "include" {
            found.push(Amendment::Without(path));
        }
        found.push(Amendment::Without(top.to_owned()));
    }

    fn limit(&self, name: &str, found: &mut Vec<Amendment>) {
        let lower = self.refusal.lower();
        let others = LIMITS.into_iter().filter(|other| *other != name);
        let said = others.clone().find(|other| has_word(lower, other));
        if let Some(other) = said {
            found.push(Amendment::LimitName(other));
        }
        let own = self
            .body
            .get(name)
            .and_then(Node::number)
            .unwrap_or(u64::MAX);
        let smaller = numbers(lower).into_iter().filter(|n| *n >= 16 && *n < own);
        found.extend(smaller.max().map(Amendment::LimitMax));
        if self.is_unknown() && said.is_none() {
            found.extend(others.map(Amendment::LimitName));
        }
        if self.protocol != Protocol::Messages {
            found.push(Amendment::Without(name.to_owned()));
        }
    }

    /// The nearest effort that is listed; failing that, none.
    fn effort(&self) -> Vec<Amendment> {
        let paths = [
            "reasoning_effort",
            "reasoning.effort",
            "output_config.effort",
        ];
        let own = paths.into_iter().find_map(|path| {
            let node = match path.split_once('.') {
                Some((outer, inner)) => self.body.get(outer)?.get(inner)?,
                None => self.body.get(path)?,
            };
            Some((path, node.text()?))
        });
        let Some((path, own)) = own else {
            return Vec::new();
        };
        let lower = self.refusal.lower();
        let taken = EFFORTS.into_iter().filter(|name| {
            let mut quotes = ['\'', '"', '`'].iter();
            own != *name && quotes.any(|q| lower.contains(&format!("{q}{name}{q}")))
        });
        let taken: Vec<&'static str> = taken.collect();
        let listed = (!taken.is_empty()).then_some(Amendment::Effort(taken));
        let without = Amendment::Without(path.to_owned());
        listed.into_iter().chain([without]).collect()
    }

    /// What a name in quotes stands for.
    fn quoted(&self, name: &str, found: &mut Vec<Amendment>) {
        let tools = self.body.list("tools");
        if self.body.get(name).is_some() {
            self.member(name, &[], found);
            if name == "tools" && self.is_unknown() {
                found.push(Amendment::Schemas(Cut::Out));
            }
        } else if tools
            .iter()
            .any(|tool| tool_name(tool).as_deref() == Some(name))
        {
            for cut in [Cut::Plain, Cut::Simplest, Cut::Out] {
                found.push(Amendment::Tool(name.to_owned(), cut));
            }
        } else if name == "system" || name == "developer" {
            if self.refusal.has(&["role"]) {
                found.push(Amendment::SystemAsUser);
            }
        } else if has_member(self.list(), name, 0) && !ESSENTIAL_OF_MESSAGE.contains(&name) {
            if self.is_missing() {
                return;
            }
            found.push(Amendment::Member(name.to_owned()));
        } else if tools
            .iter()
            .any(|tool| has_member(std::slice::from_ref(tool), name, 0))
        {
            found.push(Amendment::ToolMember(name.to_owned()));
        } else {
            let nested = [
                "reasoning",
                "thinking",
                "output_config",
                "stream_options",
                "text",
            ];
            let nested = nested.iter().find(|outer| {
                self.body
                    .get(outer)
                    .is_some_and(|node| node.get(name).is_some())
            });
            if let Some(outer) = nested {
                self.member(outer, &[name], found);
            } else if !tools.is_empty()
                && tools
                    .iter()
                    .any(|tool| tool.json().contains(&format!("\"{name}\":")))
            {
                found.extend(self.remedy(Remedy::Schemas));
            }
        }
    }

    fn is_unknown(&self) -> bool {
        self.refusal.has(&UNKNOWN)
    }

    fn is_missing(&self) -> bool {
        self.refusal
            .has(&["missing", "required", "must be passed back"])
            && !self.is_unknown()
    }
}

/// The contents of all parts of these types.
pub(super) fn hashes(list: &[Node<'_>], types: &[&str]) -> Vec<u64> {
    let mut found = Vec::new();
    for node in list {
        if types.iter().any(|kind| node.is("type", kind)) {
            found.push(node.content_hash());
        }
        for member in ["content", "output"] {
            found.extend(hashes(node.list(member), types));
        }
    }
    found
}

fn has_member(list: &[Node<'_>], name: &str, depth: usize) -> bool {
    depth < 4
        && list.iter().any(|node| {
            node.get(name).is_some()
                || ["content", "tool_calls", "output"]
                    .iter()
                    .any(|member| has_member(node.list(member), name, depth + 1))
                || node
                    .get("function")
                    .is_some_and(|function| function.get(name).is_some())
        })
}

/// The whole numbers in a text.
fn numbers(text: &str) -> Vec<u64> {
    let digits = text.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    let whole = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(whole) && !text[at + word.len()..].starts_with(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_remedy_can_be_read_and_says_where_it_is_from() {
        assert!(ENTRIES.len() > 15);
        for entry in ENTRIES.iter() {
            assert!(!entry.words.is_empty(), "{entry:?}");
            assert!(
                entry.date.len() == 10 && !entry.source.is_empty(),
                "{entry:?}"
            );
            for word in entry.words.iter().chain(&entry.and) {
                assert_eq!(*word, word.to_ascii_lowercase());
            }
        }
    }
}
