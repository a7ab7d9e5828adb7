#!/usr/bin/env python3
# Owns the templates for GitHub and GitLab: their steps run in a bare system, as they are written.
"""usage: ci_templates.py github|gitlab CMAKE BUILD PROJECT
Exit code 0, or 77 with the reason if this machine cannot."""

import os
import re
import sys
import tempfile
from pathlib import Path

from layer import check, in_layer, make_packages
from outcome import skip

try:
    import yaml
except ImportError:
    skip("needs python3-yaml")

COMMAND = "sh -c 'test -n \"$WEFT_HOST\"' : sleep 0.01"
RED = "sh -c 'exit 3'"
OPTIONS = "--conditions ideal,loss --device none"
RUN = r"""
mkdir -p root/tmp/work && cp -r "$given/packages" root/tmp/work/packages
code=0
clean sh -c 'cd /tmp/work && . /tmp/given/environment && sh -e /tmp/given/steps' || code=$?
echo "steps: exit code $code"
cat root/tmp/work/summary 2>/dev/null || true
find root/tmp/work/weft-report -name matrix.xml -exec cat {} +
find root/tmp/work/weft-report/cells -name log
exit $code
"""


def github_steps(project, command):
    """The environment and the scripts of the action's steps, as a runner has them."""
    action = yaml.safe_load((project / "containers/github/action.yml").read_text())
    given = {"command": command, "packages": "packages", "stock": "", "options": OPTIONS,
             "network": "--hosts 3", "report": "weft-report"}
    check(set(given) == set(action["inputs"]), f"inputs: {set(action['inputs'])}")
    steps = []
    for step in action["runs"]["steps"]:
        if "run" not in step:
            check(step["uses"].startswith("actions/upload-artifact@"), step)
            continue
        check(step["shell"] == "bash" and "${{" not in step["run"], step)
        environment = {}
        for name, value in step.get("env", {}).items():
            expression = re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value)
            check(expression, f"{name}: {value}")
            environment[name] = given[expression[1]]
        steps.append((environment, "bash --noprofile --norc -eo pipefail", step["run"]))
    return {"GITHUB_STEP_SUMMARY": "/tmp/work/summary"}, steps


def gitlab_steps(project, command):
    job = yaml.safe_load((project / "containers/gitlab/weft.yml").read_text())[".weft-matrix"]
    given = {"WEFT_COMMAND": command, "WEFT_OPTIONS": OPTIONS, "WEFT_PACKAGES": "packages",
             "WEFT_STOCK": "dpkg"}
    check(set(given) == set(job["variables"]), f"variables: {set(job['variables'])}")
    check(job["artifacts"]["reports"]["junit"] == "weft-report/matrix.xml", job["artifacts"])
    script = "\n".join([*job["before_script"], *job["script"]]) + "\n"
    return {}, [(given, "bash -eo pipefail", script)]


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def write_steps(folder, environment, steps):
    lines = []
    for i, (variables, shell, script) in enumerate(steps):
        (folder / f"step-{i}").write_text(script)
        words = " ".join(f"{name}={quoted(value)}" for name, value in variables.items())
        lines.append(f"env {words} {shell} /tmp/given/step-{i}\n")
    (folder / "steps").write_text("".join(lines))
    (folder / "environment").write_text(
        "".join(f"export {name}={quoted(value)}\n" for name, value in environment.items()))


def main(kind, cmake, build, project):
    steps_of = {"github": github_steps, "gitlab": gitlab_steps}[kind]
    with tempfile.TemporaryDirectory(prefix="weft-templates-") as name:
        folder = Path(name)
        given = folder / "given"
        given.mkdir()
        make_packages(cmake, build, given / "packages")
        for command, wanted in ((COMMAND, 0), (RED, 1)):
            write_steps(given, *steps_of(Path(project), command))
            code, said = in_layer(RUN, project, given, folder)
            check(code == wanted, f"{command}: exit code {code} instead of {wanted}\n{said}")
            check(said.count("<testcase ") == 2, f"{command}: no report of two cells\n{said}")
            check(("<failure" in said) == bool(wanted), said)
            check(len(re.findall(r"^root/\S+/cells/\S+/log$", said, re.M)) == 2, f"logs:\n{said}")
            if kind == "github":
                check(re.search(r"^\| .*loss", said, re.M), f"no table for the job's page:\n{said}")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    if not os.environ.get("WEFT_PACKAGE_TESTS"):
        print("it makes Debian packages, which takes minutes: .ci/run packages runs it")
        sys.exit(77)
    main(*sys.argv[1:])
