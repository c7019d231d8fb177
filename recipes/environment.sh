#!/usr/bin/env bash
# Makes or reuses the Python environment of recipes and tests.
#
#     . recipes/environment.sh        prepares the environment and activates it
#     bash recipes/environment.sh     only prepares it
#
# The environment is the active virtual environment (venv or conda, except conda's base), or else .venv in the
# repository. XL_EXTRAS names the extras of setup.cfg to install, separated by commas (default: recipes).
# A second run finds the stamp of the first and does nothing. A run after an interruption completes the installation. An
# installed torch is kept.

xl_fail() {
    echo "environment: $*" >&2
    return 1
}

xl_step() {
    echo "[$1/5] $2"
}

# xl_ask QUESTION ...: answers a question about $xl_python.
xl_ask() {
    "$xl_python" recipes/environment.py "$@"
}

# xl_pip NAME ARGUMENT ...: installs packages with these arguments of pip and writes pip's output to a log. NAME is for
# error messages.
xl_pip() {
    local what=$1 log=$xl_environment/fairseq_xl-install.log
    shift
    if "$xl_python" -m pip --disable-pip-version-check --no-input install -c "$xl_constraints" "$@" \
        >"$log" 2>&1 </dev/null; then
        return 0
    fi
    if grep -qiE "name resolution|new connection|network is unreachable|max retries|timed out" "$log"; then
        xl_fail "$what could not be downloaded: the package index cannot be reached (output of pip: $log)"
    else
        xl_fail "$what could not be installed: $(grep -E 'ERROR|[Ee]rror:' "$log" | tail -n 1) (output of pip: $log)"
    fi
}

# Sets xl_environment and xl_python; makes .venv if there is no environment to reuse.
xl_find_environment() {
    local candidate system=""
    if [ -n "${VIRTUAL_ENV:-}" ] && [ -x "$VIRTUAL_ENV/bin/python" ]; then
        xl_environment=$VIRTUAL_ENV
    elif [ -n "${CONDA_PREFIX:-}" ] && [ "${CONDA_DEFAULT_ENV:-}" != base ] && [ -x "$CONDA_PREFIX/bin/python" ]; then
        xl_environment=$CONDA_PREFIX
    else
        xl_environment=$PWD/.venv
    fi
    xl_python=$xl_environment/bin/python
    [ -x "$xl_python" ] && xl_stamped && return 0
    xl_step 1 "Python environment $xl_environment"
    if [ "$xl_environment" = "$PWD/.venv" ] && ! "$xl_python" -m pip --version >/dev/null 2>&1; then
        for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
            xl_python=$(command -v "$candidate") && xl_ask python 2>/dev/null && system=$xl_python && break
        done
        [ -n "$system" ] || { xl_fail "Python 3.10 or newer is needed, and none is on the PATH"; return 1; }
        xl_python=$xl_environment/bin/python
        "$system" -m venv --clear "$xl_environment" >/dev/null 2>&1 ||
            { xl_fail "$system cannot make a virtual environment: install its venv module (python3-venv)"; return 1; }
    fi
    xl_ask python || xl_fail "Python 3.10 or newer is needed, and $xl_environment has $("$xl_python" -V 2>&1)"
}

xl_stamped() {
    xl_stamp=$xl_environment/.fairseq_xl-${XL_EXTRAS:-recipes}
    xl_key=$(cat setup.cfg recipes/constraints.txt recipes/environment.sh recipes/environment.py | cksum)
    [ "$(cat "$xl_stamp" 2>/dev/null)" = "$xl_key" ]
}

# fairseq has no wheels. An isolated build would first download another torch.
xl_install_fairseq() {
    local wanted
    wanted=$(grep '^fairseq-fixed==' recipes/constraints.txt)
    [ "fairseq-fixed==$(xl_ask version fairseq-fixed)" = "$wanted" ] && return 0
    xl_pip "$wanted" --no-deps --no-build-isolation "$wanted"
}

