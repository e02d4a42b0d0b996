//! Transcripts.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::message::Message;
use mainspring_shared::session::fold::Fold;
use mainspring_shared::store::ReadMessages;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use crate::codes::SessionNotFound;
use crate::extract::{FromText, Limit, Query, SessionPath, text};
use crate::openapi::form;
use crate::router::Api;

/// Which messages, in their order.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MessagesQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "text")]
    #[param(inline)]
    cursor: Option<Seq>,
    /// Only messages after this `seq`.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::MessageSeq>, inline)]
    after: Option<Seq>,
    /// Whether folds are shown in their places, behind the messages that they stand for.
    #[serde(default, deserialize_with = "text")]
    #[param(default = false)]
    folded: Option<bool>,
}

/// A place in a transcript: after a message, and after this many of the folds that end with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seq(i64, u32);

impl FromText for Seq {
    const EXPECTED: &'static str = "must be a message's seq";

    fn from_text(text: &str) -> Option<Self> {
        let (seq, folds) = text.split_once('.').unwrap_or((text, "0"));
        let seq = seq.parse().ok().filter(|seq| *seq >= 0)?;
        Some(Self(seq, folds.parse().ok()?))
    }
}

impl utoipa::PartialSchema for Seq {
    fn schema() -> RefOr<Schema> {
        form::text(r"^[0-9]{1,18}(\.[0-9]{1,9})?$")
    }
}

impl utoipa::ToSchema for Seq {}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 => write!(f, "{}", self.0),
            folds => write!(f, "{}.{folds}", self.0),
        }
    }
}

/// What a page shows.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(super) enum Entry {
    /// A message.
    Message(Message),
    /// The text that the model sees instead of the earlier messages.
    Fold(FoldEntry),
}

/// The role of a fold, which no message has.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum FoldRole {
    Fold,
}

/// The text that the model sees instead of the earlier messages.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct FoldEntry {
    /// Tells it from messages.
    role: FoldRole,
    #[serde(flatten)]
    fold: Fold,
}

/// An entry and its place.
type Placed = (Seq, Entry);

/// Folds with their places: each after the last message that it replaces.
fn placed(mut folds: Vec<Fold>) -> Vec<(Seq, Fold)> {
    folds.retain(|fold| fold.covered_by.is_none());
    folds.sort_by_key(|fold| (fold.to_seq, fold.from_seq));
    let mut last = Seq(0, 0);
    let placed = folds.into_iter().map(|fold| {
        let seq = fold.to_seq.max(0);
        last = if last.0 == seq {
            Seq(seq, last.1 + 1)
        } else {
            Seq(seq, 1)
        };
        (last, fold)
    });
    placed.collect()
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// The transcript by seq
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/messages",
    operation_id = "listMessages",
    params(MessagesQuery),
    responses((status = 200, body = List<Entry>), SessionNotFound)
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    Query(query): Query<MessagesQuery>,
) -> Result<Response, Problem> {
    let after = query.cursor.or(query.after).unwrap_or(Seq(0, 0));
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let folds = if query.folded == Some(true) {
        placed(app.store.read_folds(key).await?)
    } else {
        Vec::new()
    };
    let begin = Begin {
        cursor: Some(after),
        limit: query.limit.0,
    };
    let read = async |after: Option<Seq>, limit: u32| {
        let after = after.unwrap_or(Seq(0, 0));
        // Read one more than requested to see whether there are more.
        let wanted = ReadMessages {
            key,
            after: after.0,
            limit: limit + 1,
        };
        let messages = app.store.read_messages(wanted).await?;
        let until = match messages.last() {
            Some(last) if messages.len() > limit as usize => Seq(last.seq, 0),
            Some(_) | None => Seq(i64::MAX, 0),
        };
        let between = folds
            .iter()
            .filter(|(place, _)| *place > after && *place < until);
        let between = between.map(|(place, fold)| {
            let fold = fold.clone();
            (
                *place,
                Entry::Fold(FoldEntry {
                    role: FoldRole::Fold,
                    fold,
                }),
            )
        });
        let messages = messages.into_iter();
        let mut entries: Vec<Placed> = messages
            .map(|message| (Seq(message.seq, 0), Entry::Message(message)))
            .chain(between)
            .collect();
        entries.sort_by_key(|(place, _)| *place);
        let more = entries.len() > limit as usize;
        entries.truncate(limit as usize);
        Ok((entries, more))
    };
    respond::page(&app, begin, read, |(place, _)| *place, |(_, entry)| entry).await
}
