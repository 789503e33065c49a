"""The same code once more as root: a child under sudo that runs a function of our own modules.

The child is `sudo -- PYTHON -c STUB`; modules and parameters go over its standard input, so no
command line is put together and nothing is written to disk. A password is given to sudo on the
same input and kept nowhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Dict, List, Optional

PACKAGE = "gpuroom_root"
MARK = "@@gpuroom-root@@"
# sudo takes a line only where it needs a password, so what comes before the mark is skipped.
STUB = """
import sys, json, types
r = sys.stdin
while r.readline().strip() != "@@gpuroom-root@@":
    pass
t = json.loads(r.readline())
p = types.ModuleType("gpuroom_root")
p.__path__ = []
sys.modules["gpuroom_root"] = p
for n, s in t["modules"]:
    m = types.ModuleType("gpuroom_root." + n)
    m.__package__ = "gpuroom_root"
    sys.modules[m.__name__] = m
    setattr(p, n, m)
    exec(compile(s, "<gpuroom>/%s.py" % n, "exec", dont_inherit=True), m.__dict__)
o = getattr(m, t["function"])(t["params"])
sys.stdout.write("\\n@@gpuroom-root@@\\n" + json.dumps(o) + "\\n")
"""


class Refused(Exception):
    """sudo did not let us; the words say why."""


def is_root() -> bool:
    """Whether we are root already."""
    return os.geteuid() == 0


def argv(password: Optional[str]) -> List[str]:
    """What is run: sudo asks for nothing, or reads the password from its input."""
    how = ["-n"] if password is None else ["-S", "-p", ""]
    return ["sudo", *how, "--", sys.executable or "python3", "-c", STUB]


def call(
    names: List[str],
    function: str,
    params: Dict[str, Any],
    password: Optional[str] = None,
    timeout_s: float = 30.0,
) -> Any:
    """What `function(params)` of the last of these modules gives as root.

    Args:
        names: Modules of this package, those that others import first.
        function: Of the last one; its parameters and result go through JSON.
        params: Its parameters.
        password: For sudo; None tries without one.
        timeout_s: The child is killed after that.

    Raises:
        Refused: There is no sudo, it wants a password, it did not take ours, or it took too long.
    """
    modules = [[name, _source(name)] for name in names]
    task = json.dumps({"modules": modules, "function": function, "params": params})
    first = "" if password is None else password.replace("\n", "") + "\n"
    try:
        child = subprocess.run(
            argv(password),
            input=("%s%s\n%s\n" % (first, MARK, task)).encode("utf-8"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
            env={"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise Refused("sudo can't be run: %s" % (error.strerror or error)) from error
    except subprocess.TimeoutExpired:
        raise Refused("no answer under sudo within %.0f s" % timeout_s) from None
    _, mark, answer = child.stdout.decode("utf-8", "replace").rpartition("\n%s\n" % MARK)
    if not mark:
        words = child.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        raise Refused(words[:300] or "sudo ended with status %d" % child.returncode)
    return json.loads(answer)


def _source(name: str) -> str:
    """A sibling's source text, wherever it was loaded from."""
    module = __import__(__package__ + "." + name, fromlist=["_"])
    return module.__loader__.get_source(module.__name__)  # type: ignore[no-any-return,union-attr]
