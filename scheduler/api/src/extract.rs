//! Extracts paths, queries and bodies from requests. Invalid ones are refused with a problem that
//! says where the fault is.

mod json;
mod known;
mod query;

use std::ops::Deref;
use std::sync::Arc;

use axum::body::{Body, BodyDataStream};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Path, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::store::IdempotencyKey;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::OwnedSemaphorePermit;

pub(super) use self::json::{parse, push};
pub(crate) use self::query::{
    FromText, Key, LastEventId, Limit, NoQuery, PageQuery, Query, SendWaitQuery, WaitQuery, cursor,
    parameter, text,
};
use super::problem::Problem;
use crate::access::Caller;
use crate::archive::PIECE_BYTES;
use crate::idempotency;
use crate::router::Api;
use crate::validate::Checks;
use mainspring_scheduler::error::Error;

/// Up to this many bytes, JSON is parsed or hashed in well under a millisecond. Longer JSON is
/// processed without blocking other requests.
pub(super) const BLOCKING_MIN_BYTES: usize = 128 << 10;

/// The session that a path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionPath(pub(super) SessionKey);

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text = path_text(parts, state).await.unwrap_or_default();
        let session = text
            .parse()
            .map_err(|_| no_id(Code::SessionNotFound, "session", "ses_"))?;
        let Caller { tenant, .. } = Caller::from_request_parts(parts, state).await?;
        Ok(Self(SessionKey { tenant, session }))
    }
}

/// The send that a path names, with the caller's tenant.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendPath(pub(super) TenantId, pub(super) SendId);

impl<S: Send + Sync> FromRequestParts<S> for SendPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text = path_text(parts, state).await.unwrap_or_default();
        let id = text
            .parse()
            .map_err(|_| no_id(Code::SendNotFound, "send", "snd_"))?;
        let Caller { tenant, .. } = Caller::from_request_parts(parts, state).await?;
        Ok(Self(tenant, id))
    }
}

/// The error for a text in a path that cannot be the id of anything. The text is not repeated: some put keys there.
pub(super) fn no_id(code: Code, what: &str, prefix: &str) -> Error {
    let detail =
        format!("the path has no id of a {what}: those are {prefix} and 32 hexadecimal digits");
    Error::new(code, detail)
}

async fn path_text<S: Send + Sync>(parts: &mut Parts, state: &S) -> Option<String> {
    let path = Path::<String>::from_request_parts(parts, state).await;
    path.ok().map(|Path(text)| text)
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A complete body. While it is held, it counts towards the limit on all bodies.
#[derive(Debug)]
pub(super) struct Whole {
    bytes: Bytes,
    weight: Weight,
}

/// A body's share of the bytes that all bodies may have.
pub(crate) type Weight = Option<OwnedSemaphorePermit>;

impl Whole {
    /// Takes its share, to keep it for longer than the bytes.
    pub(super) fn weight(&mut self) -> Weight {
        self.weight.take()
    }
}

impl Whole {
    /// Without the byte order mark that some clients put before UTF-8.
    fn unmarked(mut self) -> Self {
        if self.bytes.starts_with(BYTE_ORDER_MARK) {
            self.bytes = self.bytes.split_off(BYTE_ORDER_MARK.len());
        }
        self
    }

    /// The bytes, without a copy. They count towards the limit as long as this body is held.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a complete body of at most `bytes_max` bytes.
pub(super) async fn read_body(
    app: &Api,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Whole, Error> {
    refuse_encoded(headers)?;
    // A body that exceeds the limit on all bodies can never be accepted.
    let bytes_max = bytes_max.min(app.config.bodies_bytes_max);
    refuse_announced(headers, bytes_max)?;
    let mut stream = body.into_data_stream();
    let mut reading = Box::pin(collect(app, &mut stream, bytes_max));
    // Most bodies arrive along with their heads, and need no timer.
    if let Some(read) = reading.as_mut().now_or_never() {
        return read;
    }
    tokio::select! {
        biased;
        read = reading => read,
        () = app.clock.sleep(app.config.body_timeout) => Err(late()),
    }
}

async fn collect(app: &Api, stream: &mut BodyDataStream, bytes_max: usize) -> Result<Whole, Error> {
    let Some(first) = stream.next().await.transpose().map_err(broken)? else {
        return Ok(Whole {
            bytes: Bytes::new(),
            weight: None,
        });
    };
    // The announced size reserves nothing: only received bytes count.
    let mut weight = weigh(app, first.len())?;
    let mut whole: Option<BytesMut> = None;
    let mut length = first.len();
    while length <= bytes_max {
        let Some(chunk) = stream.next().await.transpose().map_err(broken)? else {
            let bytes = whole.map_or(first, BytesMut::freeze);
            let weight = Some(weight);
            return Ok(Whole { bytes, weight });
        };
        weight.merge(grow(app, length, chunk.len())?);
        length += chunk.len();
        whole
            .get_or_insert_with(|| BytesMut::from(&first[..]))
            .extend_from_slice(&chunk);
    }
    Err(Error::too_large(bytes_max))
}

/// A body that is read in chunks, at most `batch_bytes_max` bytes in total.
pub(super) struct Chunks<'a> {
    stream: BodyDataStream,
    left: usize,
    bytes_max: usize,
    /// Exempt bytes since the deadline was last extended.
    carried: usize,
    /// The deadline for the whole body.
    late: BoxFuture<'a, ()>,
}

impl<'a> Chunks<'a> {
    pub(super) fn of(app: &'a Api, body: Body) -> Self {
        let bytes_max = app.config.batch_bytes_max;
        Self {
            stream: body.into_data_stream(),
            left: bytes_max,
            bytes_max,
            carried: 0,
            late: Box::pin(app.clock.sleep(app.config.body_timeout)),
        }
    }

    /// Exempts this many of the received bytes from the limit: they are content of blobs, which
    /// have a limit of their own. Each time they add up to a piece, the deadline is extended, so
    /// that sending slowly gains nothing.
    pub(super) fn go_on(&mut self, app: &'a Api, bytes: usize) {
        self.left = (self.left + bytes).min(self.bytes_max);
        self.carried += bytes;
        if self.carried >= PIECE_BYTES {
            self.carried = 0;
            self.late = Box::pin(app.clock.sleep(app.config.body_timeout));
        }
    }

    /// The next chunk; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = tokio::select! {
            biased;
            chunk = self.stream.next() => chunk.transpose().map_err(broken)?,
            () = &mut self.late => return Err(late()),
        };
        let length = chunk.as_ref().map_or(0, Bytes::len);
        let left = self.left.checked_sub(length);
        self.left = left.ok_or_else(|| Error::too_large(self.bytes_max))?;
        Ok(chunk)
    }
}

