//! Messages that the model is told before they are in the transcript: the send's input, the results
//! of calls and inbox items. They are stored with the next step.

use std::collections::BTreeSet;

use mainspring_shared::id::SendId;
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::message::{ContentPart, NewMessage};
use mainspring_shared::store::{CallChange, Delivery};

/// Messages that the next step under the lease stores first, and the rows that they settle.
#[derive(Debug, Default, Clone)]
pub(crate) struct PendingMessages {
    pub(crate) messages: Vec<NewMessage>,
    pub(crate) changes: Vec<CallChange>,
    pub(crate) deliveries: Vec<Delivery>,
    /// Number of messages before the input.
    pub(super) earlier: usize,
}

impl PendingMessages {
    /// Adds the input of the send.
    pub(crate) fn input(&mut self, input: NewMessage) {
        self.messages.push(input);
    }

    /// Replaces the input.
    pub(super) fn reword(&mut self, input: &[ContentPart], words: NewMessage) {
        let mut messages = self.messages.iter_mut();
        if let Some(said) = messages.find(|said| said.content == input) {
            *said = words;
        }
    }

    /// Adds the results of a round's calls, which come before everything else, and the row changes
    /// that are stored with them.
    pub(crate) fn answers(&mut self, answers: Vec<NewMessage>, changes: Vec<CallChange>) {
        let before = answers.len() as u32;
        for delivery in &mut self.deliveries {
            delivery.message += before;
        }
        self.messages.splice(0..0, answers);
        self.changes.extend(changes);
    }

    /// Adds new inbox items after everything else; items that arrived before this send was accepted
    /// go before its input.
    pub(crate) fn items(&mut self, items: Vec<InboxItem>, send: SendId, round: i32) {
        for item in self.new_of(items) {
            let earlier = round == 0 && item.send_id != Some(send);
            let at = if earlier {
                self.earlier
            } else {
                self.messages.len()
            };
            self.earlier += usize::from(earlier);
            for delivery in &mut self.deliveries {
                delivery.message += u32::from(delivery.message as usize >= at);
            }
            self.messages
                .insert(at, NewMessage::user(item.content, round));
            self.deliveries.push(Delivery {
                item_id: item.id,
                message: at as u32,
            });
        }
    }

    /// The items that are not contained yet.
    pub(super) fn new_of(&self, items: Vec<InboxItem>) -> Vec<InboxItem> {
        let known = self.known();
        let new = items.into_iter().filter(|item| !known.contains(&item.id));
        new.collect()
    }

    /// Whether one of the items is not contained yet.
    pub(super) fn lacks(&self, items: &[InboxItem]) -> bool {
        let known = self.known();
        items.iter().any(|item| !known.contains(&item.id))
    }

    fn known(&self) -> BTreeSet<String> {
        let ids = self.deliveries.iter().map(|d| d.item_id.clone());
        ids.collect()
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::agent::OnBusy;
    use mainspring_shared::inbox::{Fate, ItemKind};
    use mainspring_shared::message::{ContentPart, plain_text};
    use mainspring_shared::time::Timestamp;

    use super::*;

    const SEND: SendId = SendId(uuid::Uuid::nil());

    fn item(id: &str, send_id: Option<SendId>) -> InboxItem {
        InboxItem {
            id: id.into(),
            n: 1,
            kind: ItemKind::Message,
            mode: OnBusy::Steer,
            send_id,
            content: vec![ContentPart::text(id)],
            fate: Fate::Pending,
            seq: None,
            created_at: Timestamp(0),
            settled_at: None,
        }
    }

    fn said(pending_messages: &PendingMessages) -> Vec<String> {
        let text = |message: &NewMessage| plain_text(&message.content);
        pending_messages.messages.iter().map(text).collect()
    }

    #[test]
    fn each_delivery_points_at_its_message() {
        let mut pending_messages = PendingMessages::default();
        pending_messages.items(vec![item("a", None), item("b", None)], SEND, 1);
        pending_messages.items(vec![item("b", None), item("c", Some(SEND))], SEND, 1);
        let result = NewMessage::user(vec![ContentPart::text("result")], 1);
        pending_messages.answers(vec![result], Vec::new());
        assert_eq!(said(&pending_messages), ["result", "a", "b", "c"]);
        for delivery in &pending_messages.deliveries {
            let message = &pending_messages.messages[delivery.message as usize];
            assert_eq!(plain_text(&message.content), delivery.item_id);
        }
    }

    #[test]
    fn what_came_before_the_send_is_told_before_its_input() {
        let mut pending_messages = PendingMessages::default();
        pending_messages.input(NewMessage::user(vec![ContentPart::text("input")], 0));
        pending_messages.items(
            vec![item("c", Some(SEND)), item("a", None), item("b", None)],
            SEND,
            0,
        );
        assert_eq!(said(&pending_messages), ["a", "b", "input", "c"]);
        for delivery in &pending_messages.deliveries {
            let message = &pending_messages.messages[delivery.message as usize];
            assert_eq!(plain_text(&message.content), delivery.item_id);
        }
    }
}
