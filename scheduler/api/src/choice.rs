//! The agent of a session as given in a body: a spec, or the name of a published agent.

use std::fmt;

use mainspring_scheduler::services::agents::Choice;
use mainspring_shared::agent::{AgentQuery, AgentSpec};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A spec, or `NAME`, `NAME@VERSION` or `NAME@ALIAS`.
#[derive(Debug)]
pub(super) struct AgentChoice(pub(super) Choice);

impl Default for AgentChoice {
    fn default() -> Self {
        Self(Choice::Inline(Box::default()))
    }
}

/// The schema of an agent in a body.
pub(super) fn choice_schema() -> utoipa::openapi::schema::Schema {
    use utoipa::openapi::Ref;
    use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};

    let text = ObjectBuilder::new().schema_type(Type::String);
    let text = text.pattern(Some(REFERENCE)).build();
    let none = ObjectBuilder::new().schema_type(Type::Null).build();
    let spec = Ref::from_schema_name("AgentSpec");
    let forms = OneOfBuilder::new().item(none).item(text).item(spec);
    Schema::OneOf(forms.build())
}

/// The pattern of `NAME`, `NAME@VERSION` and `NAME@ALIAS`.
pub(super) const REFERENCE: &str =
    "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@([1-9][0-9]{0,8}|[A-Za-z][A-Za-z0-9._-]{0,63}))?$";

impl<'de> Deserialize<'de> for AgentChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = AgentChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object, or the name of a published agent")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AgentChoice, E> {
                let query: AgentQuery = text.parse().map_err(E::custom)?;
                Ok(AgentChoice(Choice::Named(query)))
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<AgentChoice, A::Error> {
                let spec = AgentSpec::deserialize(MapAccessDeserializer::new(members))?;
                Ok(AgentChoice(Choice::Inline(Box::new(spec))))
            }
        }

        deserializer.deserialize_any(Either)
    }
}
