//! Vectors of texts, computed by workers that are configured with a model for them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::vectors::vectors;
use mainspring_shared::tenant::{Binding, Outside};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::codes::AgentNotFound;
use crate::extract::{Json, JsonBody, NoQuery, Query};
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;
use crate::validate::Checks;

/// Maximum number of texts of a request, as at OpenAI.
const TEXTS_MAX: usize = 2_048;

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(create))
}

/// Texts to compute the vectors of, in the form of OpenAI's API.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenAiEmbeddingBody)]
#[expect(dead_code, reason = "members that change nothing are accepted")]
pub(super) struct EmbeddingBody {
    /// The workers' model for vectors, as `MODEL` or `PROVIDER/MODEL`.
    model: String,
    /// A text, or at most 2048.
    #[schema(value_type = Value)]
    input: Value,
    /// `float`, or `base64` for the bytes of numbers of 32 bits, the lowest first.
    encoding_format: Option<String>,
    /// The size of a vector: must be the one that is configured, if given.
    dimensions: Option<usize>,
    /// Ignored.
    user: Option<String>,
}

/// A request, checked.
#[derive(Debug)]
pub(super) struct EmbeddingAsk {
    model: String,
    texts: Vec<String>,
    as_bytes: bool,
    dimensions: Option<usize>,
}

impl JsonBody for EmbeddingBody {
    type Checked = EmbeddingAsk;

    fn checked(self, checks: &mut Checks) -> EmbeddingAsk {
        let list = match self.input {
            Value::Array(list) => list,
            one => vec![one],
        };
        let texts = list.iter().map(|text| text.as_str().map(str::to_owned));
        let texts = texts.collect::<Option<Vec<String>>>().unwrap_or_else(|| {
            let detail =
                "must be a text or a list of texts: tokens of another model mean nothing here";
            checks.refuse("/input", detail);
            vec![" ".to_owned()]
        });
        if !(1..=TEXTS_MAX).contains(&texts.len()) {
            checks.refuse("/input", &format!("must have 1 to {TEXTS_MAX} texts"));
        }
        if texts.iter().any(String::is_empty) {
            checks.refuse("/input", "must not have an empty text");
        }
        let as_bytes = match self.encoding_format.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => {
                checks.refuse("/encoding_format", "must be float or base64");
                false
            }
        };
        EmbeddingAsk {
            model: self.model,
            texts,
            as_bytes,
            dimensions: self.dimensions,
        }
    }
}

/// Computes vectors like OpenAI's Embeddings API, with the workers' model for them
#[utoipa::path(
    post,
    path = "/v1/embeddings",
    operation_id = "createOpenAiEmbedding",
    request_body = EmbeddingBody,
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<EmbeddingBody>,
) -> Result<Response, Problem> {
    if caller.binding().is_some_and(Binding::names_agents) {
        return Err(Error::outside(&Outside::Agent).into());
    }
    let asked = json.value;
    let made = vectors(&app, caller.tenant, &asked.model, asked.texts).await?;
    let size = made.vectors.first().map(Vec::len);
    if let (Some(wanted), Some(size)) = (asked.dimensions, size)
        && wanted != size
    {
        let detail = format!("must be {size}, as configured by memory.embeddings_dimensions");
        return Err(Error::invalid("/dimensions", detail).into());
    }
    let data = made.vectors.iter().enumerate().map(|(index, vector)| {
        let embedding = if asked.as_bytes {
            let bytes: Vec<u8> = vector.iter().flat_map(|n| n.to_le_bytes()).collect();
            json!(STANDARD.encode(bytes))
        } else {
            json!(vector)
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    let data: Vec<Value> = data.collect();
    let answer = json!({
        "object": "list", "model": made.model, "data": data,
        "usage": { "prompt_tokens": made.tokens, "total_tokens": made.tokens },
    });
    respond::json(StatusCode::OK, &answer)
}