/// Refuses a compressed body, because bodies are not decoded.
pub(super) fn refuse_encoded(headers: &HeaderMap) -> Result<(), Error> {
    let is_plain = |value: &HeaderValue| {
        let mut names = value.to_str().unwrap_or("?").split(',').map(str::trim);
        names.all(|name| name.is_empty() || name.eq_ignore_ascii_case("identity"))
    };
    if headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
        Ok(())
    } else {
        Err(Error::content_encoding())
    }
}

fn refuse_announced(headers: &HeaderMap, bytes_max: usize) -> Result<(), Error> {
    let said = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if said.is_some_and(|said: u64| said > bytes_max as u64) {
        return Err(Error::too_large(bytes_max));
    }
    Ok(())
}

fn broken(_: axum::Error) -> Error {
    Error::new(Code::RequestInvalid, "the body could not be read")
}

fn late() -> Error {
    Error::new(Code::RequestInvalid, "the body did not arrive in time")
}

/// Reserves a share of the bytes that all bodies may have.
pub(super) fn weigh(app: &Api, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let room = app.bodies.clone().try_acquire_many_owned(bytes);
    room.map_err(|_| Error::too_much("bytes"))
}

/// The divisor of the share that bodies arriving in several chunks leave for those arriving in one.
const KEPT: usize = 16;

/// Reserves more bytes for a body that has `length` bytes already. Unless it is the only body, it
/// leaves room for small ones, so that large bodies that arrive slowly do not cause all others to
/// be refused. Bodies that grow at the same moment may use a little of that room.
fn grow(app: &Api, length: usize, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
    let (all, free) = (app.config.bodies_bytes_max, app.bodies.available_permits());
    let is_alone = all.saturating_sub(free) <= length;
    if !is_alone && free < bytes + all / KEPT {
        return Err(Error::too_much("bytes"));
    }
    weigh(app, bytes)
}

/// Refuses a body whose media type does not fit. A body without a media type is refused too,
/// because browsers let any page send one.
pub(super) fn expect_kind(
    headers: &HeaderMap,
    body: &[u8],
    fits: impl Fn(&str) -> bool,
    name: &str,
) -> Result<(), Error> {
    let Some(given) = headers.get(CONTENT_TYPE) else {
        if body.trim_ascii().is_empty() {
            return Ok(());
        }
        return Err(Error::media_type(format!(
            "Content-Type is missing: the body must be {name}"
        )));
    };
    let text = given.to_str().unwrap_or_default().to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    if !fits(parts.next().unwrap_or_default()) {
        return Err(Error::media_type(format!("the body must be {name}")));
    }
    let charset = parts.find_map(|part| part.strip_prefix("charset="));
    match charset.map(|name| name.trim_matches('"')) {
        None | Some("utf-8" | "utf8" | "us-ascii") => Ok(()),
        Some(_) => Err(Error::media_type("the body must be UTF-8".to_owned())),
    }
}

