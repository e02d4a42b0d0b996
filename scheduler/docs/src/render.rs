//! Markdown as HTML.

use std::collections::{BTreeSet, HashMap};

use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};

use crate::sources::{SOURCES, Source};

/// A rendered page.
pub(crate) struct Page {
    /// Its path below `/docs/`.
    pub(crate) path: &'static str,
    /// Its first heading.
    pub(crate) title: String,
    /// Its body.
    pub(crate) html: String,
    /// Its text by heading.
    pub(crate) sections: Vec<Section>,
    /// What its links can name.
    pub(crate) anchors: BTreeSet<String>,
    /// The pages that it links to, with the places in them.
    pub(crate) links: Vec<(String, String)>,
}

/// The text below a heading.
pub(crate) struct Section {
    /// The place that links name.
    pub(crate) anchor: String,
    /// The heading.
    pub(crate) title: String,
    /// The text, with its code.
    text: String,
    /// The heading and the text in lower case.
    lower: String,
}

impl Section {
    /// Whether it has all of these words, which are in lower case.
    pub(crate) fn has(&self, words: &[String]) -> bool {
        words.iter().all(|word| self.lower.contains(word))
    }

    /// Whether its heading has one of them.
    pub(crate) fn is_titled(&self, words: &[String]) -> bool {
        let title = self.title.to_lowercase();
        words.iter().any(|word| title.contains(word))
    }

    /// The text around the first of the words, or its beginning.
    pub(crate) fn around(&self, words: &[String], characters: usize) -> String {
        let lower = self.text.to_lowercase();
        let place = words.iter().find_map(|word| lower.find(word)).unwrap_or(0);
        // Lower case can have other lengths, so the place is near enough, not exact.
        let before = lower[..place].chars().count().saturating_sub(characters);
        let shown: String = self
            .text
            .chars()
            .skip(before)
            .take(2 * characters)
            .collect();
        let start = if before > 0 { "…" } else { "" };
        format!("{start}{}…", shown.replace('\n', " "))
    }
}

impl Page {
    /// Renders a file.
    pub(crate) fn new(source: &Source) -> Self {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let mut events: Vec<Event<'_>> = Parser::new_ext(source.text, options).collect();
        let mut page = Self {
            path: source.path,
            title: String::new(),
            html: String::new(),
            sections: Vec::new(),
            anchors: BTreeSet::new(),
            links: Vec::new(),
        };
        page.name_headings(&mut events);
        let events = page.linked(events, source);
        pulldown_cmark::html::push_html(&mut page.html, events.into_iter());
        for section in &mut page.sections {
            section.lower = format!("{}\n{}", section.title, section.text).to_lowercase();
        }
        page
    }

    /// Gives each heading the name that links use, and notes its text.
    fn name_headings(&mut self, events: &mut [Event<'_>]) {
        let mut used: HashMap<String, usize> = HashMap::new();
        for n in 0..events.len() {
            match &events[n] {
                Event::Start(Tag::Heading { level, .. }) => {
                    let level = *level;
                    let inside = events[n + 1..]
                        .iter()
                        .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
                    let title: String = inside.filter_map(text_of).collect();
                    let slug = slug(&title);
                    let count = used.entry(slug.clone()).or_default();
                    let anchor = if *count == 0 {
                        slug
                    } else {
                        format!("{slug}-{count}")
                    };
                    *count += 1;
                    if self.title.is_empty() && level == HeadingLevel::H1 {
                        self.title.clone_from(&title);
                    }
                    self.anchors.insert(anchor.clone());
                    if let Event::Start(Tag::Heading { id, .. }) = &mut events[n] {
                        *id = Some(CowStr::from(anchor.clone()));
                    }
                    self.sections.push(Section {
                        anchor,
                        title,
                        text: String::new(),
                        lower: String::new(),
                    });
                }
                event => {
                    let text = text_of(event);
                    let ends = matches!(event, Event::End(_));
                    if let Some(section) = self.sections.last_mut() {
                        section.text.push_str(text.unwrap_or_default());
                        if ends {
                            section.text.push(' ');
                        }
                    }
                }
            }
        }
    }

    /// Makes links lead to pages, and leaves out those to files that are none. Markup in the text is shown, but for the names of
    /// places.
    fn linked<'e>(&mut self, events: Vec<Event<'e>>, source: &Source) -> Vec<Event<'e>> {
        let mut made = Vec::with_capacity(events.len());
        let mut left_out = false;
        for event in events {
            match event {
                Event::Start(Tag::Link {
                    link_type,
                    dest_url,
                    title,
                    id,
                }) => match self.destination(&dest_url, source) {
                    Some(url) => made.push(Event::Start(Tag::Link {
                        link_type: if link_type == LinkType::Email {
                            LinkType::Inline
                        } else {
                            link_type
                        },
                        dest_url: url.into(),
                        title,
                        id,
                    })),
                    None => left_out = true,
                },
                Event::End(TagEnd::Link) if left_out => left_out = false,
                Event::InlineHtml(html) => match place(&html) {
                    Some(name) => {
                        self.anchors.insert(name.to_owned());
                        made.push(Event::InlineHtml(html));
                    }
                    None if &*html == "</a>" => made.push(Event::InlineHtml(html)),
                    None => made.push(Event::Text(html)),
                },
                Event::Html(html) => made.push(Event::Text(html)),
                other => made.push(other),
            }
        }
        made
    }

    /// Where a link leads from this page; none if it leads to a file that is no page.
    fn destination(&mut self, url: &str, source: &Source) -> Option<String> {
        if url.contains("://") || url.starts_with("mailto:") {
            return Some(url.to_owned());
        }
        let (file, anchor) = url.split_once('#').unwrap_or((url, ""));
        if file.is_empty() {
            self.links.push((self.path.to_owned(), anchor.to_owned()));
            return Some(url.to_owned());
        }
        let target = resolved(source.file, file);
        let page = SOURCES.iter().find(|other| other.file == target)?;
        self.links.push((page.path.to_owned(), anchor.to_owned()));
        let up = "../".repeat(self.path.matches('/').count());
        let mark = if anchor.is_empty() { "" } else { "#" };
        Some(format!("{up}{}{mark}{anchor}", page.path))
    }
}

