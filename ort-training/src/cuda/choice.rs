//! The explicit choice of the CPU where CUDA cannot be used.

use std::fmt;

use super::options::CudaOptions;
use super::status::CudaStatus;
use crate::error::{Error, Result};
use crate::session_options::SessionOptions;
use crate::training_builder::TrainingSessionBuilder;

/// What `cuda_or_cpu` chose.
#[derive(Debug, Clone)]
#[must_use]
pub enum CudaChoice {
    /// The CUDA device with this number.
    Cuda(u32),
    /// The CPU, because of this.
    Cpu(Error),
}

impl CudaChoice {
    /// Looks whether the device can be used.
    pub(crate) fn of(options: &CudaOptions) -> Self {
        match CudaStatus::probe().ensure(options.device_id()) {
            Ok(()) => Self::Cuda(options.device_id()),
            Err(missing) => {
                log::warn!("training on the CPU: {missing}");
                Self::Cpu(missing)
            }
        }
    }

    /// Whether it is a CUDA device.
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        matches!(self, Self::Cuda(_))
    }
}

impl fmt::Display for CudaChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(device) => write!(f, "CUDA device {device}"),
            Self::Cpu(missing) => write!(f, "the CPU ({missing})"),
        }
    }
}

impl SessionOptions {
    /// As [`with_cuda`](Self::with_cuda), or without CUDA where [`CudaStatus::ensure`] says that it cannot be used; says
    /// which. Settings that are wrong are an error all the same.
    ///
    /// # Errors
    /// CUDA can be used, but ONNX Runtime refuses the settings.
    pub fn with_cuda_or_cpu(self, options: &CudaOptions) -> Result<(Self, CudaChoice)> {
        let choice = CudaChoice::of(options);
        let chosen = match choice {
            CudaChoice::Cuda(_) => self.with_cuda(options)?,
            CudaChoice::Cpu(_) => self,
        };
        Ok((chosen, choice))
    }
}

impl TrainingSessionBuilder {
    /// As [`cuda`](Self::cuda), or on the CPU where [`CudaStatus::ensure`] says that CUDA cannot be used; says which.
    /// Settings that are wrong are an error all the same.
    ///
    /// # Errors
    /// CUDA can be used, but ONNX Runtime refuses the settings.
    pub fn cuda_or_cpu(self, options: CudaOptions) -> Result<(Self, CudaChoice)> {
        let choice = CudaChoice::of(&options);
        let chosen = match choice {
            CudaChoice::Cuda(_) => self.cuda(options)?,
            CudaChoice::Cpu(_) => self,
        };
        Ok((chosen, choice))
    }
}
