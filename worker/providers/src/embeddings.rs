//! Embeddings by OpenAI's protocol: `POST {base_url}/embeddings`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::budget::Price;
use mainspring_shared::memory::{
    DIMENSIONS_MAX, Embedded, Embedder, Embedding, KeyedEmbedder, MemoryError, PaidCall,
};
use mainspring_shared::model::expect_tokens;
use mainspring_shared::usage::Usage;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::json;

use crate::http::client;
use crate::open::SetupError;
use crate::settings::ProviderSettings;
use mainspring_worker::llm::Secret;

/// Statuses that concern the text, for example one that exceeds the model's window, and are no
/// outage.
const REFUSES: [u16; 3] = [400, 413, 422];

/// Maximum bytes of a response, as JSON: of one text, and of each further one.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const FURTHER_BYTES_MAX: usize = 256 << 10;

/// A client that computes embeddings with one model.
#[derive(Debug, Clone)]
pub struct Embeddings {
    client: Client,
    url: Url,
    key: Secret,
    headers: Vec<(String, Secret)>,
    model: String,
    dimensions: Option<u32>,
    timeout: Duration,
    price: Option<Price>,
    /// The provider's configured name.
    provider: String,
    /// Identifies the vectors of this model.
    label: String,
}

#[derive(Debug, Deserialize)]
struct Answer {
    data: Vec<Vector>,
}

/// The part of a response that tells its cost, whatever else it contains.
#[derive(Debug, Deserialize)]
struct Costs {
    usage: Counted,
}

#[derive(Debug, Deserialize)]
struct Counted {
    prompt_tokens: u64,
}

#[derive(Debug, Deserialize)]
struct Vector {
    index: usize,
    embedding: Vec<f32>,
}

impl Embeddings {
    /// A client for this model of a provider; `dimensions` requests fewer than the model's default.
    ///
    /// # Panics
    ///
    /// If called before a rustls crypto provider is installed.
    pub fn open(
        settings: &ProviderSettings,
        model: &str,
        dimensions: Option<u32>,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        let base = settings.base_url.trim().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/embeddings"))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| SetupError::BaseUrl {
                provider: settings.name.clone(),
            })?;
        let size = dimensions.map_or(String::new(), |size| format!("@{size}"));
        Ok(Self {
            client: client(settings, &url)?,
            url,
            key: settings.api_key.clone(),
            headers: settings.headers.clone(),
            model: model.to_owned(),
            dimensions,
            timeout,
            price: None,
            provider: settings.name.clone(),
            label: format!("{}/{model}{size}", settings.name),
        })
    }

    /// Sets the price of the model's tokens.
    #[must_use]
    pub fn with_price(mut self, price: Option<Price>) -> Self {
        self.price = price;
        self
    }

    fn paid(&self, input_tokens: u64, estimated: bool) -> PaidCall {
        let mut usage = Usage {
            input_tokens,
            estimated,
            ..Usage::default()
        };
        usage.cost_usd = self.price.map(|price| price.of(&usage));
        PaidCall {
            model: self.model.clone(),
            usage,
        }
    }
}

#[async_trait]
impl Embedder for Embeddings {
    async fn embed(&self, texts: Vec<String>) -> Embedded {
        let bytes = match self.answer(&texts).await {
            Ok(bytes) => bytes,
            Err(Failed { why, paid }) => {
                return Embedded {
                    paid: paid.then(|| self.expected(&texts)),
                    ..Embedded::nothing(why)
                };
            }
        };
        // A provider that responds is paid, even if the response is unusable.
        let costs: Option<Costs> = serde_json::from_slice(&bytes).ok();
        let paid = match costs {
            Some(costs) => self.paid(costs.usage.prompt_tokens, false),
            None => self.expected(&texts),
        };
        Embedded {
            vectors: self.vectors(&bytes, texts.len()),
            paid: Some(paid),
        }
    }

    fn expected(&self, texts: &[String]) -> PaidCall {
        self.paid(texts.iter().map(|text| expect_tokens(text)).sum(), true)
    }

    fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    fn keyed(&self) -> Option<&dyn KeyedEmbedder> {
        Some(self)
    }
}

impl KeyedEmbedder for Embeddings {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn with_key(&self, key: &str) -> Result<Arc<dyn Embedder>, MemoryError> {
        Ok(Arc::new(Self {
            key: Secret::new(key),
            ..self.clone()
        }))
    }
}

