//! Which error codes an operation can give: those that all can, and those that the annotation of its handler names, with the
//! types of this module: `responses((status = 200, body = SendView), SendNotFound)`.

use std::collections::BTreeMap;

use mainspring_shared::error::Code;
use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response};

/// Codes that every operation can give.
pub(crate) const COMMON: [Code; 21] = [
    Code::RequestInvalid,
    Code::RequestTooLarge,
    Code::RequestUnsupportedMediaType,
    Code::RequestHostNotAllowed,
    Code::RequestOriginNotAllowed,
    Code::RequestMethodNotAllowed,
    Code::RequestNotFound,
    Code::AuthMissing,
    Code::AuthInvalid,
    Code::AuthForbidden,
    Code::AuthBinding,
    Code::AuthTenantUnknown,
    Code::AuthIssuerUnavailable,
    Code::TenantNotFound,
    Code::TenantErasing,
    Code::LimitRequests,
    Code::LimitExceeded,
    Code::StoreUnavailable,
    Code::StoreDenied,
    Code::StoreSchemaMissing,
    Code::Internal,
];

/// What starts work can give, in a session or a run that may be new.
const STARTS: [Code; 10] = [
    Code::AgentNotFound,
    Code::SessionNotFound,
    Code::SessionClosed,
    Code::SessionBusy,
    Code::BudgetNoPrice,
    Code::BudgetExceeded,
    Code::LimitSends,
    Code::LimitTokens,
    Code::LimitMoney,
    Code::LimitBytes,
];

/// The responses under the names of their codes: several of one status are put together where they are described.
fn named(codes: &[Code]) -> BTreeMap<String, RefOr<Response>> {
    let codes = codes.iter();
    let named = codes.map(|code| (code.to_string(), Response::default().into()));
    named.collect()
}

/// See [`STARTS`].
pub(crate) struct Starts;

impl IntoResponses for Starts {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        named(&STARTS)
    }
}

macro_rules! codes {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("[`Code::", stringify!($name), "`] in an annotation.")]
            pub(crate) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    named(&[Code::$name])
                }
            }
        )*
    };
}

codes! {
    AgentNotFound
    BlobCorrupt
    BlobNotFound
    BlobTooLarge
    BlobUnavailable
    BudgetNoPrice
    CallNotFound
    IdempotencyMismatch
    KeyNotFound
    LimitBytes
    MemoryNotFound
    ProviderKeyNoSeal
    ProviderKeyNotFound
    ProviderKeyTooMany
    RunNotFound
    SecretNoSeal
    SecretNotFound
    SecretTooMany
    SendNotCancellable
    SendNotFound
    SendNotRetryable
    SessionBusy
    SessionNotFound
    SessionNotWaiting
    SkillInvalid
    SkillNotFound
    SpecInvalid
    TenantHeld
    TenantNameTaken
    TenantNotEmpty
    TimerInvalidSchedule
    TimerNotArmed
    TimerNotFound
    WebhookDeliveryNotFound
    WebhookNoKey
    WebhookNotFound
    WebhookTooMany
    WorkflowNodeNotFound
    WorkflowNotResumable
}
