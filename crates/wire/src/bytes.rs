//! Byte strings in JSON.

use serde::{Deserialize, Serialize};

/// A byte string such as an argument or a path, which on Linux need not be UTF-8.
///
/// Written as a JSON string when it is UTF-8 and as an array of numbers when it is not, so nothing is lost and the
/// common case stays readable.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Repr", into = "Repr")]
pub struct Bytes(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Repr {
    Text(String),
    Raw(Vec<u8>),
}

impl From<Repr> for Bytes {
    fn from(repr: Repr) -> Self {
        match repr {
            Repr::Text(text) => Self(text.into_bytes()),
            Repr::Raw(raw) => Self(raw),
        }
    }
}

impl From<Bytes> for Repr {
    fn from(bytes: Bytes) -> Self {
        String::from_utf8(bytes.0).map_or_else(|e| Self::Raw(e.into_bytes()), Self::Text)
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(raw: Vec<u8>) -> Self {
        Self(raw)
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn utf8_is_a_string_and_anything_else_survives() {
        for (raw, json) in [(&b"a \"b\""[..], r#""a \"b\"""#), (b"\xff\x00", "[255,0]"), (b"", r#""""#)] {
            let bytes = Bytes(raw.to_vec());
            assert_eq!(serde_json::to_string(&bytes).unwrap(), json);
            assert_eq!(serde_json::from_str::<Bytes>(json).unwrap(), bytes);
        }
    }
}
