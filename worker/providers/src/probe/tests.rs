use async_trait::async_trait;
use mainspring_shared::message::ToolCall;
use mainspring_shared::usage::Usage;
use mainspring_worker::llm::{Chunk, Finish};
use std::sync::Mutex;

use super::*;

/// An endpoint with configurable capabilities.
#[derive(Debug, Default)]
struct Endpoint {
    able: bool,
    /// The requests in its cache.
    seen: Mutex<Vec<String>>,
    broken: bool,
}

fn reply(request: &Request, text: &str) -> Reply {
    Reply {
        content: vec![ContentPart::text(text)],
        tool_calls: Vec::new(),
        finish: Finish::Stop,
        usage: Usage::default(),
        model: request.model.clone(),
    }
}

fn refused<T>(message: &str) -> Result<T, Error> {
    Err(Error::InvalidRequest {
        message: message.to_owned(),
    })
}

#[async_trait]
impl Model for Endpoint {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        if request.max_tokens > 4_096 {
            return refused("at most 4096 output tokens");
        }
        if self.broken && !request.tools.is_empty() {
            return Err(Error::unavailable("it broke"));
        }
        let pictured = |part: &ContentPart| matches!(part, ContentPart::Image { .. });
        let pictured = request
            .messages
            .iter()
            .any(|m| m.content.iter().any(pictured));
        let has_file = |part: &ContentPart| matches!(part, ContentPart::File { .. });
        let filed = request
            .messages
            .iter()
            .any(|m| m.content.iter().any(has_file));
        if (pictured || filed) && !self.able {
            return refused("no pictures and no files");
        }
        if request.output.is_some() {
            let text = if self.able { r#"{"sum": 42}"# } else { "42" };
            return Ok(reply(request, text));
        }
        let mut reply = reply(request, "one two");
        if self.able {
            on_chunk(Chunk::Text("one "));
            on_chunk(Chunk::Text("two"));
            if !request.tools.is_empty() {
                reply.tool_calls = vec![ToolCall::new("1", "note", json!({ "text": "ok" }))];
            }
            let mut seen = self.seen.lock().expect("nobody panics under it");
            if seen.contains(&request.canonical()) {
                reply.usage.cache_read_tokens = 2_000;
            }
            seen.push(request.canonical());
        } else {
            on_chunk(Chunk::Text("one two"));
            reply.usage.estimated = true;
        }
        Ok(reply)
    }

    fn native_schema(&self, _model: &str, _tools: bool) -> bool {
        true
    }
}

#[tokio::test]
async fn what_an_endpoint_can_is_found_out() {
    let able = Endpoint {
        able: true,
        ..Endpoint::default()
    };
    let probed = probe(&able, "m").await.expect("it answers");
    let yes = Some(true);
    let expected = Probed {
        streams: yes,
        counts: yes,
        calls_tools: yes,
        native_schema: yes,
        takes_images: yes,
        takes_pdf: yes,
        thinks: Some(false),
        caches: yes,
        window: None,
        output_max: Some(4_096),
        failed: Vec::new(),
    };
    assert_eq!(probed, expected);
    let facts = probed.facts(Takes::default());
    assert_eq!(facts.input, Some(vec![Medium::Image, Medium::Pdf]));
    assert_eq!((facts.output_max, facts.thinking), (Some(4_096), None));
}

#[tokio::test]
async fn what_an_endpoint_cannot_is_found_out() {
    let unable = Endpoint::default();
    let probed = probe(&unable, "m").await.expect("it answers");
    let no = Some(false);
    let found = [
        probed.streams,
        probed.counts,
        probed.calls_tools,
        probed.native_schema,
        probed.takes_images,
        probed.takes_pdf,
        probed.caches,
    ];
    assert_eq!(found, [no; 7]);
    assert_eq!(probed.facts(Takes::default()).input, Some(Vec::new()));
    // The probe does not test audio.
    let hears = Takes {
        audio: true,
        ..Takes::default()
    };
    assert_eq!(probed.facts(hears).input, Some(vec![Medium::Audio]));
}

#[tokio::test]
async fn a_failure_is_told_from_a_refusal() {
    let broken = Endpoint {
        able: true,
        broken: true,
        ..Endpoint::default()
    };
    let probed = probe(&broken, "m").await.expect("it answers");
    assert_eq!(probed.calls_tools, None);
    assert_eq!(probed.failed.len(), 1);
    assert_eq!(probed.failed[0].0, "tools");
}
