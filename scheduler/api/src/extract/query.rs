//! Parses queries into types.

use std::collections::BTreeMap;
use std::fmt;
use std::slice::Iter;
use std::str::FromStr;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::event::EventId;
use mainspring_shared::id::SessionId;
use mainspring_shared::memory::Namespace;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::SessionStatus;
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::timer::TimerStatus;
use mainspring_shared::webhook::DeliveryStatus;
use mainspring_shared::workflow::run::RunStatus;
use serde::de::value::{Error as ValueError, MapDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::openapi::{RefOr, Schema};

use crate::openapi::form;
use crate::problem::Problem;

/// Default number of items of a page.
const LIMIT_DEFAULT: u32 = 50;

/// Maximum number of items of a page.
const LIMIT_MAX: u32 = 200;

/// The member that collects the parameters `metadata.NAME=TEXT` and `metadata[NAME]=TEXT`.
const METADATA: &str = "metadata";

/// The query as `T`. Its parameters are read in the order of the members of `T`. The first invalid
/// one is reported, or else the first one that `T` does not have or that is repeated.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Ok(Self(read(&parts.uri)?))
    }
}

/// A query without parameters.
#[derive(Debug, Deserialize)]
pub(crate) struct NoQuery {}

/// How long to wait.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitQuery {
    /// How long to wait for the end, such as `30s`.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Duration>, inline)]
    wait: Option<Span>,
}

impl WaitQuery {
    /// The time to wait, capped at what this server allows.
    pub(crate) fn within(&self, wait_max: Duration) -> Option<Duration> {
        cut(self.wait.as_ref(), wait_max)
    }
}

/// How long to wait for a send.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SendWaitQuery {
    /// How long to wait for the end, such as `30s`. The answer comes earlier, with the status `waiting`, while the
    /// send is `waiting_on` `human`, `tool` or `recovery`: only someone outside lets it continue.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Duration>, inline)]
    wait: Option<Span>,
}

impl SendWaitQuery {
    /// The time to wait, capped at what this server allows.
    pub(crate) fn within(&self, wait_max: Duration) -> Option<Duration> {
        cut(self.wait.as_ref(), wait_max)
    }
}

fn cut(wait: Option<&Span>, wait_max: Duration) -> Option<Duration> {
    wait.map(|Span(wait)| (*wait).min(wait_max))
}

/// A page of a list whose items are numbered.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    pub(crate) limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::Number>, inline)]
    pub(crate) cursor: Option<i64>,
}

/// What makes a repeat of a request harmless.
#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct Key {
    /// 1 to 255 visible ASCII characters. A repeated request with the same key has no further effect.
    #[param(rename = "Idempotency-Key", value_type = form::Key, inline, required = false)]
    idempotency_key: (),
}

/// Where a reader of a stream goes on.
#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct LastEventId {
    /// The last event that the reader has; wins over `after`, unless it is empty.
    #[param(rename = "Last-Event-ID", value_type = form::LastEventId, inline, required = false)]
    last_event_id: (),
}

/// The maximum number of items of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) u32);

impl Default for Limit {
    fn default() -> Self {
        Self(LIMIT_DEFAULT)
    }
}

impl utoipa::PartialSchema for Limit {
    fn schema() -> RefOr<Schema> {
        form::number(1, LIMIT_MAX, LIMIT_DEFAULT)
    }
}

impl utoipa::ToSchema for Limit {}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limit = parsed(deserializer, "must be a number from 1 to 200", |text| {
            text.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n))
        })?;
        Ok(Self(limit))
    }
}

/// A parameter that is parsed from text.
pub(crate) trait FromText: Sized {
    /// The error for an invalid value.
    const EXPECTED: &'static str;

    fn from_text(text: &str) -> Option<Self>;
}

macro_rules! from_text {
    ($($of:ty, $expected:literal, $parse:expr;)*) => {$(
        impl FromText for $of {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Option<Self> {
                $parse(text)
            }
        }
    )*};
}

