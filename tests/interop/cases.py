# Owns the jobs of interop.py: what each side runs, and which refusals are asked for.
#
# Each job is run twice, with our device as its server and as its client. Sizes are chosen around
# packets: 1 byte, an MTU, one more, and several packets with an odd rest.
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What weft_verbs_peers asks for, each of which has to be seen.
REFUSALS = {"invalid request", "remote access error", "remote operational error"}


class Case:
    """One job, of a server and a client. `{port}` is a TCP port, `{tcp}` the server's address for
    it; `{ip}` and `{ip6}` are its addresses on the fabric; `{dev}` is each side's own, and so are
    `{gid}`, `{gid0}` and `{gid6}`: the indices of the GIDs of IPv4, link-local, and IPv6. `naks`
    are the refusals that the server has to give. `unreliable`: nobody sends its messages again, so
    one that is lost may leave both sides waiting. `if_lost`: what either side may say only if a
    frame was lost or overtaken by another one."""

    def __init__(self, name, server, client, says="", by_tcp=True, codes=(0,), naks=frozenset(),
                 unreliable=False, if_lost=None):
        self.name, self.server, self.client = name, server, client
        self.says, self.by_tcp, self.codes, self.naks = says, by_tcp, codes, set(naks)
        self.unreliable, self.if_lost = unreliable, if_lost


# Beside the plain name of a job, the kind of address that it uses.
GIDS = {"": "{gid}", ".link_local": "{gid0}", ".ipv6": "{gid6}"}


def our_programs(folder, lossy):
    """Those that look at every byte, and at every refusal."""
    # "lossy" with any network: a guest that gets no core loses what it does not take in time.
    found = []
    for name, program, says, naks in (("data", "weft_verbs_data", "atomics: all right", ()),
                                      ("peers", "weft_verbs_peers", "all as it must", REFUSALS)):
        for gid in ("", ".ipv6"):
            # A guest paints bytes slowly.
            longest = 65537 if gid or lossy else 1048579
            words = ("WEFT_VERBS_TIMEOUT=18 WEFT_VERBS_ANSWERS={server} "
                     f"WEFT_VERBS_LONGEST={longest} WEFT_VERBS_GID={GIDS[gid]} "
                     f"{folder}/{program} {{port}}")
            found.append(Case(f"verbs_{name}{gid}", words + " lossy", words + " {tcp} lossy", says,
                              naks=naks))
    return found


def pingpongs(lossy):
    found = []
    for mtu in (256, 512, 1024, 2048, 4096):
        for size in (1, mtu, mtu + 1, 20001):
            # Each MTU by each kind of address.
            kind = list(GIDS)[(size - 1) % 3] if size in (1, 20001) else ""
            words = (f"ibv_rc_pingpong -d {{dev}} -g {GIDS[kind]} -p {{port}} -m {mtu} -c -n 40 "
                     f"-s {size}")
            found.append(Case(f"rc_pingpong.mtu{mtu}.{size}{kind}", words, words + " {tcp}"))
    kinds = [("rc", "-m 1024", (3000,)), ("srq", "-q 4", (1, 4097))]
    if not lossy:  # nobody sends again what these lose
        kinds += [("uc", "-m 1024", (1, 1024, 9000)), ("ud", "", (1, 1000))]
    for kind, more, sizes in kinds:
        for size in sizes:
            for gid, index in GIDS.items():
                if gid and size != sizes[-1]:
                    continue
                words = (f"ibv_{kind}_pingpong -d {{dev}} -g {index} -p {{port}} {more} "
                         f"-c -n 40 -s {size}")
                found.append(Case(f"{kind}_pingpong.{size}{gid}", words, words + " {tcp}",
                                  unreliable=kind in ("uc", "ud")))
    return found


# Few rounds: figures do not matter here, only that all of them come.
def perftests(lossy):
    found = []
    tests = [("RC", verb, kind) for verb in ("send", "write", "read", "atomic")
             for kind in ("bw", "lat")]
    if not lossy:
        tests += [("UC", "send", "bw"), ("UC", "write", "lat"), ("UD", "send", "lat")]
    for service, verb, kind in tests:
        for size in ((8,) if verb == "atomic" else (2, 1000) if service == "UD" else (2, 65536)):
            words = f"ib_{verb}_{kind} -d {{dev}} -x {{gid}} -p {{port}} -F -n 30"
            # The timeout of an acknowledgement, 4.096 us x 2^17, about half a second: a guest is
            # slow.
            words += "" if service == "UD" else " -u 17"
            words += "" if verb == "atomic" else f" -s {size}"
            words += "" if verb in ("read", "atomic") else f" -c {service}"
            found.append(Case(f"perftest.{service}.{verb}_{kind}.{size}", words, words + " {tcp}",
                              unreliable=service != "RC"))
    for verb in ("send_bw", "write_bw", "read_lat"):
        words = f"ib_{verb} -d {{dev}} -x {{gid6}} -p {{port}} -F -n 30 -u 17 -s 65536"
        found.append(Case(f"perftest.RC.{verb}.ipv6", words, words + " {tcp}"))
    words = "ib_write_bw -R -p {port} -F -n 30 -s 65536"
    found.append(Case("perftest.RC.write_bw.rdma_cm", words, words + " {ip}", by_tcp=False))
    return found


def connections(lossy):
    found = []
    # One packet, a page, and many packets.
    for size in (64, 4096, 60000):
        found.append(Case(f"rping.{size}", f"rping -s -a {{ip}} -V -C 30 -S {size}",
                          f"rping -c -a {{ip}} -V -C 30 -S {size}", by_tcp=False))
    found.append(Case("rping.4096.ipv6", "rping -s -a {ip6} -V -C 30 -S 4096",
                      "rping -c -a {ip6} -V -C 30 -S 4096", by_tcp=False))
    for name, address in (("", "{ip}"), (".ipv6", "{ip6}")):
        words = f"/usr/bin/python3 -I -S {HERE}/connections.py {address} {{port}}"
        found.append(Case("connections" + name, words, words + " ask", by_tcp=False,
                          if_lost="disconnected without having been established"))
    found.append(Case("ucmatose", "ucmatose -b {ip} -C 20 -c 3", "ucmatose -s {ip} -C 20 -c 3",
                      by_tcp=False))
    # What finds the other side is sent again, its messages are not: with loss as few as can be.
    messages = 1 if lossy else 20
    found.append(Case("udaddy", f"udaddy -b {{ip}} -C {messages}",
                      f"udaddy -s {{ip}} -C {messages}", by_tcp=False, unreliable=True))
    # Nobody listens at that port.
    found.append(Case("reject", "", "rping -c -a {ip} -p 4242 -C 1", "REJECTED|unreachable|reject",
                      by_tcp=False, codes=range(1, 256)))
    return found


def all_cases(folder, lossy):
    return our_programs(folder, lossy) + pingpongs(lossy) + perftests(lossy) + connections(lossy)
