//! Finds out what an endpoint supports by sending it small requests.
//!
//! Each request costs some tokens; the one about the prompt cache costs some thousands. The
//! endpoint's limits are read from its refusal of a request that no model could answer.

mod learn;
mod limits;

use std::sync::Arc;

use mainspring_shared::agent::OutputSpec;
use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, FileSource, ImageSource, NewMessage};
use mainspring_shared::model::{FactsOverride, Medium, Takes, Thinking, ToolSpec};
use mainspring_shared::time::Timestamp;
use mainspring_worker::llm::{Error, Model, Reply, Request};
use serde_json::json;
use uuid::Uuid;

pub use self::learn::{Learned, learn};

/// Answer tokens that suffice for each request, including some reasoning.
const ANSWER_TOKENS: u32 = 512;

/// More answer tokens than any model allows.
const TOO_MANY_TOKENS: u32 = 900_000_000;

/// Sentences in a request that is long enough for a prompt cache: about three thousand tokens.
const LONG_SENTENCES: usize = 300;

/// An image of one red dot, as PNG.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// A one-page PDF file with one word.
const PAGE: &str = "\
    JVBERi0xLjQKMSAwIG9iago8PC9UeXBlL0NhdGFsb2cvUGFnZXMgMiAwIFI+PgplbmRvYmoKMiAwIG9iago8PC9U\
    eXBlL1BhZ2VzL0tpZHNbMyAwIFJdL0NvdW50IDE+PgplbmRvYmoKMyAwIG9iago8PC9UeXBlL1BhZ2UvUGFyZW50\
    IDIgMCBSL01lZGlhQm94WzAgMCAxMDAgMTAwXS9Db250ZW50cyA0IDAgUi9SZXNvdXJjZXM8PC9Gb250PDwvRjEg\
    NSAwIFI+Pj4+Pj4KZW5kb2JqCjQgMCBvYmoKPDwvTGVuZ3RoIDMzPj5zdHJlYW0KQlQgL0YxIDI0IFRmIDIwIDQw\
    IFRkIChyZWQpIFRqIEVUCmVuZHN0cmVhbQplbmRvYmoKNSAwIG9iago8PC9UeXBlL0ZvbnQvU3VidHlwZS9UeXBl\
    MS9CYXNlRm9udC9IZWx2ZXRpY2E+PgplbmRvYmoKeHJlZgowIDYKMDAwMDAwMDAwMCA2NTUzNSBmIAowMDAwMDAw\
    MDA5IDAwMDAwIG4gCjAwMDAwMDAwNTQgMDAwMDAgbiAKMDAwMDAwMDEwNSAwMDAwMCBuIAowMDAwMDAwMjE3IDAw\
    MDAwIG4gCjAwMDAwMDAyOTcgMDAwMDAgbiAKdHJhaWxlcgo8PC9TaXplIDYvUm9vdCAxIDAgUj4+CnN0YXJ0eHJl\
    ZgozNjAKJSVFT0YK";

/// The findings. `None` means that the endpoint neither supported something nor refused it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Probed {
    /// Whether it streams.
    pub streams: Option<bool>,
    /// Whether the provider counts tokens.
    pub counts: Option<bool>,
    /// Whether it calls tools.
    pub calls_tools: Option<bool>,
    /// Whether it enforces a JSON Schema; also `None` if its transport cannot ask for that.
    pub native_schema: Option<bool>,
    /// Whether it accepts images.
    pub takes_images: Option<bool>,
    /// Whether it accepts PDF files.
    pub takes_pdf: Option<bool>,
    /// Whether it reasoned before it answered.
    pub thinks: Option<bool>,
    /// Whether it reported that its prompt cache served a request that was sent twice.
    pub caches: Option<bool>,
    /// Maximum tokens of a request and its answer together.
    pub window: Option<u64>,
    /// Maximum tokens of an answer.
    pub output_max: Option<u64>,
    /// Requests that failed for a reason that says nothing about what the endpoint supports.
    pub failed: Vec<(&'static str, String)>,
}

impl Probed {
    /// The facts for the configuration. A configuration lists either all accepted media or none, so
    /// media that were not determined are taken from `known`.
    pub fn facts(&self, known: Takes) -> FactsOverride {
        let asked = self.takes_images.or(self.takes_pdf).is_some();
        let media = [
            (Medium::Image, self.takes_images.unwrap_or(known.image)),
            (Medium::Pdf, self.takes_pdf.unwrap_or(known.pdf)),
            (Medium::Audio, known.audio),
        ];
        let taken = media.into_iter().filter(|(_, takes)| *takes);
        let taken = taken.map(|(medium, _)| medium).collect();
        FactsOverride {
            window: self.window,
            output_max: self.output_max,
            input: asked.then_some(taken),
            native_schema: self.native_schema,
            // A model that did not reason may have been free to.
            thinking: self
                .thinks
                .filter(|thinks| *thinks)
                .map(|_| Thinking::Always),
            ..FactsOverride::default()
        }
    }
}

