//! The list of mutations, and how they get into a copy of the sources.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::orders::Unnoticed;

/// Where the files of the list are.
pub const SOURCES: &str = "crates/foldspace/src";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutation: Vec<Mutation>,
    #[serde(default)]
    unnoticed: Vec<Unnoticed>,
}

/// Something that a protocol must not do without.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    pub name: String,
    /// The rule.
    pub breaks: String,
    /// The model that is there for it, which is asked first.
    pub model: String,
    edit: Vec<Edit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    text: String,
    mutant: String,
    /// What stands for `text` when the mutation is off.
    keep: Option<String>,
    /// Which of several, from 1; there is one if this is not given.
    nth: Option<usize>,
}

fn list() -> Result<List> {
    toml::from_str(include_str!("../../../mutations.toml")).context("mutations.toml")
}

/// The list that is beside this crate.
pub fn mutations() -> Result<Vec<Mutation>> {
    Ok(list()?.mutation)
}

/// Orderings whose weaker forms nothing notices.
pub fn unnoticed() -> Result<Vec<Unnoticed>> {
    Ok(list()?.unnoticed)
}

/// A place that mutations change.
struct Site<'l> {
    /// What is there.
    text: &'l str,
    /// What stands for it where no mutation is on.
    keep: &'l str,
    /// Mutants, with their numbers.
    mutants: Vec<(usize, &'l str)>,
}

/// The files that mutations change, with all of them inside. A mutation is on if its number, its place in the list from 1, is.
///
/// # Errors
///
/// If a text is not in its file, or not as often as the list says: then the sources have changed, and the list has to follow.
pub fn mutated(root: &Path, mutations: &[Mutation]) -> Result<BTreeMap<String, String>> {
    // By file, and place in it.
    let mut sites: BTreeMap<(&str, usize), Site<'_>> = BTreeMap::new();
    let mut sources: BTreeMap<&str, String> = BTreeMap::new();
    for (number, mutation) in (1..).zip(mutations) {
        for edit in &mutation.edit {
            if !sources.contains_key(edit.file.as_str()) {
                let path = root.join(SOURCES).join(&edit.file);
                let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                sources.insert(&edit.file, text);
            }
            let text = edit.text.trim_start_matches('\n').trim_start();
            let found: Vec<usize> = sources[edit.file.as_str()].match_indices(text).map(|(at, _)| at).collect();
            let (name, file) = (&mutation.name, &edit.file);
            ensure!(
                !found.is_empty() && (edit.nth.is_some() || found.len() == 1),
                "{name}: its text is {} times in {file}, which may have changed: {text}",
                found.len()
            );
            let nth = edit.nth.unwrap_or(1);
            let at =
                *found.get(nth - 1).with_context(|| format!("{name}: there are only {} in {file}", found.len()))?;
            let keep = edit.keep.as_deref().unwrap_or(text);
            let site = sites.entry((file, at)).or_insert(Site { text, keep, mutants: Vec::new() });
            ensure!(site.text == text, "{name}: its text overlaps that of another mutation");
            site.mutants.push((number, &edit.mutant));
        }
    }
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (file, source) in sources {
        let (mut out, mut from) = (String::new(), 0);
        for ((_, at), Site { text, keep, mutants }) in sites.range((file, 0)..=(file, usize::MAX)) {
            ensure!(*at >= from, "{file}: texts of mutations overlap at {text}");
            out += &source[from..*at];
            out += &choice(text, keep, mutants);
            from = at + text.len();
        }
        files.insert(file.to_owned(), out + &source[from..]);
    }
    Ok(files)
}

/// The code that chooses between what is there and the mutants of it.
fn choice(text: &str, keep: &str, mutants: &[(usize, &str)]) -> String {
    if let [(number, "")] = mutants
        && keep != text
    {
        // The choice is in `keep` itself.
        return keep.replace("ON", &number.to_string());
    }
    let mut out = String::new();
    for (number, mutant) in mutants {
        out += &format!("if crate::sync::mutants::is_on({number}) {{ {mutant} }} else ");
    }
    out += &format!("{{ {keep} }}");
    if text.ends_with([';', '}']) { out } else { format!("({out})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mutations = mutations().unwrap();
        assert!(mutations.len() >= 60);
        let files = mutated(&root, &mutations).unwrap();
        assert!(files.values().all(|text| text.contains("mutants::is_on")));
    }

    #[test]
    fn the_orderings_of_the_list_are_in_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let orders = crate::orders::all(&root).unwrap();
        assert!(orders.len() >= 20);
        for entry in unnoticed().unwrap() {
            assert!(orders.iter().any(|order| entry.is_of(order)), "nothing has it any more: {}", entry.because);
        }
        let files = crate::orders::mutated(&root, &orders).unwrap();
        assert!(files.values().all(|text| text.contains("mutants::order")));
    }
}
