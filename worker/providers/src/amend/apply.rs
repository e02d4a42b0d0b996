//! Changes a request's body.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::part::{
    Amendment, Cut, EFFORTS, FILES, LIMITS, PICTURES, Protocol, REASONING, THOUGHTS,
};
use super::schema;
use super::tree::Node;

/// Members of messages and calls with what providers attach.
const ATTACHMENTS: [&str; 4] = [
    "extra_content",
    "provider_specific_fields",
    "reasoning_details",
    "thinking_blocks",
];

/// The signature that Gemini documents for calls that it did not make.
const UNCHECKED: &str = "skip_thought_signature_validator";

/// What stands in the place of what is left out.
const PICTURE_OUT: &str = "[a picture or file that the provider refused is left out]";
const EMPTY: &str = "[empty]";
const NOTED: &str = "Noted.";
const GO_ON: &str = "Go on.";

impl Amendment {
    /// Changes a body.
    pub(super) fn apply(&self, body: &mut Node<'_>, protocol: Protocol) {
        match self {
            Self::Without(path) => without(body, path),
            Self::LimitName(name) => rename_limit(body, name),
            Self::LimitMax(most) => limit(body, *most),
            Self::Together { tokens, bytes } => {
                let length = u64::try_from(body.json().len()).unwrap_or(u64::MAX);
                let taken = length.saturating_mul(1_000) / (*bytes).max(1);
                limit(body, tokens.saturating_sub(taken + taken / 20).max(16));
            }
            Self::Effort(taken) => effort(body, taken),
            Self::Whole => {
                body.set("stream", Node::value(&json!(false)));
                body.remove("stream_options");
            }
            Self::Adaptive => {
                if body.get("thinking").is_some() {
                    body.set("thinking", Node::texts(&[("type", "adaptive")]));
                }
                body.remove("temperature");
                body.remove("top_p");
            }
            Self::NoThinkingInLoop => {
                if waits_without_thinking(body) {
                    body.remove("thinking");
                }
            }
            Self::Member(name) => {
                // Elsewhere are no others of the names that messages can do without.
                let everywhere = [protocol.conversation(), "system", "tools"];
                let places = if name == "cache_control" { 3 } else { 1 };
                for member in &everywhere[..places] {
                    if let Some(node) = body.get_mut(member) {
                        strip(node, name, 0);
                    }
                }
            }
            Self::ToolMember(name) => each_tool(body, |tool| {
                tool.remove(name);
                if let Some(function) = tool.get_mut("function") {
                    function.remove(name);
                }
                true
            }),
            Self::Descriptions(most) => each_tool(body, |tool| {
                shorten(function_mut(tool), *most);
                true
            }),
            Self::Tool(name, cut) => {
                each_tool(body, |tool| !is_tool(tool, name) || cut_tool(tool, *cut));
                if *cut == Cut::Out {
                    tools_left(
                        body,
                        protocol,
                        &format!("The tool {name} is not available now."),
                    );
                }
            }
            Self::Schemas(cut) => {
                each_tool(body, |tool| cut_tool(tool, *cut));
                if *cut == Cut::Out {
                    tools_left(body, protocol, "No tools are available now.");
                }
            }
            Self::NoSchema => no_schema(body, protocol),
            Self::SystemAsUser => system_as_user(body),
            Self::Parts(_)
            | Self::Reasoning(..)
            | Self::NoReasoning
            | Self::NoAttachments
            | Self::EmptyReasoning
            | Self::DummySignatures
            | Self::NoPictures
            | Self::NoFiles
            | Self::ShortIds
            | Self::Bridge
            | Self::Alternate
            | Self::EndWithUser
            | Self::NoEmpty => {
                if let Some(list) = body.list_mut(protocol.conversation()) {
                    self.apply_to_messages(list, protocol);
                }
            }
        }
    }

