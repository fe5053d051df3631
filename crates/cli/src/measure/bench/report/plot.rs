//! Pictures of figures: SVG that stands in a page, in its text's colour.

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::measure::bench::document::{Clock, Document, Part, Row};
use crate::measure::bench::experiment::{Plot, Scale};
use crate::measure::table::number;

/// Small enough for a phone without scaling the text away.
const WIDTH: u32 = 480;
const HEIGHT: u32 = 320;
/// Of a row of dots.
const ROW: u32 = 34;
const FRAME: u32 = 70;

/// Stands for the colour of the page's text, which a plot does not know: replaced in the SVG.
const INK: RGBColor = RGBColor(1, 2, 3);
const INK_TEXT: &str = "#010203";
/// The same for lines of the grid.
const GRID: RGBColor = RGBColor(1, 2, 4);
const GRID_TEXT: &str = "#010204";

/// A plot, and what its colours mean.
pub struct Picture {
    pub svg: String,
    pub legend: Vec<(String, String)>,
}

/// What is drawn of one column.
struct Series {
    column: String,
    colour: RGBColor,
    points: Vec<Point>,
}

struct Point {
    at: f64,
    median: f64,
    low: f64,
    high: f64,
}

/// Colours that stand out on white and on black.
fn colour(column: &str) -> RGBColor {
    match column {
        "foldspace" => RGBColor(0x1f, 0x9d, 0x6b),
        "linux" => RGBColor(0xe0, 0x7b, 0x2c),
        "lean" => RGBColor(0xd2, 0x3f, 0x5f),
        "copy" => RGBColor(0x7a, 0x6f, 0xd8),
        "leaf" => RGBColor(0x2f, 0x95, 0xd0),
        "huge" => RGBColor(0xb0, 0x8a, 0x1e),
        "today" => RGBColor(0xe0, 0x7b, 0x2c),
        "before" => RGBColor(0xd2, 0x3f, 0x5f),
        "patches" => RGBColor(0x7a, 0x6f, 0xd8),
        "published" => RGBColor(0xc9, 0x4f, 0xb5),
        "linux_7_2" => RGBColor(0x9c, 0x6b, 0x4a),
        _ => RGBColor(0x80, 0x86, 0x8c),
    }
}

/// Draws one; nothing if there is nothing to draw.
pub fn draw(plot: &Plot, part: &Part, document: &Document) -> Result<Option<Picture>> {
    let rows: Vec<(&str, f64)> = if plot.dots.is_empty() {
        let mut points: Vec<(&str, f64)> = plot.points.iter().map(|(row, at)| (row.as_str(), *at)).collect();
        points.sort_by(|a, b| a.1.total_cmp(&b.1));
        points
    } else {
        // What nobody measured takes no room.
        let known =
            |row: &&String| part.rows.iter().any(|known| known.row == **row && !known.by(plot.clock).is_empty());
        plot.dots.iter().filter(known).enumerate().map(|(at, row)| (row.as_str(), at as f64)).collect()
    };
    let series = series(&rows, plot, part, document);
    if series.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    if plot.dots.is_empty() {
        lines(&mut svg, plot, &series)?
    } else {
        match plot.y_scale {
            Scale::Log => dots(&mut svg, plot, &rows, &series, range(&series), range(&series).log_scale())?,
            Scale::Linear => dots(&mut svg, plot, &rows, &series, linear_range(&series), linear_range(&series))?,
        }
    };
    let legend = series.iter().map(|series| {
        let RGBColor(r, g, b) = series.colour;
        (document.title(&series.column).to_owned(), format!("#{r:02x}{g:02x}{b:02x}"))
    });
    Ok(Some(Picture { svg: in_a_page(&svg, &plot.title), legend: legend.collect() }))
}

fn series(rows: &[(&str, f64)], plot: &Plot, part: &Part, document: &Document) -> Vec<Series> {
    let clock = plot.clock;
    let columns = crate::measure::bench::print::columns(document, part);
    let of = |column: String| {
        let points = rows.iter().filter_map(|(name, at)| {
            let row = part.rows.iter().find(|row| row.row == *name)?;
            // A logarithmic axis has no place for nothing.
            let figure =
                row.by(clock).get(&column).filter(|figure| figure.low > 0.0 || plot.y_scale == Scale::Linear)?;
            Some(Point { at: *at, median: figure.median, low: figure.low, high: figure.high })
        });
        let points: Vec<Point> = points.collect();
        (!points.is_empty()).then(|| Series { colour: colour(&column), column, points })
    };
    let mut series: Vec<Series> = columns.into_iter().filter_map(of).collect();
    if clock == Clock::Counted {
        series.extend(recorded(rows, part, "published", |row| row.published));
        series.extend(recorded(rows, part, "linux_7_2", |row| row.linux_7_2));
    }
    series
}

/// Figures that no column has: what others published, and a lean Linux 7.2 that was counted once.
fn recorded(rows: &[(&str, f64)], part: &Part, name: &str, figure: impl Fn(&Row) -> Option<f64>) -> Option<Series> {
    let points = rows.iter().filter_map(|(name, at)| {
        let value = figure(part.rows.iter().find(|row| row.row == *name)?)?;
        Some(Point { at: *at, median: value, low: value, high: value })
    });
    let points: Vec<Point> = points.collect();
    (!points.is_empty()).then(|| Series { column: name.to_owned(), colour: colour(name), points })
}

/// From nothing, or the lowest if it is below, to a little above the highest.
fn linear_range(series: &[Series]) -> std::ops::Range<f64> {
    let all = || series.iter().flat_map(|series| &series.points);
    let low = all().map(|point| point.low).fold(0.0, f64::min);
    let high = all().map(|point| point.high).fold(0.0, f64::max);
    let margin = (high - low).max(1.0) * 0.05;
    low - margin..high + margin
}

