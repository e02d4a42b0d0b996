//! Redacts secrets in texts from outside: a service that was given one may quote it in an error message.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The replacement for a secret.
const HIDDEN: &str = "[redacted]";

/// The replacement for a login in a URL.
const HIDDEN_LOGIN: &str = "[redacted]@";

/// The authentication schemes that precede credentials in headers.
const SCHEMES: [&str; 2] = ["Basic", "Bearer"];

/// Minimum length in bytes of a credential that is recognized only by its form.
const CREDENTIAL_BYTES_MIN: usize = 8;

/// Minimum length of a secret in bytes: shorter ones occur in any text.
const BYTES_MIN: usize = 6;

/// Minimum length of the begin of a secret in bytes that is hidden where a text was cut.
const BEGIN_BYTES_MIN: usize = 4;

/// What is encoded in a URL, from all to as little as `encodeURIComponent` does.
const URL_SETS: [&AsciiSet; 3] = [
    NON_ALPHANUMERIC,
    &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~'),
    &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~')
        .remove(b'!')
        .remove(b'*')
        .remove(b'\'')
        .remove(b'(')
        .remove(b')'),
];

/// Secrets given to someone outside that must not be shown to anyone else, in every form in which
/// they are sent.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<(String, &'static str)>);

impl Secrets {
    /// Adds the value of a header or a variable: the whole of it, and each of its words after the
    /// first, as in `Bearer …`.
    #[must_use]
    pub fn and(mut self, value: &str) -> Self {
        let words = value.split_whitespace().skip(1);
        for text in words.chain([value.trim()]) {
            self.add(text);
        }
        self
    }

    /// Adds the credentials in a URL: its password, or its user if it has no password, and those
    /// values of its query that are secrets by their name or form. A text that is not a URL has none.
    #[must_use]
    pub fn and_of_url(mut self, url: &str) -> Self {
        let Some((_, rest)) = url.split_once("://") else {
            return self;
        };
        let end = rest.find(DELIMITERS).unwrap_or(rest.len());
        let place = rest.split(['?', '#']).next().unwrap_or_default();
        // A password may contain whatever should have been escaped, and a path may contain `@`.
        let login = login_end(rest);
        for within in login
            .iter()
            .flat_map(|at| [&rest[..=*at], place, &rest[..end]])
        {
            if let Some((login, _)) = within.rsplit_once('@') {
                self.add_login(login);
            }
        }
        let rest = login.map_or(rest, |at| &rest[at..]);
        let rest = rest.split('#').next().unwrap_or_default();
        let (_, query) = rest.split_once('?').unwrap_or((rest, ""));
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or(("", pair));
            if is_secret_parameter(name, value) {
                self.add(value);
                self.add(&decoded(&value.replace('+', " ")));
            }
        }
        self
    }

    /// Adds a value in each form in which whoever was sent it may quote it: as it is, and as it is written in JSON, HTML,
    /// URLs, hexadecimal digits, and base64 of any text that contains it.
    #[must_use]
    pub fn and_encoded(mut self, value: &str) -> Self {
        self.add(value);
        let json = value.replace('\\', "\\\\").replace('"', "\\\"");
        self.add(&json);
        self.add(&json.replace('/', "\\/"));
        let html = value
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        self.add(&html);
        self.add(&html.replace('"', "&quot;").replace('\'', "&#39;"));
        for set in URL_SETS {
            let encoded = utf8_percent_encode(value, set).to_string();
            for form in [lower_hex(&encoded), encoded] {
                self.add(&form.replace("%20", "+"));
                self.add(&form);
            }
        }
        let mut hex = String::new();
        for byte in value.bytes() {
            let _ = write!(hex, "{byte:02x}");
        }
        self.add(&hex.to_ascii_uppercase());
        self.add(&hex);
        for shift in 0..3 {
            let shifted = [&[0; 2][..shift], value.as_bytes()].concat();
            // Only the characters that nothing around the value has a part in.
            let within = (shift * 8).div_ceil(6)..shifted.len() * 8 / 6;
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let encoded = engine.encode(&shifted);
                self.add(encoded.get(within.clone()).unwrap_or_default());
            }
        }
        self
    }

    /// Replaces all of them in a text, and nothing else.
    #[must_use]
    pub fn replaced(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, (secret, instead)| {
                if text.contains(secret.as_str()) {
                    text.replace(secret.as_str(), instead)
                } else {
                    text
                }
            })
    }

    /// The end of a text that was cut, without the begin of a secret that the cut went through.
    #[must_use]
    pub fn end_before<'t>(&self, text: &'t str) -> &'t str {
        let begins = self.0.iter().filter_map(|(secret, _)| {
            let lengths = (BEGIN_BYTES_MIN..secret.len()).rev();
            let mut begins = lengths.filter_map(|length| secret.get(..length));
            begins.find(|begin| text.ends_with(begin)).map(str::len)
        });
        let hidden = begins.max().unwrap_or_default();
        &text[..text.len() - hidden]
    }

    fn add_login(&mut self, login: &str) {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        // However short the login is, nothing else looks like it.
        self.put(format!("{login}@"), HIDDEN_LOGIN);
        let secret = if password.is_empty() { user } else { password };
        self.add(secret);
        self.add(&decoded(secret));
        // The form used by basic authentication.
        for login in [format!("{user}:{password}"), decoded(login)] {
            self.add(&STANDARD.encode(login));
        }
    }

    fn add(&mut self, text: &str) {
        if text.len() >= BYTES_MIN {
            self.put(text.to_owned(), HIDDEN);
        }
    }

    fn put(&mut self, text: String, instead: &'static str) {
        if !self.0.iter().any(|(known, _)| *known == text) {
            self.0.push((text, instead));
            // Longest first, so that a secret that contains another one is replaced as a whole.
            self.0
                .sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        }
    }

    /// Replaces all of them in a text, and also anything that follows the name of an authentication
    /// scheme as in a header, since proxies may add credentials that are not known here. Very short
    /// secrets are kept unless they are logins, since they occur in any text.
    #[must_use]
    pub fn hidden(&self, text: &str) -> String {
        let begin = text.to_owned();
        let text = self.0.iter().fold(begin, |text, (secret, instead)| {
            text.replace(secret, instead)
        });
        without_credentials(&text)
    }
}

