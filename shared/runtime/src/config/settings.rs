//! From checked values to the settings of a component.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use mainspring_shared::time::Span;
use serde::de::DeserializeOwned;
use toml::Value;

use super::{Key, Layers, Secret};

/// What a component lets users decide; declared with [`settings!`](crate::settings).
pub trait Settings: Sized {
    /// The keys of its fields.
    const KEYS: &'static [Key];

    /// The settings that these values say.
    fn read(values: &mut Values<'_>) -> Self;
}

/// The checked values of all layers, as one [`Settings`] sees them.
#[derive(Debug)]
pub struct Values<'a> {
    pub(super) layers: &'a mut Layers,
    /// Keys below the first path are looked for below the second.
    pub(super) moved: Option<(&'a str, &'a str)>,
}

impl Values<'_> {
    /// What a key without a default says.
    pub fn optional<T: Setting + Default>(&self, key: &Key) -> T {
        T::find(self, key.path).unwrap_or_default()
    }

    /// What a key with a default says. That nobody says anything, not even the defaults, is a problem:
    /// someone took the value away.
    pub fn required<T: Setting>(&mut self, key: &Key) -> Option<T> {
        let found = T::find(self, key.path);
        if found.is_none() {
            self.layers.missing(key.path);
        }
        found
    }

    fn get(&self, path: &str) -> Option<&Value> {
        self.layers.get(&self.real(path)).map(|(value, _)| value)
    }

    /// Where the values of a declared path are.
    fn real(&self, path: &str) -> String {
        let moved = self.moved.and_then(|(from, to)| {
            let rest = path.strip_prefix(from)?;
            Some(format!("{to}{rest}"))
        });
        moved.unwrap_or_else(|| path.to_owned())
    }
}