/// Why there is no response.
struct Failed {
    why: MemoryError,
    /// Whether the provider may have done its work and bill it.
    paid: bool,
}

impl From<MemoryError> for Failed {
    fn from(why: MemoryError) -> Self {
        Self { why, paid: false }
    }
}

impl Embeddings {
    /// The bytes of a response.
    async fn answer(&self, texts: &[String]) -> Result<Vec<u8>, Failed> {
        let mut body = json!({ "model": self.model, "input": texts, "encoding_format": "float" });
        if let Some(dimensions) = self.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        let mut request = self.client.post(self.url.clone()).timeout(self.timeout);
        if !self.key.is_empty() {
            request = request.bearer_auth(self.key.expose());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value.expose());
        }
        let mut response = request.json(&body).send().await.map_err(|error| Failed {
            paid: error.is_timeout() && !error.is_connect(),
            why: away(&error),
        })?;
        let status = response.status();
        if REFUSES.contains(&status.as_u16()) {
            let why = MemoryError::Refused {
                why: format!(
                    "the embeddings refuse this text with status {}",
                    status.as_u16()
                ),
            };
            return Err(why.into());
        }
        if !status.is_success() {
            let why = format!("the embeddings answer with status {}", status.as_u16());
            return Err(MemoryError::Unavailable { why }.into());
        }
        let broken = |why: MemoryError| Failed { why, paid: true };
        let too_large = || {
            broken(MemoryError::Unavailable {
                why: "the embeddings' answer is too large".to_owned(),
            })
        };
        let further = texts.len().saturating_sub(1);
        let bytes_max = ANSWER_BYTES_MAX + FURTHER_BYTES_MAX * further;
        if response
            .content_length()
            .is_some_and(|n| n > bytes_max as u64)
        {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        loop {
            let piece = response.chunk().await;
            let Some(piece) = piece.map_err(|error| broken(away(&error)))? else {
                return Ok(bytes);
            };
            if bytes.len() + piece.len() > bytes_max {
                return Err(too_large());
            }
            bytes.extend_from_slice(&piece);
        }
    }

    /// The vectors of a response, if it has one for each of the `texts`.
    fn vectors(&self, bytes: &[u8], texts: usize) -> Result<Vec<Embedding>, MemoryError> {
        let Ok(mut answer) = serde_json::from_slice::<Answer>(bytes) else {
            return unavailable("the embeddings' answer cannot be read");
        };
        answer.data.sort_by_key(|vector| vector.index);
        let sound = answer.data.len() == texts
            && answer.data.iter().all(|vector| {
                let size = vector.embedding.len();
                (1..=DIMENSIONS_MAX).contains(&size)
                    && self.dimensions.is_none_or(|wanted| wanted as usize == size)
                    && vector.embedding.iter().all(|n| n.is_finite())
            });
        if !sound {
            return unavailable("the embeddings are of another number or size than asked for");
        }
        let vectors = answer.data.into_iter().map(|vector| Embedding {
            model: self.label.clone(),
            vector: vector.embedding,
        });
        Ok(vectors.collect())
    }
}

fn away(error: &reqwest::Error) -> MemoryError {
    // The URL is omitted, because it may contain a secret.
    let why = if error.is_timeout() {
        "the embedding provider did not respond in time"
    } else {
        "the embeddings cannot be reached"
    };
    MemoryError::Unavailable {
        why: why.to_owned(),
    }
}

fn unavailable<T>(why: impl Into<String>) -> Result<T, MemoryError> {
    Err(MemoryError::Unavailable { why: why.into() })
}

#[cfg(test)]
mod tests {
    use mainspring_worker::llm::Secret;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::settings::Kind;

    /// Runs a server that gives this response to one request; returns the result and the request.
    async fn asked(answer: &'static str, dimensions: Option<u32>) -> (Embedded, String) {
        asked_with(None, answer, dimensions).await
    }