from_text! {
    Span, "must be a duration like 30s", |text: &str| text.parse().ok();
    bool, "must be true or false", |text: &str| text.parse().ok();
    Timestamp, "must be a time like 2030-01-31T08:00:00Z", time;
    EventId, "must be an event's id, like 12.0", |text: &str| text.parse().ok();
    Namespace, "must be a path like user/42", |text: &str| text.parse().ok();
    SessionId, "must be a session's id", |text: &str| text.parse().ok();
    SendStatus, "must be queued, running, waiting, completed, failed or cancelled", Self::parse;
    RunStatus, "must be queued, running, waiting, completed, failed or cancelled", Self::parse;
    SessionStatus, "must be idle, queued, running, waiting or closed", Self::parse;
    TimerStatus, "must be armed, paused, done, cancelled or dead", Self::parse;
    DeliveryStatus, "must be pending, delivered or dead", Self::parse;
}

fn time(text: &str) -> Option<Timestamp> {
    let text: StrDeserializer<'_, ValueError> = text.into_deserializer();
    Timestamp::deserialize(text).ok()
}

/// Deserializes a parameter with `FromText`.
pub(crate) fn text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromText,
{
    parsed(deserializer, T::EXPECTED, T::from_text).map(Some)
}

/// Deserializes the `next_cursor` of the previous page.
pub(crate) fn cursor<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
{
    parsed(deserializer, "must be a next_cursor", |text| {
        text.parse().ok()
    })
    .map(Some)
}

/// Deserializes a parameter with `parse`.
pub(crate) fn parsed<'de, D, T>(
    deserializer: D,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom(expected))
}

/// An error about one query parameter.
pub(crate) fn parameter(name: &str, detail: &str) -> Error {
    Error::invalid(
        format!("?{name}"),
        format!("the query parameter {name} {detail}"),
    )
}

fn read<T: DeserializeOwned>(uri: &Uri) -> Result<T, Error> {
    T::deserialize(Members(pairs(uri)?)).map_err(|refused| match refused {
        Refused::Request(error) => error,
        Refused::Value(detail) => Error::new(Code::RequestInvalid, detail),
    })
}

fn pairs(uri: &Uri) -> Result<Vec<(String, String)>, Error> {
    if uri.query().is_none_or(str::is_empty) {
        return Ok(Vec::new());
    }
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|_| Error::new(Code::RequestInvalid, "the query could not be parsed"))?
        .0;
    for (name, value) in &pairs {
        if name.contains('\0') || value.contains('\0') {
            let name = name.replace('\0', "\u{fffd}");
            return Err(parameter(&name, "must not contain U+0000"));
        }
    }
    Ok(pairs)
}

/// Why a query was refused.
#[derive(Debug)]
enum Refused {
    /// The fault of a value. Its name is added where it is known.
    Value(String),
    Request(Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(detail) => f.write_str(detail),
            Self::Request(error) => f.write_str(error.detail()),
        }
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(detail: T) -> Self {
        Self::Value(detail.to_string())
    }
}

/// Deserializes the parameters as the members of a struct.
struct Members(Vec<(String, String)>);

impl<'de> Deserializer<'de> for Members {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_map(Given {
            fields: fields.iter(),
            pairs: self.0,
            next: None,
        })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Deserializes one parameter: always present, always text.
struct Value(String);

impl<'de> Deserializer<'de> for Value {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Given {
    fields: Iter<'static, &'static str>,
    pairs: Vec<(String, String)>,
    /// The member whose value is next.
    next: Option<&'static str>,
}

impl Given {
    fn find(&self, name: &str) -> Option<usize> {
        self.pairs.iter().position(|(key, _)| key == name)
    }

