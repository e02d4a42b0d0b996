//! Who may speak after whom, and where results have to be.

use std::collections::BTreeSet;

use super::Found;
use crate::rules::{Results, Role};
use crate::view::{Turn, View};

fn at(turn: &Turn<'_>) -> Found {
    Found::from([
        ("index", turn.index.to_string()),
        ("at", format!("messages.{}", turn.index)),
    ])
}

/// A turn of the first role followed directly by one of the second.
pub(super) fn sequence(view: &View<'_>, roles: [Role; 2]) -> Option<Found> {
    view.turns
        .windows(2)
        .find(|pair| pair[0].role == roles[0] && pair[1].role == roles[1])
        .map(|pair| at(&pair[1]))
}

/// The last turn, if it is of one of these roles.
pub(super) fn last(view: &View<'_>, roles: &[Role]) -> Option<Found> {
    view.turns
        .last()
        .filter(|turn| roles.contains(&turn.role))
        .map(at)
}

/// A system message behind something else.
pub(super) fn later_system(view: &View<'_>) -> Option<Found> {
    view.turns
        .iter()
        .skip(1)
        .find(|turn| turn.role == Role::System)
        .map(at)
}

/// Nothing of the user's.
pub(super) fn no_user(view: &View<'_>) -> Option<Found> {
    let none = view.turns.iter().all(|turn| turn.role != Role::User);
    none.then(Found::new)
}

/// A call without its result, a result without its call.
pub(super) fn results(view: &View<'_>, wanted: Results) -> Option<Found> {
    match wanted {
        Results::DirectlyBehind => directly_behind(view),
        Results::Somewhere => somewhere(view),
    }
}

fn directly_behind(view: &View<'_>) -> Option<Found> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for turn in &view.turns {
        if turn.role == Role::Tool {
            for (id, _) in &turn.results {
                if !open.remove(id) {
                    let mut found = at(turn);
                    found.insert("value", (*id).to_owned());
                    return Some(found);
                }
            }
            continue;
        }
        if let Some(id) = open.first() {
            let mut found = at(turn);
            found.insert("value", (*id).to_owned());
            return Some(found);
        }
        open = turn.calls.iter().map(|call| call.id).collect();
    }
    let id = open.first()?;
    let mut found = at(view.turns.last()?);
    found.insert("value", (*id).to_owned());
    Some(found)
}

fn somewhere(view: &View<'_>) -> Option<Found> {
    let mut called: BTreeSet<&str> = BTreeSet::new();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for turn in &view.turns {
        for call in &turn.calls {
            called.insert(call.id);
            open.insert(call.id);
        }
        for (id, _) in &turn.results {
            if !called.contains(id) {
                return Some(Found::from([("value", (*id).to_owned())]));
            }
            open.remove(id);
        }
    }
    open.first()
        .map(|id| Found::from([("value", (*id).to_owned())]))
}

/// An id that two calls have.
pub(super) fn repeated_ids(view: &View<'_>) -> Option<Found> {
    let mut seen = BTreeSet::new();
    view.turns
        .iter()
        .flat_map(|turn| turn.calls.iter().map(move |call| (turn, call.id)))
        .find(|(_, id)| !seen.insert(*id))
        .map(|(turn, id)| {
            let mut found = at(turn);
            found.insert("value", id.to_owned());
            found
        })
}

/// A call of a tool that is not offered.
pub(super) fn undeclared(view: &View<'_>) -> Option<Found> {
    view.turns
        .iter()
        .flat_map(|turn| turn.calls.iter().map(move |call| (turn, call.name)))
        .find(|(_, name)| view.tools.iter().all(|tool| tool.name != *name))
        .map(|(turn, name)| {
            let mut found = at(turn);
            found.insert("value", name.to_owned());
            found
        })
}
