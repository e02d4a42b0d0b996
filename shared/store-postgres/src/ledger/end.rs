//! Sends that end without a worker.

use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::SendResult;
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::ReadySession;
use mainspring_shared::tool::{answers, cancelled_call};

use super::{Hot, Ledger};

/// Under which grant something is written, and by whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    /// 0 where no grant is needed.
    pub(crate) epoch: i64,
    pub(crate) boot: BootId,
}

impl Ledger {
    /// Ends a send as cancelled under the lease that it runs under, and gives the lease back. The
    /// calls that it left open are answered.
    pub(crate) fn finish_leased(
        &mut self,
        key: SessionKey,
        id: SendId,
        writer: Writer,
    ) -> (i64, Option<ReadySession>) {
        let unsaid = self.end_calls(key, id);
        if let Some(hot) = self.hot.get_mut(&key) {
            hot.row.writes += 1;
        }
        self.finish_open(key, id, SendResult::cancelled(), writer, unsaid)
    }

    /// Makes a send final and writes its step.
    pub(crate) fn finish(
        &mut self,
        key: SessionKey,
        id: SendId,
        result: SendResult,
        writer: Writer,
        refs: StepRefs,
    ) -> i64 {
        let now = self.now;
        let refs = StepRefs {
            reason: Some(result.stop_reason.as_str().to_owned()),
            status: Some(result.status.as_str().to_owned()),
            ..refs
        };
        self.change(key.tenant, id, |send| {
            send.status = result.status;
            send.stop_reason = Some(result.stop_reason);
            send.error = result.error;
            send.waiting_on = None;
            send.alarm_at = None;
            send.finished_at = Some(now);
        });
        let n = self.hot.get_mut(&key).map_or(0, Hot::take_step);
        let step = Step {
            n,
            send_id: id,
            kind: StepKind::Finished,
            epoch: writer.epoch,
            boot: writer.boot,
            at: now,
            refs,
        };
        self.writes.steps.push((key, step));
        n
    }

    /// Settles what is open of the round that a send ends in; returns the answers that the
    /// transcript lacks.
    pub(super) fn end_calls(&mut self, key: SessionKey, id: SendId) -> Vec<NewMessage> {
        let last = self.last.get(&key);
        let Some(last) = last.filter(|last| last.asks && last.send == id) else {
            return Vec::new();
        };
        let round = last.round_of(key);
        self.settle_all(round, |call| call.result.is_none(), &cancelled_call());
        let calls = self.rounds.get(&round);
        let answers = calls.and_then(|calls| answers(calls));
        answers.unwrap_or_default()
    }

    /// Writes what the send has left to say and its end, and gives the session back.
    fn finish_open(
        &mut self,
        key: SessionKey,
        id: SendId,
        result: SendResult,
        writer: Writer,
        unsaid: Vec<NewMessage>,
    ) -> (i64, Option<ReadySession>) {
        let now = self.now;
        let mut refs = StepRefs::default();
        for message in unsaid {
            let seq = self.hot.get_mut(&key).map_or(0, Hot::take_seq);
            refs.first_seq.get_or_insert(seq);
            refs.messages += 1;
            let message = message.at(seq, id, now, writer.epoch);
            self.writes.messages.push((key, message));
        }
        let n = self.finish(key, id, result, writer, refs);
        let enqueue = self.hot.get_mut(&key).and_then(|hot| {
            hot.active = None;
            hot.row.signals &= SIGNAL_INBOX;
            hot.row.owner = None;
            hot.row.token = None;
            hot.row.ready_since = (hot.row.pending > 0).then_some(now);
            hot.row.ready()
        });
        (n, enqueue)
    }
}
