# Owns an all-reduce of four ranks on two hosts, with each of its numbers checked.

# Every length takes another way through the library below: inline, eager, rendezvous.
NUMBERS = r"""
import array, sys
def inputs(rank, length):
    return array.array("d", [rank * 3.0 + i % 7 for i in range(length)])
def check(total, ranks, length):
    sum_of_ranks = ranks * (ranks - 1) / 2
    assert all(total[i] == 3.0 * sum_of_ranks + ranks * (i % 7) for i in range(length)), length
LENGTHS = (1, 1000, 100_000)
"""

OF_MPI4PY = NUMBERS + r"""
from mpi4py import MPI
world = MPI.COMM_WORLD
for length in LENGTHS:
    total = array.array("d", bytes(8 * length))
    world.Allreduce([inputs(world.rank, length), MPI.DOUBLE], [total, MPI.DOUBLE])
    check(total, world.size, length)
if world.rank == 0:
    print("right on", world.size, "ranks")
"""

# Debian has mpi4py for its first choice of MPI only. MPICH's handles are numbers that belong to its
# binary interface.
OF_MPICH = NUMBERS + r"""
import ctypes
mpi = ctypes.CDLL("libmpich.so.12")
WORLD, DOUBLE, SUM = 0x44000000, 0x4c00080b, 0x58000003
assert mpi.MPI_Init(None, None) == 0
rank, size = ctypes.c_int(), ctypes.c_int()
assert mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank)) == 0
assert mpi.MPI_Comm_size(WORLD, ctypes.byref(size)) == 0
for length in LENGTHS:
    mine = (ctypes.c_double * length)(*inputs(rank.value, length))
    total = (ctypes.c_double * length)()
    assert mpi.MPI_Allreduce(mine, total, length, DOUBLE, SUM, WORLD) == 0
    check(total, size.value, length)
if rank.value == 0:
    print("right on", size.value, "ranks")
assert mpi.MPI_Finalize() == 0
"""

# The launcher, the variable with a rank's number, the program.
OPEN_MPI = (["mpirun.openmpi", "--oversubscribe", "-n", "4"], "OMPI_COMM_WORLD_RANK", OF_MPI4PY)
MPICH = (["mpiexec.mpich", "-n", "4"], "PMI_RANK", OF_MPICH)


COUNTERS = {"efa": "/sys/class/infiniband/efa_0/ports/1/hw_counters/tx_pkts",
            "rxe": "/sys/class/infiniband/rxe_0/ports/1/hw_counters/sent_pkts"}


def packets(land, device):
    """How many packets both hosts have sent."""
    said = [land.run(device, host, "cat", COUNTERS[device])[1] for host in ("h1", "h2")]
    return [int(words) for words in said]


def cell(land, device, environment, mpi, options):
    launcher, number, program = mpi
    rank = (f"export WEFT_HOST=h$(({number} % 2 + 1)); "
            f"export WEFT_DEVICES=/run/weft/{device}-$WEFT_HOST; exec python3 -c \"$PROGRAM\"")
    before = packets(land, device)
    code, text = land.run(device, "h1", "env", "PROGRAM=" + program, *environment, *launcher,
                          *options, "sh", "-c", rank)
    # Half of the longest vector in packets of 4 KiB and more: an MPI that takes another way, TCP
    # for example, sends none.
    sent = [after - first for after, first in zip(packets(land, device), before)]
    text += f"\npackets sent by the hosts: {sent}"
    good = code == 0 and "right on 4 ranks" in text and min(sent) >= 50
    return "yes" if good else f"FAILED {code}", text