/// Sends all requests to a model, one after the other. Fails if the simplest one fails.
pub async fn probe(model: &dyn Model, name: &str) -> Result<Probed, Error> {
    let mut probed = Probed::default();
    let mut pieces = 0_u32;
    let request = request(name, "Count from one to twenty, in words.");
    let reply = model.complete(&request, &mut |_| pieces += 1).await?;
    probed.streams = Some(pieces > 1);
    probed.counts = Some(!reply.usage.estimated);
    let thought = |part: &ContentPart| matches!(part, ContentPart::Reasoning { .. });
    probed.thinks = Some(reply.usage.reasoning_tokens > 0 || reply.content.iter().any(thought));
    let asking = Prober { model, name };
    probed.calls_tools = asking.tools(&mut probed.failed).await;
    if model.native_schema(name, false) {
        probed.native_schema = asking.schema(&mut probed.failed).await;
    }
    probed.takes_images = asking.image(&mut probed.failed).await;
    probed.takes_pdf = asking.pdf(&mut probed.failed).await;
    probed.caches = asking.cache(&mut probed.failed).await;
    let said = asking.limits().await;
    (probed.window, probed.output_max) = (said.window, said.output_max);
    Ok(probed)
}

struct Prober<'a> {
    model: &'a dyn Model,
    name: &'a str,
}

impl Prober<'_> {
    async fn ask(&self, request: &Request) -> Result<Reply, Error> {
        self.model.complete(request, &mut |_| {}).await
    }

    async fn tools(&self, failed: &mut Vec<(&'static str, String)>) -> Option<bool> {
        let mut request = request(self.name, "Call the tool `note` with the text \"ok\".");
        request.tools.push(note());
        let calls = |reply: Reply| reply.tool_calls.iter().any(|call| call.name == "note");
        settled("tools", self.ask(&request).await.map(calls), failed)
    }

    async fn schema(&self, failed: &mut Vec<(&'static str, String)>) -> Option<bool> {
        let schema = json!({
            "name": "sum",
            "schema": {
                "type": "object",
                "properties": { "sum": { "type": "integer" } },
                "required": ["sum"],
                "additionalProperties": false,
            },
            "strict": true,
        });
        let (spec, schema) = OutputSpec::read(&schema).ok()?;
        let mut request = request(self.name, "What is 17 and 25?");
        request.output = Some(Arc::new(spec));
        let fits = |reply: Reply| {
            let text = mainspring_shared::message::plain_text(&reply.content);
            let value = serde_json::from_str(&text);
            value.is_ok_and(|value| schema.faults(&value).is_empty())
        };
        settled("native_schema", self.ask(&request).await.map(fits), failed)
    }

    async fn image(&self, failed: &mut Vec<(&'static str, String)>) -> Option<bool> {
        let mut request = request(self.name, "Which colour has this picture? One word.");
        let picture = ContentPart::Image {
            source: ImageSource::Base64 {
                media_type: "image/png".to_owned(),
                data: DOT.to_owned(),
            },
        };
        for message in &mut request.messages {
            Arc::make_mut(message).content.push(picture.clone());
        }
        settled("image", self.ask(&request).await.map(|_| true), failed)
    }

    async fn pdf(&self, failed: &mut Vec<(&'static str, String)>) -> Option<bool> {
        let mut request = request(self.name, "Which word is in this file? One word.");
        let file = ContentPart::File {
            name: "word.pdf".to_owned(),
            source: FileSource::Base64 {
                media_type: "application/pdf".to_owned(),
                data: PAGE.to_owned(),
            },
        };
        for message in &mut request.messages {
            Arc::make_mut(message).content.push(file.clone());
        }
        settled("pdf", self.ask(&request).await.map(|_| true), failed)
    }

    async fn cache(&self, failed: &mut Vec<(&'static str, String)>) -> Option<bool> {
        let mut request = request(self.name, "Answer with the word ok.");
        // A separate system prompt, so that none of it is cached beforehand.
        let sentence = "The quick brown fox jumps over the lazy dog. ";
        request.system = Some(sentence.repeat(LONG_SENTENCES));
        if let Err(error) = self.ask(&request).await {
            return settled("prompt_cache", Err(error), failed);
        }
        let served = |reply: Reply| reply.usage.cache_read_tokens > 0;
        settled("prompt_cache", self.ask(&request).await.map(served), failed)
    }

    /// The limits that it reports when asked for too much.
    async fn limits(&self) -> limits::Limits {
        let request = Request {
            max_tokens: TOO_MANY_TOKENS,
            ..request(self.name, "Answer with the word ok.")
        };
        match self.ask(&request).await {
            Err(Error::InvalidRequest { message } | Error::ContextOverflow { message }) => {
                limits::read(&message, u64::from(TOO_MANY_TOKENS))
            }
            // It answers as much as it can, without saying how much that is.
            Ok(_) | Err(_) => limits::Limits::default(),
        }
    }
}

/// The result of a request: a refusal means no; any other failure is recorded.
fn settled(
    question: &'static str,
    answer: Result<bool, Error>,
    failed: &mut Vec<(&'static str, String)>,
) -> Option<bool> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) if error.code() == Code::LlmInvalidRequest => Some(false),
        Err(error) => {
            failed.push((question, error.to_string()));
            None
        }
    }
}

/// A tool that is easily called.
fn note() -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: "note".to_owned(),
        description: "Notes a text.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "text": { "type": "string" } },
            "required": ["text"],
        }),
    })
}

fn request(model: &str, text: &str) -> Request {
    let question = NewMessage::user(vec![ContentPart::text(text)], 0);
    Request {
        model: model.to_owned(),
        messages: vec![Arc::new(question.at(
            1,
            SendId(Uuid::from_u128(1)),
            Timestamp::default(),
            0,
        ))],
        max_tokens: ANSWER_TOKENS,
        ..Request::default()
    }
}

#[cfg(test)]
mod tests;
