"""Run the quick tests as other machines would run them: older processors, other numbers of threads.

``make test-portable`` runs every variant and fails if one of them does. One variant, and some of
the tests: ``python tests/portable.py --variant "no vectors" tests/test_datasets.py``; whatever is
no option of this script goes to pytest.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time

try:
    from numpy._core import _multiarray_umath as numpy_core
except ImportError:  # before numpy 2
    from numpy.core import _multiarray_umath as numpy_core

# What numpy can be told to do without: it refuses to be told so of anything else.
FEATURES = [name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__[name]]
NEWER_THAN_AVX2 = [name for name in FEATURES if name == "X86_V4" or name.startswith("AVX512")]

# Each of them stands for another machine.
VARIANTS = {
    "no vectors": {
        "OMP_NUM_THREADS": "1",
        "ATEN_CPU_CAPABILITY": "default",
        "NPY_DISABLE_CPU_FEATURES": " ".join(FEATURES),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4",
    },
    "Nehalem": {
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE",  # heeded on every processor, the line above on Intel's alone
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
    "Haswell": {
        "OMP_NUM_THREADS": "4",
        "ATEN_CPU_CAPABILITY": "avx2",
        "NPY_DISABLE_CPU_FEATURES": " ".join(NEWER_THAN_AVX2),
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
}
NEEDS = {"Haswell": "AVX2"}
OF_ANY_PROCESSOR = ("OMP_NUM_THREADS", "NPY_DISABLE_CPU_FEATURES")
# Threads that wait for others sleep: where there are more of them than cores, it takes far less.
PATIENT = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "4"}


def environment(variant: str) -> dict[str, str]:
    """Variables of a variant that mean something to this processor."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return {
        name: value
        for name, value in VARIANTS[variant].items()
        if value and (x86 or name in OF_ANY_PROCESSOR)
    }


def run(variant: str, arguments: list[str]) -> str:
    """Return the result in words: "exit code" comes first where tests failed."""
    needed = NEEDS.get(variant)
    if needed and not numpy_core.__cpu_features__.get(needed):
        return f"left out: this processor has no {needed}"
    settings = environment(variant)
    print(f"\n{variant}: {' '.join(f'{k}={v!r}' for k, v in settings.items())}", flush=True)
    processes = 2 if settings["OMP_NUM_THREADS"] == "1" else 1
    command = [sys.executable, "-m", "pytest", "-q", f"--numprocesses={processes}"]
    command += ["--dist=worksteal", "-m", "not slow", *arguments]
    start = time.monotonic()
    code = subprocess.run(command, env=os.environ | PATIENT | settings, check=False).returncode
    result = f"exit code {code}" if code else "passed"
    return f"{result} after {time.monotonic() - start:.0f} s"


def main() -> int:
    """Run the variants asked for, all of them if none is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    options, arguments = parser.parse_known_args()
    results = {variant: run(variant, arguments) for variant in options.variant or VARIANTS}
    print("\n" + "\n".join(f"{variant}: {result}" for variant, result in results.items()))
    return int(any(result.startswith("exit code") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
