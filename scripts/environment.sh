# Sourced by the scripts beside it: makes .venv with what "$1" names (an extra, or nothing).
# PYTHON selects the interpreter. A requirement that is met already costs a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python="${PYTHON:-python3}"
"$python" - <<'EOF'
import sys
if sys.version_info < (3, 10):
    sys.exit(f"llamea-gpu needs Python 3.10 or newer, but this is {sys.version.split()[0]}: "
             "set PYTHON=/path/to/python3.11, say")
EOF
if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv || {
        echo "python could not make a virtual environment: install its venv module" \
             "(Debian, Ubuntu: apt install python3-venv)" >&2
        exit 1
    }
fi
wanted=".${1:+[$1]}"
stamp=".venv/installed-$(printf '%s' "$wanted" | tr -c 'a-z0-9\n' '-')"
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    echo "installing $wanted into .venv" >&2
    # pip would compile on one core, tests of libraries included: half of its time.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -e "$wanted"
    .venv/bin/python -m compileall -q -j 0 -x '/tests/' .venv/lib >/dev/null || true
    touch "$stamp"
fi
export PATH="$PWD/.venv/bin:$PATH"
