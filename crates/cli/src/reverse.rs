//! `foldspace reverse`: with which families of processes the published reverse maps grow, and Foldspace's does not.

use std::io::{self, Write};

use anyhow::Result;
use foldspace_replay::{Brood, Link, LookUp, Name, Size, chain, children};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args;
use crate::measure::table::{NONE, number, with_header};
use crate::replay::title;

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    chain: Vec<Link>,
    children: Vec<Brood>,
}

/// Makes both families and prints what each reverse map came to.
pub fn reverse(args: &args::Reverse) -> Result<u8> {
    let style = "{msg:10} {bar:40} {pos}/{len} forks, {elapsed}, {eta} left";
    // The template is ours and valid.
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    let progress =
        |what: &'static str, forks: u32| ProgressBar::new(forks.into()).with_style(style.clone()).with_message(what);
    let bar = progress("a chain", args.forks);
    let links = chain(args.forks, args.memory, || bar.inc(1))?;
    bar.finish_and_clear();
    let bar = progress("children", args.children);
    let broods = children(args.children, args.memory, || bar.inc(1))?;
    bar.finish_and_clear();
    let document = Document { chain: links, children: broods };
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&document, args))?;
    }
    Ok(0)
}

fn text(document: &Document, args: &args::Reverse) -> String {
    let columns =
        ["", "forks", "objects", "links", "made by the last fork", "bytes", "tables", "looked at for a page", "there"];
    let mut table = with_header(columns);
    let mut links: Vec<&Link> = document.chain.iter().collect();
    links.sort_by_key(|link| order(link.size.name));
    for Link { size, page } in links {
        let looks = [looked_at(page), mean(page.found)];
        table.add_row(row(size).into_iter().chain(looks));
    }
    let mut text = format!(
        "A chain of {} forks: each child forks and its parent exits, each stores to 2 of 256 pages.\n{table}\n\n",
        number(f64::from(args.forks))
    );
    let mut table = with_header([
        "",
        "children",
        "objects",
        "links",
        "made by the last fork",
        "bytes",
        "tables",
        "looked at for a child's own page",
        "for the parent's own",
        "for a page of all",
        "there",
    ]);
    for Brood { size, childs, parents, shared } in &document.children {
        let looks = [looked_at(childs), looked_at(parents), looked_at(shared), mean(shared.found)];
        table.add_row(row(size).into_iter().chain(looks));
    }
    text += &format!(
        "{} children of one parent: each stores to a page of its own, and then the parent to another.\n{table}\n\n",
        number(f64::from(args.children))
    );
    text + "Objects: anon_vmas, or lineages. Looked at: VMAs in whose tables the page may be, or tables of the last level; the mean, and the most for one \
            page where that differs.\n"
}

fn row(size: &Size) -> [String; 7] {
    let count = |count: u64| number(count as f64);
    [
        title(size.name).to_owned(),
        count(size.forks.into()),
        count(size.objects),
        count(size.links),
        count(size.by_last_fork),
        count(size.bytes),
        size.tables.map_or(NONE.to_owned(), count),
    ]
}

fn looked_at(look: &LookUp) -> String {
    let (mean, most) = (mean(look.looked_at), number(look.most as f64));
    if mean == most { mean } else { format!("{mean} (most {most})") }
}

fn mean(value: f64) -> String {
    number((value * 100.0).round() / 100.0)
}

/// As the variants were published; Foldspace last.
fn order(name: Name) -> usize {
    [Name::PerFork, Name::Before, Name::FirstPatch, Name::BothPatches, Name::Today]
        .iter()
        .position(|known| *known == name)
        .unwrap_or(usize::MAX)
}