impl fmt::Debug for Secrets {
    /// Shows only their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// Replaces what follows `Basic` or `Bearer` in a text, if it looks like a credential rather than a word.
fn without_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut is_after_scheme = false;
    for part in text.split_inclusive(|c: char| c.is_whitespace()) {
        let word = part.trim_end();
        let ends = |c: char| !(c.is_ascii_alphanumeric() || "+/=-_.~".contains(c));
        let length = word.find(ends).unwrap_or(word.len());
        if is_after_scheme && is_credential(&word[..length]) {
            shown.push_str(HIDDEN);
            shown.push_str(&part[length..]);
        } else {
            shown.push_str(part);
        }
        let scheme = word.rsplit(|c: char| !c.is_ascii_alphabetic()).next();
        is_after_scheme = scheme.is_some_and(|scheme| {
            SCHEMES
                .iter()
                .any(|known| known.eq_ignore_ascii_case(scheme))
        });
    }
    shown
}

fn is_credential(word: &str) -> bool {
    let is_odd = |c: char| c.is_ascii_digit() || "+/=_~".contains(c);
    let is_mixed = word.chars().skip(1).any(|c| c.is_ascii_uppercase())
        && word.chars().any(|c| c.is_ascii_lowercase());
    word.len() >= CREDENTIAL_BYTES_MIN && (word.chars().any(is_odd) || is_mixed)
}

/// The characters that end the host of a URL. In a login they have to be escaped.
const DELIMITERS: [char; 3] = ['/', '?', '#'];

/// The parameters of addresses whose values are shown: they let nobody in.
const HARMLESS: [&str; 12] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-ca",
    "application_name",
    "channel_binding",
    "connect_timeout",
    "target_session_attrs",
    "statement-cache-capacity",
    "charset",
    "protocol",
    "db",
];