/// Whether a media type, in lower case and without parameters, is JSON.
pub(super) fn is_json(essence: &str) -> bool {
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Refuses a body that is not JSON.
fn expect_json(headers: &HeaderMap, body: &[u8]) -> Result<(), Error> {
    expect_kind(headers, body, is_json, "application/json")
}

/// Reads a JSON body.
pub(super) async fn json_body(
    app: &Api,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Whole, Error> {
    // If another media type is declared, the body is not read at all.
    if headers.contains_key(CONTENT_TYPE) {
        expect_json(headers, &[])?;
    }
    let whole = read_body(app, headers, body, bytes_max).await?;
    expect_json(headers, &whole)?;
    Ok(whole.unmarked())
}

/// The body of a request, as it is parsed.
pub(crate) trait JsonBody: DeserializeOwned + Send {
    /// The result of checking it.
    type Checked;

    /// Whether its numbers are kept as they were written, however long they are.
    const KEEPS_NUMBERS: bool = false;

    /// The value for a request without a body; none if a body is required.
    fn absent() -> Option<Self> {
        None
    }

    /// Adapts the error for a body that cannot be parsed.
    fn unreadable(error: Error) -> Error {
        error
    }

    /// Checks everything that the type does not express.
    fn checked(self, checks: &mut Checks) -> Self::Checked;
}

/// Deserializes a member that is present, whether null or not.
pub(crate) fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// A complete JSON body, parsed and checked. All faults are reported at once. While it is held, its
/// bytes count towards the limit on all bodies.
#[derive(Debug)]
pub(crate) struct Json<T: JsonBody> {
    pub(crate) value: T::Checked,
    pub(crate) whole: Whole,
    headers: HeaderMap,
    caller: Caller,
}

impl<T: JsonBody> Json<T> {
    /// The request's headers.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The request's idempotency key for this route, if it has the header.
    pub(crate) fn idempotency(&self, route: &str) -> Result<Option<IdempotencyKey>, Error> {
        idempotency::of_request(&self.caller, &self.headers, route, &self.whole)
    }
}

impl<T: JsonBody> FromRequest<Arc<Api>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, api).await?;
        let headers = std::mem::take(&mut parts.headers);
        let absent = T::absent();
        let whole = match &absent {
            Some(_) => maybe_json_body(api, &headers, body).await?,
            None => json_body(api, &headers, body, api.config.body_bytes_max).await?,
        };
        let read = if let Some(absent) = absent.filter(|_| whole.trim_ascii().is_empty()) {
            absent
        } else {
            let read = parse(&whole, "").map_err(|error| {
                let route = parts.extensions.get::<MatchedPath>();
                known::advised(T::unreadable(error), &parts.method, route)
            })?;
            if !T::KEEPS_NUMBERS {
                json::refuse_unfit(&whole)?;
            }
            read
        };
        let mut checks = Checks::new();
        let value = read.checked(&mut checks);
        checks.finish()?;
        Ok(Self {
            value,
            whole,
            headers,
            caller,
        })
    }
}

/// No body, or one without members, for requests that take none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

impl JsonBody for Nothing {
    type Checked = ();

    fn absent() -> Option<Self> {
        Some(Self {})
    }

    fn checked(self, _checks: &mut Checks) {}
}

/// Reads a JSON body that may be absent. Many clients send a content type even without a body, so
/// it is checked only if there is one.
async fn maybe_json_body(api: &Api, headers: &HeaderMap, body: Body) -> Result<Whole, Error> {
    let whole = read_body(api, headers, body, api.config.body_bytes_max).await?;
    let whole = whole.unmarked();
    if !whole.trim_ascii().is_empty() {
        expect_json(headers, &whole)?;
    }
    Ok(whole)
}

/// Does work that may take tens of milliseconds without blocking other requests.
pub(super) fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        Ok(_) | Err(_) => work(),
    }
}

/// Like `run_blocking`, but only if the work is long.
pub(super) fn run_blocking_if<T>(long: bool, work: impl FnOnce() -> T) -> T {
    if long { run_blocking(work) } else { work() }
}

/// Parses a session id in a body. A malformed id counts as an unknown one.
pub(super) fn session_id(text: &str) -> Result<SessionId, Error> {
    text.parse().map_err(|_| Error::session_not_found())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A value whose parsing waits until another task is done.
    struct Patient(bool);

    static DONE: std::sync::Mutex<Option<std::sync::mpsc::Receiver<()>>> =
        std::sync::Mutex::new(None);

    impl<'de> Deserialize<'de> for Patient {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            serde::de::IgnoredAny::deserialize(from)?;
            let done = DONE.lock().expect("nobody panics under it").take();
            let done = done.expect("one test reads one");
            Ok(Self(done.recv_timeout(Duration::from_secs(20)).is_ok()))
        }
    }

    #[test]
    fn a_large_body_is_read_beside_other_requests() {
        let (done, waits) = std::sync::mpsc::channel();
        *DONE.lock().expect("nobody panics under it") = Some(waits);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build();
        let runtime = runtime.expect("a runtime");
        let json = format!("{{\"text\": \"{}\"}}", "x".repeat(BLOCKING_MIN_BYTES));
        let reading = runtime.spawn(async move {
            // The runtime's only thread is busy with this parse until it is done.
            let other = tokio::spawn(async move { done.send(()).is_ok() });
            let Patient(was_done) = parse(json.as_bytes(), "").expect("is JSON");
            (was_done, other.await.is_ok_and(|sent| sent))
        });
        assert_eq!(runtime.block_on(reading).expect("joins"), (true, true));
    }
}
