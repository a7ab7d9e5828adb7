# Owns what decides whether a job has gone well: by exit codes and words of both programs, by the
# frames that weft counts as lost, and by what the capture says. It starts and asks nothing.
"""Failure and its kinds, what is counted and how a program ends, and the rules."""

import collections
import re

import frames

# NAKs that any job may bring about: a receive comes late, a packet gets lost.
ALWAYS_RIGHT = {frames.NOT_READY, frames.GAP}
# As programs say that a message was repeated in vain.
GIVEN_UP = "transport retry counter exceeded"

# What `weft status` counts as dropped, by what it says of a job. Lost on the way, as frames on a
# real network are: at a full ring or queue, or because a fault was asked for.
LOST = {"not_receiving", "network_full", "queue_full", "link_down", "loss", "burst", "grey",
        "host_paused"}
# To a program that has ended. Whoever ends last sends some of these, so they say nothing.
LATE = {"no_process"}
# Everything else, also a reason that is yet to come, is of a frame that nobody should have sent.

# Without a lossy network a guest that gets no core may lose a last word, but not again and again.
MOST_AGAIN = 2  # jobs


class Failure(Exception):
    pass


class LastWordLost(Failure):
    """One side has all that it waited for, and has ended; the other one's last message is repeated
    to nobody, as its acknowledgement was lost. Linux does so for ever where a program says
    retry_cnt 7, also beside Linux; ours gives up. The frame was lost by the network, or at its port
    because the guest was slow: weft counts both, and without such a count it is a failure."""

    what = "the last acknowledgement was lost"


class LastWordIgnored(LastWordLost):
    """It is Linux that does not end, and the capture shows that it had the acknowledgement of the
    last that it has sent, right in every bit, before it began to send that again and again."""

    what = "Linux has taken no notice of the last acknowledgement"


class MessageLost(LastWordLost):
    """Both sides wait for a message that nobody sends again."""

    what = "a message was lost"


class Drops:
    """What has not arrived, from the beginning of a network until one moment."""

    def __init__(self, status):
        """`status`: what `weft status --json` says. Its `counters` have what the modelled network
        has dropped, too."""
        ports = status["ports"]
        self.dropped = collections.Counter(status["counters"]["dropped"])
        # Cut short or too long when they came in, or without proof.
        for reason in ("dropped_in", "unproved_in"):
            self.dropped[reason] = sum(port[reason] for port in ports)
        self.lost_out = sum(port["lost_out"] for port in ports)

    def lost_since(self, before):
        """How many frames the network has lost."""
        return (self.lost_out - before.lost_out +
                sum(self.dropped[reason] - before.dropped[reason] for reason in LOST))

    def wrong_since(self, before, reports):
        """[what is wrong]. `reports`: frames of the guest to all multicast routers, of which there
        are none here."""
        rises = self.dropped - before.dropped
        rises["no_nic"] -= reports
        return [f"weft has dropped {count} frames: {reason}"
                for reason, count in sorted(rises.items())
                if count > 0 and reason not in LOST | LATE]


# How a program has ended: whose it is ("ours" or "Linux"), its exit code, None if it had to be
# ended, and what it has said.
End = collections.namedtuple("End", "side code said")


# One has not ended, or has given up, and the other one has what it wanted. Ours gives up by itself
# and in time what it can send again.
def is_last_word_lost(case, client, server):
    if client.code is None or server.code is None:
        hanging = client if client.code is None else server
        return (0 in (client.code, server.code) and
                (hanging.side == "Linux" or case.unreliable))
    return ((client.code == 0 != server.code and GIVEN_UP in server.said) or
            (server.code == 0 != client.code and GIVEN_UP in client.said))


# Only then can it be Linux that has not listened.
def is_linux_left_alone(client, server):
    return {end.side: end.code for end in (client, server)} == {"ours": 0, "Linux": None}


def judge_ends(case, client, server, lost, is_deaf, told):
    """Raises a Failure that tells `told`; a LastWordLost if the job may be tried again. `server` is
    None for a job without one; `lost`: how many frames the network has lost meanwhile; `is_deaf`:
    whether the capture says that Linux has not listened (answers.py)."""
    if server is not None:
        if is_last_word_lost(case, client, server):
            if lost > 0:
                raise LastWordLost(told)
            if is_deaf and is_linux_left_alone(client, server):
                raise LastWordIgnored(told)
        if lost > 0 and case.unreliable and client.code is None and server.code is None:
            raise MessageLost(told)
    if client.code not in case.codes or (server is not None and server.code != 0):
        codes = f"client {client.code}, server {server.code if server else 'none'}"
        raise Failure(f"exit codes: {codes}\n{told}")
    if not re.search(case.says, client.said):
        raise Failure(f"the client does not say '{case.says}'\n{told}")


def wrong_words(case, ends, lost, lossy):
    """[what is wrong] in what both sides say. Without a lossy network frames stay in order."""
    if case.if_lost is None or lost > 0 or lossy:
        return []
    return [f"{end.side} says '{case.if_lost}', but no frame was lost"
            for end in ends if end is not None and case.if_lost in end.said]


def wrong_icrcs(account):
    """[what is wrong]. A few frames are enough to see why."""
    return [f"ICRC wrong in a frame: {frame}" for frame in account.wrong_icrc[:5]]


def wrong_naks(account, asked_for, server, linux, gaps):
    """[what is wrong]. `asked_for`: names of refusals that the server has to give; `server` and
    `linux`: addresses of these; `gaps`: how many "PSN sequence errors" there may be."""
    def is_right(source, name):
        if name == frames.FALSE_GAP:
            return source in linux
        return name in ALWAYS_RIGHT or (name in asked_for and source in server)

    wrong = [f"{source} answers '{name}' {count} times"
             for (source, name), count in account.naks.items() if not is_right(source, name)]
    # A receiver reports a gap once until it is closed, so each needs a lost frame of its own.
    seen = sum(count for (_, name), count in account.naks.items() if name == frames.GAP)
    if seen > gaps:
        wrong.append(f"{seen} answers '{frames.GAP}', but {gaps} frames were lost")
    return wrong


def too_many_again(names, lossy):
    """[what is wrong]. `names`: of the jobs that were tried again, as often as they were."""
    jobs = sorted(set(names))
    if lossy or len(jobs) <= MOST_AGAIN:
        return []
    return [f"{len(jobs)} jobs were run again without a lossy network: {'; '.join(jobs)}"]
