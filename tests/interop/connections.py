#!/usr/bin/env python3
# Owns a program of rdma_cm whose connections are refused and ended in every way: by nobody who
# listens, by the program that does, by either end later.
"""usage: connections.py ADDRESS PORT         answers, until it has been asked for everything
       connections.py ADDRESS PORT ask     asks

Calls librdmacm as C programs do. Prints what came of each, and fails if it is not as it must be.
"""

import ctypes
import socket
import struct
import sys

RDMA_PS_TCP, RDMA_PS_UDP = 0x0106, 0x0111
IBV_QPT_RC, IBV_QPT_UD = 2, 4
IBV_QPS_RTS, IBV_QPS_ERR = 3, 6
PATIENCE_MS = 20_000
EVENTS = ["ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST",
          "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED",
          "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE",
          "TIMEWAIT_EXIT"]
# Of the specification (12.6.7.2): no such service, refused by the consumer.
NO_SERVICE, BY_CONSUMER = 8, 28
SIDR_UNSUPPORTED = 1
REASON = b"no, thank you"
# What interop.py lets pass only where a frame may have been lost (cases.py).
NEVER_ESTABLISHED = "disconnected without having been established"

cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)


# Structures of <rdma/rdma_cma.h> and <infiniband/verbs.h>, as far as their fields are used; what
# follows them stays the library's.
class ConnParam(ctypes.Structure):
    _fields_ = [("private_data", ctypes.c_char_p), ("private_data_len", ctypes.c_uint8),
                ("responder_resources", ctypes.c_uint8), ("initiator_depth", ctypes.c_uint8),
                ("flow_control", ctypes.c_uint8), ("retry_count", ctypes.c_uint8),
                ("rnr_retry_count", ctypes.c_uint8), ("srq", ctypes.c_uint8),
                ("qp_num", ctypes.c_uint32)]


class EventParam(ctypes.Structure):  # the same, with data that may hold zeros
    _fields_ = [("private_data", ctypes.c_void_p), ("private_data_len", ctypes.c_uint8)]


class Event(ctypes.Structure):
    _fields_ = [("id", ctypes.c_void_p), ("listen_id", ctypes.c_void_p),
                ("event", ctypes.c_int), ("status", ctypes.c_int), ("param", EventParam)]


class QpInit(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("send_cq", ctypes.c_void_p),
                ("recv_cq", ctypes.c_void_p), ("srq", ctypes.c_void_p),
                ("cap", ctypes.c_uint32 * 5), ("type", ctypes.c_int), ("sq_sig_all", ctypes.c_int)]


class Id(ctypes.Structure):
    _fields_ = [("verbs", ctypes.c_void_p), ("channel", ctypes.c_void_p),
                ("context", ctypes.c_void_p), ("qp", ctypes.c_void_p)]


cm.rdma_create_event_channel.restype = ctypes.c_void_p


def call(name, *arguments):
    if getattr(cm, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: errno {ctypes.get_errno()}")


def sockaddr_of(address, port):
    if ":" in address:
        return struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(port), 0,
                           socket.inet_pton(socket.AF_INET6, address), 0)
    return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton(address))


class Connections:
    def __init__(self):
        self.channel = ctypes.c_void_p(cm.rdma_create_event_channel())
        if not self.channel:
            raise OSError("there is no event channel")

    def new_id(self, space):
        made = ctypes.c_void_p()
        call("rdma_create_id", self.channel, ctypes.byref(made), None, space)
        return made

    def next(self, *expected):
        """(event's name, its id, status, private data); it must be one of those."""
        event = ctypes.POINTER(Event)()
        call("rdma_get_cm_event", self.channel, ctypes.byref(event))
        seen = event.contents
        name, status, identity = EVENTS[seen.event], seen.status, ctypes.c_void_p(seen.id)
        data = b""
        if seen.param.private_data:
            data = ctypes.string_at(seen.param.private_data, seen.param.private_data_len)
        call("rdma_ack_cm_event", event)
        if expected and name not in expected:
            raise RuntimeError(f"{name}, status {status}, instead of {' or '.join(expected)}")
        return name, identity, status, data

    @staticmethod
    def make_qp(identity, kind=IBV_QPT_RC):
        # Completion queues and a domain are the library's own.
        call("rdma_create_qp", identity, None,
             ctypes.byref(QpInit(cap=(ctypes.c_uint32 * 5)(4, 4, 1, 1, 0), type=kind)))

    @staticmethod
    def state(identity):
        # More than ibv_qp_attr and ibv_qp_init_attr need; the state is the first field.
        attributes, init = (ctypes.c_char * 512)(), (ctypes.c_char * 256)()
        qp = ctypes.cast(identity, ctypes.POINTER(Id)).contents.qp
        if verbs.ibv_query_qp(ctypes.c_void_p(qp), attributes, 1, init) != 0:
            raise RuntimeError("a queue pair cannot be asked")
        return struct.unpack_from("i", attributes)[0]

    @staticmethod
    def parameters(data=b"", **more):
        return ctypes.byref(ConnParam(private_data=data, private_data_len=len(data),
                                      responder_resources=1, initiator_depth=1, retry_count=7,
                                      rnr_retry_count=7, **more))

    # The private data of the request tells the answering side what to do with it.
    def ask(self, address, port, wish, space=RDMA_PS_TCP):
        identity = self.new_id(space)
        call("rdma_resolve_addr", identity, None, sockaddr_of(address, port), PATIENCE_MS)
        self.next("ADDR_RESOLVED")
        call("rdma_resolve_route", identity, PATIENCE_MS)
        self.next("ROUTE_RESOLVED")
        self.make_qp(identity, IBV_QPT_RC if space == RDMA_PS_TCP else IBV_QPT_UD)
        call("rdma_connect", identity, self.parameters(wish))
        return identity

    @staticmethod
    def forget(identity):
        cm.rdma_destroy_qp(identity)
        call("rdma_destroy_id", identity)


