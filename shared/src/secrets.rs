//! Secrets in the words of others: who was given one may quote it where it says what is wrong.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

/// What stands for a secret.
const HIDDEN: &str = "[redacted]";

/// What stands for a login in a URL.
const HIDDEN_LOGIN: &str = "[redacted]@";

/// How credentials are announced in headers.
const SCHEMES: [&str; 2] = ["Basic", "Bearer"];

/// Bytes of a credential at least that is known by its looks alone.
const CREDENTIAL_BYTES_MIN: usize = 8;

/// Bytes of a secret at least: shorter ones are in every text.
const BYTES_MIN: usize = 6;

/// What somebody outside was given and must not be shown to anybody else, in every form in which it is sent.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<(String, &'static str)>);

impl Secrets {
    /// These, and what a header or a variable says: the whole of it, and each of its words behind the first,
    /// as in `Bearer …`.
    #[must_use]
    pub fn and(mut self, value: &str) -> Self {
        let words = value.split_whitespace().skip(1);
        for text in words.chain([value.trim()]) {
            self.add(text);
        }
        self
    }

    /// These, and what lets someone in of a URL: its password, or its user where it has none, and the values
    /// of its query. What is not a URL has none.
    #[must_use]
    pub fn and_of_url(mut self, url: &str) -> Self {
        let Some((_, rest)) = url.split_once("://") else {
            return self;
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may hold an unescaped `@`, and a path may hold one, too.
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
        // However short it is: nothing else looks like it.
        self.put(format!("{login}@"), HIDDEN_LOGIN);
        let secret = if password.is_empty() { user } else { password };
        self.add(secret);
        self.add(&decoded(secret));
        // As basic authentication has it.
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
            // What holds another is hidden as a whole.
            self.0
                .sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        }
    }

    /// A text without any of them, and without what stands behind the name of a scheme as in a header:
    /// nobody knows what proxies on the way are told. Very short ones stay unless they are logins: they are in
    /// every text.
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
    /// Their number: they are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// A text without what follows `Basic` or `Bearer`, where that looks like a credential and not like a word.
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

/// A URL without its login, and the login as it is meant; none where the URL has none.
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

/// A part of a URL without its escapes; what is no text then stays as it is.
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