    /// Takes the parameters `metadata.NAME` and `metadata[NAME]`. A repeated one is left in place
    /// and refused later.
    fn metadata(&mut self) -> BTreeMap<String, String> {
        let mut filters = BTreeMap::new();
        self.pairs.retain(|(key, value)| match metadata_name(key) {
            Some(name) if !filters.contains_key(name) => {
                filters.insert(name.to_owned(), value.clone());
                false
            }
            Some(_) | None => true,
        });
        filters
    }
}

fn metadata_name(key: &str) -> Option<&str> {
    let rest = key.strip_prefix(METADATA)?;
    let dotted = rest.strip_prefix('.');
    let bracketed = || rest.strip_prefix('[')?.strip_suffix(']');
    dotted.or_else(bracketed).filter(|name| !name.is_empty())
}

impl<'de> MapAccess<'de> for Given {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refused> {
        while let Some(field) = self.fields.next() {
            let is_given = match *field {
                METADATA => self
                    .pairs
                    .iter()
                    .any(|(key, _)| metadata_name(key).is_some()),
                name => self.find(name).is_some(),
            };
            if is_given {
                self.next = Some(field);
                return seed.deserialize((*field).into_deserializer()).map(Some);
            }
        }
        match self.pairs.first() {
            None => Ok(None),
            Some((name, _)) => {
                let detail = "is unknown, or given more than once";
                Err(Refused::Request(parameter(name, detail)))
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        let name = self.next.take().unwrap_or_default();
        if name == METADATA {
            return seed.deserialize(MapDeserializer::new(self.metadata().into_iter()));
        }
        let place = self.find(name).unwrap_or_default();
        let (_, text) = self.pairs.swap_remove(place);
        seed.deserialize(Value(text))
            .map_err(|refused| match refused {
                Refused::Value(detail) => Refused::Request(parameter(name, &detail)),
                Refused::Request(_) => refused,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Listing {
        #[serde(default)]
        limit: Limit,
        #[serde(default, deserialize_with = "text")]
        status: Option<SendStatus>,
        agent: Option<String>,
        #[serde(default)]
        metadata: BTreeMap<String, String>,
    }

    fn listing(query: &str) -> Result<Listing, Error> {
        read(&format!("/x?{query}").parse().expect("a uri"))
    }

    fn detail(query: &str) -> String {
        listing(query).expect_err(query).detail().to_owned()
    }

    #[test]
    fn a_parameter_that_nobody_takes_is_refused() {
        assert_eq!(listing("limit=7").map(|q| q.limit), Ok(Limit(7)));
        for query in ["limit=7&colour=red", "limit=7&limit=8", "metadata=x"] {
            assert!(
                detail(query).ends_with("is unknown, or given more than once"),
                "{query}"
            );
        }
    }

    #[test]
    fn a_wrong_value_comes_before_an_unknown_parameter_and_in_the_order_of_members() {
        assert!(detail("colour=red&status=odd&limit=0").contains("limit must be"));
        assert!(detail("colour=red&status=odd").contains("status must be"));
    }

    #[test]
    fn limits_are_bounded() {
        for query in ["limit=0", "limit=201", "limit=-1", "limit=x", "limit="] {
            assert!(detail(query).contains("from 1 to 200"), "{query}");
        }
        assert_eq!(listing("").map(|q| q.limit), Ok(Limit(LIMIT_DEFAULT)));
    }

    #[test]
    fn metadata_filters_have_two_spellings() {
        let found = listing("metadata.team=x&agent=a&metadata%5Bkind%5D=y%20z").expect("fits");
        assert_eq!(found.metadata["team"], "x");
        assert_eq!(found.metadata["kind"], "y z");
        assert_eq!(found.agent.as_deref(), Some("a"));
        assert_eq!(found.status, None);
        assert!(listing("metadata.team=x&metadata[team]=y").is_err());
    }

    #[test]
    fn a_wait_is_cut_to_what_is_allowed() {
        let max = Duration::from_mins(1);
        let wait = |query: &str| {
            let query = format!("/x?{query}").parse().expect("a uri");
            read::<WaitQuery>(&query).map(|query| query.within(max))
        };
        assert_eq!(wait("wait=2h"), Ok(Some(max)));
        assert_eq!(wait("wait=250ms"), Ok(Some(Duration::from_millis(250))));
        assert!(wait("wait=30").is_err());
    }
}
