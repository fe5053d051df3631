//! Names for the addresses in a panicking kernel's backtrace: it prints numbers, the image has the symbols and line tables.

use std::fmt::Write;
use std::path::Path;

use addr2line::Loader;

/// The log, with functions and source lines beside each line `#N ADDRESS`. As it is where the image tells nothing.
pub fn with_names(log: &str, image: &Path) -> String {
    let Ok(image) = Loader::new(image) else { return log.to_owned() };
    let mut named = String::new();
    for line in log.split_inclusive('\n') {
        let text = line.trim_end();
        let calls = address(text).map(|address| calls(&image, address)).unwrap_or_default();
        named.push_str(text);
        // The innermost inlined function first, then what it was inlined into.
        for (number, call) in calls.iter().enumerate() {
            let indent = if number == 0 { 1 } else { text.len() + 1 };
            let end = if number + 1 < calls.len() { "\n" } else { "" };
            let _ = write!(named, "{:indent$}{call}{end}", "");
        }
        named.push_str(&line[text.len()..]);
    }
    named
}

/// The address in a line `  #N 0x…`.
fn address(line: &str) -> Option<u64> {
    let (number, address) = line.trim_start().strip_prefix('#')?.split_once(' ')?;
    number.parse::<u32>().ok()?;
    u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()
}

/// Which functions, inlined ones first, made the call that returns to `address`.
fn calls(image: &Loader, address: u64) -> Vec<String> {
    // The instruction before: the one at the address may belong to another line, or, after a call that never returns, to
    // another function.
    let address = address.wrapping_sub(1);
    let mut calls = Vec::new();
    if let Ok(mut frames) = image.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let function =
                frame.function.as_ref().and_then(|name| name.demangle().ok().map(|name| without_hash(&name)));
            let place = frame.location.and_then(|place| Some(format!(" ({}:{})", place.file?, place.line?)));
            if let Some(function) = function {
                calls.push(function + &place.unwrap_or_default());
            }
        }
    }
    if calls.is_empty() {
        let symbol = image.find_symbol(address);
        calls.extend(symbol.map(|name| without_hash(&addr2line::demangle_auto(name.into(), None))));
    }
    calls
}

/// A function's name without the compiler's `::h0123456789abcdef`.
pub(super) fn without_hash(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((function, hash)) if hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            function.to_owned()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_a_backtrace_have_addresses() {
        assert_eq!(address("  #3 0xffffffff8010ce86"), Some(0xffff_ffff_8010_ce86));
        for other in ["", "#", "  #x 0x10", "  rip ffffffff8010ce86", "kernel panic: #1 0x10", "  #1 16"] {
            assert_eq!(address(other), None, "{other}");
        }
    }

    #[test]
    fn a_function_of_this_program_gets_its_name() {
        // This test's own image, in place of a kernel. It may be loaded anywhere, so the address comes from its symbols.
        let image = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&image).unwrap();
        let elf = elf::ElfBytes::<elf::endian::AnyEndian>::minimal_parse(&bytes).unwrap();
        let (symbols, names) = elf.symbol_table().unwrap().expect("tests are not stripped");
        let symbol = symbols.iter().find(|symbol| {
            names.get(symbol.st_name as usize).is_ok_and(|name| name.contains("without_hash")) && symbol.st_size > 0
        });
        let address = symbol.expect("the function is compiled").st_value + 1;
        let named = with_names(&format!("one\n  #0 {address:#018x}\nend"), &image);
        assert!(named.starts_with("one\n  #0 0x") && named.ends_with("\nend"), "{named}");
        assert!(named.contains("backtrace::without_hash"), "{named}");
    }
}
