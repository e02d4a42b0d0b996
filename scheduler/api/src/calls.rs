//! Tool calls answered from outside: results of external tools, people's answers, long outputs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::{Error, FieldError};
use mainspring_scheduler::services::{blobs, results};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionId, SessionKey};
use mainspring_shared::message::{ContentPart, numbers};
use mainspring_shared::store::{CallAnswer, PostOutcome, PostResult};
use mainspring_shared::tool::{
    Approval, CallRecord, CallResult, Question, Reply, bounded, digest_part,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::input::{Input, input_schema};
use super::problem::Problem;
use super::respond;
use super::validate::Checks;
use crate::access::Caller;
use crate::codes::{BlobCorrupt, BlobNotFound, BlobUnavailable, CallNotFound, SessionNotFound};
use crate::extract::{Json, JsonBody, NoQuery, Query, SessionPath};
use crate::router::Api;

/// Maximum number of results per request.
const RESULTS_MAX: usize = 1_000;

/// Maximum number of characters of a result that the model is shown.
const OUTPUT_CHARS_MAX: usize = 50_000;

/// Results of calls.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultsBody {
    /// At most 1000.
    results: Vec<ResultBody>,
}

/// The result of one call: an output, content or an error.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultBody {
    /// The call.
    call_id: String,
    /// Which question this answers, as in the `wants` of the waiting call. When absent: a call that waits for
    /// permission, or waited for one, is answered by `{"approved": true | false, "note"?}`, and by anything else
    /// with its result.
    answers: Option<Asked>,
    /// Any JSON; a text is shown to the model as it is. For a question a text, one of its options, or
    /// `true` and `false`, by its kind. For permission: `{"approved": true | false, "note"?}`. For what a tool asks:
    /// `{"action": "accept", "content"?}`, `{"action": "decline"}` or `{"action": "cancel"}`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>)]
    output: Option<Box<RawValue>>,
    /// A text, or a list of text, image and file parts for the model.
    #[schema(schema_with = input_schema)]
    content: Option<Input>,
    /// What went wrong, for the model.
    #[serde(default, deserialize_with = "present")]
    error: Option<String>,
    /// One line that says what is left of the call once it is old, for agents that show digests of older
    /// sends or summaries of older results; at most 256 bytes are kept.
    digest: Option<String>,
    /// Which question of the tool is answered, as listed; the first one when absent.
    question: Option<u32>,
    /// What the caller claimed the call with. When absent, the result counts whoever has claimed the call.
    #[schema(value_type = Option<String>, format = "uuid")]
    claim: Option<Uuid>,
}

impl ResultBody {
    /// An answer to what a call asks.
    pub(super) fn answer(call_id: String, answers: Asked, output: &Value) -> Self {
        Self {
            answers: Some(answers),
            output: serde_json::value::to_raw_value(output).ok(),
            ..Self::of_parts(call_id, Vec::new())
        }
    }

    /// What went wrong with a call.
    pub(super) fn failure(call_id: String, error: String) -> Self {
        Self {
            output: None,
            error: Some(error),
            ..Self::of_parts(call_id, Vec::new())
        }
    }

    /// The same, to this question of the call's tool.
    pub(super) fn with_question(mut self, number: usize) -> Self {
        self.question = u32::try_from(number).ok();
        self
    }

    /// The result of a call: a text, or parts for the model.
    pub(super) fn of_parts(call_id: String, parts: Vec<ContentPart>) -> Self {
        let (output, content) = match parts.as_slice() {
            [] => (Some(String::new()), None),
            [ContentPart::Text { text }] => (Some(text.clone()), None),
            _ => (None, Some(Input(parts))),
        };
        Self {
            call_id,
            answers: None,
            output: output.and_then(|text| serde_json::value::to_raw_value(&text).ok()),
            content,
            error: None,
            digest: None,
            question: None,
            claim: None,
        }
    }
}

impl JsonBody for ResultsBody {
    type Checked = Self;

    const KEEPS_NUMBERS: bool = true;

