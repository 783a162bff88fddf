//! Is CUDA there: what is found of library, driver and devices, and what is missing.

use std::fmt;
use std::path::{Path, PathBuf};

use super::device::CudaDevice;
use super::libraries::{self, describe};
use crate::error::{Error, ErrorCode, Result};
use crate::session_options::available_providers;

/// What there is of CUDA on this machine: ONNX Runtime's provider, the libraries that it needs, driver and devices. Shown
/// with `{}` it is a list, a line for each.
///
/// ```
/// use ort_training::CudaStatus;
/// let status = CudaStatus::probe();
/// if let Err(missing) = status.ensure(0) {
///     println!("{missing}\n{status}");
/// }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct CudaStatus {
    provider: Result<PathBuf>,
    libraries: Vec<CudaLibrary>,
    driver: Result<(u32, u32)>,
    devices: Result<u32>,
}

/// A library that the CUDA execution provider needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaLibrary {
    /// The name that the loader looks for, such as `libcublas.so.13`.
    pub name: String,
    /// Where it was found (the name alone where the loader found it by itself), or why it was not.
    pub found: std::result::Result<PathBuf, String>,
}

impl CudaStatus {
    /// Looks at the ONNX Runtime that is linked and at this machine.
    ///
    /// The libraries that the provider needs are loaded for it and stay loaded, also those that the loader would not find
    /// by itself: in the folders that `ORT_TRAINING_CUDA_LIBRARIES` names, of the toolkit (`CUDA_HOME`, `CUDA_PATH`,
    /// `CUDNN_HOME`, `/usr/local/cuda`), and of NVIDIA's packages in Python's environments.
    pub fn probe() -> Self {
        let linked = available_providers().and_then(|providers| {
            if providers.iter().any(|name| name == "CUDAExecutionProvider") {
                return libraries::runtime_folder();
            }
            Err(Error::new(
                ErrorCode::NotImplemented,
                format!(
                    "CUDA: expected an ONNX Runtime built with the CUDA execution provider, found one with {}",
                    providers.join(", ")
                ),
            ))
        });
        Self::looked_at(linked.and_then(|folder| libraries::provider(&folder)))
    }

    /// As [`probe`](Self::probe), for the libraries in `folder`: an install that is not the one that is linked.
    pub fn probe_folder(folder: impl AsRef<Path>) -> Self {
        Self::looked_at(libraries::provider(folder.as_ref()))
    }

    fn looked_at(provider: Result<(PathBuf, libraries::Dependencies)>) -> Self {
        let (provider, libraries) = match provider {
            Ok((path, dependencies)) => (Ok(path), libraries::load(&dependencies)),
            Err(error) => (Err(error), Vec::new()),
        };
        Self {
            provider,
            libraries: libraries
                .into_iter()
                .map(|(name, found)| CudaLibrary { name, found })
                .collect(),
            driver: CudaDevice::driver_version(),
            devices: CudaDevice::count(),
        }
    }

    /// The provider's library.
    ///
    /// # Errors
    /// ONNX Runtime was built without CUDA; the library is missing, cut off or none.
    pub fn provider(&self) -> Result<&Path> {
        match &self.provider {
            Ok(path) => Ok(path),
            Err(error) => Err(error.clone()),
        }
    }

    /// The libraries that the provider needs; none where the provider could not be read.
    #[must_use]
    pub fn libraries(&self) -> &[CudaLibrary] {
        &self.libraries
    }

    /// The newest CUDA version that the driver supports, as major and minor.
    ///
    /// # Errors
    /// There is no driver, or it does not start.
    pub fn driver_version(&self) -> Result<(u32, u32)> {
        self.driver.clone()
    }

    /// How many devices the driver shows.
    ///
    /// # Errors
    /// As [`driver_version`](Self::driver_version).
    pub fn device_count(&self) -> Result<u32> {
        self.devices.clone()
    }

    /// Fails if something keeps sessions from using this device, and says all that does: the provider's library; driver and
    /// device; libraries that the provider needs; a driver older than they are.
    ///
    /// # Errors
    /// What is missing, with what was expected and found.
    pub fn ensure(&self, device_id: u32) -> Result<()> {
        self.provider()?;
        let mut problems = Vec::new();
        match &self.devices {
            Err(error) => problems.push(error.to_string()),
            Ok(count) if device_id >= *count => problems.push(format!(
                "CUDA: expected device {device_id}, found {count} devices (CUDA_VISIBLE_DEVICES may hide some)"
            )),
            Ok(_) => {}
        }
        if let (Ok((major, minor)), Some(wanted)) = (&self.driver, self.wanted_cuda()) {
            if wanted > *major {
                problems.push(format!(
                "CUDA: expected a driver for CUDA {wanted}, which the execution provider was built with, found one for CUDA \
                 {major}.{minor}: update the driver"
            ));
            }
        }
        let missing: Vec<String> = self
            .libraries
            .iter()
            .filter_map(|library| match &library.found {
                Ok(_) => None,
                Err(reason) => Some(format!(
                    "{} ({}; {reason})",
                    library.name,
                    describe(&library.name)
                )),
            })
            .collect();
        if !missing.is_empty() {
            problems.push(format!(
                "CUDA: expected the libraries that the execution provider needs, found none that can be loaded for {}; \
                 ORT_TRAINING_CUDA_LIBRARIES can name their folders",
                missing.join(", ")
            ));
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Error::new(
                ErrorCode::ExecutionProviderFail,
                problems.join("; "),
            )),
        }
    }

    /// The CUDA version that the provider was built with, by the runtime that it needs.
    fn wanted_cuda(&self) -> Option<u32> {
        self.libraries
            .iter()
            .find_map(|library| library.name.strip_prefix("libcudart.so."))
            .and_then(|version| version.split('.').next())
            .and_then(|version| version.parse().ok())
    }
}

impl fmt::Display for CudaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.provider {
            Ok(path) => writeln!(f, "provider: {}", path.display())?,
            Err(error) => writeln!(f, "provider: missing: {error}")?,
        }
        for library in &self.libraries {
            match &library.found {
                Ok(path) => writeln!(f, "{}: {}", library.name, path.display())?,
                Err(reason) => writeln!(
                    f,
                    "{}: missing ({}): {reason}",
                    library.name,
                    describe(&library.name)
                )?,
            }
        }
        match &self.driver {
            Ok((major, minor)) => writeln!(f, "driver: up to CUDA {major}.{minor}")?,
            Err(error) => writeln!(f, "driver: missing: {error}")?,
        }
        match &self.devices {
            Ok(count) => write!(f, "devices: {count}"),
            Err(_) => f.write_str("devices: none"),
        }
    }
}
