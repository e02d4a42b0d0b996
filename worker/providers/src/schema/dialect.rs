//! What each dialect of JSON Schema has.
//!
//! The facts are from the vendors' documentation and from what users report of refusals, as of November 2026.

use crate::rules::SchemaDialect;

/// What may stand beside `anyOf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    Anything,
    /// Anything but a type and what goes with it.
    Annotations,
    Nothing,
}

/// Which names of members are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    Any,
    /// 1 to 64 letters, digits, `_`, `.` and `-`.
    Plain,
    /// The same, beginning with a letter or `_`.
    Identifiers,
}

/// What a dialect has, and what it demands.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of its own"
)]
pub(super) struct Form {
    /// The keywords that it has; all common ones if absent.
    pub(super) keywords: Option<&'static [&'static str]>,
    /// Whether it has references.
    pub(super) refs: bool,
    /// Whether a type may be a list.
    pub(super) type_lists: bool,
    /// Whether each node needs a type or alternatives.
    pub(super) typed: bool,
    /// Whether `nullable` is how it says that something may be null.
    pub(super) nullable: bool,
    /// Whether only texts that are not empty may be enumerated.
    pub(super) text_enums: bool,
    /// Whether the items of an array may have schemas by their place.
    pub(super) tuples: bool,
    /// Whether arrays must say what their items are.
    pub(super) items: bool,
    /// Whether objects must have at least one member.
    pub(super) filled: bool,
    /// Whether only declared members may be required.
    pub(super) declared: bool,
    pub(super) beside: Beside,
    pub(super) keys: Keys,
}

/// Google's list of what `Schema` has, without what some of its routes refuse
/// (<https://ai.google.dev/api/caching#Schema>).
const GEMINI: &[&str] = &[
    "anyOf",
    "description",
    "enum",
    "items",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "nullable",
    "properties",
    "required",
    "type",
];

/// The keywords of Moonshot's own subset.
const KIMI: &[&str] = &[
    "additionalProperties",
    "anyOf",
    "default",
    "description",
    "enum",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "properties",
    "required",
    "title",
    "type",
];

impl Form {
    const COMMON: Self = Self {
        keywords: None,
        refs: true,
        type_lists: true,
        typed: false,
        nullable: false,
        text_enums: false,
        tuples: false,
        items: true,
        filled: false,
        declared: false,
        beside: Beside::Anything,
        keys: Keys::Any,
    };

    /// The form of a dialect.
    pub(super) const fn of(dialect: SchemaDialect) -> Self {
        match dialect {
            SchemaDialect::Plain | SchemaDialect::OpenAi | SchemaDialect::OpenAiResponses => {
                Self::COMMON
            }
            SchemaDialect::Anthropic => Self {
                tuples: true,
                items: false,
                keys: Keys::Plain,
                ..Self::COMMON
            },
            SchemaDialect::Gemini => Self {
                keywords: Some(GEMINI),
                refs: false,
                type_lists: false,
                typed: true,
                nullable: true,
                text_enums: true,
                filled: true,
                declared: true,
                beside: Beside::Nothing,
                keys: Keys::Identifiers,
                ..Self::COMMON
            },
            SchemaDialect::Kimi => Self {
                keywords: Some(KIMI),
                refs: false,
                type_lists: false,
                typed: true,
                items: false,
                declared: true,
                beside: Beside::Annotations,
                ..Self::COMMON
            },
        }
    }
}

impl Keys {
    /// Whether a name is taken.
    pub(super) fn take(self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Plain => is_plain(name),
            Self::Identifiers => is_plain(name) && begins(name),
        }
    }

    /// A name that is taken, as like the given one as can be.
    pub(super) fn fitted(self, name: &str) -> String {
        let mut fitted = String::new();
        for char in name.chars() {
            let fits = char.is_ascii_alphanumeric() || matches!(char, '_' | '.' | '-');
            match if fits { char } else { '_' } {
                // `filter[name]` becomes `filter_name`, not `filter_name_`.
                '_' if !fits && fitted.ends_with('_') => {}
                char => fitted.push(char),
            }
            if fitted.len() == KEY_CHARS_MAX {
                break;
            }
        }
        if name.ends_with(']') && fitted.len() > 1 && fitted.ends_with('_') {
            fitted.pop();
        }
        if fitted.is_empty() || (self == Self::Identifiers && !begins(&fitted)) {
            fitted.insert(0, '_');
            fitted.truncate(KEY_CHARS_MAX);
        }
        fitted
    }
}

/// Maximum characters of a name.
pub(super) const KEY_CHARS_MAX: usize = 64;

fn is_plain(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=KEY_CHARS_MAX).contains(&name.len()) && name.bytes().all(fits)
}

fn begins(name: &str) -> bool {
    name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
}
