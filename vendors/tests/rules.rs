//! Each rule of each file is broken by a request that was made from it, and kept by an honest client's.

use mainspring_vendors::plant::Planter;
use mainspring_vendors::rules::{Rule, Rules};
use mainspring_vendors::{Emulator, catalogue};
use serde_json::Value;

fn each(mut test: impl FnMut(&Rules, &Planter<'_>, &mut Vec<String>)) {
    let mut faults = Vec::new();
    for name in catalogue::names() {
        let rules = catalogue::load(name).expect("a file of the crate");
        assert_eq!(rules.name, name);
        let emulator = Emulator::new(rules.clone());
        test(&rules, &Planter::new(&emulator), &mut faults);
    }
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn an_honest_conversation_keeps_the_rules_of_every_vendor_and_model() {
    each(|rules, planter, faults| {
        for model in &rules.model {
            let takes_tools = !rules
                .rule
                .iter()
                .any(|rule| rule.id == "no-tools" && rule.is_about(&model.name));
            let conversation = planter.conversation(&model.name);
            if conversation.is_none_or(|body| body.get("tools").is_some() != takes_tools) {
                let broken = planter.complaint(&model.name);
                faults.push(format!("{} {}: {broken}", rules.name, model.name));
            }
        }
    });
}

#[test]
fn every_rule_is_broken_by_a_request_made_from_it() {
    each(|rules, planter, faults| {
        for rule in &rules.rule {
            if let Err(fault) = breaks(rules, rule, planter) {
                faults.push(format!("{}/{}: {fault}", rules.name, rule.id));
            }
        }
    });
}

fn breaks(rules: &Rules, rule: &Rule, planter: &Planter<'_>) -> Result<(), String> {
    let model = rules.model.iter().find(|model| rule.is_about(&model.name));
    let model = model.ok_or("no model of the file that it is about")?;
    let base = planter.conversation(&model.name).ok_or("no conversation")?;
    if planter.broken(&base).contains(&rule.id) {
        return Err("an honest client breaks it".to_owned());
    }
    if planter.without_header(rule, &base) {
        return Ok(());
    }
    let requests = planter.against(rule, &base);
    if requests.is_empty() {
        return Err("no request can be made from it: it needs a `breaks`".to_owned());
    }
    for (what, body) in requests {
        let broken = planter.broken(&body);
        if !broken.contains(&rule.id) {
            return Err(format!("{what} breaks {broken:?} instead"));
        }
    }
    Ok(())
}

#[test]
fn every_table_of_members_refuses_what_it_does_not_allow() {
    each(|rules, planter, faults| {
        for table in &rules.members {
            let about = |name: &str| table.model.is_empty() || table.model.name(name);
            let Some(model) = rules.model.iter().find(|model| about(&model.name)) else {
                faults.push(format!(
                    "{}/{}: no model that it is about",
                    rules.name, table.id
                ));
                continue;
            };
            let Some(base) = planter.conversation(&model.name) else {
                faults.push(format!("{}/{}: no conversation", rules.name, table.id));
                continue;
            };
            for (what, body) in planter.against_members(table, &base) {
                let broken = planter.broken(&body);
                // Of several tables for a place each but the first may be told of by its neighbour.
                if !broken.contains(&table.id) {
                    faults.push(format!(
                        "{}/{}: {what} breaks {broken:?}",
                        rules.name, table.id
                    ));
                }
            }
        }
    });
}

#[test]
fn every_refusal_and_error_is_in_a_form_that_parses() {
    each(|rules, planter, faults| {
        for (what, status, body) in planter.refusals() {
            let json = body.is_empty()
                || serde_json::from_str::<Value>(&body).is_ok()
                || !body.starts_with(['{', '[']);
            let filled =
                !body.contains("{message}") && !body.contains("{value}") && !body.contains("{at}");
            if !json || !filled || !(200..600).contains(&status) {
                faults.push(format!("{} {what}: {status} {body}", rules.name));
            }
        }
    });
}

#[test]
fn every_entry_tells_its_source_and_its_date() {
    each(|rules, _, faults| {
        let models = rules
            .model
            .iter()
            .map(|model| (&model.name, &model.source, &model.date));
        let members = rules
            .members
            .iter()
            .map(|table| (&table.id, &table.source, &table.date));
        let others = rules
            .rule
            .iter()
            .map(|rule| (&rule.id, &rule.source, &rule.date));
        for (id, source, date) in models.chain(members).chain(others) {
            let dated = date.len() == 10 && date.starts_with("20");
            if source.len() < 8 || !dated {
                faults.push(format!("{}/{id}: {source} {date}", rules.name));
            }
        }
    });
}
