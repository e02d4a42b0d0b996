//! The list of an agent's skills for its model.

use super::AgentSkill;

const HEAD: &str = "# Skills\n\n\
    A skill is a set of instructions for one kind of task. When a task matches a description below, \
    read the skill with the tool `skill_read` before you begin, and follow it.\n";

/// The section of the system prompt: one line per skill, in the order of the agent's list. `None`
/// if there are none. Depends only on the agent.
pub fn catalogue(skills: &[AgentSkill]) -> Option<String> {
    if skills.is_empty() {
        return None;
    }
    let mut text = HEAD.to_owned();
    for skill in skills {
        text.push_str("\n- ");
        text.push_str(skill.name());
        text.push(':');
        for word in skill.description().unwrap_or_default().split_whitespace() {
            text.push(' ');
            text.push_str(word);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::SkillHash;
    use super::*;

    #[test]
    fn each_skill_is_one_line_whatever_its_description() {
        let hash = SkillHash::of_file(b"");
        let skills = [
            AgentSkill::pinned("b", hash, "First.\n\nSecond:\t third. "),
            AgentSkill::pinned("a", hash, "Short."),
        ];
        let text = catalogue(&skills).expect("two skills");
        let lines: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(lines, ["- b: First. Second: third.", "- a: Short."]);
        assert_eq!(catalogue(&[]), None);
    }
}