    fn apply_to_messages(&self, list: &mut Vec<Node<'_>>, protocol: Protocol) {
        match self {
            Self::Parts(hashes) | Self::Reasoning(hashes, _) => {
                parts_out(list, protocol, &|part| {
                    hashes.contains(&part.content_hash())
                });
            }
            Self::NoPictures => parts_out(list, protocol, &|part| is_of(part, &PICTURES)),
            Self::NoFiles => parts_out(list, protocol, &|part| is_of(part, &FILES)),
            Self::NoReasoning => {
                for message in list.iter_mut() {
                    for name in THOUGHTS {
                        message.remove(name);
                    }
                }
                parts_out(list, protocol, &|part| is_of(part, &REASONING));
            }
            Self::NoAttachments => list.iter_mut().for_each(|node| {
                for name in ATTACHMENTS {
                    strip(node, name, 0);
                }
            }),
            Self::EmptyReasoning => answers(list).for_each(|message| {
                if message.get("reasoning_content").is_none() {
                    message.set("reasoning_content", Node::string(""));
                }
            }),
            Self::DummySignatures => answers(list).for_each(|message| {
                let calls = message.list_mut("tool_calls").into_iter().flatten();
                for call in calls.filter(|call| call.get("extra_content").is_none()) {
                    let unchecked = json!({"google": {"thought_signature": UNCHECKED}});
                    call.set("extra_content", Node::value(&unchecked));
                }
            }),
            Self::ShortIds => list.iter_mut().for_each(|node| short_ids(node, 0)),
            Self::Bridge => bridge(list),
            Self::Alternate => alternate(list, protocol),
            Self::EndWithUser => {
                let is_last = list.last().is_some_and(|last| last.is("role", "assistant"));
                list.extend(is_last.then(|| Node::texts(&[("role", "user"), ("content", GO_ON)])));
            }
            Self::NoEmpty => list.iter_mut().for_each(|node| no_empty(node, protocol)),
            _ => {}
        }
    }
}

fn is_of(part: &Node<'_>, types: &[&str]) -> bool {
    types.iter().any(|kind| part.is("type", kind))
}

fn without(body: &mut Node<'_>, path: &str) {
    let Some((outer, inner)) = path.split_once('.') else {
        body.remove(path);
        if path == "tools" {
            body.remove("tool_choice");
            body.remove("parallel_tool_calls");
        }
        return;
    };
    if let Some(node) = body.get_mut(outer) {
        node.remove(inner);
        if matches!(node, Node::Object(members) if members.is_empty()) {
            body.remove(outer);
        }
    }
}

/// Whether the last answer has calls, but does not begin with thinking.
fn waits_without_thinking(body: &Node<'_>) -> bool {
    let answers = body.list("messages").iter().rev();
    let mut answers = answers.filter(|message| message.is("role", "assistant"));
    answers.next().is_some_and(|last| {
        let blocks = last.list("content");
        let begins = blocks.first().is_some_and(|first| is_of(first, &REASONING));
        !begins && blocks.iter().any(|block| block.is("type", "tool_use"))
    })
}

fn rename_limit(body: &mut Node<'_>, name: &'static str) {
    let Node::Object(members) = body else { return };
    for (own, _) in members.iter_mut() {
        if LIMITS.contains(&own.as_ref()) {
            *own = Cow::Borrowed(name);
        }
    }
}

fn limit(body: &mut Node<'_>, most: u64) {
    for name in LIMITS {
        if let Some(node) = body.get_mut(name)
            && node.number().is_some_and(|own| own > most)
        {
            *node = Node::value(&json!(most));
        }
    }
    // Thinking counts towards the limit.
    if let Some(budget) = body
        .get_mut("thinking")
        .and_then(|node| node.get_mut("budget_tokens"))
        && budget.number().is_some_and(|own| own >= most)
    {
        *budget = Node::value(&json!((most / 2).max(1_024)));
    }
}

