//! Exports of sessions as archives.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::{once, try_unfold};
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::blobs::named;
use mainspring_shared::blob::{self, BlobHash, BlobRef};
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{Message, settled_len};
use mainspring_shared::session::fold;
use mainspring_shared::store::{self, ReadMessages};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::archive::{PIECE_BYTES, Writer};
use super::copies::{LINES, PAGE, lists};
use super::gate::Admission;
use super::problem::Problem;
use super::router::exported_bytes_max;
use crate::codes::{BlobUnavailable, SessionNotFound};
use crate::extract::{Query, SessionPath, text};
use crate::router::Api;

/// What an archive is to have.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportQuery {
    /// Whether it has the content of pictures, files and long outputs. Without it, an import finds what the
    /// other server has stored itself.
    #[serde(default, deserialize_with = "text")]
    #[param(default = true)]
    blobs: Option<bool>,
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(export))
}

/// An archive: a header line, a line per message, lines with the blobs that they name, and a line with counts
/// and a SHA-256 of the preceding lines
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/export",
    operation_id = "exportSession",
    params(ExportQuery),
    responses((status = 200, body = String, content_type = LINES), BlobUnavailable, SessionNotFound)
)]
pub(super) async fn export(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    Query(query): Query<ExportQuery>,
    Extension(admission): Extension<Admission>,
) -> Result<Response, Problem> {
    let session = app.store.get_session(key).await?;
    let session = session.ok_or_else(Error::session_not_found)?;
    let mut writer = Writer::default();
    let (left, before) = (session.messages, session.first_seq - 1);
    let lists = lists(&app, key).await?;
    let folds = fold::copies(app.store.read_folds(key).await?, before, before + left);
    let header = writer.header(session, lists, folds);
    let header = header.map_err(|_| Error::internal())?;
    let exporting = Exporting {
        app,
        _admission: admission,
        key,
        writer,
        place: Progress {
            left,
            before,
            after: before,
        },
        held: Vec::new(),
        ready: Vec::new(),
        blobs: query.blobs.unwrap_or(true).then(BlobsNamed::default),
        piece: Some(header),
    };
    let (first, behind) = exporting.begin().await.map_err(problem)?;
    let pieces = try_unfold(behind, async |exporting| match exporting {
        Some(exporting) => exporting.next().await,
        None => Ok(None),
    });
    let first = once(async { Ok::<_, Failed>(first) });
    let mut response = Response::new(Body::from_stream(first.chain(pieces)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(LINES));
    let name = format!("attachment; filename=\"{}.jsonl\"", key.session);
    if let Ok(name) = HeaderValue::try_from(name) {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// An archive being sent. It ends where every call has its result, so that it can be imported.
struct Exporting {
    app: Arc<Api>,
    _admission: Admission,
    key: SessionKey,
    writer: Writer,
    place: Progress,
    /// Messages starting with the first call whose result has not been read.
    held: Vec<Message>,
    /// Messages to be sent after the blobs that they name.
    ready: Vec<Message>,
    /// The blobs to be sent; none if they are not wanted.
    blobs: Option<BlobsNamed>,
    /// A piece to be sent before anything else is read.
    piece: Option<Vec<u8>>,
}

/// The progress of reading the transcript.
struct Progress {
    /// Number of messages left to read, of those that existed at the start.
    left: i64,
    /// Number of messages that were pruned: an archive is numbered from 1.
    before: i64,
    after: i64,
}

/// The blobs that messages name.
#[derive(Default)]
struct BlobsNamed {
    wanted: VecDeque<BlobHash>,
    /// Blobs that were sent or could not be.
    known: BTreeSet<BlobHash>,
    /// The blob being sent.
    going: Option<Outgoing>,
}

struct Outgoing {
    blob: BlobRef,
    data: Bytes,
    at: usize,
    /// Its share of the bytes that may be exported at a time.
    _weight: OwnedSemaphorePermit,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The error to report if a failure occurs before the response has begun.
fn problem(failed: Failed) -> Error {
    match failed.downcast::<blob::Error>() {
        Ok(error) => Error::from(*error),
        Err(failed) => match failed.downcast::<store::Error>() {
            Ok(error) => Error::from(*error),
            Err(_) => Error::session_not_found(),
        },
    }
}

impl Exporting {
    /// The first two pieces and the rest. If the store is unavailable from the start, this can
    /// still be reported as an error response.
    async fn begin(self) -> Result<(Bytes, Option<Self>), Failed> {
        let mut pieces = BytesMut::new();
        let mut left = Some(self);
        for _ in 0..2 {
            let Some(exporting) = left.take() else {
                break;
            };
            if let Some((piece, behind)) = exporting.next().await? {
                pieces.extend_from_slice(&piece);
                left = behind;
            }
        }
        Ok((pieces.freeze(), left))
    }

    /// The next piece and the rest. A failure breaks off the response: without its last line,
    /// nobody takes the archive for complete.
    async fn next(mut self) -> Result<Option<(Bytes, Option<Self>)>, Failed> {
        if let Some(piece) = self.piece.take() {
            return Ok(Some((piece.into(), Some(self))));
        }
        loop {
            if let Some(line) = self.blob_line()? {
                return Ok(Some((line.into(), Some(self))));
            }
            let wanted = self.blobs.as_mut();
            if let Some(sha256) = wanted.and_then(|blobs| blobs.wanted.pop_front()) {
                let read = self.read_blob(sha256).await?;
                if let Some(blobs) = &mut self.blobs {
                    blobs.going = read;
                }
                continue;
            }
            if !self.ready.is_empty() {
                let lines = self.writer.messages(&std::mem::take(&mut self.ready))?;
                return Ok(Some((lines.into(), Some(self))));
            }
            if self.place.left == 0 {
                return Ok(Some((self.writer.footer()?.into(), None)));
            }
            self.read_messages().await?;
        }
    }

    async fn read_messages(&mut self) -> Result<(), Failed> {
        let query = ReadMessages {
            key: self.key,
            after: self.place.after,
            limit: PAGE.min(u32::try_from(self.place.left).unwrap_or(PAGE)),
        };
        let page = self.app.store.read_messages(query).await?;
        if page.is_empty() {
            return Err("the session was deleted in the meantime".into());
        }
        self.place.left -= page.len() as i64;
        self.place.after += page.len() as i64;
        let numbered = page.into_iter().map(|message| Message {
            seq: message.seq - self.place.before,
            ..message
        });
        self.held.extend(numbered);
        let behind = self.held.split_off(settled_len(&self.held));
        self.ready = std::mem::replace(&mut self.held, behind);
        if let Some(blobs) = &mut self.blobs {
            let named = named(&self.ready);
            let new = named.filter(|sha256| blobs.known.insert(*sha256));
            blobs.wanted.extend(new);
        }
        Ok(())
    }

    /// Reads a whole blob, whose content is checked against its hash before any of it is sent.
    /// Blobs that are gone or damaged are left out, and models see them as missing.
    async fn read_blob(&self, sha256: BlobHash) -> Result<Option<Outgoing>, Failed> {
        let (blobs, tenant) = (&self.app.outside.blobs, self.key.tenant);
        let Some(record) = blobs.find(tenant, sha256).await? else {
            return Ok(None);
        };
        let room = usize::try_from(record.bytes).unwrap_or(usize::MAX);
        let room = room.min(exported_bytes_max(&self.app.config));
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let weight = self.app.exported.clone().acquire_many_owned(room).await?;
        match blobs.read_whole(&record).await {
            Ok(Some(data)) => Ok(Some(Outgoing {
                blob: BlobRef {
                    sha256,
                    media_type: record.media_type,
                    bytes: record.bytes,
                },
                data,
                at: 0,
                _weight: weight,
            })),
            Ok(None) => Ok(None),
            Err(blob::Error::Corrupt { .. }) => {
                tracing::error!(blob.sha256 = %sha256, "leaving a damaged blob out of an archive");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The next line of the blob being sent.
    fn blob_line(&mut self) -> Result<Option<Vec<u8>>, Failed> {
        let Some(blobs) = &mut self.blobs else {
            return Ok(None);
        };
        let Some(mut going) = blobs.going.take() else {
            return Ok(None);
        };
        let line = self.writer.piece(&going.blob, &going.data, going.at)?;
        going.at += PIECE_BYTES;
        blobs.going = (going.at < going.data.len()).then_some(going);
        Ok(Some(line))
    }
}