/// The text of an event.
fn text_of<'e>(event: &'e Event<'_>) -> Option<&'e str> {
    match event {
        Event::Text(text) | Event::Code(text) => Some(text),
        Event::SoftBreak | Event::HardBreak => Some(" "),
        _ => None,
    }
}

/// The place that a piece of markup names, `<a id="name">`, for links to lead to. But for its end, nothing else stays markup.
fn place(html: &str) -> Option<&str> {
    let name = html.strip_prefix("<a id=\"")?.strip_suffix("\">")?;
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_plain.then_some(name)
}

/// The name of a heading, as GitHub makes it: lower case, hyphens for spaces, and neither punctuation nor signs.
fn slug(title: &str) -> String {
    let kept = title
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The path in the repository of a file that another one names.
fn resolved(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A text as HTML shows it.
pub(crate) fn escaped(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => made.push_str("&amp;"),
            '<' => made.push_str("&lt;"),
            '>' => made.push_str("&gt;"),
            '"' => made.push_str("&quot;"),
            '\'' => made.push_str("&#39;"),
            c => made.push(c),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &'static str) -> Page {
        Page::new(&Source {
            path: "guides/production",
            file: "docs/guides/production.md",
            text,
        })
    }

    #[test]
    fn links_lead_to_pages_and_what_is_none_is_no_link() {
        let page = rendered(
            "[a](../API.md#sends) [b](kubernetes.md) [c](../../Cargo.toml) [d](https://example.com/x)",
        );
        assert_eq!(
            page.html,
            "<p><a href=\"../API#sends\">a</a> <a href=\"../guides/kubernetes\">b</a> c \
             <a href=\"https://example.com/x\">d</a></p>\n"
        );
    }

    #[test]
    fn markup_is_shown_but_for_names_of_places() {
        let page = rendered("<a id=\"here\"></a>x <b onclick=\"y\">z</b>\n\n<script>1</script>\n");
        assert!(
            page.html
                .starts_with("<p><a id=\"here\"></a>x &lt;b onclick="),
            "{}",
            page.html
        );
        assert!(!page.html.contains("<script>"));
        assert!(page.anchors.contains("here"));
    }

    #[test]
    fn headings_of_one_name_are_told_apart() {
        let page = rendered("# One `two`\n\ntext\n\n## One two\n\n## What's *new*?\n");
        assert_eq!(page.title, "One two");
        let anchors: Vec<_> = page
            .sections
            .iter()
            .map(|section| section.anchor.as_str())
            .collect();
        assert_eq!(anchors, ["one-two", "one-two-1", "whats-new"]);
        assert!(page.html.contains("<h2 id=\"whats-new\">"));
    }

    #[test]
    fn what_is_around_is_cut_between_characters() {
        let section = Section {
            anchor: String::new(),
            title: String::new(),
            text: format!("{}İstanbul is here", "ä".repeat(300)),
            lower: String::new(),
        };
        let around = section.around(&["here".to_owned()], 20);
        assert!(around.contains("is here"), "{around}");
    }
}