fn effort(body: &mut Node<'_>, taken: &[&'static str]) {
    let rank = |name: &str| EFFORTS.iter().position(|own| *own == name);
    let nearest = |own: &str| {
        let own = rank(own)?;
        taken
            .iter()
            .copied()
            .min_by_key(|name| rank(name).map(|rank| rank.abs_diff(own)))
    };
    let change = |node: &mut Node<'_>| {
        if let Some(name) = node.text().and_then(|own| nearest(&own)) {
            *node = Node::string(name);
        }
    };
    if let Some(node) = body.get_mut("reasoning_effort") {
        change(node);
    } else if taken == ["none"] && body.get("reasoning").is_none() && body.get("thinking").is_none()
    {
        body.set("reasoning_effort", Node::string("none"));
    }
    for outer in ["reasoning", "output_config"] {
        if let Some(node) = body.get_mut(outer).and_then(|node| node.get_mut("effort")) {
            change(node);
        }
    }
}

/// Removes a member wherever it is, but not from what a model or a tool said.
fn strip(node: &mut Node<'_>, name: &str, depth: usize) {
    match node {
        Node::Object(_) => {
            node.remove(name);
            let Node::Object(members) = node else { return };
            for (own, value) in members.iter_mut() {
                let is_ours = !matches!(
                    own.as_ref(),
                    "input" | "arguments" | "parameters" | "input_schema"
                );
                if is_ours && depth < 6 {
                    strip(value, name, depth + 1);
                }
            }
        }
        Node::Array(items) => items.iter_mut().for_each(|item| strip(item, name, depth)),
        Node::Leaf(_) => {}
    }
}

/// Keeps the tools for which `keep` holds, which may change them.
fn each_tool(body: &mut Node<'_>, mut keep: impl FnMut(&mut Node<'_>) -> bool) {
    if let Some(tools) = body.list_mut("tools") {
        tools.retain_mut(|tool| keep(tool));
    }
}

fn function_mut<'n, 'a>(tool: &'n mut Node<'a>) -> &'n mut Node<'a> {
    if tool.get("function").is_some() {
        tool.get_mut("function").expect("it has one")
    } else {
        tool
    }
}

fn is_tool(tool: &Node<'_>, name: &str) -> bool {
    tool.get("function").unwrap_or(tool).is("name", name)
}

fn cut_tool(tool: &mut Node<'_>, cut: Cut) -> bool {
    let function = function_mut(tool);
    let member = ["parameters", "input_schema"].into_iter();
    let Some(member) = member.into_iter().find(|name| function.get(name).is_some()) else {
        return cut != Cut::Out;
    };
    let own = function.get(member).map(Node::json);
    let own: Value = own
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    match cut {
        Cut::Out => return false,
        Cut::Plain => {
            let plain = schema::plain(&own);
            // The order of members is no difference.
            if plain != own {
                function.set(member, Node::value(&plain));
            }
        }
        Cut::Simplest if own == schema::simplest() => {}
        Cut::Simplest => {
            function.set(member, Node::value(&schema::simplest()));
            let words = function.text_of("description").unwrap_or_default();
            let words = format!("{words}\n{}", schema::in_words(&own));
            function.set("description", Node::string(words.trim()));
        }
    }
    true
}

fn shorten(function: &mut Node<'_>, most: usize) {
    if let Some(words) = function.text_of("description")
        && words.chars().count() > most
    {
        let kept = words.chars().take(most.saturating_sub(1)).chain(['…']);
        function.set("description", Node::string(&kept.collect::<String>()));
    }
}

/// Tells the model, and leaves out what is refused without tools.
fn tools_left(body: &mut Node<'_>, protocol: Protocol, note: &str) {
    if body
        .get("tools")
        .is_some_and(|tools| tools.items().is_empty())
    {
        without(body, "tools");
    } else if body
        .get("tool_choice")
        .is_some_and(|choice| matches!(choice, Node::Object(_)))
    {
        body.remove("tool_choice");
    }
    add_note(body, protocol, note);
}

