//! Refusals that left a session unusable, as users of comparable programs reported: what is refused is changed once, and
//! the next request has it no more.

use super::*;

struct Report {
    source: &'static str,
    says: &'static str,
    protocol: Protocol,
    has: Has,
    status: u16,
    text: String,
}

fn has_both_pictures(body: &Value) -> bool {
    let body = body.to_string();
    body.contains(PICTURE) && body.contains(OTHER_PICTURE)
}

fn has_picture(body: &Value) -> bool {
    body.to_string().contains(PICTURE)
}

fn has_reasoning(body: &Value) -> bool {
    body.to_string().contains(r#""type":"reasoning""#)
}

fn reports() -> Vec<Report> {
    vec![
        Report {
            source: "anomalyco/opencode#47487",
            says: "of too many pictures some are left out",
            protocol: Protocol::Chat,
            has: has_both_pictures,
            status: 400,
            text: error("Error from provider (Console Go): Upstream request failed: [invalid_request_error] request contains 2 images, exceeding the maximum of 1 allowed per request", None, None),
        },
        Report {
            source: "anthropics/claude-code#24541",
            says: "pictures may be told as media, beside pages of documents",
            protocol: Protocol::Messages,
            has: has_both_pictures,
            status: 400,
            text: anthropic("Too much media: 0 document pages + 2 images > 1"),
        },
        Report {
            source: "gsd-build/gsd-2#3075",
            says: "the pixels of one among many pictures may be too many",
            protocol: Protocol::Messages,
            has: has_both_pictures,
            status: 400,
            text: anthropic("messages.2.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels"),
        },
        Report {
            source: "vybestack/llxprt-code#2130",
            says: "a picture may be another kind of picture than it says",
            protocol: Protocol::Messages,
            has: has_picture,
            status: 400,
            text: anthropic("messages.2.content.1.image.source.base64: The image was specified using the image/jpeg media type, but the image appears to be a image/png image"),
        },
        Report {
            source: "earendil-works/pi#401",
            says: "a request of too many bytes has pictures that can go",
            protocol: Protocol::Messages,
            has: has_picture,
            status: 413,
            text: r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#.to_owned(),
        },
        Report {
            source: "can1357/oh-my-pi#271",
            says: "a request of too many bytes may be said to be unreadable",
            protocol: Protocol::Responses,
            has: has_picture,
            status: 413,
            text: "failed to parse request".to_owned(),
        },
        Report {
            source: "Wei-Shaw/sub2api#3138",
            says: "encrypted reasoning that nobody can read any more is left out",
            protocol: Protocol::Responses,
            has: has_reasoning,
            status: 400,
            text: error("The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be decrypted or parsed.", None, Some("invalid_encrypted_content")),
        },
        Report {
            source: "agentscope-ai/agentscope#2420",
            says: "reasoning that a server has forgotten is left out",
            protocol: Protocol::Responses,
            has: has_reasoning,
            status: 400,
            text: error("Referenced reasoning item 'rs_1' was not found or has expired.", None, None),
        },
        Report {
            source: "ggml-org/llama.cpp#27367",
            says: "a template's complaint has the status of a failure",
            protocol: Protocol::Chat,
            has: |body| body.to_string().contains(r#""role":"system""#),
            status: 500,
            text: error("\n------------\nWhile executing CallExpression at line 85, column 32 in source:\n...first %}        {{- raise_exception('System message must be at the beginning.') }}...\nError: Jinja Exception: System message must be at the beginning.", None, None),
        },
    ]
}

#[tokio::test]
async fn what_left_a_session_unusable_is_refused_once() {
    let mut wrong = Vec::new();
    for (number, report) in reports().into_iter().enumerate() {
        let server = Server::new(report.protocol).await;
        let model = server.model(|_| {});
        let Report {
            source,
            says,
            has,
            status,
            text,
            ..
        } = report;
        let case = Case {
            name: says.to_owned(),
            has: Box::new(has),
            says: Box::new(move |_| (status, text.clone())),
            gone: Some(BTreeSet::new()),
        };
        let what = server.during(tried(&server, &*model, number, case)).await;
        wrong.extend(what.map(|what| format!("{source}: {says}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