    fn checked(self, checks: &mut Checks) -> Self {
        if self.results.is_empty() || self.results.len() > RESULTS_MAX {
            checks.refuse("/results", &format!("must have 1 to {RESULTS_MAX} items"));
        }
        for (place, result) in self.results.iter().enumerate() {
            let at = format!("/results/{place}");
            let given = [
                result.output.is_some(),
                result.content.is_some(),
                result.error.is_some(),
            ];
            if given.into_iter().filter(|given| *given).count() != 1 {
                checks.refuse(&at, "must have one of output, content and error");
            }
            if let Some(Input(parts)) = &result.content {
                checks.parts(&format!("{at}/content"), parts);
            }
            if result.digest.is_some() && result.error.is_some() {
                checks.refuse(&format!("{at}/digest"), "an error has none");
            }
            let error_nul = result.error.as_ref().is_some_and(|e| e.contains('\0'));
            if result.call_id.contains('\0') || error_nul {
                checks.refuse(&at, "must not contain U+0000");
            }
        }
        self
    }
}

/// Deserializes a member that is present, so that null counts as a value.
fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Asked {
    /// Permission to run it.
    Permission,
    /// Its result, or an answer to its question.
    Answer,
}

/// A person's decision on a call that waits for permission.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Permission {
    approved: bool,
    #[serde(default)]
    note: Option<String>,
}

/// The outcomes of the posted results, in order.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct PostedResults {
    pub(super) results: Vec<PostedResult>,
}

/// The outcome of one.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct PostedResult {
    /// The call.
    call_id: String,
    /// What the result was taken as an answer to.
    answers: Option<Asked>,
    #[schema(inline)]
    pub(super) status: Posted,
}

/// How it was taken. `claim_lost`: someone else has the call. `locked`: another transaction has held its session for long;
/// nothing was stored, post it again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Posted {
    Accepted,
    AlreadySettled,
    NotWaiting,
    ClaimLost,
    Unknown,
    Locked,
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(post_results))
        .routes(routes!(output))
}

/// Posts results of external tools, and answers to questions and approvals; the first result counts
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/tool-results",
    operation_id = "postToolResults",
    request_body = ResultsBody,
    responses((status = 200, body = PostedResults), CallNotFound, SessionNotFound)
)]
pub(super) async fn post_results(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
    Json { value: body, .. }: Json<ResultsBody>,
) -> Result<Response, Problem> {
    respond::json(StatusCode::OK, &posted(&app, key, body.results).await?)
}

/// Posts results of calls of a session.
pub(super) async fn posted(
    app: &App,
    key: SessionKey,
    mut posted: Vec<ResultBody>,
) -> Result<PostedResults, Problem> {
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let ids = posted.iter();
    let ids = ids.map(|result| (key.tenant, result.call_id.clone()));
    let calls = app.store.get_calls(ids.collect()).await?;
    for (place, result) in posted.iter_mut().enumerate() {
        if let Some(Input(parts)) = &mut result.content {
            let at = format!("/results/{place}/content");
            blobs::prepare_parts(app, key.tenant, key.session.into(), parts, &at).await?;
        }
    }
    let mut checks = Checks::new();
    let mut items = Vec::with_capacity(posted.len());
    let mut names = Vec::with_capacity(posted.len());
    for (place, (result, call)) in posted.into_iter().zip(calls).enumerate() {
        names.push(result.call_id.clone());
        let answer = answer(&mut checks, place, &result, call.as_ref());
        items.push(PostResult {
            key,
            call_id: result.call_id,
            answer,
        });
    }
    checks.finish()?;
    for item in &mut items {
        if let CallAnswer::Result(result)
        | CallAnswer::Refuse(result)
        | CallAnswer::Report { result, .. } = &mut item.answer
        {
            blobs::spill_result(app, key, &item.call_id, result).await;
        }
    }
    let asked = items.iter().map(|item| item.answer.is_about_permission());
    let asked: Vec<bool> = asked.collect();
    let outcomes = results::post(app, items).await?;
    if outcomes.iter().all(results::is_locked) {
        return Err(Error::locked().into());
    }
    if outcomes
        .iter()
        .all(|outcome| *outcome == PostOutcome::Unknown)
    {
        return Err(unknown(&names).into());
    }
    let results = names.into_iter().zip(asked).zip(outcomes);
    let results = results.map(|((call_id, of_permission), outcome)| PostedResult {
        call_id,
        answers: (outcome != PostOutcome::Unknown).then_some(if of_permission {
            Asked::Permission
        } else {
            Asked::Answer
        }),
        status: match outcome {
            PostOutcome::Accepted { .. } => Posted::Accepted,
            // Only a request about claims leads to a claim.
            PostOutcome::Claimed(_) | PostOutcome::ClaimLost => Posted::ClaimLost,
            PostOutcome::AlreadySettled => Posted::AlreadySettled,
            PostOutcome::NotWaiting => Posted::NotWaiting,
            PostOutcome::Unknown => Posted::Unknown,
            PostOutcome::Locked => Posted::Locked,
        },
    });
    let results = results.collect();
    Ok(PostedResults { results })
}