/// A type that a key's values turn into.
pub trait Setting: Sized {
    /// What the values say of a path; none when they say nothing.
    fn find(values: &Values<'_>, path: &str) -> Option<Self>;
}

/// What a value may be; none for what the kind of its key would have refused.
macro_rules! setting {
    ($($type:ty: $read:expr;)+) => { $(
        impl Setting for $type {
            fn find(values: &Values<'_>, path: &str) -> Option<Self> {
                let read: fn(&Value) -> Option<Self> = $read;
                values.get(path).and_then(read)
            }
        }
    )+ };
}

fn number<T: TryFrom<i64>>(value: &Value) -> Option<T> {
    value.as_integer()?.try_into().ok()
}

fn text<T: From<String>>(value: &Value) -> Option<T> {
    Some(value.as_str()?.to_owned().into())
}

setting! {
    bool: Value::as_bool;
    i64: number;
    u32: number;
    u64: number;
    usize: number;
    // Of an optional one, 0 is none.
    NonZeroU32: |value| NonZeroU32::new(number(value)?);
    String: text;
    PathBuf: text;
    Secret: |value| text(value).map(|text: String| Secret::new(text));
    Duration: |value| Some(value.as_str()?.parse::<Span>().ok()?.0);
    Vec<String>: |value| value.as_array()?.iter().map(text).collect();
    Vec<Secret>: |value| {
        let texts: Option<Vec<String>> = value.as_array()?.iter().map(text).collect();
        Some(texts?.into_iter().map(Secret::new).collect())
    };
}

impl<T: Setting> Setting for Option<T> {
    fn find(values: &Values<'_>, path: &str) -> Option<Self> {
        Some(T::find(values, path))
    }
}

/// All names below a path that ends with `.*`.
impl Setting for BTreeMap<String, Secret> {
    fn find(values: &Values<'_>, path: &str) -> Option<Self> {
        let table = values.real(path.strip_suffix('*')?);
        let named = values
            .layers
            .below(&table)
            .filter_map(|(name, value)| Some((name.to_owned(), Secret::new(value.as_str()?))));
        Some(named.collect())
    }
}

/// The same, of texts that may be shown.
impl Setting for BTreeMap<String, String> {
    fn find(values: &Values<'_>, path: &str) -> Option<Self> {
        let secrets = BTreeMap::<String, Secret>::find(values, path)?.into_iter();
        Some(
            secrets
                .map(|(name, text)| (name, text.reveal().to_owned()))
                .collect(),
        )
    }
}

/// All tables below a path that ends with `.*`, by name.
impl<T: DeserializeOwned> Setting for Named<T> {
    fn find(values: &Values<'_>, path: &str) -> Option<Self> {
        let table = values.real(path.strip_suffix('*')?);
        let named = values.layers.below(&table).filter_map(|(name, value)| {
            // What the kind of the key lets through can be read; a test of the binary reads all of it.
            let read = value.clone().try_into();
            debug_assert!(read.is_ok(), "{name}: {read:?}", read = read.as_ref().err());
            Some((name.to_owned(), read.ok()?))
        });
        Some(Self(named.collect()))
    }
}

/// Tables by name, each read as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Named<T>(pub BTreeMap<String, T>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// Declares a component's settings: a struct with a `Default`, and where its fields come from.
///
/// ```
/// use std::time::Duration;
///
/// use mainspring_runtime::Key;
///
/// mainspring_runtime::settings! {
///     /// What the oven lets people decide.
///     #[derive(Debug, Clone, PartialEq)]
///     pub struct OvenSettings {
///         /// A label. Nobody configures it: it has no key.
///         name: String = "oven".to_owned();
///         /// How hot it gets.
///         degrees_max: u32 = 250 => Key::integer("oven.degrees_max", 50, 300);
///         /// Until it turns itself off; never when none. It has no default.
///         off_after: Option<Duration> => Key::span("oven.off_after", Duration::ZERO, Duration::MAX);
///     }
/// }
/// assert_eq!(OvenSettings::default().degrees_max, 250);
/// ```
///
/// The default of a key stands in the file of defaults, too, for people to read; a test of the binary
/// compares them.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $( $(#[$doc:meta])* $field:ident: $type:ty $(= $default:expr)? $(=> $key:expr)?; )+
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $( $(#[$doc])* $vis $field: $type, )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $crate::settings!(@default $($default)?), )+ }
            }
        }

        impl $crate::Settings for $name {
            const KEYS: &'static [$crate::Key] = &[ $( $($key,)? )+ ];

            fn read(values: &mut $crate::Values<'_>) -> Self {
                Self {
                    $( $field: $crate::settings!(@read values, ($($default)?), ($($key)?)), )+
                }
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@read $values:ident, ($default:expr), ()) => { $default };
    (@read $values:ident, (), ($key:expr)) => {{
        const KEY: $crate::Key = $key;
        $values.optional(&KEY)
    }};
    (@read $values:ident, ($default:expr), ($key:expr)) => {{
        const KEY: $crate::Key = $key;
        $values.required(&KEY).unwrap_or_else(|| $default)
    }};
}

/// The words that a key may take; declared with [`choice!`](crate::choice).
pub trait Choice: Copy {
    /// All of them.
    const WORDS: &'static [&'static str];

    /// The word for this.
    fn as_str(self) -> &'static str;

    /// What a word means.
    fn from_word(word: &str) -> Option<Self>;
}

/// Declares an enum whose variants are the words that a key may take.
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $( $(#[$doc:meta])* $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $( $(#[$doc])* $variant, )+
        }

        impl $crate::Choice for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )+
                }
            }

            fn from_word(word: &str) -> Option<Self> {
                match word {
                    $( $word => Some(Self::$variant), )+
                    _ => None,
                }
            }
        }

        impl $crate::Setting for $name {
            fn find(values: &$crate::Values<'_>, path: &str) -> Option<Self> {
                let word: String = $crate::Setting::find(values, path)?;
                $crate::Choice::from_word(&word)
            }
        }
    };
}
