//! Arguments as they are passed on to whoever is outside.

use mainspring_worker::tool::Invocation;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The arguments of a call: what the model wrote, to the byte, or what was made of it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Exact<'a> {
    Said(&'a RawValue),
    Made(&'a Map<String, Value>),
}

impl<'a> Exact<'a> {
    /// Those of an invocation.
    pub(crate) fn of(invocation: &'a Invocation) -> Self {
        let said = invocation.said.as_deref();
        let said = said.and_then(|said| serde_json::from_str(said).ok());
        said.map_or(Self::Made(&invocation.arguments), Self::Said)
    }
}