/// Parts of the names of parameters whose values are secrets, in lower case.
const SECRET_NAMES: [&str; 10] = [
    "token",
    "key",
    "secret",
    "sig",
    "pass",
    "pwd",
    "auth",
    "credential",
    "session",
    "code",
];

/// Minimum length in bytes of a value that is recognized as a secret only by its form.
const SECRET_FORM_BYTES_MIN: usize = 20;

/// Whether the value of a URL's parameter is a secret: by its name, or because it looks like a key.
fn is_secret_parameter(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_key = || {
        value.len() >= SECRET_FORM_BYTES_MIN
            && value.bytes().any(|byte| byte.is_ascii_digit())
            && value.bytes().any(|byte| byte.is_ascii_alphabetic())
            && value
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.~%=+".contains(&byte))
    };
    name.is_empty() || SECRET_NAMES.iter().any(|part| name.contains(part)) || is_key()
}

/// The end of the login in a URL after its scheme, if it has one: its last `@`, because a password may contain
/// anything unescaped. If the host comes first and without a port, `@` is a part of the path or the query.
fn login_end(rest: &str) -> Option<usize> {
    let end = rest.find(DELIMITERS).unwrap_or(rest.len());
    let begins = rest[..end].contains(['@', ':']);
    rest.rfind('@').filter(|_| begins)
}

/// A character of a URL's password that has to be escaped there, as it stands for something else.
pub fn unescaped(url: &str) -> Option<char> {
    let (_, rest) = url.split_once("://")?;
    let (_, password) = rest[..login_end(rest)?].split_once(':')?;
    let stray = |(at, c): (usize, char)| match c {
        '/' | '?' | '#' | '@' | '[' | ']' | ' ' => true,
        '%' => {
            let digits = password.get(at + 1..at + 3);
            !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        }
        _ => false,
    };
    password
        .char_indices()
        .find(|found| stray(*found))
        .map(|(_, c)| c)
}

/// A URL as it may be shown: without its password, its fragment and the values of its parameters, but for harmless
/// ones. Of a text that is not a URL nothing is shown.
pub fn shown_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "[hidden]".to_owned();
    };
    let (login, rest) = match login_end(rest) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => ("", rest),
    };
    let login = match login.split_once(':') {
        Some((user, _)) => format!("{user}:[hidden]@"),
        None if login.is_empty() => String::new(),
        None => format!("{login}@"),
    };
    let (rest, fragment) = match rest.split_once('#') {
        Some((rest, _)) => (rest, "#[hidden]"),
        None => (rest, ""),
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, format!("?{}", shown_query(query))),
        None => (rest, String::new()),
    };
    format!("{scheme}://{login}{place}{query}{fragment}")
}

