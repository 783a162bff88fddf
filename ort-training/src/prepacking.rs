//! Constant matrices that ONNX Runtime cannot pack ahead.
//!
//! When a session is built on the CPU, kernels pack their constant matrices, and the packed bytes are hashed by a function
//! that takes their number as an `int` (prepacked_weights.cc, `PrePackedWeights::GetHash`): from 2 GiB on it is negative,
//! and the hash reads what lies before the buffer until the process ends. Such models run without packing.

/// The setting that turns packing off.
pub(crate) const DISABLE: &str = "session.disable_prepacking";

/// Packed matrices have their columns in groups of so many (MLAS, `MlasGemmPackBSize`).
const GROUP: u64 = 16;

/// The first size that is negative.
const LIMIT: u64 = 1 << 31;

/// Whether a matrix of this shape may take 2 GiB when it is packed, as it is or transposed.
pub(crate) fn is_too_large(dims: &[i64]) -> bool {
    let size = |dim: &i64| u64::try_from(*dim).unwrap_or(0);
    let bytes = dims.iter().map(size).fold(4, u64::saturating_mul);
    let padded = |dim: Option<&i64>| match dim.map(size) {
        None | Some(0) => bytes,
        Some(dim) => (bytes / dim).saturating_mul(dim.div_ceil(GROUP).saturating_mul(GROUP)),
    };
    dims.len() >= 2 && padded(dims.first()).max(padded(dims.last())) >= LIMIT
}

#[cfg(test)]
mod tests {
    use super::is_too_large;

    #[test]
    fn two_gibibytes_packed() {
        assert!(is_too_large(&[1 << 14, 1 << 15]) && !is_too_large(&[1 << 14, (1 << 15) - 16]));
        // The next column makes a group of sixteen, in the last axis or, transposed, in the first.
        assert!(
            is_too_large(&[1 << 14, (1 << 15) - 15]) && is_too_large(&[(1 << 15) - 15, 1 << 14])
        );
        assert!(is_too_large(&[1 << 25, 1]) && !is_too_large(&[1 << 24, 1]));
        // Vectors are not packed; shapes that are none do not count.
        assert!(!is_too_large(&[1 << 40]) && !is_too_large(&[-1, 1 << 40]) && !is_too_large(&[]));
        assert!(is_too_large(&[i64::MAX, i64::MAX]));
    }
}
