//! Streams, and copies that run beside other work.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::device::CudaDevice;
use super::driver::{self, Address};
use super::tensor::DeviceTensor;
use crate::element::TensorElement;
use crate::error::{Error, Result};

/// A stream of a device (wraps `cuStreamCreate`): what is queued on it runs in order, beside other streams. Clones are the
/// same stream; the last one ends it. Any thread may use it.
#[derive(Clone)]
pub struct CudaStream(Arc<Owned>);

struct Owned {
    device: CudaDevice,
    raw: driver::Stream,
}

// SAFETY: streams may be used from every thread (CUDA driver API).
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

/// The stream does not wait for the default stream, nor that for it.
const NON_BLOCKING: u32 = 1;

impl CudaStream {
    /// A new stream.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(device: CudaDevice) -> Result<Self> {
        let raw = device.enter(|driver| {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the device's context is current; `raw` receives a stream that is ours.
            driver.check("creating a stream", unsafe {
                (driver.create_stream)(&mut raw, NON_BLOCKING)
            })?;
            Ok(raw)
        })?;
        Ok(Self(Arc::new(Owned { device, raw })))
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> CudaDevice {
        self.0.device
    }

    /// The `CUstream`, which is a `cudaStream_t` too. Valid as long as `self`.
    #[must_use]
    pub fn as_ptr(&self) -> *mut c_void {
        self.0.raw
    }

    /// Waits until everything that was queued is done (wraps `cuStreamSynchronize`).
    ///
    /// # Errors
    /// Something that was queued failed.
    pub fn synchronize(&self) -> Result<()> {
        synchronize(self.0.device, self.0.raw)
    }

    /// Queues copies that run beside what `work` does meanwhile, such as a training step on other tensors, and waits for
    /// them before it returns, also when `work` panics. What is copied from and to stays borrowed until then, so that
    /// nobody reads or writes it half-way, however the types are used.
    ///
    /// Only copies from and to memory that [`CudaAllocator::pinned`](crate::CudaAllocator::pinned) made run beside the host;
    /// the driver stages others itself.
    ///
    /// ```no_run
    /// # use ort_training::{CudaStream, DeviceTensor, Tensor, TrainingSession, Result};
    /// # fn f(stream: &CudaStream, session: &mut TrainingSession, labels: &Tensor<i64>, next: &Tensor<f32>,
    /// #      now_on_device: &DeviceTensor<'_, f32>, next_on_device: &mut DeviceTensor<'_, f32>) -> Result<()> {
    /// let loss = stream.scope(|copies| {
    ///     copies.to_device(next.data(), next_on_device)?;
    ///     session.train_step(&[now_on_device, labels])?.loss()
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What `work` returns; a copy that was queued failed.
    pub fn scope<'env, R>(
        &'env self,
        work: impl for<'scope> FnOnce(&'scope CopyScope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        /// Waits also when `work` panics.
        struct Wait<'a>(&'a CudaStream);
        impl Drop for Wait<'_> {
            fn drop(&mut self) {
                // An error here means that the context is lost, and nothing is copied any more.
                let _ = self.0.synchronize();
            }
        }
        let wait = Wait(self);
        let scope = CopyScope {
            stream: self,
            scope: PhantomData,
            env: PhantomData,
        };
        let answer = work(&scope);
        let done = self.synchronize();
        std::mem::forget(wait);
        answer.and_then(|answer| done.map(|()| answer))
    }
}

/// Waits for a stream; NULL is the default one.
pub(crate) fn synchronize(device: CudaDevice, stream: driver::Stream) -> Result<()> {
    device.enter(|driver| {
        // SAFETY: the stream is alive, and its device's context current.
        driver.check("waiting for a stream", unsafe {
            (driver.synchronize_stream)(stream)
        })
    })
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.device.enter(|driver| {
            // SAFETY: ours, ended once; the driver lets what is queued run to its end.
            driver.check("ending a stream", unsafe {
                (driver.destroy_stream)(self.raw)
            })
        });
    }
}

impl fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaStream")
            .field("device", &self.0.device.ordinal())
            .finish_non_exhaustive()
    }
}

