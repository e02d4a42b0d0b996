//! Refusals that users of comparable programs reported: the public thread, what must be made of it, host, status and
//! body, and the code and the wait in milliseconds.

use super::vendors::tables::{ANY, GEMINI, NO_MONEY, OPENROUTER, OVERFLOW};
use super::*;

const LIMITED: &str = "llm.rate_limited";
const COPILOT: &str = "api.githubcopilot.com";
const AZURE: &str = "me.openai.azure.com";

struct Report {
    source: &'static str,
    says: &'static str,
    refused: (&'static str, u16, &'static str),
    code: &'static str,
    wait_ms: Option<u128>,
}

const REPORTS: &[Report] = &[
    Report {
        source: "openclaw/openclaw#3188",
        says: "an overflow may be told as a code of one word",
        refused: (
            ANY,
            400,
            r#"{"error":{"type":"context_overflow","message":"The request does not fit."}}"#,
        ),
        code: OVERFLOW,
        wait_ms: None,
    },
    Report {
        source: "anomalyco/opencode#27519",
        says: "more tokens than allowed are an overflow",
        refused: (
            ANY,
            400,
            r#"{"error":{"message":"tokens in request more than max tokens allowed","type":"invalid_request_error"}}"#,
        ),
        code: OVERFLOW,
        wait_ms: None,
    },
    Report {
        source: "openclaw/openclaw#58839 (Bedrock)",
        says: "the limit of a model's input is its window",
        refused: (
            ANY,
            400,
            r#"{"message":"ValidationException: Input exceeds the max input token limit"}"#,
        ),
        code: OVERFLOW,
        wait_ms: None,
    },
    Report {
        source: "openclaw/openclaw#58839 (Cohere)",
        says: "a total above the model's maximum is an overflow",
        refused: (
            "api.cohere.com",
            400,
            r#"{"message":"total tokens exceeds the model's max of 4096"}"#,
        ),
        code: OVERFLOW,
        wait_ms: None,
    },
    Report {
        source: "openclaw/openclaw#58839 (others)",
        says: "a maximum number of input tokens is a window",
        refused: (
            ANY,
            400,
            r#"{"error":"the maximum number of input tokens is 32768"}"#,
        ),
        code: OVERFLOW,
        wait_ms: None,
    },
    Report {
        source: "ggml-org/llama.cpp#19774",
        says: "an overflow may have the status of a failure",
        refused: (
            ANY,
            500,
            r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#,
        ),
        code: OVERFLOW,
        wait_ms: None,
    },
    Report {
        source: "fedora-copr/logdetective-website#193",
        says: "llama-cpp-python tells an overflow as a failure of its own",
        refused: (
            ANY,
            500,
            r#"{"error":{"message":"Requested tokens (2285) exceed context window of 2048","type":"internal_server_error","param":null,"code":null}}"#,
        ),
        code: OVERFLOW,
        wait_ms: None,
    },
    Report {
        source: "NousResearch/hermes-agent#106427",
        says: "a hard cap of a gateway's budget is no throttling",
        refused: (
            ANY,
            429,
            r#"{"error":{"message":"You have hit a hard billing limit.","type":"budget","code":"terminal_quota_exhausted"}}"#,
        ),
        code: NO_MONEY,
        wait_ms: None,
    },
    Report {
        source: "screenpipe/screenpipe#4594 (credits)",
        says: "exhausted credits may be told as a code of one word",
        refused: (ANY, 429, r#"{"error":"credits_exhausted"}"#),
        code: NO_MONEY,
        wait_ms: None,
    },
    Report {
        source: "screenpipe/screenpipe#4594 (a day)",
        says: "a day's limit of costs is reset some time of the day",
        refused: (ANY, 429, r#"{"error":"daily_cost_limit_exceeded"}"#),
        code: LIMITED,
        wait_ms: Some(900_000),
    },
    Report {
        source: "github/copilot-cli#730",
        says: "no quota at all is no throttling",
        refused: (
            COPILOT,
            402,
            r#"{"message":"You have no quota","code":"quota_exceeded"}"#,
        ),
        code: NO_MONEY,
        wait_ms: None,
    },
    Report {
        source: "NousResearch/hermes-agent#93455",
        says: "a week's limit that says when it is reset is waited for",
        refused: (
            ANY,
            429,
            r#"{"error":{"message":"Weekly usage limit reached. Resets in 6hr 29min."}}"#,
        ),
        code: LIMITED,
        wait_ms: Some(23_340_000),
    },
    Report {
        source: "code-yeongyu/senpi#1969",
        says: "a plan's limit is not reset within the seconds of a few attempts",
        refused: (
            ANY,
            429,
            r#"{"type":"usage_limit_reached","message":"The usage limit has been reached"}"#,
        ),
        code: LIMITED,
        wait_ms: Some(900_000),
    },
    Report {
        source: "NousResearch/hermes-agent#26893",
        says: "the seconds until a plan's limit is reset are the wait",
        refused: (
            ANY,
            429,
            r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus","resets_at":1764000756,"resets_in_seconds":756}}"#,
        ),
        code: LIMITED,
        wait_ms: Some(756_000),
    },
    Report {
        source: "coder/coder#26200",
        says: "a page on quotas in a limit of the minute makes it no empty purse",
        refused: (
            AZURE,
            429,
            r#"{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 24 seconds. Please go here: https://aka.ms/oai/quotaincrease if you would like to further increase the default rate limit."}}"#,
        ),
        code: LIMITED,
        wait_ms: Some(24_000),
    },
    Report {
        source: "diegosouzapw/OmniRoute#8163",
        says: "a reset in parentheses is waited for",
        refused: (
            GEMINI,
            429,
            r#"{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota). (reset after 24h)","status":"RESOURCE_EXHAUSTED"}}"#,
        ),
        code: LIMITED,
        wait_ms: Some(86_400_000),
    },
    Report {
        source: "NousResearch/hermes-agent#39809",
        says: "the delay to retry may be an object of seconds and nanoseconds",
        refused: (
            GEMINI,
            429,
            r#"{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{"seconds":171,"nanos":500000000}}]}}"#,
        ),
        code: LIMITED,
        wait_ms: Some(171_500),
    },
    Report {
        source: "github/copilot-cli#2696",
        says: "a wait of days is one",
        refused: (
            COPILOT,
            429,
            r#"{"error":{"message":"Sorry, you've hit a rate limit that restricts the number of Copilot model requests you can make within a specific time period. Please try again in 58 hours. Please review our Terms of Service."}}"#,
        ),
        code: LIMITED,
        wait_ms: Some(208_800_000),
    },
    Report {
        source: "microsoft/vscode-copilot-release#2627",
        says: "a request to wait says for how long",
        refused: (
            COPILOT,
            429,
            r#"{"error":{"message":"Sorry, your request was rate-limited. Please wait 6 minutes before trying again."}}"#,
        ),
        code: LIMITED,
        wait_ms: Some(360_000),
    },
];

fn check(reports: &[Report], judge: impl Fn(u16, &Refusal) -> Error) {
    let mut wrong = Vec::new();
    for report in reports {
        let (host, status, body) = report.refused;
        let told = ProviderSecrets::at(host);
        let error = judge(status, &Refusal::from_body(body.as_bytes(), &told, NOW));
        let wait = error.retry_after().map(|wait| wait.as_millis());
        if error.code().as_str() != report.code || wait != report.wait_ms {
            let Report { source, says, .. } = report;
            wrong.push(format!("{source}: {says}: {} {wait:?}", error.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn refusals_mean_what_their_reporters_found_out() {
    check(REPORTS, |status, refusal| classify(status, refusal, None));
}

/// The same inside of answers with status 200.
const INSIDE: &[Report] = &[
    Report {
        source: "NousResearch/hermes-agent#61123",
        says: "a limit without a status is one of rates",
        refused: (ANY, 200, r#"{"error":"rate limit exceeded"}"#),
        code: LIMITED,
        wait_ms: None,
    },
    Report {
        source: "Aider-AI/aider#3550",
        says: "a day's limit amid an answer is one",
        refused: (
            OPENROUTER,
            200,
            r#"{"error":{"message":"Rate limit exceeded: free-models-per-day","code":429,"metadata":{"headers":{"X-RateLimit-Limit":"200","X-RateLimit-Remaining":"0"},"provider_name":"Google AI Studio"}},"user_id":"user_x"}"#,
        ),
        code: LIMITED,
        wait_ms: Some(900_000),
    },
    Report {
        source: "gptme/gptme#1223",
        says: "an overload in a single word is an outage",
        refused: (OPENROUTER, 200, r#"{"error":"Overloaded"}"#),
        code: "llm.unavailable",
        wait_ms: None,
    },
];

#[test]
fn errors_inside_answers_mean_what_their_reporters_found_out() {
    check(INSIDE, |_, refusal| classify_inside(refusal));
}
