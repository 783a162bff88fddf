//! The settings of a build, and the steps that make an install of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cache::Cache;
use crate::compiler::Compiler;
use crate::error::{Error, Result};
use crate::features::Features;
use crate::fetch::{Fetcher, OriginKind};
use crate::hash::Fields;
use crate::install::Install;
use crate::manifest::Manifest;
use crate::progress::{Event, Progress, Silent, Stage};
use crate::reduced::Operators;
use crate::sources::Sources;
use crate::{assets, compile, configure, cuda, package, tools};

/// A build of ONNX Runtime with training: what it shall have, and how it is made.
///
/// ```no_run
/// let install = onnxruntime_training_src::Build::from_env()?.build()?;
/// println!("{}", install.lib_dir.display());
/// # Ok::<(), onnxruntime_training_src::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Build {
    pub(crate) cache: Cache,
    pub(crate) manifest: Manifest,
    pub(crate) features: Features,
    pub(crate) target: String,
    pub(crate) cmake_args: Vec<String>,
    pub(crate) build_type: String,
    pub(crate) reduced: Option<Operators>,
    pub(crate) unity: bool,
    pub(crate) own_protoc: bool,
    pub(crate) keep_symbols: bool,
    pub(crate) keep_build: bool,
    pub(crate) jobs: Option<usize>,
    pub(crate) launcher: Launcher,
    pub(crate) sources_dir: Option<PathBuf>,
    pub(crate) source_dir: Option<PathBuf>,
    pub(crate) origins: Vec<OriginKind>,
    pub(crate) need_libclang: bool,
}

/// The compiler cache that is put in front of the compiler. It decides how long a build takes, not what it makes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `ccache` or `sccache`, whichever is on `PATH`.
    Auto,
    /// None.
    None,
    /// This program.
    Program(String),
}

impl Build {
    /// A build with the defaults, in the user's cache folder; no environment variable but those that name the cache
    /// folder is read.
    ///
    /// # Errors
    /// When there is no home folder to keep a cache in.
    pub fn new() -> Result<Build> {
        Ok(Build {
            cache: Cache::from_env()?,
            manifest: Manifest::bundled()?,
            features: Features::default(),
            target: host_target(),
            cmake_args: Vec::new(),
            build_type: "Release".into(),
            reduced: None,
            unity: true,
            own_protoc: false,
            keep_symbols: false,
            keep_build: false,
            jobs: None,
            launcher: Launcher::Auto,
            sources_dir: None,
            source_dir: None,
            origins: OriginKind::ALL.to_vec(),
            need_libclang: true,
        })
    }

    /// [`Build::new`] with what the `ORT_TRAINING_*` environment variables say (see the README for their list).
    ///
    /// # Errors
    /// When a variable has a value that means nothing.
    pub fn from_env() -> Result<Build> {
        let mut build = Build::new()?;
        crate::settings::apply(&mut build, &|name| std::env::var(name).ok())?;
        Ok(build)
    }

