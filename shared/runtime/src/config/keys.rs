//! Keys: the type and bounds of each value.

use std::borrow::Cow;
use std::time::Duration;

use mainspring_shared::time::Span;
use mainspring_shared::words::distance;
use toml::Value;

use super::environment::PREFIX;

/// The word for unlimited retention.
const FOREVER: &str = "forever";

/// The type of a key's value.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A text that is not empty.
    Text,
    /// A text that is never shown.
    Secret,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A URL with one of these schemes; may carry a password.
    Url(&'static [&'static str]),
    /// A list of URLs with one of these schemes, which may carry passwords. Flags and variables
    /// separate them with commas.
    Urls(&'static [&'static str]),
    /// `HOST:PORT`.
    Address,
    /// A list of texts. Flags and variables separate them with commas.
    List,
    /// The words of a command, which may carry passwords. Flags and variables separate them with commas.
    Words,
    /// A list of these words.
    Choices(&'static [&'static str]),
    /// True or false.
    Switch,
    /// A whole number; both bounds are inclusive.
    Integer {
        /// The smallest value.
        min: i64,
        /// The largest value.
        max: i64,
    },
    /// A duration; both bounds are inclusive.
    Span {
        /// The shortest duration.
        min: Duration,
        /// The longest duration.
        max: Duration,
    },
    /// A duration with inclusive bounds, or `forever`.
    Keep {
        /// The shortest duration.
        min: Duration,
        /// The longest duration, apart from `forever`.
        max: Duration,
    },
    /// A non-negative number.
    Number,
    /// A table.
    Table {
        /// The members that it may have.
        members: &'static [(&'static str, Kind)],
        /// The members that it must have.
        needs: &'static [&'static str],
    },
}

/// A key of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its dotted path in the file. A `*` stands for any name; a trailing `*` also for names with
    /// dots.
    pub path: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Other variables, read if the key's own is not set.
    pub fallback: &'static [&'static str],
}

impl Key {
    /// A key of this type.
    pub const fn new(path: &'static str, kind: Kind) -> Self {
        Self {
            path,
            kind,
            fallback: &[],
        }
    }

    /// A text that is not empty.
    pub const fn text(path: &'static str) -> Self {
        Self::new(path, Kind::Text)
    }

    /// A text that is never shown.
    pub const fn secret(path: &'static str) -> Self {
        Self::new(path, Kind::Secret)
    }

    /// One of these words.
    pub const fn choice(path: &'static str, words: &'static [&'static str]) -> Self {
        Self::new(path, Kind::Choice(words))
    }

    /// A URL with one of these schemes.
    pub const fn url(path: &'static str, schemes: &'static [&'static str]) -> Self {
        Self::new(path, Kind::Url(schemes))
    }

    /// A list of URLs with one of these schemes.
    pub const fn urls(path: &'static str, schemes: &'static [&'static str]) -> Self {
        Self::new(path, Kind::Urls(schemes))
    }

    /// `HOST:PORT`.
    pub const fn address(path: &'static str) -> Self {
        Self::new(path, Kind::Address)
    }

    /// A list of texts.
    pub const fn list(path: &'static str) -> Self {
        Self::new(path, Kind::List)
    }

    /// The words of a command.
    pub const fn words(path: &'static str) -> Self {
        Self::new(path, Kind::Words)
    }

    /// True or false.
    pub const fn switch(path: &'static str) -> Self {
        Self::new(path, Kind::Switch)
    }

    /// A whole number; both bounds are inclusive.
    pub const fn integer(path: &'static str, min: i64, max: i64) -> Self {
        Self::new(path, Kind::Integer { min, max })
    }

    /// A duration; both bounds are inclusive.
    pub const fn span(path: &'static str, min: Duration, max: Duration) -> Self {
        Self::new(path, Kind::Span { min, max })
    }

    /// A retention time with inclusive bounds, or `forever`, which reads as none.
    pub const fn keep(path: &'static str, min: Duration, max: Duration) -> Self {
        Self::new(path, Kind::Keep { min, max })
    }

    /// A table with these members, all of them optional.
    pub const fn table(path: &'static str, members: &'static [(&'static str, Kind)]) -> Self {
        Self::new(
            path,
            Kind::Table {
                members,
                needs: &[],
            },
        )
    }

    /// Adds fallback variables, which other programs use as well.
    #[must_use]
    pub const fn or(self, fallback: &'static [&'static str]) -> Self {
        Self { fallback, ..self }
    }

    /// Its environment variable.
    pub(super) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.path.replace('.', "_").to_uppercase())
    }

    /// Whether it is a single key rather than a pattern.
    fn is_single(&self) -> bool {
        !self.path.contains('*')
    }

    fn is_at(&self, path: &str) -> bool {
        let (mut names, mut rest) = (self.path.split('.').peekable(), path);
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                return name == rest || (name == "*" && !rest.is_empty());
            }
            match rest.split_once('.') {
                Some((first, behind)) if name == first || name == "*" => rest = behind,
                _ => return false,
            }
        }
        false
    }
}

