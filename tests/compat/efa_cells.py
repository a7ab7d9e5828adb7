# Owns what a release's own programs are asked to do on an EFA device, and how their word is taken.
import re

import all_reduce


def devinfo(land):
    code, text = land.run("efa", "h1", "ibv_devinfo", "-d", "efa_0")
    good = code == 0 and "PORT_ACTIVE" in text
    return "yes" if good else f"FAILED {code}", text


def perftest(program):
    def cell(land):
        words = [program, "-c", "SRD", "-x", "0", "-d", "efa_0", "-n", "100", "-s", "1024", "-F"]
        code, text = land.pair("efa", words, [*words, "127.0.0.1"])
        if code == 0 and re.search(r"^ *1024 +\d+ ", text, re.M):
            return "yes", text
        # Its own words for what that version does not do over SRD.
        if "SRD connection only possible in" in text:
            return "not offered", text
        # One that was built without the newer calls (ibv_wr_*) posts reads by ibv_post_send(), in
        # which the EFA library of rdma-core takes sends only, whatever the device.
        if "Couldn't post send" in text and re.search(r"ibv_wr\* API\s*: OFF", text):
            return "not offered", text
        return f"FAILED {code}", text
    return cell


def pingpong(endpoint):
    def cell(land):
        words = ["fi_pingpong", "-p", "efa", "-e", endpoint, "-I", "20", "-v"]
        code, text = land.pair("efa", words, [*words, "127.0.0.1"])
        return "yes" if code == 0 and "MB/sec" in text else f"FAILED {code}", text
    return cell


def direct(land):
    code, text = land.run("efa", "h1", "fi_info", "-p", "efa")
    if code == 0 and "fabric: efa-direct" in text:
        return "listed", text
    return ("not offered" if code == 0 and "provider: efa" in text else f"FAILED {code}"), text


def open_mpi(land):
    return all_reduce.cell(land, "efa", ["FI_PROVIDER=efa"], all_reduce.OPEN_MPI,
                           ["--mca", "pml", "cm", "--mca", "mtl", "ofi"])


CELLS = {"`ibv_devinfo`": devinfo,
         **{f"`{program} -c SRD`": perftest(program)
            for program in ("ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw",
                            "ib_read_lat", "ib_read_bw")},
         "`fi_pingpong -p efa -e rdm`": pingpong("rdm"),
         "`fi_pingpong -p efa -e dgram`": pingpong("dgram"), "fabric `efa-direct`": direct,
         "Open MPI over libfabric, all-reduce, checked": open_mpi}
