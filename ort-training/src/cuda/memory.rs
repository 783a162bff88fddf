//! How much of a device's memory is in use.
//!
//! ONNX Runtime 1.21's C API does not tell what its arena holds (the statistics of `IAllocator` are not exported), so the
//! figures are the device's own: everything that any process has taken. The arena takes memory in steps and keeps it until
//! its session goes, so on a device of one's own the growth since before a session was built is what the session holds.

use super::device::CudaDevice;
use crate::error::Result;

/// A device's memory at one moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceMemory {
    /// Not taken by anybody.
    pub free: usize,
    /// All there is.
    pub total: usize,
}

impl DeviceMemory {
    /// What all processes together have taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.total.saturating_sub(self.free)
    }
}

impl CudaDevice {
    /// The device's memory now (wraps `cuMemGetInfo`).
    ///
    /// # Errors
    /// The driver refuses.
    pub fn memory(&self) -> Result<DeviceMemory> {
        self.enter(|driver| {
            let (mut free, mut total) = (0, 0);
            // SAFETY: writes two numbers; the device's context is current.
            driver.check("asking for the device's memory", unsafe {
                (driver.memory_info)(&mut free, &mut total)
            })?;
            Ok(DeviceMemory { free, total })
        })
    }
}

/// Keeps the device's memory figures over a stretch of work: at its start, now, and the most that was seen.
///
/// ```no_run
/// use ort_training::{CudaDevice, MemoryMeter};
/// let mut meter = MemoryMeter::start(CudaDevice::open(0)?)?;
/// for _ in 0..100 {
///     // a step
///     meter.sample()?;
/// }
/// println!("{}", meter.report());
/// # Ok::<(), ort_training::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryMeter {
    device: CudaDevice,
    report: MemoryReport,
}

/// What a [`MemoryMeter`] saw, in bytes that all processes together had taken of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryReport {
    /// All there is.
    pub total: usize,
    /// Taken when the meter was started.
    pub at_start: usize,
    /// Taken at the last sample.
    pub now: usize,
    /// The most that a sample found.
    pub peak: usize,
    /// How often it was looked, the start included.
    pub samples: usize,
}

impl MemoryReport {
    fn started(memory: DeviceMemory) -> Self {
        Self {
            total: memory.total,
            at_start: memory.used(),
            now: memory.used(),
            peak: memory.used(),
            samples: 1,
        }
    }

    fn add(&mut self, memory: DeviceMemory) {
        self.now = memory.used();
        self.peak = self.peak.max(self.now);
        self.samples += 1;
    }
}

impl std::fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:.1} MiB at the start, {:.1} MiB at the peak, {:.1} MiB now, of {:.1} MiB ({} samples)",
            mib(self.at_start),
            mib(self.peak),
            mib(self.now),
            mib(self.total),
            self.samples
        )
    }
}

impl MemoryMeter {
    /// Looks for the first time.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn start(device: CudaDevice) -> Result<Self> {
        let report = MemoryReport::started(device.memory()?);
        Ok(Self { device, report })
    }

    /// Looks again. The arena gives nothing back between steps, so that looking after each step finds its peak.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn sample(&mut self) -> Result<MemoryReport> {
        self.report.add(self.device.memory()?);
        Ok(self.report)
    }

    /// What was seen so far.
    #[must_use]
    pub fn report(&self) -> MemoryReport {
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_and_the_rest_follows() {
        let memory = |free| DeviceMemory {
            free,
            total: 100 << 20,
        };
        let mut report = MemoryReport::started(memory(90 << 20));
        report.add(memory(40 << 20));
        report.add(memory(70 << 20));
        assert_eq!(report.at_start, 10 << 20);
        assert_eq!(report.peak, 60 << 20);
        assert_eq!(report.now, 30 << 20);
        assert_eq!(
            report.to_string(),
            "10.0 MiB at the start, 60.0 MiB at the peak, 30.0 MiB now, of 100.0 MiB (3 samples)"
        );
    }
}
