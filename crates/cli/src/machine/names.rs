//! Names of a kernel's functions by their addresses.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use elf::ElfBytes;
use elf::abi::STT_FUNC;
use elf::endian::AnyEndian;

use super::backtrace::without_hash;

/// Functions in the order of their addresses.
pub struct Names(Vec<(u64, String)>);

impl Names {
    /// Of an ELF file with symbols.
    pub fn of_image(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let image = ElfBytes::<AnyEndian>::minimal_parse(&bytes).with_context(|| path.display().to_string())?;
        let Some((symbols, strings)) = image.symbol_table()? else { bail!("{} has no symbols", path.display()) };
        let functions = symbols.iter().filter(|symbol| symbol.st_symtype() == STT_FUNC || symbol.st_symtype() == 0);
        let named = functions.filter_map(|symbol| {
            let name = strings.get(symbol.st_name as usize).ok().filter(|name| !name.is_empty())?;
            Some((symbol.st_value, without_hash(&addr2line::demangle_auto(name.into(), None))))
        });
        Ok(Self::sorted(named.collect()))
    }

    /// Of Linux's `System.map`.
    pub fn of_map(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let functions = text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            matches!(kind, "T" | "t" | "W" | "w").then_some((address, words.next()?.to_owned()))
        });
        Ok(Self::sorted(functions.collect()))
    }

    fn sorted(mut names: Vec<(u64, String)>) -> Self {
        names.sort();
        Self(names)
    }

    /// The function at an address, and whether it begins there.
    pub fn at(&self, address: u64) -> (String, bool) {
        match self.0.partition_point(|(start, _)| *start <= address).checked_sub(1) {
            Some(at) => (self.0[at].1.clone(), self.0[at].0 == address),
            None => (format!("{address:#x}"), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_function_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let map = dir.path().join("System.map");
        fs::write(&map, "ffffffff81000000 T first\nffffffff81000100 t second\nffffffff81000180 D data\n").unwrap();
        let names = Names::of_map(&map).unwrap();
        assert_eq!(names.at(0xffff_ffff_8100_0000), ("first".to_owned(), true));
        assert_eq!(names.at(0xffff_ffff_8100_01ff), ("second".to_owned(), false));
        assert_eq!(names.at(0x1000), ("0x1000".to_owned(), false));
    }
}
