use serde_json::{Map, Value, json};

use super::*;
use crate::agent::AgentRef;
use crate::agent::prompt::bind;

fn entries(value: &Value) -> Vec<ToolEntry> {
    serde_json::from_value(value.clone()).expect("tools")
}

fn pay(url: &str, approval: bool) -> Value {
    json!({"type": "http", "name": "pay", "url": url, "approval": approval,
           "parameters": {"type": "object", "required": ["sum"]}, "pool": "money"})
}

fn starter() -> AgentSpec {
    let tools = json!([
        {"type": "worker", "name": "shell", "approval": true},
        pay("https://bank.example/pay", true),
        {"type": "external", "name": "sign"},
        "explore",
        {"type": "mcp", "server": "files", "prefix": "fs_"},
    ]);
    AgentSpec {
        tools: entries(&tools),
        model: Some("vendor/model".into()),
        board: Some("team".into()),
        ..AgentSpec::default()
    }
}

fn delegation(of: &AgentSpec) -> Delegation {
    let granted = [
        ("shell", 0),
        ("pay", 1),
        ("sign", 2),
        ("grep", 3),
        ("fs_read", 4),
        ("fs_write", 4),
    ];
    let granted = granted.map(|(name, place)| (name.to_owned(), place));
    Delegation::new(of, &SendOptions::default(), granted)
}

fn memory(namespace: &str) -> MemorySpec {
    serde_json::from_value(json!({ "namespace": namespace })).expect("a memory")
}

fn heir(wanted: &Value) -> AgentSpec {
    delegation(&starter()).heir(Some(&entries(wanted)))
}

fn check(wanted: &Value) -> Vec<Result<(), NotGranted>> {
    let delegation = delegation(&starter());
    let entries = entries(wanted);
    entries
        .iter()
        .map(|entry| delegation.check(entry))
        .collect()
}

#[test]
fn who_names_no_tools_inherits_them_as_they_are_declared() {
    let agent = delegation(&starter()).heir(None);
    assert_eq!(agent.tools, starter().tools);
    let all = ["fs_read", "fs_write", "grep", "pay", "shell", "sign"];
    assert_eq!(agent.allow, Some(all.map(str::to_owned).to_vec()));
    assert_eq!(agent.model.as_deref(), Some("vendor/model"));
    assert_eq!(agent.board.as_deref(), Some("team"));
    assert_eq!(heir(&json!([])).tools, []);
    assert_eq!(heir(&json!([])).allow, Some(Vec::new()));
}

#[test]
fn a_name_means_the_granted_declaration() {
    let agent = heir(&json!(["pay", "shell", "nothing"]));
    assert_eq!(agent.tools, starter().tools[..2]);
    assert_eq!(
        agent.allow,
        Some(vec!["pay".to_owned(), "shell".to_owned()])
    );
}

#[test]
fn what_is_declared_again_keeps_its_url_and_its_approval() {
    let agent = heir(&json!([
        pay("https://elsewhere.example/", false),
        {"type": "worker", "name": "shell"},
        {"type": "http", "name": "new", "url": "https://elsewhere.example/"},
    ]));
    assert_eq!(agent.tools, starter().tools[..2]);
    assert_eq!(
        agent.allow,
        Some(vec!["pay".to_owned(), "shell".to_owned()])
    );
}

#[test]
fn approval_may_be_added() {
    let agent = heir(&json!([
        {"type": "worker", "name": "grep", "approval": true},
        {"type": "external", "name": "sign", "approval": true},
    ]));
    let guarded = agent
        .tools
        .iter()
        .map(|tool| (tool.label(), tool.approval()));
    let expected = [
        ("sign", true),
        ("sign", false),
        ("grep", true),
        ("explore", false),
    ];
    assert_eq!(
        guarded.collect::<Vec<_>>(),
        expected,
        "of two with one name the first counts"
    );
    assert_eq!(
        agent.allow,
        Some(vec!["grep".to_owned(), "sign".to_owned()])
    );
}

#[test]
fn presets_and_servers_stand_for_what_is_granted_of_them() {
    let agent = heir(&json!(["core", {"type": "mcp", "server": "files", "tools": ["read"]}]));
    let names = ["fs_read", "grep", "shell"].map(str::to_owned);
    assert_eq!(agent.allow, Some(names.to_vec()));
    assert!(agent.tools.contains(&starter().tools[4]));
}