def must(what, good):
    print(f"{what}: {'as it must be' if good else 'WRONG'}", flush=True)
    if not good:
        sys.exit(1)


def end_both(connections, identity, first, who, told=False):
    """An established connection ends: here first, or at the other end; `told`: that one has."""
    if first:
        call("rdma_disconnect", identity)
    if not told:
        connections.next("DISCONNECTED")
    if not first:
        call("rdma_disconnect", identity)
    must(f"disconnected by {who}", connections.state(identity) == IBV_QPS_ERR)
    connections.forget(identity)


def asking(address, port):
    connections = Connections()
    # Nobody listens at the next port.
    identity = connections.ask(address, port + 1, b"x")
    _, _, status, _ = connections.next("REJECTED")
    must(f"nobody listens: rejected with {status}", status == NO_SERVICE)
    connections.forget(identity)
    identity = connections.ask(address, port + 1, b"x", RDMA_PS_UDP)
    _, _, status, _ = connections.next("UNREACHABLE")
    must(f"nobody listens for datagrams: {status}", status == SIDR_UNSUPPORTED)
    connections.forget(identity)
    # More than once, since a refusal must leave the listener as it was.
    for _ in range(3):
        identity = connections.ask(address, port, b"reject")
        _, _, status, data = connections.next("REJECTED")
        must(f"rejected with {status} and {data[:len(REASON)]!r}",
             status == BY_CONSUMER and data.startswith(REASON))
        connections.forget(identity)
    # Who ends the connection: we, they, and again we.
    for wish in (b"wait", b"leave", b"wait"):
        identity = connections.ask(address, port, wish)
        _, _, _, data = connections.next("ESTABLISHED")
        must("established", data.startswith(b"welcome")
             and connections.state(identity) == IBV_QPS_RTS)
        end_both(connections, identity, wish == b"wait", "who has asked" if wish == b"wait"
                 else "who has answered")
    identity = connections.ask(address, port, b"end")
    connections.next("REJECTED")
    connections.forget(identity)


def answering(address, port):
    connections = Connections()
    listener = connections.new_id(RDMA_PS_TCP)
    call("rdma_bind_addr", listener, sockaddr_of(address, port))
    call("rdma_listen", listener, 8)
    while True:
        name, identity, _, wish = connections.next("CONNECT_REQUEST", "TIMEWAIT_EXIT")
        # Of an earlier connection, some time after its end.
        if name == "TIMEWAIT_EXIT":
            continue
        wish = wish.rstrip(b"\0")
        if wish in (b"reject", b"end"):
            call("rdma_reject", identity, REASON, len(REASON))
            call("rdma_destroy_id", identity)
            if wish == b"end":
                return
            continue
        connections.make_qp(identity)
        call("rdma_accept", identity, connections.parameters(b"welcome"))
        leaves = wish == b"leave"
        event, *_ = connections.next("ESTABLISHED", *(() if leaves else ("DISCONNECTED",)))
        # The asker says that there is a connection (RTU) before it ends it, but that frame may be
        # lost or overtaken, and then comes no other event. Only interop.py knows whether it was.
        ended = event == "DISCONNECTED"
        if ended:
            print(NEVER_ESTABLISHED, flush=True)
        end_both(connections, identity, leaves, "who has answered" if leaves else "who has asked",
                 told=ended)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    if len(sys.argv) == 4:
        asking(sys.argv[1], int(sys.argv[2]))
    else:
        answering(sys.argv[1], int(sys.argv[2]))


main()
