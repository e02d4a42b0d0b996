//! Values passed to and from the database.

use uuid::Uuid;

/// A value of a parameter or a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// A whole number; booleans are 0 or 1.
    Integer(i64),
    /// A number with a fraction.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes; an id is 16 of them.
    Bytes(Vec<u8>),
}

macro_rules! from_integer {
    ($($from:ty),*) => {$(
        impl From<$from> for Value {
            fn from(number: $from) -> Self {
                Self::Integer(i64::from(number))
            }
        }
    )*};
}

from_integer!(bool, i16, i32, i64, u32);

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Uuid> for Value {
    fn from(id: Uuid) -> Self {
        Self::Bytes(id.as_bytes().to_vec())
    }
}

impl From<&Uuid> for Value {
    fn from(id: &Uuid) -> Self {
        (*id).into()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A type that a column can be read as.
pub(crate) trait FromValue<'v>: Sized {
    /// Reads the value, or returns why it cannot be read.
    fn from_value(value: &'v Value) -> Result<Self, String>;
}

fn mismatch<T>(value: &Value, wanted: &str) -> Result<T, String> {
    let found = match value {
        Value::Null => "null",
        Value::Integer(_) => "an integer",
        Value::Real(_) => "a real number",
        Value::Text(_) => "text",
        Value::Bytes(_) => "bytes",
    };
    Err(format!("expected {wanted}, found {found}"))
}

macro_rules! read_integer {
    ($($to:ty),*) => {$(
        impl FromValue<'_> for $to {
            fn from_value(value: &Value) -> Result<Self, String> {
                match value {
                    Value::Integer(number) => Self::try_from(*number)
                        .map_err(|_| format!("{number} is out of range")),
                    other => mismatch(other, "an integer"),
                }
            }
        }
    )*};
}

read_integer!(i16, i32, i64, u32, u64);

impl FromValue<'_> for bool {
    fn from_value(value: &Value) -> Result<Self, String> {
        i64::from_value(value).map(|number| number != 0)
    }
}

impl FromValue<'_> for f64 {
    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Real(number) => Ok(*number),
            #[expect(
                clippy::cast_precision_loss,
                reason = "sums of whole numbers stay small"
            )]
            Value::Integer(number) => Ok(*number as f64),
            other => mismatch(other, "a number"),
        }
    }
}

impl<'v> FromValue<'v> for &'v str {
    fn from_value(value: &'v Value) -> Result<Self, String> {
        match value {
            Value::Text(text) => Ok(text),
            other => mismatch(other, "text"),
        }
    }
}

impl FromValue<'_> for String {
    fn from_value(value: &Value) -> Result<Self, String> {
        <&str>::from_value(value).map(str::to_owned)
    }
}

impl FromValue<'_> for Vec<u8> {
    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Bytes(bytes) => Ok(bytes.clone()),
            other => mismatch(other, "bytes"),
        }
    }
}

impl FromValue<'_> for Uuid {
    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Bytes(bytes) => Self::from_slice(bytes)
                .map_err(|_| format!("expected 16 bytes, found {}", bytes.len())),
            other => mismatch(other, "16 bytes"),
        }
    }
}

impl<'v, T: FromValue<'v>> FromValue<'v> for Option<T> {
    fn from_value(value: &'v Value) -> Result<Self, String> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}
