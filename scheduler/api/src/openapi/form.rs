//! Schemas of parameters whose own types know nothing about OpenAPI. A parameter refers to one of
//! them with `value_type`.

use utoipa::PartialSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use super::events::EVENT_ID;
use super::refine::{AGENT_NAME, DURATION, KEY, id};

/// The pattern of a tenant's id.
pub(super) const TENANT: &str = "^ten_[1-9][0-9]{0,9}$";

/// The schema of a text that matches a pattern.
pub(crate) fn text(pattern: &str) -> RefOr<Schema> {
    string().pattern(Some(pattern)).build().into()
}

/// The schema of a number within bounds, with its default.
pub(crate) fn number(from: u32, to: u32, default: u32) -> RefOr<Schema> {
    let number = ObjectBuilder::new().schema_type(Type::Integer);
    let number = number.minimum(Some(from)).maximum(Some(to));
    number.default(Some(default.into())).build().into()
}

fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

macro_rules! forms {
    ($($(#[$says:meta])* $form:ident: $schema:expr;)*) => {$(
        $(#[$says])*
        #[derive(Debug)]
        pub(crate) struct $form;

        impl PartialSchema for $form {
            fn schema() -> RefOr<Schema> {
                $schema
            }
        }

        impl utoipa::ToSchema for $form {}
    )*};
}

forms! {
    Time: string().format(Some(utoipa::openapi::SchemaFormat::KnownFormat(utoipa::openapi::KnownFormat::DateTime))).build().into();
    SessionId: text(&id("ses"));
    SendId: text(&id("snd"));
    RunId: text(&id("run"));
    TimerId: text(&id("tmr"));
    MemoryId: text(&id("mem"));
    ErasureId: text(&id("era"));
    KeyId: text(&id("key"));
    WebhookId: text(&id("whk"));
    WebhookEventId: text(&id("evt"));
    TenantId: text(TENANT);
    AgentName: text(AGENT_NAME);
    EventId: text(EVENT_ID);
    /// The last event that a reader has; an empty one is none.
    LastEventId: text(&format!("^$|{EVENT_ID}"));
    /// An idempotency key.
    Key: text(KEY);
    Duration: text(DURATION);
    /// What tells the items of a numbered list apart.
    Number: text("^[0-9]{1,18}$");
    /// The `seq` of a message, 0 before the first one.
    MessageSeq: ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(0))
        .maximum(Some(i64::MAX))
        .build()
        .into();
    /// What is paused: tenant, kind and name.
    PauseKey: text(r"^ten_[1-9][0-9]{0,9}\.[a-z]+\..+$");
    /// The name of a skill, without a version.
    SkillName: string().min_length(Some(1)).build().into();
    /// The name of a provider.
    ProviderName: string().min_length(Some(1)).build().into();
    /// The name of a secret.
    SecretName: string().min_length(Some(1)).build().into();
    Namespace: string().min_length(Some(1)).max_length(Some(400)).build().into();
    /// A text to look for.
    Wanted: string().min_length(Some(1)).max_length(Some(200)).build().into();
    /// Names and texts.
    Metadata: ObjectBuilder::new()
        .property_names(Some(string().min_length(Some(1)).build()))
        .additional_properties(Some(string()))
        .build()
        .into();
}
