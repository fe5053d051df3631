//! Arguments as strace prints them.

/// Where the arguments end: the index of the parenthesis that closes what was open before `text` begins.
pub(super) fn end_of_arguments(text: &str) -> Option<usize> {
    scan(text, |depth, byte| depth == 0 && byte == b')').next()
}

/// The arguments between commas that stand in no bracket, brace, parenthesis or string.
pub(super) fn split(text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let mut from = 0;
    let mut args = Vec::new();
    for comma in scan(text, |depth, byte| depth == 0 && byte == b',') {
        args.push(text[from..comma].trim().to_string());
        from = comma + 1;
    }
    args.push(text[from..].trim().to_string());
    args
}

/// Indices of the bytes outside strings and comments that `wanted` says yes to, which is given how many brackets are open.
fn scan(text: &str, wanted: impl Fn(usize, u8) -> bool) -> impl Iterator<Item = usize> {
    let mut depth: usize = 0;
    let mut within: Option<u8> = None;
    let mut escaped = false;
    let mut last = 0;
    text.bytes().enumerate().filter_map(move |(at, byte)| {
        let before = std::mem::replace(&mut last, byte);
        if let Some(end) = within {
            // A string ends at its quote, a comment at "*/", a path behind a descriptor at ">".
            let closes = match end {
                b'/' => before == b'*' && byte == b'/',
                _ => byte == end && !escaped,
            };
            escaped = end == b'"' && byte == b'\\' && !escaped;
            if closes {
                within = None;
            }
            return None;
        }
        let found = wanted(depth, byte);
        match byte {
            b'"' => within = Some(b'"'),
            b'*' if before == b'/' => within = Some(b'/'),
            b'<' if before.is_ascii_digit() => within = Some(b'>'),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        found.then_some(at)
    })
}

/// A number: decimal, hexadecimal, octal, negative, `NULL`, or a product or shift of two (`8192*1024`, `1<<20`). What stands behind it in brackets
/// (`3</lib/libc.so>`) does not count.
pub fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "NULL" {
        return Some(0);
    }
    if let Some((a, b)) = text.split_once('*') {
        return number(a)?.checked_mul(number(b)?);
    }
    if let Some((a, b)) = text.split_once("<<") {
        return number(a)?.checked_shl(u32::try_from(number(b)?).ok()?);
    }
    let text = text.split_once('<').map_or(text, |(number, _)| number);
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(negative) = text.strip_prefix('-') {
        return negative.parse::<u64>().ok().map(u64::wrapping_neg);
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// The names in an expression such as `PROT_READ|PROT_WRITE`.
pub fn flags_of(text: &str) -> impl Iterator<Item = &str> {
    text.split('|').map(str::trim)
}
