# Owns what a release's own programs are asked to do on an ordinary RDMA NIC (`--device rxe`), and
# how their word is taken.
import re

import all_reduce

CONNECTIONS = "rc_verbs,ud_verbs:aux"  # UCX makes them by datagrams
DATAGRAMS = "ud_verbs"


def verdict(code, text, *wanted):
    good = code == 0 and all(word in text for word in wanted)
    return "yes" if good else f"FAILED {code}", text


def alone(*words, wanted):
    return lambda land: verdict(*land.run("rxe", "h1", *words), *wanted)


def both(*words, to="127.0.0.1", wanted=()):
    """A server, and a client with one more word."""
    def cell(land):
        return verdict(*land.pair("rxe", words, [*words, to]), *wanted)
    return cell


def pingpong(program):
    return both(program, "-d", "rxe_0", "-g", "1", "-c", "-n", "200", wanted=["iters in"])


def perftest(*words):
    def cell(land):
        command = [*words, "-d", "rxe_0", "-x", "1", "-n", "200", "-F"]
        to = land.addresses["h1"] if "-R" in words else "127.0.0.1"
        code, text = land.pair("rxe", command, [*command, to])
        shown = re.search(r"^ *(8|1024|2|65536) +\d+ ", text, re.M)
        return "yes" if code == 0 and shown else f"FAILED {code}", text
    return cell


def by_address(server, client, ready=""):
    """Programs of rdma_cm. H1 and H2 stand for the addresses of the hosts."""
    def cell(land):
        put = {"H1": land.addresses["h1"], "H2": land.addresses["h2"]}
        ends = [[put.get(word, word) for word in line.split()] for line in (server, client)]
        return verdict(*land.pair("rxe", *ends, ready=ready))
    return cell


def of_ucx(transports):
    return [f"UCX_TLS={transports},self", "UCX_NET_DEVICES=rxe_0:1"]


def lacks_extended_queues(land):
    """UCX makes its completion queues by ibv_create_cq_ex(). rdma-core's library for soft-RoCE has
    no such function before version 34, whatever the device."""
    library, = land.root.glob("usr/lib/*/libibverbs/librxe-rdmav*.so")
    return b"ibv_cmd_create_cq_ex" not in library.read_bytes()


def of_that_ucx(land, told, text):
    refused = re.search(r"ibv_create_cq\(.*failed: Operation not supported", text)
    return ("not offered" if refused and lacks_extended_queues(land) else told), text


def ucx_perftest(operation, transports):
    def cell(land):
        _, usage = land.run("rxe", "h1", "ucx_perftest", "-h")
        if not re.search(rf"^ +{operation} - ", usage, re.M):
            return "not offered", usage
        words = ["env", *of_ucx(transports), "ucx_perftest", "-t", operation, "-s", "20000", "-n",
                 "200", "-w", "10"]
        if "-P <0|1>" in usage:  # one that would wait for mpirun
            words += ["-P", "0"]
        return of_that_ucx(land, *both(*words, wanted=["Final:"])(land))
    return cell


def open_mpi(land):
    told = all_reduce.cell(land, "rxe", of_ucx(CONNECTIONS), all_reduce.OPEN_MPI,
                           ["--mca", "pml", "ucx"])
    return of_that_ucx(land, *told)


def mpich(land):
    _, built = land.run("rxe", "h1", "mpichversion")
    if "ch4:ucx" not in built:  # ch3 has ways of its own, without UCX
        return "not offered", built
    # Without the variable ranks of one machine speak through MPICH's own shared memory.
    return all_reduce.cell(land, "rxe", [*of_ucx(CONNECTIONS), "MPIR_CVAR_NOLOCAL=1"],
                           all_reduce.MPICH, [])


CELLS = {
    "`ibv_devinfo`": alone("ibv_devinfo", "-v", "-d", "rxe_0", wanted=["PORT_ACTIVE"]),
    "`rdma link`": alone("rdma", "link", wanted=["rxe_0/1", "ACTIVE"]),
    **{f"`{program}`": pingpong(program)
       for program in ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong",
                       "ibv_srq_pingpong")},
    **{f"`ib_{operation}_{kind}{option}`": perftest(f"ib_{operation}_{kind}", *option.split())
       for option in ("", " -R")
       for operation in ("write", "read", "send", "atomic") for kind in ("bw", "lat")},
    # Nothing is sent again: as much as waits in a ring for a receiver that gets no core.
    **{f"`ib_{operation}_{kind} -c UC`": perftest(f"ib_{operation}_{kind}", "-c", "UC", "-s",
                                                  "1024")
       for operation in ("write", "send") for kind in ("bw", "lat")},
    **{f"`ib_send_{kind} -c UD`": perftest(f"ib_send_{kind}", "-c", "UD", "-s", "1024")
       for kind in ("bw", "lat")},
    "`rping`": by_address("rping -s -V -C 10 -v", "rping -c -a H1 -V -C 10 -v"),
    "`ucmatose`": by_address("ucmatose", "ucmatose -s H1"),
    "`udaddy`": by_address("udaddy -c 5", "udaddy -c 5 -s H1"),
    # Who is no member yet hears nothing.
    "`mckey`": by_address("stdbuf -oL mckey -m 239.7.7.7 -b H1 -C 20",
                          "mckey -m 239.7.7.7 -s -b H2 -C 20", ready="joined"),
    "`rstream`": by_address("rstream -S 100000 -C 10 -I 10 -T v",
                            "rstream -S 100000 -C 10 -I 10 -T v -s H1"),
    "`ucx_info -d`": alone("env", "UCX_NET_DEVICES=rxe_0:1", "ucx_info", "-d",
                           wanted=["rc_verbs", "ud_verbs", "rxe_0:1"]),
    **{f"`ucx_perftest -t {operation}`, {transports.split(',', maxsplit=1)[0]}":
       ucx_perftest(operation, transports)
       for transports in (CONNECTIONS, DATAGRAMS)
       for operation in ("tag_bw", "ucp_am_bw", "ucp_put_bw", "ucp_get")},
    "`fi_pingpong -p verbs -e msg`": by_address("fi_pingpong -p verbs -e msg -I 20 -v",
                                                "fi_pingpong -p verbs -e msg -I 20 -v H1"),
    # The default universe of 256 peers makes a completion queue larger than soft-RoCE's.
    "`fi_pingpong -p 'verbs;ofi_rxm' -e rdm`": by_address(
        "env FI_UNIVERSE_SIZE=16 fi_pingpong -p verbs;ofi_rxm -e rdm -I 20 -v",
        "env FI_UNIVERSE_SIZE=16 fi_pingpong -p verbs;ofi_rxm -e rdm -I 20 -v H1"),
    "Open MPI over UCX, all-reduce, checked": open_mpi,
    "MPICH over UCX, all-reduce, checked": mpich,
}
