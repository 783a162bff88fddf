//! The loss curve as a picture.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

const SIZE: (u32, u32) = (1000, 600);
const TRAINING: RGBColor = RGBColor(160, 190, 230);
const SMOOTHED: RGBColor = RGBColor(30, 80, 160);
const HELD_OUT: RGBColor = RGBColor(210, 90, 30);

/// Draws the loss of every training step, its running mean and the loss on held-out images, which `held_out` gives
/// after as many steps as it says.
pub fn draw(
    path: &Path,
    training: &[f32],
    held_out: &[(usize, f32)],
    title: &str,
) -> Result<(), Box<dyn Error>> {
    // A font that is linked in: the machine may have none.
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the linked font isn't one")?;

    let highest = training.iter().copied().fold(0.0f32, f32::max) * 1.05;
    let root = BitMapBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 24))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(0..training.len(), 0.0f32..highest)?;
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc("cross-entropy")
        .label_style(("sans-serif", 15))
        .draw()?;

    chart
        .draw_series(LineSeries::new(
            training.iter().copied().enumerate(),
            &TRAINING,
        ))?
        .label("training, each step")
        .legend(|at| key(at, TRAINING));
    chart
        .draw_series(LineSeries::new(
            running_mean(training).enumerate(),
            SMOOTHED.stroke_width(2),
        ))?
        .label("training, running mean")
        .legend(|at| key(at, SMOOTHED));
    chart
        .draw_series(
            LineSeries::new(held_out.iter().copied(), HELD_OUT.stroke_width(2)).point_size(3),
        )?
        .label("held out, each epoch")
        .legend(|at| key(at, HELD_OUT));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .margin(16)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 16))
        .draw()?;
    root.present()?;
    Ok(())
}

fn key((x, y): (i32, i32), colour: RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new(vec![(x, y), (x + 20, y)], colour.stroke_width(2))
}

fn running_mean(values: &[f32]) -> impl Iterator<Item = f32> {
    let mut mean = values.first().copied().unwrap_or_default();
    values.iter().map(move |value| {
        mean = 0.95 * mean + 0.05 * value;
        mean
    })
}
