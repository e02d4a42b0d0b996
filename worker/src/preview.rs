//! Previews of a session's next model call. A preview takes no lease and writes nothing: it reads
//! what a claim would return and renders it as the call itself would be rendered.

mod foreseen;
mod held;
mod next;
mod parts;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use mainspring_shared::agent::Isolation;
use mainspring_shared::blob::unstored;
use mainspring_shared::bus::{Notice, Topic};
use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::id::SendId;
use mainspring_shared::memory::OnBehalfOf;
use mainspring_shared::message::NewMessage;
use mainspring_shared::session::preview::{Answered, Ask, Preview, PreviewFold, PreviewLimit};
use mainspring_shared::session::render::following;
use mainspring_shared::store::{ReadInbox, StartedSend};
use tokio::sync::Semaphore;

use self::next::Next;
use self::parts::Sizes;
use crate::llm::expect_tokens;
use crate::send::load::{self, Question};
use crate::send::{Output, OwnLists, PendingMessages, foreseen, size_at_most};
use crate::tool::{NoCell, Offers};
use crate::{Kernel, Parts};

/// How many previews are answered at once: each may hold a whole window.
const AT_ONCE: usize = 4;

/// Maximum number of inbox items that a round tells.
const ITEMS_MAX: u32 = 64;

/// Maximum bytes of a provider request that is included; larger ones are not sent over the bus.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Answers preview requests until the worker has nothing left to do.
pub(crate) async fn answer(kernel: Arc<Kernel>) {
    let mut asks = kernel.parts.bus.subscribe(Topic::Asks).await;
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let notice = tokio::select! {
            biased;
            () = kernel.tasks.done.cancelled() => return,
            notice = asks.next() => notice,
        };
        let json = match notice {
            Some(Notice::Payload(json)) => json,
            // A client whose request was lost asks again.
            Some(Notice::Gap) => continue,
            None => return,
        };
        let Ok(ask) = serde_json::from_slice::<Ask>(&json) else {
            continue;
        };
        let mine = kernel
            .boot
            .current()
            .is_some_and(|life| life.id == ask.boot);
        if !mine {
            continue;
        }
        let Ok(place) = places.clone().try_acquire_owned() else {
            let busy = "the worker is busy with other previews";
            publish(
                &kernel,
                &ask,
                &Answered::refused(Code::StoreUnavailable, busy),
            );
            continue;
        };
        let kernel = kernel.clone();
        tokio::spawn(async move {
            let answered = match preview(&kernel, &ask).await {
                Ok(preview) => Answered::Preview(Box::new(preview)),
                Err(refused) => refused,
            };
            publish(&kernel, &ask, &answered);
            drop(place);
        });
    }
}

fn publish(kernel: &Kernel, ask: &Ask, answered: &Answered) {
    match serde_json::to_vec(answered) {
        Ok(json) => kernel
            .parts
            .bus
            .publish(Topic::Answers(ask.id), Bytes::from(json)),
        Err(error) => tracing::error!(%error, "could not serialize a preview"),
    }
}

/// What the model would be offered. For an isolated agent a separate cell is used, not that of a
/// running send.
async fn offers(parts: &Parts, send: &StartedSend) -> Result<Offers, Answered> {
    let offers = if send.agent.isolation == Isolation::None {
        load::offers(&parts.tools, parts.clock.as_ref(), send).await
    } else {
        let mut send = send.clone();
        send.record.id = SendId(parts.entropy.random_id());
        let offers = load::offers(&parts.tools, parts.clock.as_ref(), &send).await;
        parts.tools.left(send.record.key, send.record.id);
        offers
    };
    offers.map_err(|why| Answered::refused(NoCell::CODE, why.to_string()))
}

