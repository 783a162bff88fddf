# Shared by the scripts in this folder: where things lie, and how to say what is being done.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${ORT_TRAINING_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ort-training}
tools=$cache/tools
export PATH="$PATH:$tools/bin"

say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Compared here, not with `grep -q` in a pipe: that leaves at the first match, and the writer's SIGPIPE is then the pipe's status.
protoc_fits() { [[ "$(protoc --version 2>/dev/null)" == *' 3.21.'* ]]; }

# Where the distribution's protoc is of another series, protobuf's own is compiled along. For every cargo that follows, too:
# it is part of what names an install.
choose_protoc() { protoc_fits || export ORT_TRAINING_BUILD_PROTOC=1; }
