#!/usr/bin/env python3
# Owns the manual pages: made from what the programs say of themselves, so that none is forgotten.
"""usage: docs/man/make.py [--check] WEFT WEFTD

Writes weft.1 and weftd.1 beside this script. With --check it writes nothing, and fails if they are
not what it would write."""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECTION = re.compile(r"^(Usage|Positionals|Options|Subcommands):", re.MULTILINE)

FILES = r"""
.SH ENVIRONMENT
.TP
.B WEFT_SOCKET, WEFT_HOST, WEFT_DEVICES
The network, the host and the device tree that a program lives on; set by
.BR "weft run" ,
.BR "weft exec" " and " "weft env" .
.TP
.B WEFT_RUNS
Where
.BR "weft run" " and " "weft demo"
leave the directories of their runs.
.TP
.B XDG_RUNTIME_DIR
Where networks that stay have their sockets; /tmp otherwise.
.SH "EXIT STATUS"
0: success. 1: it ran and failed. 2: it was asked the wrong way.
.B weft run
and
.B weft exec
pass on their programs' exit codes.
"""

WEFTD_FILES = r"""
.SH FILES
In its directory, for its own user and root only:
.TP
.B attach.sock
Where programs join the network.
.TP
.B control.sock
JSON, one object per line in and out; docs/json.md describes it.
.TP
.B metrics.sock
HTTP: GET /metrics answers with Prometheus text.
.SH SIGNALS
SIGTERM and SIGINT end it. Programs pause until another weftd serves the same directory.
"""


def said(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def roff(text):
    lines = []
    for line in text.rstrip("\n").split("\n"):
        line = line.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
        lines.append(r"\&" + line if line.startswith(".") else line)
    return "\n".join(lines)


def parts(help_text):
    """What a program is for, and the rest of its help."""
    first = SECTION.search(help_text).start()
    return help_text[:first].strip(), help_text[first:]


def head(name, about, synopsis):
    return (f".TH {name.upper()} 1\n.SH NAME\n{name} \\- {roff(about)}\n"
            f".SH SYNOPSIS\n{synopsis}\n")


def weft_page(weft):
    about, rest = parts(said(weft, "--help"))
    commands = re.findall(r"^  ([\w-]+) ", rest[rest.index("Subcommands:"):], re.MULTILINE)
    page = head("weft", about.split(": ", 1)[-1], r".B weft \fICOMMAND\fR [\fIARGUMENT\fR...]")
    page += ".SH COMMANDS\n"
    for command in commands:
        what, rest = parts(said(weft, command, "--help"))
        page += f".SS weft {command}\n{roff(what)}\n.PP\n.EX\n{roff(rest)}\n.EE\n"
    return page + FILES.lstrip("\n") + ".SH SEE ALSO\n.BR weftd (1)\n"


def weftd_page(weftd):
    about, rest = parts(said(weftd, "--help"))
    page = head("weftd", about.split(": ", 1)[-1],
                r".B weftd \-\-dir \fIDIRECTORY\fR [\fIOPTION\fR...]")
    page += (".SH DESCRIPTION\nThe NICs' ports and the network between them, for the programs of "
             "one machine.\nUsually started by\n.BR \"weft run\" \" or \" \"weft up\" .\n"
             f".SH OPTIONS\n.EX\n{roff(rest)}\n.EE\n")
    return page + WEFTD_FILES.lstrip("\n") + ".SH SEE ALSO\n.BR weft (1)\n"


def main(arguments):
    check = arguments[:1] == ["--check"]
    weft, weftd = arguments[1:] if check else arguments
    wrong = 0
    for name, page in (("weft.1", weft_page(weft)), ("weftd.1", weftd_page(weftd))):
        # Usage lines begin with the path by which the program was called.
        page = re.sub(r"(Usage: )\S*?(weftd?)\b", r"\1\2", page)
        file = HERE / name
        if not check:
            file.write_text(page)
        elif not file.exists() or file.read_text() != page:
            print(f"{file.name} is not what the programs say: run docs/man/make.py WEFT WEFTD")
            wrong = 1
    return wrong


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