#[expect(
    clippy::too_many_lines,
    reason = "one step after another, each told once"
)]
async fn preview(kernel: &Arc<Kernel>, ask: &Ask) -> Result<Preview, Answered> {
    let parts = &kernel.parts;
    let away =
        |error: mainspring_shared::store::Error| Answered::refused(error.code(), error.to_string());
    let Next {
        send,
        window,
        is_sent,
        mut limits,
        history,
    } = next::of(kernel, ask).await?;
    let record = &send.record;
    let resolved = parts.providers.resolve(load::model(&send));
    let resolved = resolved.map_err(|error| Answered::refused(error.code(), error.to_string()))?;
    let offers = offers(parts, &send).await?;
    let output = Output::of(parts.clock.as_ref(), &send, window.held()).await;
    let output = output.map_err(|fault| {
        let detail = format!("the output schema {}: {fault}", fault.pointer);
        Answered::refused(Code::SpecInvalid, detail)
    })?;
    if let Some(fault) = offers.choice_fault(&send, record.rounds) {
        return Err(Answered::refused(Code::ToolNotFound, fault));
    }
    let mut shown = load::shown(&send, window.next_seq());
    let own = OwnLists::of(&offers);
    if record.shown.is_none() && own != OwnLists::default() {
        let texts = own.read(parts.store.as_ref(), ask.key).await;
        texts.map_err(away)?.show(shown.get_or_insert_default());
    }
    if record.shown.is_none() && send.agent.memory.is_some() {
        let session = parts.store.get_session(ask.key).await.map_err(away)?;
        let metadata = session.map(|session| session.metadata).unwrap_or_default();
        let on_behalf_of = OnBehalfOf {
            session: Some(ask.key.session),
            send: is_sent.then_some(record.id),
        };
        if let Some(memory) = foreseen(parts, &send, on_behalf_of, &metadata).await {
            shown.get_or_insert_default().memory = Some(memory);
        }
    }
    let mut pending_messages = PendingMessages::default();
    if record.rounds == 0 {
        pending_messages.input(NewMessage::user(record.input.clone(), 0));
    }
    let query = ReadInbox {
        key: ask.key,
        pending: true,
        after: 0,
        limit: ITEMS_MAX,
    };
    let items = parts.store.read_inbox(query).await.map_err(away)?;
    pending_messages.items(items, record.id, record.rounds);
    let folds = window.folds();
    let from = shown.as_ref().and_then(|shown| shown.from_seq).unwrap_or(1);
    let by = (record.id, record.created_at, &record.input[..]);
    let question = Question {
        send: &send,
        round: record.rounds,
        resolved: &resolved,
        offers: &offers,
        shown: shown.as_ref(),
        folds,
        projections: window.projections(from),
        messages: following(&window, from, &pending_messages.messages, by),
        aged_to: shown.as_ref().and_then(|shown| shown.aged_to).unwrap_or(0),
        partial: None,
        output: output.as_ref().map(|output| &output.spec),
    };
    let foreseen = foreseen::of(kernel, &question, (&window, from), &resolved);
    let request = foreseen.request;
    limits.extend(held::pauses(kernel, &send, &resolved, &offers));
    limits.extend(held::gate(kernel, (record.key.tenant, &resolved), &request));
    let facts = resolved.facts;
    let calibrations = parts.providers.calibrations();
    let calibration = calibrations.of((&resolved.provider, &resolved.model), &facts);
    let cached_to = history.cached_to(&send, from, kernel.boot.database_time(parts));
    let sizes = Sizes {
        request: &request,
        next_seq: window.next_seq(),
        calibration,
        price: facts.price,
        keeps: resolved.client.keeps_prompts(),
        cached_to: cached_to.map(|seq| seq.min(foreseen.same_to.unwrap_or(seq))),
    };
    let sized = sizes.parts();
    let tokens = sized.iter().map(|part| part.tokens).sum();
    let cached = sized.iter().map(|part| part.cached).sum();
    let answer_max = request.max_tokens;
    let budget = facts.budget_for(u64::from(answer_max));
    if tokens > budget {
        limits.push(PreviewLimit {
            code: Code::LlmContextOverflow.as_str().to_owned(),
            detail: format!(
                "the request has {tokens} tokens, and {budget} fit, leaving {answer_max} for the \
                 answer"
            ),
        });
    }
    let most = size_at_most(&request);
    limits.extend(next::budget_limits(kernel, &send, (most, answer_max), &facts).await?);
    let cost = facts
        .price
        .map(|price| parts::cost(&sized, &price, answer_max));
    let mut wire = None;
    if ask.with_request {
        let mut filled = Arc::new(request.clone());
        let (kept, unstored) = (&kernel.kept.content, unstored(&ask.content));
        let content = kept.fill_with(ask.key.tenant, &mut filled, &unstored);
        let content = content.await;
        content.map_err(|error| Answered::refused(error.code(), error.to_string()))?;
        wire = resolved.client.wire(&filled);
    }
    let wire = match wire {
        Some(Ok(bytes)) if bytes.len() > REQUEST_BYTES_MAX => {
            limits.push(PreviewLimit {
                code: Code::RequestTooLarge.as_str().to_owned(),
                detail: format!(
                    "the provider's request has {} bytes: too many to be shown here",
                    bytes.len()
                ),
            });
            None
        }
        Some(Ok(bytes)) => serde_json::from_slice(&bytes).ok(),
        Some(Err(error)) => return Err(Answered::refused(error.code(), error.to_string())),
        None => None,
    };
    let folds = folds.iter().map(|fold| PreviewFold {
        from_seq: fold.from_seq,
        to_seq: fold.to_seq,
        tokens: calibration.of(expect_tokens(&fold.text)),
    });
    Ok(Preview {
        digest: request.digest(),
        provider: resolved.provider.to_string(),
        model: resolved.model,
        send_id: is_sent.then_some(record.id),
        round: record.rounds,
        tokens,
        cached,
        parts: sized,
        window: facts.window,
        budget,
        answer_max,
        from_seq: from,
        folds: folds.collect(),
        tail: request.tail.clone(),
        cost,
        next_fold: foreseen.fold,
        aged_to: foreseen.aged_to,
        limits,
        request: wire,
    })
}
