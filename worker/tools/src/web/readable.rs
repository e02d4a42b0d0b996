//! The readable text of a page: headings, paragraphs, lists, links, tables and code, as Markdown.
//!
//! The page is read token by token. There is no tree, so that no nesting costs anything, and what is not closed swallows
//! nothing but scripts and the like.

use std::convert::Infallible;

use html5gum::{DefaultEmitter, HtmlString, Spanned, StartTag, Token, Tokenizer};
use reqwest::Url;

/// How deep lists are shown.
const LISTS_MAX: usize = 8;

/// Characters of a title.
const TITLE_CHARS_MAX: usize = 300;

/// Bytes of a link's address that are shown.
const LINK_BYTES_MAX: usize = 1_000;

/// How much text makes what a page calls its main part all of it.
const MAIN_BYTES_MIN: usize = 200;

/// A page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) text: String,
    /// Whether there is more than was asked for.
    pub(super) is_cut: bool,
}

/// Reads a page that is at `base`, up to so many bytes of text.
pub(super) fn readable(html: &str, base: &Url, bytes_max: usize) -> Page {
    let mut emitter = DefaultEmitter::default();
    // As a parser with a tree would: what is in a script is no markup.
    emitter.naively_switch_states(true);
    let mut reader = Reader::at(base);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let token: Token = match token {
            Ok(token) => token,
            Err(never) => match never {},
        };
        reader.take(&token);
        if reader.out.len() >= bytes_max {
            return reader.page(true);
        }
    }
    reader.page(false)
}

/// What stands around a place in a page.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is about one element that may be open"
)]
struct Reader {
    base: Url,
    out: String,
    title: String,
    in_title: bool,
    /// What is left out until its end, and how often it was begun within itself.
    skipped: Option<(Vec<u8>, usize)>,
    /// Line ends and blanks to come before the next text.
    lines: usize,
    has_blank: bool,
    /// The numbers of open lists; none for one without.
    lists: Vec<Option<usize>>,
    /// Open lists that are too deep to be shown.
    deep: usize,
    /// How many `pre` are open.
    pre: usize,
    in_code: bool,
    /// The link that is open: where its text begins, and where it leads.
    link: Option<(usize, String)>,
    has_cell: bool,
    main: Option<usize>,
    main_part: Option<(usize, usize)>,
}

impl Reader {
    fn at(base: &Url) -> Self {
        Self {
            base: base.clone(),
            out: String::new(),
            title: String::new(),
            in_title: false,
            skipped: None,
            lines: 0,
            has_blank: false,
            lists: Vec::new(),
            deep: 0,
            pre: 0,
            in_code: false,
            link: None,
            has_cell: false,
            main: None,
            main_part: None,
        }
    }

