//! The command line: fetches, builds and installs ONNX Runtime with training, with live progress.

mod bars;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use onnxruntime_training_src::progress::{Lines, Progress};
use onnxruntime_training_src::{
    Build, Cache, Error, Install, Launcher, Operators, Result, notices, pack,
};

const EXAMPLES: &str = "\
Examples:
  onnxruntime-training-src build                 build it, or say where it is when it is built
  onnxruntime-training-src fetch                 get all sources, for a machine that is offline later
  onnxruntime-training-src build --no-unity --keep-build
                                                 for work on ONNX Runtime itself
  onnxruntime-training-src build --cmake-arg=-Donnxruntime_ENABLE_CPUINFO=OFF
  export ORT_TRAINING_PREFIX=$(onnxruntime-training-src path)
  onnxruntime-training-src info --prefix /opt/onnxruntime";

/// Fetches, builds and installs ONNX Runtime with training from pinned sources.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build and install; when that was done before, only say where it is
    Build {
        #[command(flatten)]
        options: Options,
        /// Remove the install of these settings first, and build again
        #[arg(long)]
        force: bool,
    },
    /// Get and verify the sources, and build nothing
    Fetch {
        #[command(flatten)]
        options: Options,
    },
    /// Say what would be built and what is installed, or what a prefix is
    Info {
        #[command(flatten)]
        options: Options,
        /// Look at this prefix, and say whether the bindings can use it
        #[arg(long, value_name = "FOLDER")]
        prefix: Option<PathBuf>,
    },
    /// Print the install's folder; fails when nothing is installed
    Path {
        #[command(flatten)]
        options: Options,
    },
    /// Write the install to one file, for machines that shall not build it
    Pack {
        #[command(flatten)]
        options: Options,
        /// Pack this prefix instead of the install of these settings
        #[arg(long, value_name = "FOLDER")]
        prefix: Option<PathBuf>,
        /// The file to write; default: the install's name with .tar.xz, in this folder
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Check a file that `pack` wrote, and install what it holds
    Unpack {
        #[command(flatten)]
        options: Options,
        /// The file
        archive: PathBuf,
    },
    /// Print the operators and types that a build for these models needs, in ONNX Runtime's format
    Operators {
        /// Models (.onnx), lists (.config), or folders with such
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Remove what is kept: build folders, sources and downloads
    Clean {
        /// Remove the installs too
        #[arg(long)]
        installs: bool,
    },
    /// Print THIRD-PARTY-NOTICES.md
    Notices,
}

/// Options win over the environment variables of the same meaning.
#[derive(Args)]
struct Options {
    /// Build the CUDA execution provider (CUDA_HOME and CUDNN_HOME name the toolkit)
    #[arg(long)]
    cuda: bool,
    /// Leave out the library that makes training artifacts
    #[arg(long)]
    no_artifacts: bool,
    /// One more argument for CMake; can be given more than once
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    cmake_arg: Vec<String>,
    /// Release (default), RelWithDebInfo, MinSizeRel or Debug
    #[arg(long, value_name = "TYPE")]
    build_type: Option<String>,
    /// Only the operators and types of this model, list (.config) or folder; can be given more than once
    #[arg(long, value_name = "PATH")]
    reduced: Vec<PathBuf>,
    /// Compile every source file by itself
    #[arg(long)]
    no_unity: bool,
    /// Build protobuf's own protoc instead of using one of version 3.21
    #[arg(long)]
    build_protoc: bool,
    /// Compiler runs at once
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// A compiler cache: ccache, sccache, another program, or none
    #[arg(long, value_name = "PROGRAM")]
    launcher: Option<String>,
    /// A folder with the archives of sources.toml, looked into first
    #[arg(long, value_name = "FOLDER")]
    sources_dir: Option<PathBuf>,
    /// A checkout of ONNX Runtime to build instead of the pinned archive; never written to
    #[arg(long, value_name = "FOLDER")]
    source_dir: Option<PathBuf>,
    /// Which origins are asked, in order: any of folder,upstream,debian,pypi
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    origins: Vec<String>,
    /// Keep the build folder after success
    #[arg(long)]
    keep_build: bool,
    /// Leave the symbols in the libraries
    #[arg(long)]
    keep_symbols: bool,
    /// Do not ask for libclang, which only the bindings need
    #[arg(long)]
    no_libclang: bool,
    /// Plain lines instead of a live display
    #[arg(long)]
    plain: bool,
}

impl Options {
    fn build(&self) -> Result<Build> {
        let mut build = Build::from_env()?;
        if self.cuda {
            build = build.cuda(true);
        }
        if self.no_artifacts {
            build = build.artifacts(false);
        }
        for arg in &self.cmake_arg {
            build = build.cmake_arg(arg);
        }
        if let Some(build_type) = &self.build_type {
            build = build.build_type(build_type);
        }
        if !self.reduced.is_empty() {
            build = build.reduced(Operators::read(&self.reduced)?);
        }
        if self.no_unity {
            build = build.unity(false);
        }
        if self.build_protoc {
            build = build.own_protoc(true);
        }
        if let Some(jobs) = self.jobs {
            build = build.jobs(jobs);
        }
        if let Some(launcher) = &self.launcher {
            build = build.launcher(match launcher.as_str() {
                "none" => Launcher::None,
                "auto" => Launcher::Auto,
                program => Launcher::Program(program.to_owned()),
            });
        }
        if let Some(folder) = &self.sources_dir {
            build = build.sources_dir(absolute(folder)?);
        }
        if let Some(folder) = &self.source_dir {
            build = build.source_dir(absolute(folder)?);
        }
        if !self.origins.is_empty() {
            let kinds = self
                .origins
                .iter()
                .map(|name| name.parse())
                .collect::<Result<Vec<_>>>()?;
            build = build.origins(kinds);
        }
        if self.keep_build {
            build = build.keep_build(true);
        }
        if self.keep_symbols {
            build = build.keep_symbols(true);
        }
        if self.no_libclang {
            build = build.need_libclang(false);
        }
        Ok(build)
    }

    fn progress(&self) -> Box<dyn Progress> {
        if self.plain || !std::io::stderr().is_terminal() {
            Box::new(Lines::new())
        } else {
            Box::new(bars::Bars::new())
        }
    }
}

fn absolute(path: &std::path::Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::Io {
        doing: format!("resolving {}", path.display()),
        source,
    })
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Build { options, force } => {
            let build = options.build()?;
            if let Some(install) = build.find_installed().filter(|_| force) {
                remove(&install.root)?;
            }
            let install = build.build_with(options.progress().as_ref())?;
            describe(&install);
        }
        Command::Fetch { options } => {
            for (name, path) in options.build()?.fetch(options.progress().as_ref())? {
                println!("{name}\t{}", path.display());
            }
        }
        Command::Info {
            prefix: Some(prefix),
            ..
        } => describe(&Install::open(prefix)?),
        Command::Info {
            options,
            prefix: None,
        } => {
            let build = options.build()?;
            println!("cache      {}", build.cache_ref().root().display());
            println!("key        {}", build.key()?);
            println!("version    {}", build.version());
            println!("features   {}", build.features().names().join(", "));
            match build.find_installed() {
                Some(install) => describe(&install),
                None => println!("installed  no"),
            }
        }
        Command::Path { options } => match options.build()?.find_installed() {
            Some(install) => println!("{}", install.root.display()),
            None => return Ok(nothing_installed()),
        },
        Command::Pack {
            options,
            prefix,
            output,
        } => {
            let install = match prefix {
                Some(prefix) => Install::open(prefix)?,
                None => match options.build()?.find_installed() {
                    Some(install) => install,
                    None => return Ok(nothing_installed()),
                },
            };
            let archive = output.unwrap_or_else(|| pack::file_name(&install));
            pack::pack(&install.root, &archive)?;
            println!("{}", archive.display());
        }
        Command::Unpack { options, archive } => {
            let build = options.build()?;
            let install = pack::unpack(&archive, build.cache_ref())?;
            describe(&install);
            if build.find_installed().is_none_or(|found| found != install) {
                // Made by another compiler, say: cargo would build one of its own.
                println!(
                    "\nIt is of other settings than these. To have it used: export ORT_TRAINING_PREFIX={}",
                    install.root.display()
                );
            }
        }
        Command::Operators { paths } => print!("{}", Operators::read(paths)?.to_config()),
        Command::Clean { installs } => {
            let cache = Cache::from_env()?;
            let mut folders = vec!["build", "sources", "downloads", "logs"];
            if installs {
                folders.push("install");
            }
            for folder in folders {
                let path = cache.root().join(folder);
                if path.exists() {
                    remove(&path)?;
                    println!("removed {}", path.display());
                }
            }
        }
        Command::Notices => print!("{}", notices::markdown()?),
    }
    Ok(ExitCode::SUCCESS)
}

fn nothing_installed() -> ExitCode {
    eprintln!(
        "nothing is installed for these settings; `onnxruntime-training-src build` builds it"
    );
    ExitCode::FAILURE
}

fn remove(path: &std::path::Path) -> Result<()> {
    std::fs::remove_dir_all(path).map_err(|source| Error::Io {
        doing: format!("removing {}", path.display()),
        source,
    })
}

fn describe(install: &Install) {
    println!("installed  {}", install.root.display());
    println!(
        "version    {} (C API {})",
        install.version, install.api_version
    );
    let features = install.features.join(", ");
    println!(
        "features   {}",
        if features.is_empty() {
            "not told (no BUILD-INFO.toml)"
        } else {
            &features
        }
    );
    for folder in &install.include_dirs {
        println!("include    {}", folder.display());
    }
    let size = std::fs::metadata(&install.library).map_or(0, |metadata| metadata.len());
    println!(
        "library    {} ({:.1} MB)",
        install.library.display(),
        size as f64 / 1e6
    );
}
