//! Redacts secrets in texts from outside: a service that was given one may quote it in an error message.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

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

    /// Adds the credentials in a URL: its password, or its user if it has no password, and the
    /// values of its query. A text that is not a URL has none.
    #[must_use]
    pub fn and_of_url(mut self, url: &str) -> Self {
        let Some((_, rest)) = url.split_once("://") else {
            return self;
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain an unescaped `@`, and so may a path.
        for authority in [place, place.split('/').next().unwrap_or_default()] {
            if let Some((login, _)) = authority.rsplit_once('@') {
                self.add_login(login);
            }
        }
        for pair in query.split('&') {
            let (_, value) = pair.split_once('=').unwrap_or(("", pair));
            self.add(value);
            self.add(&decoded(&value.replace('+', " ")));
        }
        self
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