    /// The same with a tenant's key.
    async fn asked_with(
        key: Option<&str>,
        answer: &'static str,
        dimensions: Option<u32>,
    ) -> (Embedded, String) {
        // May be installed already, by this or another test.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let settings = ProviderSettings {
            base_url: format!("http://{address}/v1"),
            api_key: Secret::new("very-secret"),
            ..ProviderSettings::new("main", Kind::OpenAi)
        };
        let limit = Duration::from_secs(5);
        let embeddings = Embeddings::open(&settings, "small", dimensions, limit);
        let embeddings = embeddings.expect("the settings are usable");
        let price = Price {
            input: 1e6,
            ..Price::default()
        };
        let embeddings = embeddings.with_price(Some(price));
        assert!(!format!("{embeddings:?}").contains("very-secret"));
        let keyed = embeddings.keyed().expect("it asks with a key");
        assert_eq!(keyed.provider(), "main");
        let embeddings = match key {
            Some(key) => keyed.with_key(key).expect("it is usable"),
            None => Arc::new(embeddings),
        };
        let texts = vec!["a".to_owned(), "b".to_owned()];
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                stream.read_buf(&mut request).await.expect("a request");
            }
            stream
                .write_all(answer.as_bytes())
                .await
                .expect("an answer");
            stream.shutdown().await.expect("an end");
            String::from_utf8(request).expect("is text")
        };
        tokio::join!(embeddings.embed(texts), server)
    }

    #[tokio::test]
    async fn vectors_come_in_the_order_of_their_texts() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
            {\"data\":[{\"index\":1,\"embedding\":[0,1]},{\"index\":0,\"embedding\":[1,0.5]}],\
            \"usage\":{\"prompt_tokens\":7,\"total_tokens\":7}}";
        let (made, request) = asked(answer, Some(2)).await;
        let usage = made.paid.expect("it is paid for").usage;
        assert_eq!((usage.input_tokens, usage.estimated), (7, false));
        assert_eq!(usage.cost_usd, Some(7.0));
        let made = made.vectors.expect("two vectors");
        assert_eq!(made[0].vector, [1.0, 0.5]);
        assert_eq!(made[1].vector, [0.0, 1.0]);
        assert_eq!(made[0].model, "main/small@2");
        assert!(request.starts_with("POST /v1/embeddings "), "{request}");
        assert!(
            request.contains("authorization: Bearer very-secret"),
            "{request}"
        );
        assert!(request.contains("\"dimensions\":2"), "{request}");
    }

    #[tokio::test]
    async fn a_tenants_key_takes_the_place_of_the_shared_one() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
            {\"data\":[{\"index\":0,\"embedding\":[0,1]},{\"index\":1,\"embedding\":[1,0]}]}";
        let (made, request) = asked_with(Some("its-own"), answer, Some(2)).await;
        assert_eq!(made.vectors.expect("two vectors")[0].model, "main/small@2");
        assert!(
            request.contains("authorization: Bearer its-own"),
            "{request}"
        );
        assert!(!request.contains("very-secret"), "{request}");
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_no_vector() {
        for (answer, paid) in [
            (
                "HTTP/1.1 500 Oh\r\nconnection: close\r\n\r\nvery-secret",
                None,
            ),
            // A provider that responds is paid: by its own count, or else by our estimate.
            (
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
                 {\"data\":[],\"usage\":{\"prompt_tokens\":9}}",
                Some((9, false)),
            ),
            (
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nnonsense",
                Some((2, true)),
            ),
            // Wrong dimensions, not a number, and too few vectors.
            (
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
                 {\"data\":[{\"index\":0,\"embedding\":[1]},{\"index\":1,\"embedding\":[1,2,3]}],\
                 \"usage\":{\"prompt_tokens\":9}}",
                Some((9, false)),
            ),
            (
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
                 {\"data\":[{\"index\":0,\"embedding\":[1,NaN]},{\"index\":1,\"embedding\":[1,2]}],\
                 \"usage\":{\"prompt_tokens\":9}}",
                Some((2, true)),
            ),
            (
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
                 {\"data\":[{\"index\":0,\"embedding\":[1e300,1]},{\"index\":1,\"embedding\":[1,2]}],\
                 \"usage\":{\"prompt_tokens\":9}}",
                Some((9, false)),
            ),
            (
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
                 {\"data\":[{\"index\":0,\"embedding\":[1,2]}],\"usage\":{\"prompt_tokens\":9}}",
                Some((9, false)),
            ),
        ] {
            let (made, _) = asked(answer, Some(2)).await;
            let error = made.vectors.expect_err("nothing was made").to_string();
            assert!(!error.contains("very-secret"), "{error}");
            let usage = made.paid.map(|paid| paid.usage);
            let usage = usage.map(|usage| (usage.input_tokens, usage.estimated));
            assert_eq!(usage, paid, "{answer}");
        }
    }
}