xl_check_tools() {
    [ -z "$(xl_ask version fairseq)" ] ||
        { xl_fail "$xl_environment has fairseq, which hides fairseq-fixed: use another environment"; return 1; }
    [ -n "$(xl_ask version fairseq-fixed)" ] && return 0
    command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null ||
        { xl_fail "a C++ compiler is needed to build fairseq, and none is on the PATH (g++ or clang)"; return 1; }
    xl_ask headers || xl_fail "the headers of $("$xl_python" -V) are needed to build fairseq (python3-dev)"
}

xl_install_torch() {
    local version
    version=$(xl_ask version torch)
    if [ -z "$version" ]; then
        xl_pip torch torch || return 1
        version=$(xl_ask version torch)
    elif xl_ask old "$version"; then
        xl_fail "torch 2.6 or newer is needed, and $xl_environment has $version: update it or use another environment"
        return 1
    fi
    grep -v '^torch==' recipes/constraints.txt >"$xl_constraints"
    echo "torch==$version" >>"$xl_constraints"
}

xl_install() {
    xl_check_tools || return 1
    xl_constraints=$xl_environment/fairseq_xl-constraints.txt
    cp recipes/constraints.txt "$xl_constraints"
    xl_step 2 "torch (an installed one is kept)"
    xl_install_torch || return 1
    xl_step 3 "fairseq's build tools"
    xl_pip "fairseq's build tools" setuptools wheel cython numpy cffi || return 1
    xl_step 4 "fairseq (compiles for some minutes)"
    xl_install_fairseq || return 1
    xl_step 5 "other packages (${XL_EXTRAS:-recipes})"
    xl_ask requirements "${XL_EXTRAS:-recipes}" >"$xl_environment/fairseq_xl-requirements.txt" ||
        { xl_fail "setup.cfg does not have all of these extras: ${XL_EXTRAS:-recipes}"; return 1; }
    xl_pip "the packages of setup.cfg" -r "$xl_environment/fairseq_xl-requirements.txt" || return 1
    if [ "$(xl_ask torchaudio)" = broken ]; then
        "$xl_python" -m pip --disable-pip-version-check uninstall --yes torchaudio >/dev/null </dev/null || return 1
    fi
    "$xl_python" -c "import fairseq, sentencepiece, sacrebleu" >"$xl_environment/fairseq_xl-install.log" 2>&1 ||
        { xl_fail "fairseq does not start: $(tail -n 1 "$xl_environment/fairseq_xl-install.log")"; return 1; }
    xl_link_repository || return 1
    echo "$xl_key" >"$xl_stamp"
}

# Unless the package is installed: lets Python import it in any folder, by a .pth file, and writes the command
# fairseq-xl. Both run the code in the current folder, or else that of this repository.
xl_link_repository() {
    [ -z "$(xl_ask version fairseq_xl)" ] || return 0
    echo "$PWD" >"$(xl_ask packages)/fairseq_xl.pth" || return 1
    printf '#!/bin/sh\nexec "%s" -m fairseq_xl "$@"\n' "$xl_python" >"$xl_environment/bin/fairseq-xl" || return 1
    chmod +x "$xl_environment/bin/fairseq-xl"
}

# Links again if the repository that was linked is no longer there.
xl_repair_link() {
    local linked
    for linked in "$xl_environment"/lib/python*/site-packages/fairseq_xl.pth; do
        [ ! -f "$linked" ] || [ -d "$(<"$linked")" ] || xl_link_repository
    done
}

xl_prepare() {
    local back=$PWD status=0
    cd "$(dirname "${BASH_SOURCE[0]}")/.." || return 1
    if xl_find_environment; then
        if xl_stamped; then
            xl_repair_link || status=1
        else
            xl_install || status=1
        fi
    else
        status=1
    fi
    cd "$back" || return 1
    [ "$status" = 0 ] || return 1
    if [ -f "$xl_environment/bin/activate" ]; then
        . "$xl_environment/bin/activate"
    fi
}

xl_prepare || return 1 2>/dev/null || exit 1
[ "${BASH_SOURCE[0]}" != "$0" ] || echo "ready: . $xl_environment/bin/activate"
