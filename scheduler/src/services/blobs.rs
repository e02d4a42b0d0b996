//! Pictures and files of accepted content: large ones are stored as blobs first, and the blobs that
//! the content names are held for its owner.

use mainspring_shared::blob::{self, BlobHash, BlobOwner, of_message};
use mainspring_shared::error::{Class, Code, Coded as _};
use mainspring_shared::id::{SessionKey, TenantId, TimerId};
use mainspring_shared::message::{ContentPart, Message};
use mainspring_shared::store::{AcceptSend, NewTimer};
use mainspring_shared::timer::TimerTarget;
use mainspring_shared::tool::CallResult;

use crate::app::App;
use crate::error::{Error, FieldError};
use crate::loops::causes;

/// Prepares the input of a send. `at` points to its body in the request.
pub async fn prepare_send(app: &App, item: &mut AcceptSend, at: &str) -> Result<(), Error> {
    let key = item.target.key();
    let owner = key.session.into();
    prepare_parts(
        app,
        key.tenant,
        owner,
        &mut item.input,
        &format!("{at}/input"),
    )
    .await
}

/// Prepares what a timer sends. Its blobs are held for the session that gets it, and for the timer.
pub async fn prepare_timer(app: &App, timer: &mut NewTimer, at: &str) -> Result<(), Error> {
    let TimerTarget::Send { session, input, .. } = &mut timer.target else {
        return Ok(());
    };
    let key = SessionKey {
        tenant: timer.tenant,
        session: *session,
    };
    prepare_said(app, key, timer.id, input, &format!("{at}/input")).await
}

/// Prepares what an existing or a new timer says to a session.
pub async fn prepare_said(
    app: &App,
    to: SessionKey,
    timer: TimerId,
    input: &mut [ContentPart],
    at: &str,
) -> Result<(), Error> {
    prepare_parts(app, to.tenant, to.session.into(), input, at).await?;
    let named = input.iter().filter_map(ContentPart::blob).collect();
    let owner = BlobOwner::Timer(timer);
    app.outside.blobs.hold(to.tenant, owner, named).await?;
    Ok(())
}

/// Prepares parts that are about to be stored. `at` points to them in the request. The blob store
/// is not used unless they name a blob or contain more than `blobs.spill_bytes`. If it is
/// unavailable, large parts stay in their rows.
pub async fn prepare_parts(
    app: &App,
    tenant: TenantId,
    owner: BlobOwner,
    parts: &mut [ContentPart],
    at: &str,
) -> Result<(), Error> {
    if parts.iter().any(|part| part.blob().is_some()) {
        settle(app, tenant, owner, parts, at).await?;
    }
    if let Err(error) = app.outside.blobs.spill(tenant, owner, parts).await {
        tracing::warn!(
            error = causes(&error),
            "could not store a large part as a blob; keeping it in its row"
        );
    }
    Ok(())
}

/// Prepares the parts of an imagined send like those of a real one, but stores and holds nothing.
/// Returns the content of the blobs that they name but that are not stored.
pub async fn prepare_imagined(
    app: &App,
    tenant: TenantId,
    parts: &mut [ContentPart],
    at: &str,
) -> Result<Vec<String>, Error> {
    if parts.iter().any(|part| part.blob().is_some()) {
        let unknown = app.outside.blobs.look_up(tenant, parts).await?;
        check(parts, &unknown, at)?;
    }
    Ok(app.outside.blobs.foresee_spill(parts))
}

/// Holds the blobs that copied messages name, for the session that gets the copies. Blobs that are
/// gone are reported as missing where they would be shown.
pub async fn hold_for_copy(app: &App, copy: SessionKey, messages: &[Message]) -> Result<(), Error> {
    let named = named(messages).collect();
    let owner = copy.session.into();
    app.outside.blobs.hold(copy.tenant, owner, named).await?;
    Ok(())
}

/// The blobs that messages name: pictures, files, and outputs that are shown only in part.
pub fn named(messages: &[Message]) -> impl Iterator<Item = BlobHash> {
    messages.iter().flat_map(of_message)
}

/// Stores large parts of a call's result as blobs. If the blob store is unavailable, they stay in
/// their row.
pub async fn spill_result(app: &App, key: SessionKey, call_id: &str, result: &mut CallResult) {
    if let Err(error) = app.outside.blobs.spill_result(key, call_id, result).await {
        tracing::warn!(
            error = causes(&error),
            "could not store a large result as a blob; keeping it in its row"
        );
    }
}

async fn settle(
    app: &App,
    tenant: TenantId,
    owner: BlobOwner,
    parts: &mut [ContentPart],
    at: &str,
) -> Result<(), Error> {
    let unknown = app.outside.blobs.settle(tenant, owner, parts).await?;
    check(parts, &unknown, at)
}

/// Refuses parts whose blobs do not exist (those at the indices `unknown`) or do not fit the parts.
fn check(parts: &[ContentPart], unknown: &[usize], at: &str) -> Result<(), Error> {
    let mut errors: Vec<FieldError> = unknown
        .iter()
        .map(|place| FieldError {
            pointer: format!("{at}/{place}/source/sha256"),
            detail: "is not the SHA-256 of a blob".to_owned(),
        })
        .collect();
    for (place, part) in parts.iter().enumerate() {
        if part.blob().is_none() || unknown.contains(&place) {
            continue;
        }
        errors.extend(part.media_fault().map(|fault| FieldError {
            pointer: format!("{at}/{place}{}", fault.pointer),
            detail: fault.detail,
        }));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::invalid_members(errors))
}

impl From<blob::Error> for Error {
    fn from(error: blob::Error) -> Self {
        if let blob::Error::Rows(error) = &error {
            return Self::from(error);
        }
        let code = error.code();
        if code.class() == Class::Corrupt {
            tracing::error!(error = causes(&error), "the blob store failed");
            return Self::new(
                code,
                "the blob store returned other content than was stored",
            );
        }
        if code == Code::BlobUnavailable {
            tracing::warn!(error = causes(&error), "the blob store is unavailable");
        }
        Self::new(code, error.to_string())
    }
}