fn shown_query(query: &str) -> String {
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if HARMLESS.contains(&name) => pair.to_owned(),
        Some((name, _)) => format!("{name}=[hidden]"),
        None if pair.is_empty() => String::new(),
        None => "[hidden]".to_owned(),
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Splits a URL into the URL without its login and the decoded login, if it has one.
pub fn split_login(url: &str) -> (String, Option<String>) {
    let none = || (url.to_owned(), None);
    let Some((scheme, rest)) = url.split_once("://") else {
        return none();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else {
        return none();
    };
    let login = decoded(&rest[..at]);
    (format!("{scheme}://{}", &rest[at + 1..]), Some(login))
}

/// The same with its hexadecimal digits in lower case.
fn lower_hex(encoded: &str) -> String {
    let mut pieces = encoded.split('%');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (digits, rest) = piece.split_at(piece.len().min(2));
        whole.push('%');
        whole.push_str(&digits.to_ascii_lowercase());
        whole.push_str(rest);
    }
    whole
}

/// Percent-decodes a part of a URL; unchanged if the result is not text.
fn decoded(part: &str) -> String {
    let text = percent_decode_str(part).decode_utf8();
    text.map_or_else(|_| part.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_hidden_whole_and_by_their_words() {
        let secrets = Secrets::default()
            .and("Bearer abcdef123")
            .and("two words")
            .and("x");
        assert_eq!(
            secrets.hidden("not with Bearer abcdef123, abcdef123 or two words, x"),
            "not with [redacted], [redacted] or [redacted], x"
        );
        assert_eq!(format!("{secrets:?}"), "Secrets(3)");
        assert_eq!(Secrets::default().hidden("as it is"), "as it is");
    }

    #[test]
    fn a_value_is_hidden_however_it_is_quoted() {
        let value = "s\"cret/+ke&y? 01";
        let secrets = Secrets::default().and_encoded(value);
        let json = serde_json::to_string(value).expect("a text");
        let percent = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        let mut quoted = vec![
            value.to_owned(),
            json.trim_matches('"').to_owned(),
            json.trim_matches('"').replace('/', "\\/"),
            percent.to_lowercase(),
            percent.replace("%20", "+"),
            percent,
            "s&quot;cret/+ke&amp;y? 01".to_owned(),
        ];
        for around in ["", "a", "ab", "user:", "a longer text: "] {
            for behind in ["", "b", "bc"] {
                let text = format!("{around}{value}{behind}");
                quoted.push(STANDARD.encode(&text));
                quoted.push(URL_SAFE_NO_PAD.encode(&text));
            }
        }
        for quoted in quoted {
            let said = secrets.replaced(&format!("not with {quoted}!"));
            assert!(said.contains("[redacted]"), "{quoted}: {said}");
            assert!(!said.contains("cret"), "{quoted}: {said}");
        }
        let kept = "Bearer of news, Basic training";
        assert_eq!(secrets.replaced(kept), kept);
    }

    #[test]
    fn where_a_text_was_cut_no_begin_of_a_secret_is_left() {
        let secrets = Secrets::default().and_encoded("0123456789");
        assert_eq!(secrets.end_before("it is 01234567"), "it is ");
        assert_eq!(secrets.end_before("it is 012"), "it is 012");
        assert_eq!(secrets.end_before("it is"), "it is");
    }

    #[test]
    fn what_lets_someone_in_of_a_url_is_hidden_in_every_form() {
        let url = "https://someone:p%40ssword@a.example/path?token=to%2Bken+1&n=1#behind";
        let secrets = Secrets::default().and_of_url(url);
        let basic = STANDARD.encode("someone:p@ssword");
        for quoted in ["p%40ssword", "p@ssword", "to%2Bken+1", "to+ken 1", &basic] {
            let said = secrets.hidden(&format!("not with {quoted}!"));
            assert_eq!(said, "not with [redacted]!", "{quoted}");
        }
        let said = secrets.hidden(&format!("cannot reach {url}"));
        assert_eq!(
            said,
            "cannot reach https://[redacted]@a.example/path?token=[redacted]&n=1#behind"
        );
        let short = "http://a:b@c.example/d";
        let hidden = Secrets::default().and_of_url(short).hidden(short);
        assert_eq!(hidden, "http://[redacted]@c.example/d");
        let kept = "someone is at a.example/path, 1";
        assert_eq!(secrets.hidden(kept), kept);
    }

    #[test]
    fn a_parameter_that_lets_nobody_in_is_not_hidden() {
        let url = "https://a.example/x?units=metric&location=Amsterdam&token=abcdef&id=3f9a7c1e5b2d4f60a8c1";
        let secrets = Secrets::default().and_of_url(url);
        let said = "no metric weather in Amsterdam for abcdef and 3f9a7c1e5b2d4f60a8c1";
        let shown = "no metric weather in Amsterdam for [redacted] and [redacted]";
        assert_eq!(secrets.hidden(said), shown);
    }

    #[test]
    fn a_url_is_shown_without_what_lets_someone_in() {
        for (url, shown) in [
            ("no url", "[hidden]"),
            ("postgres://h/db", "postgres://h/db"),
            ("postgres://u@h:5432/db", "postgres://u@h:5432/db"),
            (
                "postgres://u:p@h/db?sslmode=off&password=x",
                "postgres://u:[hidden]@h/db?sslmode=off&password=[hidden]",
            ),
            (
                "https://h.example/x?to=a@b.example",
                "https://h.example/x?to=[hidden]",
            ),
            ("https://h.example/@x#y", "https://h.example/@x#[hidden]"),
            ("http://u:pw?x@h:1", "http://u:[hidden]@h:1"),
            ("redis://:pw@h/0", "redis://:[hidden]@h/0"),
        ] {
            assert_eq!(shown_url(url), shown, "{url}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_password_is_shown_whatever_it_contains(password in r"(\PC|[@/?#:&=%\[\]]|://){0,24}") {
            let url = format!("postgres://user:{password}@h.example:5432/db?sslmode=off");
            proptest::prop_assert_eq!(
                shown_url(&url),
                "postgres://user:[hidden]@h.example:5432/db?sslmode=off"
            );
            let hidden = Secrets::default().and_of_url(&url).hidden(&url);
            proptest::prop_assert!(
                password.len() < BYTES_MIN || !hidden.contains(&password),
                "{}", hidden
            );
        }
    }

    #[test]
    fn what_should_be_escaped_in_a_password_is_found() {
        for (url, found) in [
            ("postgres://u:~,VZd8atZ4>XzJ?q@h/db", Some('?')),
            ("postgres://u:a@b@h/db", Some('@')),
            ("postgres://u:100%@h/db", Some('%')),
            ("postgres://u:a%3Fb@h/db", None),
            ("postgres://h/db", None),
        ] {
            assert_eq!(unescaped(url), found, "{url}");
        }
    }

    #[test]
    fn what_follows_the_name_of_a_scheme_is_hidden_unless_it_is_a_word() {
        let none = Secrets::default();
        for (said, shown) in [
            (
                "proxy-authorization: Basic dTpwYXNzd29yZA== is wrong",
                "proxy-authorization: Basic [redacted] is wrong",
            ),
            (
                "{\"a\":\"bearer abcdef123\"}",
                "{\"a\":\"bearer [redacted]\"}",
            ),
            (
                "not with Bearer eyJhbGciOiJ.b-c.d_e,",
                "not with Bearer [redacted],",
            ),
        ] {
            assert_eq!(none.hidden(said), shown);
        }
        for kept in [
            "Bearer authentication is needed",
            "the basic\nprinciples of bearer tokens",
            "Basic",
            "Bearer realm=x",
            "",
        ] {
            assert_eq!(none.hidden(kept), kept);
        }
    }

    #[test]
    fn a_login_is_split_off_a_url() {
        let of = |url: &str, login: &str| (url.to_owned(), Some(login.to_owned()));
        let login = split_login("http://u:p%40@a.example/b@c");
        assert_eq!(login, of("http://a.example/b@c", "u:p@"));
        let login = split_login("http://key@a.example?x");
        assert_eq!(login, of("http://a.example?x", "key"));
        for none in ["http://a.example/b@c", "http://a.example?b@c", "a@b", ""] {
            assert_eq!(split_login(none), (none.to_owned(), None));
        }
    }

    #[test]
    fn a_key_in_the_place_of_a_user_is_one() {
        let secrets = Secrets::default().and_of_url("https://key-0123@a.example");
        assert_eq!(secrets.hidden("key-0123?"), "[redacted]?");
        for none in ["", "no url", "https://a.example", "https://a.example/%zz?%"] {
            assert_eq!(Secrets::default().and_of_url(none), Secrets::default());
        }
    }

    #[test]
    fn an_at_sign_in_a_password_or_a_path_does_no_harm() {
        let secrets = Secrets::default()
            .and_of_url("http://u:pass@word@a.example/x")
            .and_of_url("http://u:secret@b.example/of@someone");
        for quoted in ["pass@word", "secret"] {
            assert_eq!(secrets.hidden(quoted), "[redacted]");
        }
    }
}
