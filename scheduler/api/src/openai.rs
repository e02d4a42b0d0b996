//! The API in OpenAI's form: responses, chat completions, conversations and models.
//!
//! It is another view of the same rows and events. A response is a send (or the part of one behind calls that the
//! client answered), a conversation is a session, a model is a published agent or a provider's model. Nothing is stored
//! for it besides what a sender says about a send.

mod answer;
mod body;
mod chat;
mod conversations;
mod embeddings;
mod encode;
mod error;
mod given;
mod history;
mod ids;
mod items;
pub(crate) mod listen;
mod models;
mod once;
mod pages;
mod references;
mod responses;
mod settings;
mod stream;
mod turn;
mod view;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;

use crate::router::Api;

pub(crate) use self::error::{is_ours, reshaped};

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .merge(responses::routes())
        .merge(chat::routes())
        .merge(conversations::routes())
        .merge(embeddings::routes())
        .merge(models::routes())
}

/// Whether a request is answered with a stream, or not before something ends.
pub(crate) fn lasts(method: &axum::http::Method, uri: &axum::http::Uri) -> bool {
    let path = uri.path();
    let creates = *method == axum::http::Method::POST
        && ["/v1/responses", "/v1/chat/completions"].contains(&path);
    let query = uri.query().unwrap_or_default();
    creates
        || (path.starts_with("/v1/responses/")
            && query.split('&').any(|pair| pair == "stream=true"))
}