/// Adds a sentence to the system prompt.
fn add_note(body: &mut Node<'_>, protocol: Protocol, note: &str) {
    let joined = |own: Option<String>| match own {
        Some(own) => Node::string(&format!("{own}\n\n{note}")),
        None => Node::string(note),
    };
    match protocol {
        Protocol::Responses => {
            let own = body.text_of("instructions");
            body.set("instructions", joined(own));
        }
        Protocol::Messages => {
            if let Some(blocks) = body.list_mut("system") {
                blocks.push(protocol.text_part(note));
            } else {
                let own = body.text_of("system");
                body.set("system", joined(own));
            }
        }
        Protocol::Chat => {
            let Some(list) = body.list_mut("messages") else {
                return;
            };
            match list.first_mut().filter(|first| first.is("role", "system")) {
                Some(first) => {
                    let own = first.text_of("content");
                    first.set("content", joined(own));
                }
                None => list.insert(0, Node::texts(&[("role", "system"), ("content", note)])),
            }
        }
    }
}

fn no_schema(body: &mut Node<'_>, protocol: Protocol) {
    let format = match protocol {
        Protocol::Chat => body.remove("response_format"),
        Protocol::Messages => body
            .get_mut("output_config")
            .and_then(|node| node.remove("format")),
        Protocol::Responses => body.get_mut("text").and_then(|node| node.remove("format")),
    };
    without(body, "output_config.format");
    without(body, "text.format");
    let Some(format) = format else { return };
    let schema = format.get("json_schema").unwrap_or(&format).get("schema");
    let note = match schema {
        Some(schema) => format!(
            "Answer with nothing but JSON that fits this JSON Schema: {}",
            schema.json()
        ),
        None => "Answer with nothing but a JSON object.".to_owned(),
    };
    add_note(body, protocol, &note);
}

fn system_as_user(body: &mut Node<'_>) {
    let Some(list) = body.list_mut("messages") else {
        return;
    };
    for message in list.iter_mut() {
        if message.is("role", "system") || message.is("role", "developer") {
            message.set("role", Node::string("user"));
        }
    }
    alternate(list, Protocol::Chat);
}

fn answers<'n, 'a>(list: &'n mut [Node<'a>]) -> impl Iterator<Item = &'n mut Node<'a>> {
    list.iter_mut()
        .filter(|message| message.is("role", "assistant"))
}

/// Leaves parts out: reasoning without a trace, pictures and files with a word in their place.
fn parts_out(list: &mut Vec<Node<'_>>, protocol: Protocol, refused: &dyn Fn(&Node<'_>) -> bool) {
    list.retain_mut(|node| {
        if is_of(node, &REASONING) && refused(node) {
            return false;
        }
        for member in ["content", "output"] {
            let Some(parts) = node.list_mut(member) else {
                continue;
            };
            parts.retain_mut(|part| {
                if is_of(part, &REASONING) {
                    return !refused(part);
                }
                if (is_of(part, &PICTURES) || is_of(part, &FILES)) && refused(part) {
                    let mark = part.remove("cache_control");
                    *part = protocol.text_part(PICTURE_OUT);
                    if let Some(mark) = mark {
                        part.set("cache_control", mark);
                    }
                }
                true
            });
            // The result of a tool has parts of its own.
            parts_out(parts, protocol, refused);
            if parts.is_empty() {
                parts.push(protocol.text_part(EMPTY));
            }
        }
        true
    });
}

fn short_ids(node: &mut Node<'_>, depth: usize) {
    match node {
        Node::Object(members) => {
            let is_call = members
                .iter()
                .any(|(name, _)| matches!(name.as_ref(), "function" | "name"));
            for (name, value) in members.iter_mut() {
                match name.as_ref() {
                    "tool_call_id" | "tool_use_id" | "call_id" => short_id(value),
                    "id" if is_call => short_id(value),
                    "content" | "tool_calls" if depth < 3 => short_ids(value, depth + 1),
                    _ => {}
                }
            }
        }
        Node::Array(items) => items.iter_mut().for_each(|item| short_ids(item, depth)),
        Node::Leaf(_) => {}
    }
}

