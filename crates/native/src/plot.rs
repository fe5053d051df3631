//! A picture of the figures: for each operation its time against the size, both logarithmic.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::Figures;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 340;

type Value = fn(&Figures) -> f64;

const PARTS: [(&str, Value); 3] = [
    ("snapshot, µs", |figures| figures.snapshot),
    ("first write, µs", |figures| figures.first_write / 1e3),
    ("restore, µs", |figures| figures.restore),
];

/// Colours that stand out on white.
fn colour(way: &str) -> RGBColor {
    match way {
        "Foldspace" => RGBColor(0x1f, 0x9d, 0x6b),
        "fork(2)" => RGBColor(0xe0, 0x7b, 0x2c),
        "copying" => RGBColor(0x80, 0x86, 0x8c),
        "MAP_PRIVATE of a memfd" => RGBColor(0x7a, 0x6f, 0xd8),
        _ => RGBColor(0xd2, 0x3f, 0x5f),
    }
}

/// As SVG.
pub fn draw(figures: &[Figures]) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
        for (area, (name, value)) in root.split_evenly((1, PARTS.len())).iter().zip(PARTS) {
            part(area, name, value, figures).map_err(|error| anyhow!("{error}"))?;
        }
        root.present().map_err(|error| anyhow!("{error}"))?;
    }
    Ok(svg)
}

type Area<'s> = DrawingArea<SVGBackend<'s>, plotters::coord::Shift>;

fn part(area: &Area<'_>, name: &str, value: Value, figures: &[Figures]) -> Result<(), Box<dyn std::error::Error>> {
    let sizes = figures.iter().map(|figures| figures.size_mib as f64);
    let (first, last) = sizes.fold((f64::INFINITY, 1.0_f64), |(low, high), size| (low.min(size), high.max(size)));
    let (low, high) =
        figures.iter().map(value).fold((f64::INFINITY, 1.0_f64), |(low, high), at| (low.min(at), high.max(at)));
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .caption(name, ("sans-serif", 15))
        .x_label_area_size(28)
        .y_label_area_size(58)
        .build_cartesian_2d((first * 0.8..last * 1.25).log_scale(), (low.max(0.01) * 0.7..high * 1.4).log_scale())?;
    chart.configure_mesh().x_desc("MiB").light_line_style(TRANSPARENT).draw()?;
    let mut ways: Vec<&str> = figures.iter().map(|figures| figures.way).collect();
    ways.sort_unstable();
    ways.dedup();
    for way in ways {
        let points: Vec<(f64, f64)> =
            figures.iter().filter(|row| row.way == way).map(|row| (row.size_mib as f64, value(row))).collect();
        let style = colour(way).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.clone(), style).point_size(3))?
            .label(way)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    }
    if name.starts_with("snapshot") {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleLeft)
            .background_style(WHITE.mix(0.8))
            .label_font(("sans-serif", 11))
            .draw()?;
    }
    Ok(())
}
