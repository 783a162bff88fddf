# Sourced by the scripts that need PyTorch: `$python` becomes the interpreter of an environment that has it.
#
# PYTHON names an interpreter that has a `torch` of its own, such as Debian's /usr/bin/python3 with python3-torch; otherwise
# PyPI's is installed, with the CUDA libraries that its Linux wheel loads even on a machine without a GPU (about 5 GB).
# Each interpreter gets an environment of its own, so that naming another one is never answered with the first one's torch.
# shellcheck shell=bash
base="${PYTHON:-python3}"
venv="${CARGO_TARGET_DIR:-target}/pytorch-venv$("$base" -c 'import sys; print(sys.base_prefix.replace("/", "-"))')"
python="$venv/bin/python"
[ -x "$python" ] || "$base" -m venv --system-site-packages "$venv"
wanted=("./export[test]")
# A torch of before 2.3 was compiled for NumPy 1, and `numpy()` of its tensors fails beside NumPy 2.
old='import sys, torch; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 3))'
if ! "$python" -c 'import torch' 2>/dev/null; then wanted=("./export[test,torch]")
elif "$python" -c "$old" 2>/dev/null; then wanted+=("numpy<2"); fi
"$python" -m pip install --quiet --disable-pip-version-check "${wanted[@]}"
