# Shared by the scripts in this folder: where things lie, and how to say what is being done.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${ORT_TRAINING_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ort-training}
tools=$cache/tools
export PATH="$PATH:$tools/bin"

say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
