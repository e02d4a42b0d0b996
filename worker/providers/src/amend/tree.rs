//! A request's body as a tree whose leaves are the bytes that they were: what is not changed is
//! written as it was read.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

/// Deeper values are leaves.
const DEPTH_MAX: usize = 64;

/// A value in JSON written by `serde_json`, which has no spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node<'a> {
    /// A text, a number, a word, or something deep.
    Leaf(Cow<'a, str>),
    /// An array.
    Array(Vec<Node<'a>>),
    /// An object; names are without quotes, as they were escaped.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    /// Parses a body; `None` if it is not an object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut parser = Parser { text, at: 0 };
        let node = parser.value(0)?;
        (parser.at == text.len() && matches!(node, Self::Object(_))).then_some(node)
    }

    /// A text.
    pub(super) fn string(text: &str) -> Self {
        Self::value(&Value::from(text))
    }

    /// Any value.
    pub(super) fn value(value: &Value) -> Self {
        Self::Leaf(Cow::Owned(value.to_string()))
    }

    /// An object of texts.
    pub(super) fn texts(members: &[(&'static str, &str)]) -> Self {
        let member =
            |(name, text): &(&'static str, &str)| (Cow::Borrowed(*name), Self::string(text));
        Self::Object(members.iter().map(member).collect())
    }

    /// The JSON text.
    pub(super) fn json(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Leaf(leaf) => text.push_str(leaf),
            Self::Array(items) => {
                text.push('[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        text.push(',');
                    }
                    item.write(text);
                }
                text.push(']');
            }
            Self::Object(members) => {
                text.push('{');
                for (place, (name, value)) in members.iter().enumerate() {
                    if place > 0 {
                        text.push(',');
                    }
                    text.push('"');
                    text.push_str(name);
                    text.push_str("\":");
                    value.write(text);
                }
                text.push('}');
            }
        }
    }

    /// The member of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                let found = members.iter().find(|(own, _)| own == name);
                found.map(|(_, value)| value)
            }
            Self::Leaf(_) | Self::Array(_) => None,
        }
    }

    /// The member of this name, to be changed.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        match self {
            Self::Object(members) => {
                let found = members.iter_mut().find(|(own, _)| own == name);
                found.map(|(_, value)| value)
            }
            Self::Leaf(_) | Self::Array(_) => None,
        }
    }

    /// Takes a member out.
    pub(super) fn remove(&mut self, name: &str) -> Option<Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let at = members.iter().position(|(own, _)| own == name)?;
        Some(members.remove(at).1)
    }

    /// Sets a member.
    pub(super) fn set(&mut self, name: &'static str, value: Self) {
        if let Some(own) = self.get_mut(name) {
            *own = value;
        } else if let Self::Object(members) = self {
            members.push((Cow::Borrowed(name), value));
        }
    }

    /// The elements of an array; empty for anything else.
    pub(super) fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            Self::Leaf(_) | Self::Object(_) => &[],
        }
    }

    /// The elements of an array, to be changed.
    pub(super) fn items_mut(&mut self) -> Option<&mut Vec<Self>> {
        match self {
            Self::Array(items) => Some(items),
            Self::Leaf(_) | Self::Object(_) => None,
        }
    }

    /// The elements of the array that is the member of this name.
    pub(super) fn list(&self, name: &str) -> &[Self] {
        self.get(name).map_or(&[], Self::items)
    }

    /// The same, to be changed.
    pub(super) fn list_mut(&mut self, name: &str) -> Option<&mut Vec<Self>> {
        self.get_mut(name)?.items_mut()
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Leaf(leaf) if leaf.starts_with('"') => serde_json::from_str(leaf).ok(),
            Self::Leaf(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    /// The text of the member of this name.
    pub(super) fn text_of(&self, name: &str) -> Option<String> {
        self.get(name)?.text()
    }

    /// Whether the member of this name is this text.
    pub(super) fn is(&self, name: &str, text: &str) -> bool {
        self.get(name).is_some_and(|value| match value {
            Self::Leaf(leaf) => {
                leaf.strip_prefix('"').and_then(|l| l.strip_suffix('"')) == Some(text)
            }
            Self::Array(_) | Self::Object(_) => false,
        })
    }

    /// The number, if it is a whole one.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Leaf(leaf) => leaf.parse().ok(),
            Self::Array(_) | Self::Object(_) => None,
        }
    }

    /// Identifies the longest leaf that is no kind: of a picture that is its content, wherever it
    /// stands, and of reasoning its signature or its text.
    pub(super) fn content_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.longest().hash(&mut hasher);
        hasher.finish()
    }

    fn longest(&self) -> &str {
        match self {
            Self::Leaf(leaf) => leaf,
            Self::Array(items) => {
                let each = items.iter().map(Self::longest);
                each.max_by_key(|text| text.len()).unwrap_or_default()
            }
            Self::Object(members) => {
                let kinds = ["type", "media_type", "format", "cache_control"];
                let members = members
                    .iter()
                    .filter(|(name, _)| !kinds.contains(&name.as_ref()));
                let each = members.map(|(_, value)| value.longest());
                each.max_by_key(|text| text.len()).unwrap_or_default()
            }
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn value(&mut self, depth: usize) -> Option<Node<'a>> {
        match self.peek()? {
            b'{' if depth < DEPTH_MAX => self.object(depth),
            b'[' if depth < DEPTH_MAX => self.array(depth),
            _ => {
                let end = crate::extra::end(self.text.as_bytes(), self.at);
                let leaf = &self.text[self.at..end];
                self.at = end;
                (!leaf.is_empty()).then_some(Node::Leaf(Cow::Borrowed(leaf)))
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut members = Vec::new();
        self.at += 1;
        while self.peek()? != b'}' {
            let end = crate::extra::end(self.text.as_bytes(), self.at);
            let name = self.text.get(self.at + 1..end.checked_sub(1)?)?;
            self.at = end;
            if self.peek()? != b':' {
                return None;
            }
            self.at += 1;
            members.push((Cow::Borrowed(name), self.value(depth + 1)?));
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Some(Node::Object(members))
    }

    fn array(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut items = Vec::new();
        self.at += 1;
        while self.peek()? != b']' {
            items.push(self.value(depth + 1)?);
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Some(Node::Array(items))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_is_written_as_it_was() {
        let text = r#"{"a":[1e400,-0.0,12345678901234567890123,"\ud83d\ude00 \"}],{"],"b":{"c\"d":{},"e":[]},"f":null}"#;
        let mut node = Node::parse(text).expect("an object");
        assert_eq!(node.json(), text);
        node.remove("f");
        node.set("g", Node::string("é\n"));
        let changed = text.replace(r#""f":null"#, r#""g":"é\n""#);
        assert_eq!(node.json(), changed);
        for broken in ["", "[1]", "{", r#"{"a""#, r#"{"a":"#, r#"{"a":1}x"#] {
            assert_eq!(Node::parse(broken), None, "{broken}");
        }
    }
}
