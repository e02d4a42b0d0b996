//! What the templates of one advance may cost, however many nodes have costly ones.

use serde_json::{Value, json};

use super::fixture::{Fixture, agent, envelope};
use crate::engine::ADVANCE_WORK;
use mainspring_shared::error::Code;
use mainspring_shared::workflow::run::{NodeState, RunOptions};
use mainspring_shared::workflow::template::RENDERING_WORK;

/// A template that no rendering can afford.
fn costly() -> String {
    let passes = "|upper|lower".repeat(27);
    format!(
        "{{% for x in input.l %}}{{% if input.t{passes} == '' %}}{{% endif %}}{{% endfor %}}{{{{ x }}}}"
    )
}

fn input() -> Value {
    json!({ "l": [0, 0, 0], "t": "\u{e9}".repeat(1 << 20) })
}

fn failed(fixture: &Fixture) -> usize {
    let nodes = fixture.run.nodes();
    let failed = nodes.filter(|node| {
        let code = node.error.as_ref().map(|error| error.code);
        node.id.as_deref() == Some("r")
            && node.state == NodeState::Failed
            && code == Some(Code::WorkflowTemplate)
    });
    failed.count()
}

#[test]
fn leaves_with_costly_templates_take_one_advance_each() {
    let spec = envelope(
        &json!({"type": "foreach", "as": "x", "id": "f", "items": [1, 2, 3, 4],
        "max_concurrency": 4, "on_error": "continue",
        "body": agent("r", &json!({ "input": costly() }))}),
    );
    let mut fixture = Fixture::lean(&spec, input(), RunOptions::default());
    for n in 1..=4 {
        assert_eq!(failed(&fixture), n);
        let worked = fixture.run.worked();
        assert!(worked <= ADVANCE_WORK + 2 * RENDERING_WORK, "{worked}");
        if n < 4 {
            // It goes on at once, after whatever else is due.
            assert_eq!(fixture.run.record().alarm_at, Some(fixture.now));
            fixture.feed(Vec::new());
        }
    }
    assert!(fixture.run.record().status.is_final());
}

#[test]
fn nodes_that_are_no_leaves_share_the_work_of_an_advance() {
    let spec = envelope(&json!({"type": "foreach", "as": "x", "id": "f",
        "items": (0..40).collect::<Vec<_>>(), "max_concurrency": 40, "on_error": "continue",
        "body": {"type": "wait", "id": "r", "until": costly()}}));
    let fixture = Fixture::lean(&spec, input(), RunOptions::default());
    assert_eq!(failed(&fixture), 40);
    let worked = fixture.run.worked();
    assert!(worked <= 9 * RENDERING_WORK, "{worked}");
}