/// The error of a request none of whose calls exists.
fn unknown(names: &[String]) -> Error {
    let members = names.iter().enumerate().map(|(place, _)| FieldError {
        pointer: format!("/results/{place}/call_id"),
        detail: "no call of this session, or of a session below it, has this id".to_owned(),
    });
    Error::with_members(Code::CallNotFound, members.collect())
}

/// What a posted result says, and to which of the call's questions.
fn answer(
    checks: &mut Checks,
    place: usize,
    posted: &ResultBody,
    call: Option<&CallRecord>,
) -> CallAnswer {
    let bounded = |result| bounded(result, &posted.call_id, OUTPUT_CHARS_MAX);
    match decision(posted, call) {
        Decision::None => {
            let asks = call.filter(|call| !call.asked.is_empty() && call.result.is_none());
            if let Some(call) = asks.filter(|_| posted.error.is_none()) {
                return reply(checks, place, posted, call);
            }
            let result = bounded(result(checks, place, posted, call));
            match posted.claim {
                Some(token) => CallAnswer::Report { token, result },
                None => CallAnswer::Result(result),
            }
        }
        Decision::Given => CallAnswer::Approve,
        Decision::Refused(result) => CallAnswer::Refuse(bounded(result)),
        Decision::Unclear => {
            let detail = "the call waits for approval: {\"approved\": true or false, \"note\"?}";
            checks.refuse(&format!("/results/{place}/output"), detail);
            CallAnswer::Approve
        }
    }
}

/// What a posted result says about permission.
enum Decision {
    /// Nothing: it is the call's result.
    None,
    /// The call may run.
    Given,
    /// The call may not run; what it is settled with.
    Refused(CallResult),
    /// It must decide, but does neither.
    Unclear,
}

/// Reads a posted result as a decision.
///
/// One that does not say what it answers is a decision while the call waits for permission. After that it still is
/// one if it has the form: a client repeats a decision whose response it did not get, and by then the call may wait
/// for its result.
fn decision(posted: &ResultBody, call: Option<&CallRecord>) -> Decision {
    let approval = call.map_or(Approval::None, |call| call.approval);
    let open = call.is_some_and(|call| call.waits_on.is_some() && call.result.is_none());
    let must_decide = match posted.answers {
        Some(Asked::Answer) => return Decision::None,
        Some(Asked::Permission) => true,
        None if approval == Approval::None => return Decision::None,
        None => approval == Approval::Asked && open,
    };
    if posted.error.is_some() {
        return if must_decide {
            Decision::Refused(failure(posted.error.as_deref()))
        } else {
            Decision::None
        };
    }
    let output = posted.output.as_ref().map_or("null", |output| output.get());
    match serde_json::from_str::<Permission>(output) {
        Ok(Permission { approved: true, .. }) => Decision::Given,
        Ok(Permission { note, .. }) => {
            let note = note.map(|note| format!(": {note}")).unwrap_or_default();
            let text = format!("error: a person did not approve this call{note}");
            Decision::Refused(CallResult::error(Code::ToolDenied, text))
        }
        Err(_) if must_decide => Decision::Unclear,
        Err(_) => Decision::None,
    }
}