/// Queues copies on a stream; see [`CudaStream::scope`]. As in [`std::thread::scope`], what is copied is borrowed for
/// `'env`, which ends after the stream was waited for.
#[derive(Debug)]
pub struct CopyScope<'scope, 'env: 'scope> {
    stream: &'env CudaStream,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> CopyScope<'scope, 'env> {
    /// Queues a copy from the host.
    ///
    /// # Errors
    /// Another number of elements, another device, a tensor that was lent for reading.
    pub fn to_device<T: TensorElement>(
        &'scope self,
        source: &'env [T],
        destination: &'env mut DeviceTensor<'_, T>,
    ) -> Result<()> {
        destination.ensure_len("copy to the device", source.len())?;
        let address = self.written(destination)?;
        copy(
            self.stream.0.device,
            self.stream.0.raw,
            Copy::ToDevice(address, source.as_ptr().cast()),
            size_of_val(source),
        )
    }

    /// Queues a copy to the host. For bool tensors use [`DeviceTensor::copy_to_host`], which looks at the bytes.
    ///
    /// # Errors
    /// Another number of elements, another device, bool elements.
    pub fn to_host<T: TensorElement>(
        &'scope self,
        source: &'env DeviceTensor<'_, T>,
        destination: &'env mut [T],
    ) -> Result<()> {
        if T::ELEMENT_TYPE == crate::ElementType::Bool {
            return Err(Error::invalid_argument(
                "copy to the host: expected elements for which all bytes are valid, found bool; copy at once instead",
            ));
        }
        source.ensure_len("copy to the host", destination.len())?;
        self.ensure_device(source.device_id())?;
        copy(
            self.stream.0.device,
            self.stream.0.raw,
            Copy::ToHost(destination.as_mut_ptr().cast(), source.address()?),
            size_of_val(destination),
        )
    }

    /// Queues a copy on the device.
    ///
    /// # Errors
    /// Another number of elements, another device, a tensor that was lent for reading.
    pub fn on_device<T: TensorElement>(
        &'scope self,
        source: &'env DeviceTensor<'_, T>,
        destination: &'env mut DeviceTensor<'_, T>,
    ) -> Result<()> {
        destination.ensure_len("copy on the device", source.len())?;
        self.ensure_device(source.device_id())?;
        let address = self.written(destination)?;
        copy(
            self.stream.0.device,
            self.stream.0.raw,
            Copy::OnDevice(address, source.address()?),
            source.len() * size_of::<T>(),
        )
    }

    fn written<T: TensorElement>(&self, destination: &mut DeviceTensor<'_, T>) -> Result<Address> {
        self.ensure_device(destination.device_id())?;
        destination.address_mut()
    }

    fn ensure_device(&self, found: u32) -> Result<()> {
        let expected = self.stream.0.device.ordinal();
        if expected == found {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "copy: expected a tensor on the stream's device {expected}, found one on device {found}"
        )))
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Copy {
    ToDevice(Address, *const c_void),
    ToHost(*mut c_void, Address),
    OnDevice(Address, Address),
    /// Fills with this byte.
    Fill(Address, u8),
}

/// Queues a copy of so many bytes. Private to this module and [`DeviceTensor`], whose callers keep both sides alive, large
/// enough and unshared until the stream was waited for.
pub(super) fn copy(
    device: CudaDevice,
    stream: driver::Stream,
    copy: Copy,
    bytes: usize,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    device.enter(|driver| {
        // SAFETY: both sides hold so many bytes (lengths were compared) and stay as they are until the stream was waited
        // for (they are borrowed until then); the device's context is current.
        let code = unsafe {
            match copy {
                Copy::ToDevice(to, from) => (driver.copy_to_device)(to, from, bytes, stream),
                Copy::ToHost(to, from) => (driver.copy_to_host)(to, from, bytes, stream),
                Copy::OnDevice(to, from) => (driver.copy_on_device)(to, from, bytes, stream),
                Copy::Fill(to, byte) => (driver.fill)(to, byte, bytes, stream),
            }
        };
        driver.check("copying", code)
    })
}