/// The range of all figures, to the next powers of ten, so that a logarithmic axis has marks.
fn range(series: &[Series]) -> std::ops::Range<f64> {
    let all = || series.iter().flat_map(|series| &series.points);
    let low = all().map(|point| point.low).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.high).fold(0.0, f64::max);
    let floor = 10f64.powf(low.log10().floor());
    10f64.powf((low * 0.9).log10().floor()).min(floor)..10f64.powf((high * 1.1).log10().ceil()).max(floor * 10.0)
}

fn lines(svg: &mut String, plot: &Plot, series: &[Series]) -> Result<()> {
    let all = || series.iter().flat_map(|series| series.points.iter().map(|point| point.at));
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    // A logarithmic axis to the base of 2 has its marks where sizes have theirs.
    let place = |at: f64| if plot.x_scale == Scale::Log { at.log2() } else { at };
    let size = |place: f64| if plot.x_scale == Scale::Log { place.exp2() } else { place };
    let margin = (place(high) - place(low)).max(1.0) * 0.04;
    let xs = place(low) - margin..place(high) + margin;
    let mut builder = ChartBuilder::on(&area);
    builder.margin(6).margin_top(14).margin_right(18).x_label_area_size(44).y_label_area_size(62);
    let mut chart = builder.build_cartesian_2d(xs, range(series).log_scale()).map_err(wrong)?;
    let text = ("sans-serif", 13).into_font().color(&INK);
    chart
        .configure_mesh()
        .x_desc(plot.x.as_str())
        .y_desc(plot.y.as_str())
        .axis_style(GRID)
        .bold_line_style(GRID.mix(0.18))
        .light_line_style(TRANSPARENT)
        .x_label_style(text.clone())
        .y_label_style(text.clone())
        .axis_desc_style(text)
        .x_label_formatter(&|at| number(size(*at).round()))
        .y_label_formatter(&|value| short(*value))
        .draw()
        .map_err(wrong)?;
    for series in series {
        let style = series.colour.stroke_width(2);
        let points: Vec<(f64, f64)> = series.points.iter().map(|point| (place(point.at), point.median)).collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(wrong)?;
        let spread = series.points.iter().map(|point| {
            PathElement::new([(place(point.at), point.low), (place(point.at), point.high)], series.colour)
        });
        chart.draw_series(spread).map_err(wrong)?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, series.colour.filled()))).map_err(wrong)?;
    }
    area.present().map_err(wrong)
}

/// A line for each row, its name above it, and a dot for each column.
fn dots<X>(
    svg: &mut String,
    plot: &Plot,
    rows: &[(&str, f64)],
    series: &[Series],
    ends: std::ops::Range<f64>,
    axis: X,
) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let area = SVGBackend::with_string(svg, (WIDTH, FRAME + ROW * rows.len() as u32)).into_drawing_area();
    let (left, right) = (ends.start, ends.end);
    let mut builder = ChartBuilder::on(&area);
    builder.margin(6).margin_right(26).margin_left(14).x_label_area_size(44);
    let ys: RangedCoordf64 = (rows.len() as f64..0.0).into();
    let mut chart = builder.build_cartesian_2d(axis, ys).map_err(wrong)?;
    let text = ("sans-serif", 13).into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc(plot.y.as_str())
        .axis_style(GRID)
        .bold_line_style(GRID.mix(0.18))
        .light_line_style(TRANSPARENT)
        .x_label_style(text.clone())
        .axis_desc_style(text.clone())
        .x_labels(8)
        .x_label_formatter(&|value| short(*value))
        .draw()
        .map_err(wrong)?;
    let label = text.pos(Pos::new(HPos::Left, VPos::Top));
    for (name, at) in rows {
        let line = PathElement::new([(left, at + 0.72), (right, at + 0.72)], GRID.mix(0.3));
        chart.draw_series([line]).map_err(wrong)?;
        chart.draw_series([Text::new((*name).to_owned(), (left, at + 0.08), label.clone())]).map_err(wrong)?;
    }
    for series in series {
        let spread = series.points.iter().map(|point| {
            PathElement::new(
                [(point.low, point.at + 0.72), (point.high, point.at + 0.72)],
                series.colour.stroke_width(2),
            )
        });
        chart.draw_series(spread).map_err(wrong)?;
        let dots =
            series.points.iter().map(|point| Circle::new((point.median, point.at + 0.72), 5, series.colour.filled()));
        chart.draw_series(dots).map_err(wrong)?;
    }
    area.present().map_err(wrong)
}

/// A number that fits beside an axis.
fn short(value: f64) -> String {
    match value {
        1e9.. => format!("{} G", number(value / 1e9)),
        1e6.. => format!("{} M", number(value / 1e6)),
        1e3.. => format!("{} k", number(value / 1e3)),
        1.0.. => number(value),
        _ => format!("{value}"),
    }
}

/// As wide as the page allows, in the colour of its text, with a name for who does not see it.
fn in_a_page(svg: &str, title: &str) -> String {
    let title = minijinja::HtmlEscape(title).to_string();
    let size = svg.find("<svg ").and_then(|start| Some((start, start + svg[start..].find(" viewBox")?)));
    let (start, end) = size.unwrap_or((0, 0));
    let svg = format!("{}<svg role=\"img\" aria-label=\"{title}\"{}", &svg[..start], &svg[end..]);
    svg.replace(INK_TEXT, "currentColor")
        .replace(&INK_TEXT.to_uppercase(), "currentColor")
        .replace(GRID_TEXT, "currentColor")
}

fn wrong(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw a plot: {error}")
}
