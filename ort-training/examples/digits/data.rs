//! The handwritten digits: 1,797 images of 8×8 pixels in 16 shades, of the UCI "Optical Recognition of Handwritten
//! Digits" test set, as the crate `smartcore` ships them.

use super::random::Random;

/// Pixels in an image.
pub const PIXELS: usize = 64;
/// Shades from white to black; the images are scaled by it to 0..=1.
const DARKEST: f32 = 16.0;

/// Images with what they show, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digits {
    /// `count() × PIXELS` shades from 0 to 1, row by row.
    pub images: Vec<f32>,
    /// The digit of each image, 0 to 9.
    pub labels: Vec<i64>,
}

impl Digits {
    /// All images, in the order they were published in.
    pub fn load() -> Self {
        let dataset = smartcore::dataset::digits::load_dataset();
        assert_eq!(dataset.num_features, PIXELS, "pixels in an image");
        Self {
            images: dataset.data.iter().map(|shade| shade / DARKEST).collect(),
            labels: dataset.target.iter().map(|&digit| digit as i64).collect(),
        }
    }

    /// How many images there are.
    pub fn count(&self) -> usize {
        self.labels.len()
    }

    /// The images of these numbers, in this order.
    pub fn select(&self, numbers: &[usize]) -> Self {
        let mut selected = Self::default();
        for &number in numbers {
            let first = number * PIXELS;
            selected
                .images
                .extend_from_slice(&self.images[first..first + PIXELS]);
            selected.labels.push(self.labels[number]);
        }
        selected
    }

    /// Splits off a fifth that training never sees: (training, held out).
    pub fn split(&self, seed: u64) -> (Self, Self) {
        let mut order: Vec<usize> = (0..self.count()).collect();
        Random::new(seed, 0).shuffle(&mut order);
        let (held_out, training) = order.split_at(self.count() / 5);
        (self.select(training), self.select(held_out))
    }

    /// The batches of an epoch, shuffled by seed and epoch alone, so that a run that was resumed in a later epoch sees
    /// what an uninterrupted one sees. The last batch holds what is left over.
    pub fn batches(&self, seed: u64, epoch: usize, batch_size: usize) -> Vec<Self> {
        let mut order: Vec<usize> = (0..self.count()).collect();
        Random::new(seed, 1 + epoch as u64).shuffle(&mut order);
        order
            .chunks(batch_size)
            .map(|numbers| self.select(numbers))
            .collect()
    }
}
