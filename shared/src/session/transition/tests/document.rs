//! Generates `docs/STATE_MACHINES.md` from the machines and their reviewed matrices.

use std::fmt::Write as _;

use super::matrix;

const HEAD: &str = "\
# State machines

Generated from the machines and their matrices. After a change of one:
`UPDATE_DOCS=1 cargo test -p mainspring-shared --lib document`.

Each machine is a pure function of a row, an event and the database's clock. The matrices name every state
and every event, so that a review sees each cell that a change touches.

## Session

`shared/src/session/transition.rs`. The state is the session's hot row and its head: the active send, otherwise
the next queued one. A session in `queued`, `released` or `woken` may be claimed, and so may one in `running` whose
owner's lease ran out.

";

fn matrix_of(snapshot: &str) -> &str {
    let body = snapshot.splitn(3, "---\n").nth(2);
    body.expect("a snapshot has a header")
}

fn document() -> String {
    let mut document = HEAD.to_owned();
    document.push_str("```mermaid\nstateDiagram-v2\n  [*] --> idle\n");
    for ((from, to), events) in matrix::arrows() {
        writeln!(document, "  {from} --> {to}: {}", events.join(", ")).expect("to a string");
    }
    document.push_str("  deleted --> [*]\n```\n");
    let machines = [
        (
            "",
            include_str!(
                "snapshots/mainspring_shared__session__transition__tests__matrix__\
                 the_whole_matrix_is_as_reviewed.snap"
            ),
        ),
        (
            "\n## Send\n\n`shared/src/send/machine.rs`. What a worker does with a send that it runs: the next \
             state and the commands.\n",
            include_str!(
                "../../../send/machine/snapshots/mainspring_shared__send__machine__tests__\
                 the_whole_matrix_is_as_reviewed.snap"
            ),
        ),
        (
            "\n## Timer\n\n`shared/src/timer/transition.rs`. A timer's status after each event.\n",
            include_str!(
                "../../../timer/transition/snapshots/mainspring_shared__timer__transition__tests__\
                 every_status_answers_every_event.snap"
            ),
        ),
    ];
    for (title, snapshot) in machines {
        let matrix = matrix_of(snapshot);
        write!(document, "{title}\n```text\n{matrix}```\n").expect("to a string");
    }
    document
}

#[test]
fn the_committed_document_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/STATE_MACHINES.md");
    let written = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &written).expect("docs/STATE_MACHINES.md can be written");
    }
    let committed = std::fs::read_to_string(path).expect("docs/STATE_MACHINES.md can be read");
    assert!(
        committed == written,
        "docs/STATE_MACHINES.md is out of date; look at the difference after \
         UPDATE_DOCS=1 cargo test -p mainspring-shared --lib document"
    );
}