#[test]
fn what_is_not_granted_is_named() {
    let unknown = |name: &str| Err(NotGranted::Unknown(name.to_owned()));
    let other = |name: &str| Err(NotGranted::Other(name.to_owned()));
    let found = check(&json!([
        "shell",
        "write_file",
        pay("https://bank.example/pay", false),
        pay("https://elsewhere.example/", true),
        {"type": "external", "name": "shell"},
        {"type": "mcp", "server": "other"},
        {"type": "mcp", "server": "files", "tools": ["delete"]},
        "explore",
    ]));
    let expected = [
        Ok(()),
        unknown("write_file"),
        Ok(()),
        other("pay"),
        other("shell"),
        unknown("other"),
        unknown("files"),
        Ok(()),
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_agent_that_was_started_before_keeps_what_it_has_in_the_same_way() {
    let now = delegation(&starter());
    assert_eq!(now.narrowed(&now.heir(None)).len(), 6);
    // Tools that the starter guards, or reaches in another way by now, are not used in the old way.
    let mut before = now.heir(None);
    before.tools = entries(&json!([
        "shell",
        pay("https://old.example/pay", true),
        {"type": "external", "name": "sign", "approval": true},
        "explore",
    ]));
    assert_eq!(now.narrowed(&before), ["grep", "sign"]);
    assert_eq!(now.narrowed(&AgentSpec::default()), Vec::<String>::new());
}

#[test]
fn a_published_agent_gets_no_more_than_whoever_starts_it() {
    let names = |texts: &[&str]| -> Vec<AgentQuery> {
        let names = texts.iter().map(|text| text.parse().expect("a reference"));
        names.collect()
    };
    let starter = AgentSpec {
        allow_agents: names(&["reviewer", "writer@live"]),
        pool: Some("blue".into()),
        ..starter()
    };
    let delegation = delegation(&starter);
    let published = AgentSpec {
        system_prompt: Some("Review.".into()),
        tools: entries(&json!([
            "shell",
            "grep",
            "apply_patch",
            pay("https://elsewhere.example", false)
        ])),
        allow: Some(vec!["grep".into(), "pay".into(), "apply_patch".into()]),
        allow_agents: names(&["reviewer@3", "writer", "writer@live", "poet"]),
        max_rounds: Some(3),
        board: Some("secret".into()),
        pool: Some("red".into()),
        memory: Some(memory("user/{{metadata.user_id}}")),
        ..AgentSpec::default()
    };
    let granted = memory("team/notes");
    let trusted = delegation.clone().with_memory(Some(granted.clone()));
    assert_eq!(trusted.narrow(published.clone()).memory, Some(granted));
    let agent = delegation.narrow(published);
    assert_eq!(agent.memory, None);
    // The entry with the starter's own URL and approval, whatever the declaration said.
    assert_eq!(
        agent.tools,
        delegation
            .heir(Some(&entries(&json!(["shell", "grep", "pay"]))))
            .tools
    );
    assert_eq!(agent.allow, Some(vec!["grep".to_owned(), "pay".to_owned()]));
    assert_eq!(agent.allow_agents, names(&["reviewer@3", "writer@live"]));
    assert_eq!(agent.board.as_deref(), Some("team"));
    assert_eq!(agent.pool.as_deref(), Some("blue"));
    assert_eq!(agent.model.as_deref(), Some("vendor/model"));
    assert_eq!(agent.max_rounds, Some(3));
    assert_eq!(agent.system_prompt.as_deref(), Some("Review."));
}

#[test]
fn who_is_defined_inline_counts_for_the_published_agent_that_started_it() {
    let reference = |name: &str| AgentRef {
        name: name.parse().expect("a name"),
        version: 1,
    };
    let lead = bind(starter(), Some(reference("lead")), Map::new(), &Map::new());
    let lead = lead.expect("nothing to render");
    let child = delegation(&lead).heir(None);
    assert_eq!(child.reference(), None);
    let grandchild = delegation(&child).heir(None);
    assert_eq!(grandchild.payer(), lead.payer());
    assert_eq!(lead.payer().map(AgentName::as_str), Some("lead"));
    // A published agent that it starts has its own account.
    let named = delegation(&grandchild).narrow(starter());
    let named = bind(named, Some(reference("reviewer")), Map::new(), &Map::new());
    let named = named.expect("nothing to render");
    assert_eq!(named.payer().map(AgentName::as_str), Some("reviewer"));
    assert_eq!(delegation(&starter()).heir(None).payer(), None);
}

#[test]
fn whoever_is_started_is_isolated_at_least_as_much() {
    let isolated = |isolation| AgentSpec {
        isolation,
        ..starter()
    };
    for (own, theirs, expected) in [
        (Isolation::None, Isolation::None, Isolation::None),
        (Isolation::None, Isolation::Process, Isolation::Process),
        (Isolation::Process, Isolation::None, Isolation::Process),
        (Isolation::Process, Isolation::Process, Isolation::Process),
    ] {
        let delegation = delegation(&isolated(own));
        assert_eq!(delegation.heir(None).isolation, own);
        assert_eq!(delegation.narrow(isolated(theirs)).isolation, expected);
        let options = SendOptions {
            agent: Some(Box::new(isolated(theirs))),
            ..SendOptions::default()
        };
        assert_eq!(options.agent_in(isolated(own)).isolation, expected);
    }
}

#[test]
fn an_agent_may_be_started_as_it_is_allowed() {
    let starter = AgentSpec {
        allow_agents: ["reviewer", "writer@live"]
            .map(|text| text.parse().expect("a reference"))
            .to_vec(),
        ..starter()
    };
    let delegation = delegation(&starter);
    for (text, allowed) in [
        ("reviewer", true),
        ("reviewer@7", true),
        ("reviewer@live", true),
        ("writer@live", true),
        ("writer", false),
        ("writer@1", false),
        ("poet", false),
    ] {
        let query = text.parse().expect("a reference");
        assert_eq!(delegation.allows(&query), allowed, "{text}");
    }
}