fn failure(error: Option<&str>) -> CallResult {
    let error = error.unwrap_or_default();
    CallResult::error(Code::ToolFailed, format!("error: {error}"))
}

/// The result that a posted one gives to a call.
fn result(
    checks: &mut Checks,
    place: usize,
    posted: &ResultBody,
    call: Option<&CallRecord>,
) -> CallResult {
    if posted.error.is_some() {
        return failure(posted.error.as_deref());
    }
    let text = posted.output.as_ref().map_or("null", |output| output.get());
    // It was read as JSON, so it can be read again.
    let output: Value = serde_json::from_str(text).unwrap_or_default();
    let shown = posted.content.as_ref().map(|Input(parts)| parts.clone());
    let open = call.filter(|call| call.result.is_none() && shown.is_none());
    let question = open.and_then(|call| Question::of(&call.name, &call.arguments));
    if let Some(question) = question {
        let answer = question.answer(&output).unwrap_or_else(|detail| {
            checks.refuse(&format!("/results/{place}/output"), &detail);
            String::new()
        });
        return CallResult::text(answer);
    }
    let mut result = match output {
        _ if shown.is_some() => CallResult {
            content: shown.unwrap_or_default(),
            ..CallResult::text("")
        },
        Value::String(text) => CallResult::text(text),
        // The model reads the text as it was written; a value would have other numbers.
        value => CallResult {
            content: vec![ContentPart::text(numbers::compact(text))],
            value: numbers::unfit(text).is_none().then(|| Box::new(value)),
            ..CallResult::text("")
        },
    };
    result
        .content
        .extend(posted.digest.as_deref().and_then(digest_part));
    result
}

/// The answer to what the tool of a call asks.
fn reply(checks: &mut Checks, place: usize, posted: &ResultBody, call: &CallRecord) -> CallAnswer {
    let question = posted.question.map_or(1, |question| question as usize);
    let nothing = |question| CallAnswer::Reply {
        question,
        reply: Reply::Cancel {},
    };
    let at = format!("/results/{place}");
    let asked = question.checked_sub(1).and_then(|n| call.asked.get(n));
    let Some(asked) = asked else {
        let detail = format!("the tool has asked {} questions", call.asked.len());
        checks.refuse(&format!("{at}/question"), &detail);
        return nothing(question);
    };
    // Whatever is answered to it now comes too late.
    if asked.reply.is_some() {
        return nothing(question);
    }
    let Some(output) = &posted.output else {
        checks.refuse(
            &format!("{at}/content"),
            "the answer to a tool is an output",
        );
        return nothing(question);
    };
    // It was read as JSON, so it can be read again.
    let output: Value = serde_json::from_str(output.get()).unwrap_or_default();
    match asked.inquiry.answer(&output) {
        Ok(reply) => CallAnswer::Reply { question, reply },
        Err(faults) => {
            for fault in faults {
                checks.refuse(&format!("{at}/output{}", fault.pointer), &fault.detail);
            }
            nothing(question)
        }
    }
}

/// The whole output of a tool call
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/calls/{call_id}/output",
    operation_id = "getCallOutput",
    responses((status = 200, body = String), BlobCorrupt, BlobNotFound, BlobUnavailable, CallNotFound, SessionNotFound)
)]
pub(super) async fn output(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Path((session, call_id)): Path<(String, String)>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let session: SessionId = session.parse().map_err(|_| Error::session_not_found())?;
    let key = SessionKey {
        tenant: caller.tenant,
        session,
    };
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let output = app.outside.blobs.output(key, &call_id).await;
    let output = output.map_err(Error::from)?.ok_or_else(|| {
        Error::new(
            Code::CallNotFound,
            "this session has no settled call with this id",
        )
    })?;
    let mut response = Response::new(Body::from(output));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    Ok(response)
}
