//! Mainspring's documentation as pages for browsers, in the program itself.

mod render;
mod sources;

use std::fmt::Write as _;
use std::sync::LazyLock;

use self::render::{Page, escaped};
use self::sources::SOURCES;

/// The longest text that is searched for, in bytes.
pub const QUERY_BYTES_MAX: usize = 200;

/// How many places a search shows.
const FOUND_MAX: usize = 50;

/// How many characters are shown around what was found.
const AROUND: usize = 90;

/// What the pages are about, in the order in which they are listed. A page that is in none of them is listed by its folder.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Start",
        &[
            "README",
            "INSTALL",
            "CONSOLE",
            "PROOFS",
            "GLOSSARY",
            "EMBEDDING",
        ],
    ),
    (
        "Agents",
        &[
            "AGENTS",
            "TOOLS",
            "HTTP_TOOLS",
            "PROVIDERS",
            "CONTEXT",
            "MEMORY",
            "SKILLS",
            "WORKFLOWS",
            "TIMERS",
            "HOOKS",
        ],
    ),
    (
        "Interfaces",
        &[
            "API",
            "ACCESS",
            "WEBHOOKS",
            "BLOBS",
            "OPENAI",
            "MCP_SERVER",
            "A2A",
            "AG_UI",
        ],
    ),
    (
        "Coming from",
        &[
            "COMING_FROM_LANGGRAPH",
            "COMING_FROM_OPENAI",
            "COMING_FROM_POWER_LOOP",
        ],
    ),
    (
        "Operation",
        &[
            "guides/production",
            "guides/kubernetes",
            "OPERATIONS",
            "TENANTS",
            "SCALING",
            "METRICS",
            "SECURITY",
            "runbooks/README",
        ],
    ),
    (
        "How it works",
        &[
            "ARCHITECTURE",
            "STATE_MACHINES",
            "FAULTS",
            "benchmarks",
            "adr/README",
        ],
    ),
];

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| SOURCES.iter().map(Page::new).collect());

/// The page at a path below `/docs/`, such as `guides/production`; the empty path is the first page. None if there is no such
/// page.
pub fn page(path: &str) -> Option<String> {
    let path = if path.is_empty() { "README" } else { path };
    let page = PAGES.iter().find(|page| page.path == path)?;
    Some(framed(page.path, &page.title, &page.html, ""))
}

/// A page with the places where all words of a text are found, whatever their case; headings that have them come first.
pub fn search(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let mut body = format!("<h1>{}</h1>\n", escaped(text));
    let sections = PAGES
        .iter()
        .flat_map(|page| page.sections.iter().map(move |section| (page, section)));
    let mut found: Vec<_> = sections
        .filter(|(_, section)| !words.is_empty() && section.has(&words))
        .collect();
    found.sort_by_key(|(_, section)| !section.is_titled(&words));
    if found.is_empty() {
        body.push_str("<p>Nothing has all of these words.</p>\n");
    }
    for (page, section) in found.iter().take(FOUND_MAX) {
        let _ = writeln!(
            body,
            "<h2><a href=\"{}#{}\">{} · {}</a></h2>\n<p>{}</p>",
            page.path,
            section.anchor,
            escaped(&page.title),
            escaped(&section.title),
            escaped(&section.around(&words, AROUND)),
        );
    }
    if found.len() > FOUND_MAX {
        let _ = writeln!(body, "<p>{} more</p>", found.len() - FOUND_MAX);
    }
    framed("", text, &body, text)
}

/// The paths of all pages.
pub fn paths() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|source| source.path)
}

/// A whole page: the list of all, the field to search, and the body.
fn framed(path: &str, title: &str, body: &str, query: &str) -> String {
    let up = "../".repeat(path.matches('/').count());
    let mut list = String::new();
    for (name, paths) in GROUPS {
        let _ = writeln!(list, "<h2>{name}</h2>\n<ul>");
        for listed in *paths {
            let Some(page) = PAGES.iter().find(|page| page.path == *listed) else {
                continue;
            };
            let current = if page.path == path {
                " aria-current=\"page\""
            } else {
                ""
            };
            let _ = writeln!(
                list,
                "<li><a href=\"{up}{}\"{current}>{}</a></li>",
                page.path,
                escaped(&page.title)
            );
        }
        list.push_str("</ul>\n");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"dark light\">\n<title>{title} · Mainspring</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"{up}../console/app.css\">\n</head>\n\
         <body class=\"docs\">\n<a class=\"skip\" href=\"#main\">To the content</a>\n<header class=\"top\">\n\
         <a class=\"brand\" href=\"{up}../\">Mainspring</a>\n\
         <form role=\"search\" action=\"{up}./\"><label><span class=\"hidden\">Search</span>\
         <input type=\"search\" name=\"q\" maxlength=\"{QUERY_BYTES_MAX}\" placeholder=\"Search\" value=\"{query}\"></label></form>\n\
         </header>\n<div class=\"frame\">\n<nav aria-label=\"Pages\">\n{list}</nav>\n<main id=\"main\" tabindex=\"-1\">\n{body}</main>\n</div>\n\
         </body>\n</html>\n",
        title = escaped(title),
        query = escaped(query),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.insert(path);
            }
        }
    }

    #[test]
    fn every_file_is_a_page() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = BTreeSet::new();
        files(&root.join("docs"), &mut found);
        found.insert(root.join("README.md"));
        let listed = SOURCES.iter().map(|source| root.join(source.file));
        assert_eq!(found, listed.collect(), "add it to `SOURCES`");
    }

    #[test]
    fn every_page_of_a_group_is_there_and_in_one_group_only() {
        let listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, paths)| *paths)
            .copied()
            .collect();
        let once: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(once.len(), listed.len());
        let all: BTreeSet<&str> = paths().collect();
        assert!(once.is_subset(&all), "{once:?}");
        let missing: Vec<_> = all
            .iter()
            .filter(|path| !path.contains('/') && !once.contains(*path))
            .collect();
        assert!(missing.is_empty(), "in no group: {missing:?}");
    }

    #[test]
    fn every_link_between_pages_leads_to_a_heading_that_is_there() {
        let mut broken = Vec::new();
        for page in PAGES.iter() {
            for (path, anchor) in &page.links {
                let target = PAGES.iter().find(|other| other.path == path);
                let is_there = target
                    .is_some_and(|target| anchor.is_empty() || target.anchors.contains(anchor));
                if !is_there {
                    broken.push(format!("{}: {path}#{anchor}", page.path));
                }
            }
        }
        assert!(broken.is_empty(), "{broken:#?}");
    }

    #[test]
    fn a_page_is_found_by_its_path_and_links_upwards() {
        let first = page("").expect("the first page");
        assert!(
            first.contains("<title>Mainspring · Mainspring</title>"),
            "{}",
            &first[..300]
        );
        let deep = page("guides/production").expect("a page");
        assert!(deep.contains("href=\"../OPERATIONS\""));
        assert!(deep.contains("href=\"../../console/app.css\""));
        assert_eq!(page("guides"), None);
        assert_eq!(page("../Cargo"), None);
    }

    #[test]
    fn a_search_finds_headings_first_and_shows_what_is_around() {
        let found = search("idempotency");
        let first = found.find("<h2><a href").expect("something");
        assert!(found[first..].to_lowercase().contains("idempotency"));
        let nothing = search("<script>alert(1)</script> xyzzy");
        assert!(nothing.contains("Nothing has all of these words."));
        assert!(!nothing.contains("<script>"));
        assert!(search("  ").contains("Nothing has"));
    }
}
