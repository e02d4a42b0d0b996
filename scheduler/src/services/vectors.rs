//! Vectors of texts for callers of the API, computed by workers: only they have the keys of providers.

use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::memory::{VectorsAsk, VectorsMade};

use super::asking::{ASKED_MAX, asked, workers};
use crate::app::App;
use crate::error::Error;

/// How long a worker may take to answer: longer than its provider may.
const PATIENCE: Duration = Duration::from_secs(35);

/// How many texts a worker is asked for at once, and of how many bytes: vectors are long.
const TEXTS_MAX: usize = 64;
const BYTES_MAX: usize = 1 << 20;

/// The vectors of texts, in order, and the tokens that these have.
#[derive(Debug, Default)]
pub struct Vectors {
    /// The model, as `PROVIDER/MODEL`.
    pub model: String,
    /// One for each text.
    pub vectors: Vec<Vec<f32>>,
    /// The tokens of all texts.
    pub tokens: u64,
}

/// Computes the vectors of texts with the model of this name, at the tenant's expense.
pub async fn vectors(
    app: &App,
    tenant: TenantId,
    model: &str,
    texts: Vec<String>,
) -> Result<Vectors, Error> {
    let (pool, model) = pool_of(app, model).await?;
    let mut made = Vectors {
        model,
        ..Vectors::default()
    };
    let mut texts = texts.into_iter().peekable();
    while texts.peek().is_some() {
        let mut some = Vec::new();
        let mut bytes = 0;
        while let Some(text) = texts.next_if(|text| {
            let has_room = some.len() < TEXTS_MAX && bytes + text.len() <= BYTES_MAX;
            has_room || some.is_empty()
        }) {
            bytes += text.len();
            some.push(text);
        }
        let (vectors, tokens) = page(app, tenant, (&pool, &made.model), some).await?;
        made.vectors.extend(vectors);
        made.tokens += tokens;
    }
    Ok(made)
}

/// A pool whose workers have the model, and its whole name.
async fn pool_of(app: &App, model: &str) -> Result<(String, String), Error> {
    let mut others = Vec::new();
    for pool in app.store.list_tools().await? {
        for published in pool.models.iter().flatten() {
            match &published.vectors {
                Some(name) if published.has_vectors_of(model) => {
                    return Ok((pool.pool, name.clone()));
                }
                Some(name) => others.push(format!("{name:?}")),
                None => {}
            }
        }
    }
    others.sort_unstable();
    others.dedup();
    let detail = if others.is_empty() {
        "no worker computes vectors: set memory.embeddings_model".to_owned()
    } else {
        format!(
            "no worker computes vectors with {model:?}, only with {}",
            others.join(", ")
        )
    };
    Err(Error::new(Code::AgentNotFound, detail).at("/model"))
}

async fn page(
    app: &App,
    tenant: TenantId,
    (pool, model): (&str, &str),
    texts: Vec<String>,
) -> Result<(Vec<Vec<f32>>, u64), Error> {
    let count = texts.len();
    for boot in workers(app, pool).await?.into_iter().take(ASKED_MAX) {
        let ask = VectorsAsk {
            id: app.entropy.random_id(),
            boot,
            tenant,
            model: model.to_owned(),
            texts: texts.clone(),
        };
        match asked(app, ask.id, &ask, PATIENCE).await {
            Some(VectorsMade::Vectors { vectors, tokens }) if vectors.len() == count => {
                return Ok((vectors, tokens));
            }
            Some(VectorsMade::Refused { code, detail }) => {
                let error = Error::new(code, detail);
                return Err(if code == Code::RequestInvalid {
                    error.at("/input")
                } else {
                    error
                });
            }
            Some(VectorsMade::Vectors { .. }) | None => {}
        }
    }
    let detail = format!("no worker of the pool {pool:?} answered");
    Err(Error::new(Code::StoreUnavailable, detail))
}
