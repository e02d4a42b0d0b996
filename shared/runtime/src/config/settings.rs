//! From checked values to a component's settings.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use mainspring_shared::time::Span;
use serde::de::DeserializeOwned;
use toml::Value;

use super::{Key, Layers, Secret};

/// A component's configurable settings; declared with [`settings!`](crate::settings).
pub trait Settings: Sized {
    /// The keys of its fields.
    const KEYS: &'static [Key];

    /// Reads the settings from these values.
    fn read(values: &mut Values<'_>) -> Self;
}

/// The checked values of all layers, as seen by one [`Settings`].
#[derive(Debug)]
pub struct Values<'a> {
    pub(super) layers: &'a mut Layers,
    /// Keys declared below the first path are read from below the second.
    pub(super) moved: Option<(&'a str, &'a str)>,
}

impl Values<'_> {
    /// Reads a key that has no default.
    pub fn optional<T: Setting + Default>(&self, key: &Key) -> T {
        T::find(self, key.path).unwrap_or_default()
    }

    /// Reads a key that has a default. If not even the defaults have a value, a layer removed it,
    /// and that is recorded as a problem.
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

    /// The actual path of a declared one.
    fn real(&self, path: &str) -> String {
        let moved = self.moved.and_then(|(from, to)| {
            let rest = path.strip_prefix(from)?;
            Some(format!("{to}{rest}"))
        });
        moved.unwrap_or_else(|| path.to_owned())
    }
}

/// A type that can be read from the values of a key.
pub trait Setting: Sized {
    /// Reads the value at a path; none if there is none.
    fn find(values: &Values<'_>, path: &str) -> Option<Self>;
}

/// Implements `Setting` for a type; none for a value that its key's kind would have refused.
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
    // 0 reads as no value, so an optional setting can be switched off with it.
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

/// All values below a path that ends with `.*`, by name.
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

/// All values below a path that ends with `.*`, by name; not secret.
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
            // The key's kind has checked it. A test of the binary reads every such value.
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
///     /// Settings of an oven.
///     #[derive(Debug, Clone, PartialEq)]
///     pub struct OvenSettings {
///         /// A label. It has no key, so it cannot be configured.
///         name: String = "oven".to_owned();
///         /// The highest temperature.
///         degrees_max: u32 = 250 => Key::integer("oven.degrees_max", 50, 300);
///         /// When it turns itself off; never if none. It has no default.
///         off_after: Option<Duration> => Key::span("oven.off_after", Duration::ZERO, Duration::MAX);
///     }
/// }
/// assert_eq!(OvenSettings::default().degrees_max, 250);
/// ```
///
/// The default of a key is repeated in the file of defaults, where people read it; a test of the
/// binary compares the two.
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
    /// All words.
    const WORDS: &'static [&'static str];

    /// The word for this value.
    fn as_str(self) -> &'static str;

    /// The value for a word.
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
