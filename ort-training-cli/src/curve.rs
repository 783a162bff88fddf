//! The loss curve as a picture.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::files::folder_of;
use crate::train::Record;

const SIZE: (u32, u32) = (1000, 600);
const STEPS: RGBColor = RGBColor(160, 190, 230);
const EPOCHS: RGBColor = RGBColor(30, 80, 160);
const EVALUATION: RGBColor = RGBColor(210, 90, 30);
/// More points than pixels only cost time.
const POINTS: usize = 2000;

/// Draws the loss of the steps, its mean over each epoch, and the evaluation loss where there is one.
pub fn draw(path: &Path, records: &[Record]) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let temporary = tempfile::Builder::new()
        .prefix(".ort-training-")
        .suffix(".png")
        .tempfile_in(folder_of(path))?
        .into_temp_path();
    plot(&temporary, records).map_err(|error| anyhow!("drawing {}: {error}", path.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o644))?;
    }
    temporary.persist(path)?;
    Ok(())
}

fn plot(path: &Path, records: &[Record]) -> Result<(), Box<dyn std::error::Error>> {
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the font that is linked in is none")?;
    let steps = thinned(records);
    let epochs = epoch_means(records);
    let evaluation: Vec<(f64, f64)> = records
        .iter()
        .filter_map(|record| Some((record.step as f64, f64::from(record.eval_loss?))))
        .collect();
    let losses = || steps.iter().chain(&evaluation).map(|(_, loss)| *loss);
    let lowest = losses().fold(0.0, f64::min);
    let highest = losses().fold(f64::MIN, f64::max);
    let highest = if highest > lowest {
        lowest + (highest - lowest) * 1.05
    } else {
        lowest + 1.0
    };
    let last = records.last().map_or(1, |record| record.step) as f64;

    let root = BitMapBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("loss", ("sans-serif", 24))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..last, lowest..highest)?;
    chart
        .configure_mesh()
        .x_desc("step")
        .x_label_formatter(&|step| format!("{step:.0}"))
        .label_style(("sans-serif", 15))
        .draw()?;
    for (points, label, style) in [
        (steps, "step", ShapeStyle::from(&STEPS)),
        (
            epochs,
            "epoch, mean",
            ShapeStyle::from(&EPOCHS).stroke_width(2),
        ),
        (
            evaluation,
            "evaluation",
            ShapeStyle::from(&EVALUATION).stroke_width(2),
        ),
    ] {
        if points.is_empty() {
            continue;
        }
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .label_font(("sans-serif", 15))
        .draw()?;
    root.present()?;
    Ok(())
}

/// At most as many points as are drawn, each the mean of its neighbours.
fn thinned(records: &[Record]) -> Vec<(f64, f64)> {
    records
        .chunks(records.len().div_ceil(POINTS))
        .map(|chunk| {
            let last = chunk.last().map_or(0, |record| record.step);
            (last as f64, mean(chunk))
        })
        .collect()
}

fn epoch_means(records: &[Record]) -> Vec<(f64, f64)> {
    records
        .chunk_by(|a, b| a.epoch == b.epoch)
        .map(|epoch| {
            let last = epoch.last().map_or(0, |record| record.step);
            (last as f64, mean(epoch))
        })
        .collect()
}

fn mean(records: &[Record]) -> f64 {
    records
        .iter()
        .map(|record| f64::from(record.loss))
        .sum::<f64>()
        / records.len() as f64
}
