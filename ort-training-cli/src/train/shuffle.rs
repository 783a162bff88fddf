//! The order of the rows in an epoch, from the seed and the epoch alone: what makes runs repeatable and resumable.

use crate::random::SplitMix64;

/// Neighbouring seeds and epochs are to have nothing in common.
fn of_epoch(seed: u64, epoch: u32) -> SplitMix64 {
    let mixed = SplitMix64::new(seed).next() ^ u64::from(epoch).wrapping_mul(0xD1B5_4A32_D192_ED03);
    SplitMix64::new(mixed)
}

/// The numbers below `rows`, shuffled (Fisher and Yates).
pub fn order(rows: usize, seed: u64, epoch: u32) -> Vec<usize> {
    let mut random = of_epoch(seed, epoch);
    let mut order: Vec<usize> = (0..rows).collect();
    for at in (1..rows).rev() {
        order.swap(at, random.below(at + 1));
    }
    order
}

/// What ONNX Runtime's own random numbers start from in an epoch.
pub fn dropout_seed(seed: u64, epoch: u32) -> i64 {
    // Another stream than that of the order; 31 bits, since some of ONNX Runtime's generators take no more.
    (of_epoch(!seed, epoch).next() >> 33) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_once_and_another_order_each_epoch() {
        let (first, second) = (order(1000, 7, 1), order(1000, 7, 2));
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..1000));
        assert_ne!(first, second);
        assert_eq!(first, order(1000, 7, 1));
        assert_ne!(first, order(1000, 8, 1));
    }

    #[test]
    fn positions_are_even() {
        // Where row 0 goes in many shuffles of 10: each place about as often.
        let mut counts = [0; 10];
        for epoch in 0..10_000 {
            let place = order(10, 3, epoch).iter().position(|&row| row == 0);
            counts[place.unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|&count| (880..1120).contains(&count)),
            "{counts:?}"
        );
    }
}