    /// Keeps everything in this cache.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.cache = cache;
        self
    }

    /// Builds the CUDA execution provider, with the toolkit that is found (see [`crate::cuda`]).
    pub fn cuda(mut self, on: bool) -> Self {
        self.features.cuda = on;
        self
    }

    /// Builds the companion library that makes training artifacts (default: on).
    pub fn artifacts(mut self, on: bool) -> Self {
        self.features.artifacts = on;
        self
    }

    /// One more argument for CMake, behind all others, so that it wins.
    pub fn cmake_arg(mut self, arg: impl Into<String>) -> Self {
        self.cmake_args.push(arg.into());
        self
    }

    /// `Release` (default), `RelWithDebInfo`, `MinSizeRel` or `Debug`.
    pub fn build_type(mut self, build_type: impl Into<String>) -> Self {
        self.build_type = build_type.into();
        self
    }

    /// Only these operators and types get kernels (default: all). A model that needs another is refused when it is
    /// opened, by ONNX Runtime's error that names the operator.
    pub fn reduced(mut self, operators: Operators) -> Self {
        self.reduced = Some(operators);
        self
    }

    /// The target triple, as cargo names it. Only builds for the machine itself are tried and tested.
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }

    /// Several source files a compiler run (default: on): a third of the time for a build from nothing. Off is
    /// better for working on ONNX Runtime itself.
    pub fn unity(mut self, on: bool) -> Self {
        self.unity = on;
        self
    }

    /// Builds protobuf's own `protoc` instead of asking for one of version 3.21 (about 8 CPU-minutes more).
    pub fn own_protoc(mut self, on: bool) -> Self {
        self.own_protoc = on;
        self
    }

    /// Leaves the symbols in the libraries (default: stripped; 5 MB more).
    pub fn keep_symbols(mut self, on: bool) -> Self {
        self.keep_symbols = on;
        self
    }

    /// Keeps the build folder after success (default: removed).
    pub fn keep_build(mut self, on: bool) -> Self {
        self.keep_build = on;
        self
    }

    /// Compiler runs at once. The default is one a core, and no more than one for every 2 GiB of memory.
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = Some(jobs.max(1));
        self
    }

    /// The compiler cache to use.
    pub fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = launcher;
        self
    }

    /// A folder with the archives, by the file names of `sources.toml`; looked into before any other origin.
    pub fn sources_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.sources_dir = Some(folder.into());
        self
    }

    /// A checkout of ONNX Runtime to build instead of the pinned archive. Nothing is written to it.
    pub fn source_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.source_dir = Some(folder.into());
        self
    }

    /// The origins that are asked for archives, in this order.
    pub fn origins(mut self, origins: impl Into<Vec<OriginKind>>) -> Self {
        self.origins = origins.into();
        self
    }

    /// Whether a missing libclang counts among the missing tools (default: yes, since the bindings need it and
    /// nobody wants to hear of it after the build).
    pub fn need_libclang(mut self, on: bool) -> Self {
        self.need_libclang = on;
        self
    }

    /// The cache that this build works in.
    pub fn cache_ref(&self) -> &Cache {
        &self.cache
    }

    /// The features that it will have.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The version that will be built: that of the own checkout, or of the pinned archive.
    pub fn version(&self) -> String {
        self.source_dir
            .as_deref()
            .and_then(checkout_version)
            .unwrap_or_else(|| self.manifest.onnxruntime().version.clone())
    }

    /// What names the install: everything that decides its content, hashed.
    ///
    /// In it are the pins of every source (all origins of a source are declared equal, so that where a file came
    /// from does not matter; `BUILD-INFO.toml` says it), our patches, CMake files and C++, features, CMake arguments,
    /// build type, the operators of a reduced build, target, compiler, unity batches (they change what is inlined), symbols, and the state of an own
    /// checkout. Not in it: the compiler cache, the number of jobs, the folders.
    ///
    /// # Errors
    /// When an own checkout or the CUDA toolkit cannot be read.
    pub fn key(&self) -> Result<String> {
        let mut fields = Fields::new();
        fields.add("layout", "3");
        self.manifest.add_to(&mut fields, &self.features);
        for (name, content) in assets::files() {
            // What only CUDA builds or reduced ones read must not make another build of the others.
            let is_read = (self.features.cuda || !name.starts_with("cuda/"))
                && (self.reduced.is_some() || !name.starts_with("reduced/"));
            if is_read && !name.ends_with(".md") {
                fields.add(name, content);
            }
        }
        for arg in configure::FIXED {
            fields.add("fixed", arg);
        }
        for arg in self.features.cmake_args().iter().chain(&self.cmake_args) {
            fields.add("cmake", arg);
        }
        fields
            .add("build type", &self.build_type)
            .add("target", &self.target)
            .add("unity", [u8::from(self.unity)])
            .add("own protoc", [u8::from(self.own_protoc)])
            .add("symbols", [u8::from(self.keep_symbols)]);
        if let Some(operators) = &self.reduced {
            fields.add("operators", operators.to_config());
        }
        for name in ["CFLAGS", "CXXFLAGS", "LDFLAGS"] {
            fields.add(name, std::env::var(name).unwrap_or_default());
        }
        match Compiler::find() {
            Some(compiler) => fields.add("compiler", compiler.identity()),
            None => fields.add("compiler", "none"),
        };
        if self.features.cuda {
            fields.add("cuda", cuda::identity(&self.cache));
        }
        if let Some(checkout) = &self.source_dir {
            fields.add("checkout", crate::sources::checkout_stamp(checkout)?);
        }
        Ok(format!("onnxruntime-{}-{}", self.version(), fields.short()))
    }

    /// The install of these settings, if it is there. Takes milliseconds, and asks nothing of the network.
    pub fn find_installed(&self) -> Option<Install> {
        let root = self.cache.install(&self.key().ok()?);
        if !root.is_dir() {
            return None;
        }
        Install::open(root).ok()
    }

    /// [`Build::build_with`] without anybody following.
    ///
    /// # Errors
    /// As there.
    pub fn build(&self) -> Result<Install> {
        self.build_with(&Silent)
    }

    /// Finds the install of these settings, or makes it: fetch, unpack, configure, compile, install.
    ///
    /// Another process that builds the same waits for this one, and uses what it made. A run that was stopped in any
    /// way leaves nothing that the next trusts; the next goes on from what was compiled.
    ///
    /// # Errors
    /// Missing tools are named all at once, before anything is fetched. A wrong hash, a source that no origin has, a
    /// patch that does not fit, and failures of CMake and the compiler are errors with their output and the log's path.
    pub fn build_with(&self, progress: &dyn Progress) -> Result<Install> {
        let key = self.key()?;
        let target = self.cache.install(&key);
        if let Some(install) = self.find_installed() {
            return Ok(install);
        }
        let _lock = self.cache.lock(&key, |holder| {
            progress.event(Event::Note(format!(
                "another build of the same (process {holder}) is running; waiting for it"
            )));
        })?;
        if target.is_dir() {
            match Install::open(&target) {
                Ok(install) => return Ok(install),
                // Made whole and damaged since: it cannot be used, and its place is needed.
                Err(error) => {
                    progress.event(Event::Note(format!("making it again, since {error}")));
                    std::fs::remove_dir_all(&target)
                        .map_err(Error::io(format!("removing {}", target.display())))?;
                }
            }
        }
        let tools = tools::check(self)?;
        let mut timings = Timings::default();
        let sources = timings.run(Stage::Fetch, progress, || self.fetch_archives(progress))?;
        let sources = timings.run(Stage::Unpack, progress, || {
            sources.unpack(&self.cache, self.source_dir.as_deref(), progress)
        })?;
        let build_dir = self.cache.build(&key);
        let configured = timings.run(Stage::Configure, progress, || {
            configure::run(self, &tools, &sources, &build_dir)
        })?;
        timings.run(Stage::Compile, progress, || {
            compile::run(self, &tools, &configured, progress)
        })?;
        let earlier = timings.clone();
        timings.run(Stage::Install, progress, || {
            package::run(self, &tools, &sources, &configured, &target, &earlier)
        })?;
        let log = self.cache.log(&key);
        if let Some(folder) = log.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        let _ = std::fs::copy(&configured.log, &log);
        if !self.keep_build {
            let _ = std::fs::remove_dir_all(&build_dir);
        }
        Install::open(&target)
    }

    /// Fetches and verifies every archive that this build needs, and returns where each lies.
    ///
    /// # Errors
    /// A wrong hash, and a source that no origin has.
    pub fn fetch(&self, progress: &dyn Progress) -> Result<Vec<(String, PathBuf)>> {
        progress.event(Event::Stage(Stage::Fetch));
        Ok(self.fetch_archives(progress)?.archives())
    }

    fn fetch_archives(&self, progress: &dyn Progress) -> Result<Sources> {
        let fetcher = Fetcher::new(
            self.cache.clone(),
            self.sources_dir.clone(),
            self.origins.clone(),
            progress,
        );
        let mut sources = Sources::default();
        for source in self.manifest.needed(&self.features) {
            if source.name == "onnxruntime" && self.source_dir.is_some() {
                continue;
            }
            let archive = fetcher.fetch(source)?;
            sources.add(source.clone(), archive);
        }
        Ok(sources)
    }
}

fn host_target() -> String {
    std::env::var("TARGET").unwrap_or_else(|_| env!("ORT_TRAINING_HOST_TARGET").to_owned())
}

pub(crate) fn checkout_version(checkout: &Path) -> Option<String> {
    let text = std::fs::read_to_string(checkout.join("VERSION_NUMBER")).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

/// How long each stage took.
#[derive(Debug, Default, Clone)]
pub(crate) struct Timings(pub Vec<(Stage, Duration)>);

impl Timings {
    fn run<T>(
        &mut self,
        stage: Stage,
        progress: &dyn Progress,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        progress.event(Event::Stage(stage));
        let started = Instant::now();
        let result = work();
        self.0.push((stage, started.elapsed()));
        result
    }
}

#[cfg(test)]
#[path = "builder_tests.rs"]
mod tests;
