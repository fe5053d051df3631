//! Figures in sentences: the templates of `experiments.toml`, filled in from a document.

use std::sync::Arc;

use anyhow::{Context, Result};
use minijinja::Environment;

use super::document::Document;
use crate::measure::table::{self, maybe, number};

/// What there is to say, if everything was measured that it speaks of; else nothing.
pub fn said(template: &str, document: &Document) -> Result<String> {
    let said = fill(template, document)?;
    Ok(if said.contains(table::NONE) { String::new() } else { said })
}

/// Fills in a sentence. What was not measured is a dash.
fn fill(template: &str, document: &Document) -> Result<String> {
    let values: Vec<(String, String, f64)> = document
        .rows()
        .flat_map(|row| row.figures.iter().map(|(column, figure)| (row.row.clone(), column.clone(), figure.median)))
        .collect();
    let values = Arc::new(values);
    let find = |values: &[(String, String, f64)], row: &str, column: &str| {
        values.iter().find(|(r, c, _)| r == row && c == column).map(|(.., value)| *value)
    };
    let mut environment = Environment::new();
    let of = Arc::clone(&values);
    environment.add_function("of", move |row: &str, column: &str| maybe(find(&of, row, column)));
    let ratio = Arc::clone(&values);
    // The first column's figure divided by the second's; of another row's, if one is named.
    environment.add_function("ratio", move |row: &str, much: &str, little: &str, other: Option<&str>| {
        table::ratio(find(&ratio, row, much), find(&ratio, other.unwrap_or(row), little))
    });
    environment.add_function("percent", move |row: &str, other: &str, column: &str| {
        match (find(&values, row, column), find(&values, other, column)) {
            (Some(one), Some(other)) => {
                let percent = ((one / other - 1.0) * 1000.0).round() / 10.0;
                format!("{}{} %", if percent > 0.0 { "+" } else { "" }, number(percent))
            }
            _ => table::NONE.to_owned(),
        }
    });
    let times: Vec<(String, String, f64)> = document
        .rows()
        .flat_map(|row| row.wall_ratio.iter().map(|(column, ratio)| (row.row.clone(), column.clone(), ratio.median)))
        .collect();
    // How many times as long a Linux took by the clock.
    environment
        .add_function("times", move |row: &str, column: &str| table::ratio(find(&times, row, column), Some(1.0)));
    environment.render_str(template, ()).context("a sentence of experiments.toml")
}

#[cfg(test)]
mod tests {
    use super::super::experiment::Experiments;
    use super::super::report::tests::document;
    use super::*;

    #[test]
    fn figures_come_into_sentences() {
        let said = fill(
            "{{ of('fork_4', 'linux') }}, {{ ratio('fork_4', 'linux', 'foldspace') }}, {{ percent('fork_512', 'fork_4', 'foldspace') }}, {{ of('none', 'linux') }}",
            &document(),
        );
        assert_eq!(said.unwrap(), "189,000, 50.0 ×, +0.1 %, –");
    }

    #[test]
    fn every_sentence_of_the_file_can_be_filled_in() {
        for experiment in Experiments::load().unwrap().experiment {
            fill(&experiment.says, &document()).unwrap();
        }
    }
}