/// All keys of a program.
#[derive(Debug, Clone)]
pub struct Keys {
    keys: Vec<Key>,
    like: &'static [(&'static str, &'static str)],
}

impl Keys {
    /// Creates the set. For each pair in `like`, every table below the first path takes the same
    /// keys as the second.
    pub fn new(keys: Vec<Key>, like: &'static [(&'static str, &'static str)]) -> Self {
        Self { keys, like }
    }

    /// All keys, without those that `like` adds.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    /// The key that applies to this path.
    pub(super) fn find(&self, path: &str) -> Option<Key> {
        let path = self.declared(path);
        self.keys.iter().copied().find(|key| key.is_at(&path))
    }

    /// Splits a path into its table and its name. The part that matches a trailing `*` may contain
    /// dots.
    pub(super) fn split<'a>(&self, path: &'a str) -> (&'a str, &'a str) {
        let declared = self.declared(path);
        let tables = self
            .find(path)
            .map_or(0, |key| key.path.matches('.').count());
        match declared.match_indices('.').take(tables).last() {
            Some((at, _)) => {
                let at = path.len() - (declared.len() - at);
                (&path[..at], &path[at + 1..])
            }
            None => ("", path),
        }
    }

    /// The path under which its key is declared, with `like` resolved.
    fn declared<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let same = self.like.iter().find_map(|(tables, table)| {
            let (_, field) = path
                .strip_prefix(tables)?
                .strip_prefix('.')?
                .split_once('.')?;
            Some(format!("{table}.{field}"))
        });
        same.map_or(Cow::Borrowed(path), Cow::Owned)
    }

    /// The keys that have a variable.
    pub(super) fn single(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(|key| key.is_single())
    }

    /// The known path most similar to this one, if any is close.
    pub(super) fn nearest(&self, path: &str) -> Option<&'static str> {
        let scored = self
            .single()
            .map(|key| (distance(path, key.path), key.path));
        let (distance, nearest) = scored.min()?;
        (distance <= 3).then_some(nearest)
    }

    /// The known variable most similar to this one, if any is close.
    pub(super) fn nearest_variable(&self, name: &str) -> Option<String> {
        let scored = self.single().map(|key| {
            let variable = key.variable();
            (distance(name, &variable), variable)
        });
        let (distance, nearest) = scored.min()?;
        (distance <= 3).then_some(nearest)
    }
}