fn short_id(node: &mut Node<'_>) {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let fits = |id: &str| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    if node.text().is_some_and(|id| fits(&id)) {
        return;
    }
    let mut hash = node.content_hash();
    let mut id = String::with_capacity(9);
    for _ in 0..9 {
        id.push(char::from(LETTERS[(hash % 62) as usize]));
        hash /= 62;
    }
    *node = Node::string(&id);
}

fn bridge(list: &mut Vec<Node<'_>>) {
    let mut at = 1;
    while at < list.len() {
        if list[at].is("role", "user") && list[at - 1].is("role", "tool") {
            list.insert(
                at,
                Node::texts(&[("role", "assistant"), ("content", NOTED)]),
            );
        }
        at += 1;
    }
}

/// Joins messages of one role, and puts an answer between the results of tools and the user.
fn alternate(list: &mut Vec<Node<'_>>, protocol: Protocol) {
    let mut joined: Vec<Node<'_>> = Vec::with_capacity(list.len());
    for mut message in list.drain(..) {
        let plain = |node: &Node<'_>| node.get("tool_calls").is_none();
        let joins = joined.last().is_some_and(|last| {
            ["user", "assistant", "system"]
                .iter()
                .any(|role| last.is("role", role) && message.is("role", role))
                && plain(last)
        });
        match (joined.last_mut(), message.remove("content")) {
            (Some(last), Some(content)) if joins => {
                let own = last.remove("content");
                last.set("content", together(own, content, protocol));
                if let (Some(calls), Node::Object(_)) = (message.remove("tool_calls"), &*last) {
                    last.set("tool_calls", calls);
                }
            }
            (_, content) => {
                if let Some(content) = content {
                    message.set("content", content);
                }
                joined.push(message);
            }
        }
    }
    *list = joined;
    if protocol == Protocol::Chat {
        bridge(list);
    }
}

fn together<'a>(first: Option<Node<'a>>, second: Node<'a>, protocol: Protocol) -> Node<'a> {
    let texts = (first.as_ref().and_then(Node::text), second.text());
    if let (Some(first), Some(second)) = &texts {
        return Node::string(&format!("{first}\n\n{second}"));
    }
    let parts = |node: Node<'a>| match (node.text(), node) {
        (Some(text), _) => vec![protocol.text_part(&text)],
        (None, Node::Array(parts)) => parts,
        (None, Node::Leaf(_) | Node::Object(_)) => Vec::new(),
    };
    let mut all = first.map(parts).unwrap_or_default();
    all.extend(parts(second));
    Node::Array(all)
}

fn no_empty(message: &mut Node<'_>, protocol: Protocol) {
    let has_calls = message.get("tool_calls").is_some();
    for member in ["content", "output"] {
        let Some(content) = message.get_mut(member) else {
            continue;
        };
        match content {
            Node::Leaf(leaf) if has_calls && leaf == "null" => *content = Node::string(""),
            Node::Leaf(leaf) if has_calls && leaf == "\"\"" => drop(message.remove(member)),
            Node::Leaf(leaf) if leaf == "null" => *content = Node::string(EMPTY),
            Node::Leaf(_) if content.text().is_some_and(|text| text.trim().is_empty()) => {
                *content = Node::string(EMPTY);
            }
            Node::Array(parts) => {
                if parts.is_empty() {
                    parts.push(protocol.text_part(EMPTY));
                }
                for part in parts.iter_mut() {
                    if part
                        .text_of("text")
                        .is_some_and(|text| text.trim().is_empty())
                    {
                        part.set("text", Node::string(EMPTY));
                    }
                    if part.is("type", "tool_result") {
                        no_empty(part, protocol);
                    }
                }
            }
            Node::Leaf(_) | Node::Object(_) => {}
        }
    }
}
