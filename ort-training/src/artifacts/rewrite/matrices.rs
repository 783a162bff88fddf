//! Products of matrices in the forms that ONNX Runtime differentiates.

use super::super::error::Result;
use super::{Outcome, Scope};

impl Scope<'_, '_> {
    /// ONNX Runtime's gradient takes every operand for a matrix: a vector becomes one of one row or column.
    pub(super) fn product_with_vectors(&mut self) -> Result<Outcome> {
        let (a, b) = (self.x(), self.source.input[1].clone());
        let (Some(rank_a), Some(rank_b)) = (self.rank(&a), self.rank(&b)) else {
            return Ok(Outcome::Keep);
        };
        if rank_a > 1 && rank_b > 1 {
            return Ok(Outcome::Keep);
        }
        let left = if rank_a == 1 {
            self.unsqueeze(&a, &[0])
        } else {
            a
        };
        let right = if rank_b == 1 {
            self.unsqueeze(&b, &[1])
        } else {
            b
        };
        let product = self.op("MatMul", &[&left, &right]);
        let mut dropped = Vec::new();
        if rank_a == 1 {
            dropped.push(-2);
        }
        if rank_b == 1 {
            dropped.push(-1);
        }
        let y = self.squeeze(&product, &dropped);
        self.finish(&y);
        Ok(Outcome::Done("MatMul of matrices"))
    }
}