impl Kind {
    /// Parses a value as given by a flag or a variable.
    pub(super) fn parse(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let value = match self {
            Self::Integer { .. } => text.replace('_', "").parse().map(Value::Integer).ok(),
            Self::Switch => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(Value::Boolean(true)),
                "false" | "0" | "no" | "off" => Some(Value::Boolean(false)),
                _ => None,
            },
            Self::List | Self::Words | Self::Urls(_) | Self::Choices(_) => {
                let items = text
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty());
                let items = items.map(|item| Value::String(item.to_owned()));
                Some(Value::Array(items.collect()))
            }
            _ => Some(Value::String(text.to_owned())),
        };
        self.check(value.ok_or_else(|| self.wants())?)
    }

    /// Checks a value from a file and returns it in its normal form.
    pub(super) fn check(&self, value: Value) -> Result<Value, String> {
        if let (Self::Table { members, needs }, Value::Table(table)) = (self, &value) {
            return check_table(members, needs, table);
        }
        let fits = match (self, &value) {
            (Self::Text | Self::Secret, Value::String(text)) => !text.trim().is_empty(),
            (Self::Choice(words), Value::String(text)) => words.contains(&text.as_str()),
            (Self::Url(schemes), Value::String(text)) => is_url(text, schemes),
            (Self::Urls(schemes), Value::Array(items)) => items
                .iter()
                .all(|item| item.as_str().is_some_and(|text| is_url(text, schemes))),
            (Self::Address, Value::String(text)) => text
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()),
            (Self::List | Self::Words, Value::Array(items)) => items.iter().all(Value::is_str),
            (Self::Choices(words), Value::Array(items)) => {
                let mut items = items.iter().map(Value::as_str);
                items.all(|item| item.is_some_and(|item| words.contains(&item)))
            }
            (Self::Switch, Value::Boolean(_)) => true,
            (Self::Integer { min, max }, Value::Integer(number)) => (min..=max).contains(&number),
            (Self::Span { min, max }, Value::String(text)) => text
                .parse::<Span>()
                .is_ok_and(|span| (*min..=*max).contains(&span.0)),
            (Self::Keep { min, max }, Value::String(text)) => {
                let span = text.parse::<Span>();
                text == FOREVER || span.is_ok_and(|span| (*min..=*max).contains(&span.0))
            }
            (Self::Number, Value::Float(number)) => number.is_finite() && *number >= 0.0,
            (Self::Number, Value::Integer(number)) => *number >= 0,
            _ => false,
        };
        if fits { Ok(value) } else { Err(self.wants()) }
    }

    /// Describes the expected value. Never repeats the given one: it may be a misplaced secret.
    pub fn wants(&self) -> String {
        match self {
            Self::Text | Self::Secret => "takes a text that is not empty".to_owned(),
            Self::Choice(words) => format!("takes one of: {}", words.join(", ")),
            Self::Choices(words) => format!("takes a list of some of: {}", words.join(", ")),
            Self::Url(schemes) => format!(
                "takes a URL that begins with {}://",
                schemes.join(":// or ")
            ),
            Self::Urls(schemes) => format!(
                "takes a list of URLs that begin with {}://",
                schemes.join(":// or ")
            ),
            Self::Address => "takes HOST:PORT, like 127.0.0.1:7464".to_owned(),
            Self::List | Self::Words => "takes a list of texts, like [\"a\", \"b\"]".to_owned(),
            Self::Switch => "takes true or false".to_owned(),
            Self::Integer { min, max } => format!("takes a whole number from {min} to {max}"),
            Self::Span { min, max } => format!(
                "takes a duration from {} to {}, like 250ms or 30s",
                Span(*min),
                Span(*max)
            ),
            Self::Keep { min, max } => format!(
                "takes a duration from {} to {}, like 30d, or {FOREVER}",
                Span(*min),
                Span(*max)
            ),
            Self::Number => "takes a number that is not negative".to_owned(),
            Self::Table { members, .. } => {
                let names: Vec<_> = members.iter().map(|(name, _)| *name).collect();
                format!("takes a table with some of: {}", names.join(", "))
            }
        }
    }
}

/// Whether a text begins with one of these schemes and has something after it.
fn is_url(text: &str, schemes: &[&str]) -> bool {
    text.split_once(':').is_some_and(|(scheme, rest)| {
        schemes.contains(&scheme) && !rest.trim_start_matches('/').is_empty()
    })
}

/// Checks each member of a table.
fn check_table(
    members: &[(&str, Kind)],
    needs: &[&str],
    table: &toml::Table,
) -> Result<Value, String> {
    if let Some(name) = needs.iter().find(|name| !table.contains_key(**name)) {
        return Err(format!("needs {name}"));
    }
    let mut checked = toml::Table::new();
    for (name, value) in table {
        let Some((_, kind)) = members.iter().find(|(known, _)| known == name) else {
            let names: Vec<_> = members.iter().map(|(name, _)| *name).collect();
            return Err(format!("has no {name}; it may have {}", names.join(", ")));
        };
        let value = kind.check(value.clone());
        let value = value.map_err(|wants| format!("at {name} {wants}"))?;
        checked.insert(name.clone(), value);
    }
    Ok(Value::Table(checked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_name_but_at_the_end_any() {
        let at = |pattern, path| Key::text(pattern).is_at(path);
        assert!(at("listen", "listen") && at("worker.pool", "worker.pool"));
        assert!(!at("worker.pool", "worker") && !at("worker", "worker.pool"));
        assert!(at("providers.*.model", "providers.local.model"));
        assert!(!at("providers.*.model", "providers.a.b.model"));
        assert!(at("llm.headers.*", "llm.headers.x.y") && !at("llm.headers.*", "llm.headers."));
        assert!(!at("llm.headers.*", "llm.headers"));
    }

    #[test]
    fn a_path_is_split_where_its_key_is() {
        let keys = ["listen", "llm.model", "llm.headers.*", "mcp.*.env.*"].map(Key::text);
        let keys = Keys::new(keys.to_vec(), &[("providers", "llm")]);
        assert_eq!(keys.split("listen"), ("", "listen"));
        assert_eq!(keys.split("llm.model"), ("llm", "model"));
        assert_eq!(keys.split("llm.headers.x.y"), ("llm.headers", "x.y"));
        assert_eq!(
            keys.split("providers.local.model"),
            ("providers.local", "model")
        );
        assert_eq!(
            keys.split("providers.a.headers.x.y"),
            ("providers.a.headers", "x.y")
        );
        assert_eq!(keys.split("mcp.a.env.B"), ("mcp.a.env", "B"));
    }
}