    fn take(&mut self, token: &Token) {
        match token {
            Token::StartTag(tag) => self.begin(tag),
            Token::EndTag(tag) => self.end(&tag.name),
            Token::String(text) => {
                let text = String::from_utf8_lossy(text);
                if self.in_title {
                    let room = TITLE_CHARS_MAX.saturating_sub(self.title.chars().count());
                    self.title.extend(text.chars().take(room));
                } else if self.skipped.is_none() {
                    self.text(&text);
                }
            }
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }

    fn begin(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(name == skipped.as_slice());
            return;
        }
        match name {
            b"script" | b"style" | b"noscript" | b"iframe" | b"template" | b"svg" | b"math"
            | b"object" | b"select" | b"textarea" | b"noframes" | b"noembed"
                if !tag.self_closing =>
            {
                self.skipped = Some((name.to_vec(), 0));
            }
            b"title" => self.in_title = self.title.is_empty(),
            b"base" => {
                let href = attribute(tag, "href");
                let href = href.filter(|href| href.len() <= LINK_BYTES_MAX);
                let base = href.and_then(|href| self.base.join(&href).ok());
                // Each link is joined to it, and pages may have any number of either.
                if let Some(base) = base.filter(|base| base.as_str().len() <= LINK_BYTES_MAX) {
                    self.base = base;
                }
            }
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.block(2);
                self.put(&"#".repeat(usize::from(name[1] - b'0')));
                self.has_blank = true;
            }
            b"p" | b"blockquote" | b"table" | b"figure" | b"dl" => {
                self.block(2);
                if name == b"blockquote" {
                    self.put("> ");
                }
            }
            b"div" | b"section" | b"article" | b"header" | b"footer" | b"nav" | b"aside"
            | b"form" | b"fieldset" | b"address" | b"dt" | b"dd" | b"figcaption" | b"option"
            | b"details" | b"summary" | b"br" => self.block(1),
            b"main" => {
                self.block(2);
                self.main = self.main.or(Some(self.out.len()));
            }
            b"hr" => {
                self.block(2);
                self.put("---");
                self.block(2);
            }
            b"ul" | b"ol" | b"menu" => self.list(tag),
            b"li" => self.item(),
            b"tr" => {
                self.block(1);
                self.has_cell = false;
            }
            b"td" | b"th" => {
                if self.has_cell {
                    self.put(" | ");
                }
                self.has_cell = true;
            }
            b"pre" => {
                if self.pre == 0 {
                    self.block(2);
                    self.put("```\n");
                }
                self.pre += 1;
            }
            b"code" | b"kbd" | b"samp" if self.pre == 0 && !self.in_code => {
                self.put("`");
                self.in_code = true;
            }
            b"a" => {
                self.close_link();
                let href = attribute(tag, "href").and_then(|href| self.address(&href));
                if let Some(href) = href {
                    self.flush();
                    self.link = Some((self.out.len(), href));
                }
            }
            b"img" => {
                let alt = attribute(tag, "alt").unwrap_or_default();
                if !alt.trim().is_empty() {
                    self.text(&format!("[image: {}]", alt.trim()));
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &[u8]) {
        if let Some((skipped, depth)) = &mut self.skipped {
            if name == skipped.as_slice() {
                if *depth == 0 {
                    self.skipped = None;
                } else {
                    *depth -= 1;
                }
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"p" | b"blockquote" | b"table"
            | b"figure" | b"dl" => self.block(2),
            b"div" | b"section" | b"article" | b"header" | b"footer" | b"nav" | b"aside"
            | b"form" | b"fieldset" | b"address" | b"dt" | b"dd" | b"figcaption" | b"option"
            | b"details" | b"summary" | b"li" | b"tr" => self.block(1),
            b"main" => {
                self.close_link();
                if let (Some(from), None) = (self.main, self.main_part) {
                    self.main_part = Some((from, self.out.len()));
                }
                self.block(2);
            }
            b"ul" | b"ol" | b"menu" => {
                if self.deep > 0 {
                    self.deep -= 1;
                } else if self.lists.pop().is_some() {
                    self.block(if self.lists.is_empty() { 2 } else { 1 });
                }
            }
            b"pre" if self.pre > 0 => {
                self.pre -= 1;
                if self.pre == 0 {
                    self.lines = 0;
                    if !self.out.ends_with('\n') {
                        self.out.push('\n');
                    }
                    self.out.push_str("```");
                    self.block(2);
                }
            }
            b"code" | b"kbd" | b"samp" if self.in_code => {
                self.out.push('`');
                self.in_code = false;
            }
            b"a" => self.close_link(),
            _ => {}
        }
    }

    fn list(&mut self, tag: &StartTag<()>) {
        if self.lists.len() >= LISTS_MAX {
            self.deep += 1;
            return;
        }
        self.block(if self.lists.is_empty() { 2 } else { 1 });
        let start = attribute(tag, "start").and_then(|start| start.parse().ok());
        let is_numbered = tag.name.as_slice() == b"ol";
        self.lists.push(is_numbered.then(|| start.unwrap_or(1)));
    }

    fn item(&mut self) {
        self.block(1);
        let depth = self.lists.len().saturating_sub(1);
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            Some(None) | None => "- ".to_owned(),
        };
        self.put(&format!("{}{mark}", "  ".repeat(depth)));
    }

    /// At least so many line ends before what follows.
    fn block(&mut self, lines: usize) {
        if self.pre > 0 {
            self.out.push('\n');
            return;
        }
        self.lines = self.lines.max(lines);
        self.has_blank = false;
    }

    /// Writes the line ends and blanks that were due.
    fn flush(&mut self) {
        if self.lines > 0 {
            if !self.out.is_empty() {
                self.out.push_str(&"\n\n"[..self.lines.min(2)]);
            }
        } else if self.has_blank && !self.out.is_empty() && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
        self.lines = 0;
        self.has_blank = false;
    }

    fn put(&mut self, text: &str) {
        self.flush();
        self.out.push_str(text);
    }

    fn text(&mut self, text: &str) {
        if self.pre > 0 {
            self.out.extend(
                text.chars()
                    .filter(|c| !c.is_control() || matches!(c, '\n' | '\t')),
            );
            return;
        }
        for word in text.split_inclusive(char::is_whitespace) {
            let plain = word.trim_end();
            if !plain.is_empty() {
                self.flush();
                self.out.extend(plain.chars().filter(|c| !c.is_control()));
            }
            self.has_blank |= plain.len() < word.len();
        }
    }

    fn close_link(&mut self) {
        let Some((from, href)) = self.link.take() else {
            return;
        };
        let text = self.out.get(from..).unwrap_or_default();
        if text.trim().is_empty() || text.trim() == href {
            return;
        }
        if text.contains('\n') {
            self.out.push_str(" (");
            self.out.push_str(&href);
            self.out.push(')');
        } else {
            self.out.insert(from, '[');
            self.out.push_str("](");
            self.out.push_str(&href);
            self.out.push(')');
        }
    }

    /// Where a link leads, if it is somewhere else and can be read.
    fn address(&self, href: &str) -> Option<String> {
        if href.starts_with('#') || href.len() > LINK_BYTES_MAX {
            return None;
        }
        let url = self.base.join(href.trim()).ok()?;
        let is_shown = matches!(url.scheme(), "http" | "https" | "mailto");
        (is_shown && url.as_str().len() <= LINK_BYTES_MAX).then(|| url.to_string())
    }

    fn page(mut self, is_cut: bool) -> Page {
        self.close_link();
        if self.pre > 0 {
            self.out.push_str("\n```");
        }
        let main = self.main_part.and_then(|(from, to)| self.out.get(from..to));
        let main = main
            .map(str::trim)
            .filter(|main| main.len() >= MAIN_BYTES_MIN);
        Page {
            title: self.title.split_whitespace().collect::<Vec<_>>().join(" "),
            text: main.unwrap_or(self.out.trim()).to_owned(),
            is_cut,
        }
    }
}

fn attribute(tag: &StartTag<()>, name: &str) -> Option<String> {
    let value: &Spanned<HtmlString, ()> = tag.attributes.get(name.as_bytes())?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// A text without its markup.
pub(super) fn plain(html: &str) -> String {
    let mut text = String::new();
    for token in Tokenizer::new(html) {
        let token: Result<Token, Infallible> = token;
        if let Ok(Token::String(piece)) = token {
            text.push_str(&String::from_utf8_lossy(&piece));
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(html: &str) -> Page {
        let base = Url::parse("https://a.example/dir/page").expect("a URL");
        readable(html, &base, 1_000_000)
    }

    fn text(html: &str) -> String {
        page(html).text
    }

    #[test]
    fn a_page_is_read_as_its_headings_lists_links_tables_and_code() {
        let html = "<!doctype html><html><head><title> The\n page </title><style>p{color:red}</style>\
            <script>if (a<b) document.write('<p>no</p>')</script></head><body>\
            <h1>Top</h1><p>One &amp; <b>two</b>,\n three.<br>Next <a href=../up?x=1>up</a> <a href='#here'>here</a></p>\
            <ul><li>a<li>b<ul><li>c</ul></ul><ol start=3><li>x</li><li>y</li></ol>\
            <pre><code>let a = 1;\n  let b;</code></pre>Use <code>x()</code>.\
            <table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>\
            <img src=x alt='A cat'><svg><text>no</text></svg><noscript>no</noscript> \
            <a href='javascript:alert(1)'>js</a><hr><blockquote>said</blockquote></body></html>";
        let page = page(html);
        assert_eq!(page.title, "The page");
        assert!(!page.is_cut);
        assert_eq!(
            page.text,
            "# Top\n\nOne & two, three.\nNext [up](https://a.example/up?x=1) here\n\n- a\n- b\n  - c\n\n\
             3. x\n4. y\n\n```\nlet a = 1;\n  let b;\n```\n\nUse `x()`.\n\nk | v\n1 | 2\n\n\
             [image: A cat] js\n\n---\n\n> said"
        );
    }

    #[test]
    fn what_a_page_calls_its_main_part_is_all_that_is_read() {
        let long = "word ".repeat(100);
        let html = format!("<nav>menu</nav><main><p>{long}</p></main><footer>imprint</footer>");
        assert_eq!(text(&html), long.trim());
        let short = text("<nav>menu</nav><main>little</main><footer>imprint</footer>");
        assert_eq!(short, "menu\n\nlittle\n\nimprint");
    }

    #[test]
    fn nothing_that_is_not_closed_swallows_the_rest() {
        for html in [
            "<div><div><p>a<b>c",
            "<ul><ul><ul><li>a</div></p></ul>c",
            "<a href=x>a<a href=y>c",
            "<table><td>a<tr>c",
            "<code>a<p>c",
            "</ul></pre></a></code></main>a c",
        ] {
            let text = text(html);
            assert!(text.contains('a') && text.contains('c'), "{html}: {text}");
        }
        assert_eq!(text("a<script>b</script>c<style>d</style>e"), "ace");
        assert_eq!(text("<svg><svg></svg>no</svg>a"), "a");
    }

    #[test]
    fn nesting_costs_nothing_and_the_text_has_an_end() {
        for piece in [
            "<div>",
            "<ul><li>",
            "<b><i>",
            "<svg>",
            "<pre>",
            "<table><tr><td>",
            "<a href=x>y",
        ] {
            let html = piece.repeat((2 << 20) / piece.len());
            let base = Url::parse("https://a.example/").expect("a URL");
            let page = readable(&html, &base, 10_000);
            assert!(page.text.len() < 12_000, "{piece}: {}", page.text.len());
        }
        let base = format!("https://a.example/{}", "x".repeat(900));
        let base = Url::parse(&base).expect("a URL");
        let page = readable(&"<a href=y>z</a>".repeat(100_000), &base, 10_000);
        assert!(page.is_cut && page.text.len() < 12_000);
    }

    #[test]
    fn a_page_cannot_make_each_of_its_links_costly() {
        let long = format!("<base href=https://b.example/{}>", "x".repeat(100_000));
        assert_eq!(
            page(&format!("{long}<a href=y>z</a>")).text,
            "[z](https://a.example/dir/y)"
        );
        // Without a bound this would be too long for any link below it to be shown.
        let grown = format!("<base href={}/>", "x".repeat(400)).repeat(100);
        let text = page(&format!("{grown}<a href=y>z</a>")).text;
        assert!(text.starts_with("[z](https://a.example/dir/xxx"), "{text}");
    }

    #[test]
    fn a_text_loses_its_markup() {
        assert_eq!(plain("a <strong>b</strong> &lt;c&gt;\n d"), "a b <c> d");
    }

    proptest::proptest! {
        #[test]
        fn no_page_breaks_it(html in "(<(/?)(a href=x|b|pre|code|ul|ol|li|h1|main|svg|title|td|script)>|\\PC|&|;|\\n|<){0,40}") {
            let page = page(&html);
            proptest::prop_assert!(page.text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
        }
    }
}
