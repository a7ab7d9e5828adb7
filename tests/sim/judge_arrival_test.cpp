// Owns the judge's rules about receives and what arrives in them: see judge_test.cpp.
#include <gtest/gtest.h>

#include "tests/sim/judge_court.hpp"

namespace weft::swarm {
namespace {

// --- Receives

// An arrival is told by hand as an engine would report it, and wrong in one field, or in one byte
// of memory, if the story is broken. The send is ended in each story, because an open request would
// be a broken rule of its own.
constexpr JudgeRule kReceives[] = {
    {"an_endpoint_that_is", "an endpoint that never was",
     [](Court& c, bool broken) {
       const auto send = c.send();
       Completion arrival = c.arrival_of(send, c.post_receive());
       arrival.endpoint = broken ? srd::Qpn{0x999} : arrival.endpoint;
       c.receiver_polls(arrival);
       c.end(send);
     }},
    {"unsolicited_immediate_data_takes_none", "takes a receive where it must not, or reversed",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(kUnsolicited);
       c.place(write);
       c.receiver_polls(broken ? c.arrival_of(write, c.post_receive(kUnsolicited))
                               : c.unsolicited_arrival_of(write));
       c.end(write);
     }},
    {"solicited_immediate_data_takes_one", "takes a receive where it must not, or reversed",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(kSolicited);
       c.place(write);
       Completion arrival = c.arrival_of(write, c.post_receive());
       arrival.consumed_receive = !broken;
       c.receiver_polls(arrival);
       c.end(write);
     }},
    {"a_message_takes_one", "a message without a receive",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(kUnsolicited);
       c.place(write);
       Completion arrival = c.unsolicited_arrival_of(write);
       arrival.kind = broken ? Kind::receive : arrival.kind;
       c.receiver_polls(arrival);
       c.end(write);
     }},
    {"unsolicited_immediate_data_does_not_fail", "immediate data completes with flushed",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(kUnsolicited);
       c.place(write);
       c.receiver_polls(c.unsolicited_arrival_of(write));
       c.end(write);
       if (broken) {
         Completion failed = c.unsolicited_arrival_of(write);
         failed.status = Status::flushed;
         c.receiver_polls(failed);
       }
     }},
    {"a_receive_that_was_posted", "a receive that was never posted",
     [](Court& c, bool broken) {
       const auto send = c.send();
       Completion arrival = c.arrival_of(send, c.post_receive());
       arrival.cookie += broken ? 1 : 0;
       c.receiver_polls(arrival);
       c.end(send);
     }},
    {"a_receive_and_no_request", "a receive that was never posted",
     [](Court& c, bool broken) {
       const auto send = c.send();
       Completion arrival = c.arrival_of(send, c.post_receive());
       arrival.cookie = broken ? send.number : arrival.cookie;
       c.receiver_polls(arrival);
       c.end(send);
     }},
    {"a_receive_once", "completes twice or elsewhere",
     [](Court& c, bool broken) {
       const auto first = c.send();
       const auto second = c.send();
       const auto receive = c.post_receive();
       c.receiver_polls(c.arrival_of(first, receive));
       c.receiver_polls(c.arrival_of(second, broken ? receive : c.post_receive()));
       c.end(first);
       c.end(second);
     }},
    {"a_receive_of_this_host", "completes twice or elsewhere",
     [](Court& c, bool broken) {
       const auto receive = c.post_receive();
       receive.receive.host = broken ? kSender : kReceiver;
       const auto send = c.send();
       c.receiver_polls(c.arrival_of(send, receive));
       c.end(send);
     }},
    {"a_receive_of_this_endpoint", "completes twice or elsewhere",
     [](Court& c, bool broken) {
       const auto send = c.send();
       c.receiver_polls(c.arrival_of(send, c.post_receive(broken ? kUnsolicited : kSolicited)));
       c.end(send);
     }},
    {"margins_of_a_receive", "bytes around receive 0 have changed",
     [](Court& c, bool broken) {
       const auto send = c.send();
       const auto receive = c.post_receive();
       *(receive.receive.buffer.bytes().data() - 1) = broken ? kScribble : kBlank;
       c.receiver_polls(c.arrival_of(send, receive));
       c.end(send);
     }},
    {"the_room_of_a_receive", "a message is longer than its receive",
     [](Court& c, bool broken) {
       const auto send = c.send(kReceiveSize);
       Completion arrival = c.arrival_of(send, c.post_receive());
       arrival.length += broken ? 1 : 0;
       c.receiver_polls(arrival);
       c.end(send);
     }},
    {"bytes_behind_a_message", "bytes behind the message in receive 0 have changed",
     [](Court& c, bool broken) {
       const auto send = c.send(24);
       const auto receive = c.post_receive();
       receive.receive.buffer.bytes()[24] = broken ? kScribble : kBlank;
       c.receiver_polls(c.arrival_of(send, receive));
       c.end(send);
     }},
    {"bytes_of_a_receive_for_immediate_data", "was written without a message",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate();
       c.place(write);
       const auto receive = c.post_receive();
       receive.receive.buffer.bytes()[0] = broken ? kScribble : kBlank;
       c.receiver_polls(c.arrival_of(write, receive));
       c.end(write);
     }},
    {"bytes_of_a_receive_that_was_flushed", "was written without a message",
     [](Court& c, bool broken) {
       const auto receive = c.post_receive();
       receive.receive.buffer.bytes()[0] = broken ? kScribble : kBlank;
       c.history.flushed(c.now, kReceiver, kSolicited, kReceiver);
       c.receiver_polls(c.failure_of(receive));
     }},
    {"a_receive_is_flushed_by_closing", "receive 0 completes with flushed, which nothing explains",
     [](Court& c, bool broken) {
       const auto receive = c.post_receive();
       c.history.flushed(c.now, kReceiver, kSolicited, broken ? kSender : kReceiver);
       c.receiver_polls(c.failure_of(receive));
     }},
    {"a_receive_only_flushes", "receive 0 completes with bad_key, which nothing explains",
     [](Court& c, bool broken) {
       const auto receive = c.post_receive();
       c.history.flushed(c.now, kReceiver, kSolicited, kReceiver);
       c.receiver_polls(c.failure_of(receive, broken ? Status::bad_key : Status::flushed));
     }},
    {"a_receive_that_has_ended", "the memory of a receive was written after its completion",
     [](Court& c, bool broken) {
       const auto send = c.send();
       const auto receive = c.post_receive();
       c.receiver_polls(c.arrival_of(send, receive));
       c.end(send);
       receive.receive.buffer.bytes()[0] = broken ? kBlank : kScribble;
     }},
};
INSTANTIATE_TEST_SUITE_P(Receives, JudgeRules, ::testing::ValuesIn(kReceives),
                         [](const auto& rule) { return std::string{rule.param.name}; });

// --- What arrives

// The completion of a message says something else than what was sent.
template <auto lie, std::uint8_t endpoint = kSolicited>
void message_story(Court& c, bool broken) {
  const auto send =
      c.post({.act = Act::send, .peer_endpoint = endpoint, .immediate = true, .length = 24});
  const auto receive = c.post_receive(endpoint);
  Completion arrival = c.arrival_of(send, receive);
  if (broken) {
    lie(arrival, receive.receive.buffer.bytes());
  }
  c.receiver_polls(arrival);
  c.end(send);
}

// The same of immediate data, at the endpoint where it takes no receive: nothing but the completion
// tells of it.
template <auto lie>
void immediate_story(Court& c, bool broken) {
  const auto write = c.write_with_immediate(kUnsolicited);
  c.place(write);
  Completion arrival = c.unsolicited_arrival_of(write);
  if (broken) {
    lie(arrival);
  }
  c.receiver_polls(arrival);
  c.end(write);
}

using Bytes = std::span<std::byte>;

// The judge is told who has sent a message beside its completion, which request it was by the first
// bytes or the immediate data, and of which life the sender is by the history. A broken story gives
// one of these, or a field of the completion, a wrong value.
constexpr JudgeRule kArrivals[] = {
    {"a_message_of_a_host", "a message of nobody's has arrived",
     [](Court& c, bool broken) {
       const auto send = c.send();
       c.receiver_polls(c.arrival_of(send, c.post_receive()),
                        broken ? VirtualNetwork::kNobody : kSender);
       c.end(send);
     }},
    {"immediate_data_of_a_host", "a message of nobody's has arrived",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(kUnsolicited);
       c.place(write);
       c.receiver_polls(c.unsolicited_arrival_of(write),
                        broken ? VirtualNetwork::kNobody : kSender);
       c.end(write);
     }},
    {"no_more_short_messages", "more short messages have arrived than were sent",
     [](Court& c, bool broken) {
       // Three bytes have no room for a message's number: such messages can only be counted.
       const auto send = c.send(3);
       c.deliver(send);
       if (broken) {
         c.deliver(send);
       }
       c.end(send);
     }},
    {"no_fewer_short_messages", "fewer short messages have arrived than completed well",
     [](Court& c, bool broken) {
       const auto send = c.send(3);
       if (!broken) {
         c.deliver(send);
       }
       c.end(send);
     }},
    {"a_message_that_was_sent", "a message that nobody sent to it",
     message_story<[](Completion&, Bytes bytes) { bytes[0] = std::byte{99}; }>},
    {"a_message_and_no_write", "a message that nobody sent to it",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       const auto send = c.send();
       if (broken) {
         std::memcpy(send.request.buffer.bytes().data(), &write.number, sizeof write.number);
       }
       c.deliver(send);
       c.end(write);
       c.end(send);
     }},
    {"a_message_of_this_sender", "a message that nobody sent to it",
     [](Court& c, bool broken) {
       const auto send = c.send();
       c.receiver_polls(c.arrival_of(send, c.post_receive()), broken ? kReceiver : kSender);
       c.end(send);
     }},
    {"the_length_of_a_message", "a message that nobody sent to it",
     [](Court& c, bool broken) {
       const auto send = c.send();
       const auto receive = c.post_receive();
       Completion arrival = c.arrival_of(send, receive);
       if (broken) {
         --arrival.length;
         receive.receive.buffer.bytes()[arrival.length] = kBlank;
       }
       c.receiver_polls(arrival);
       c.end(send);
     }},
    {"the_endpoint_that_sent_a_message", "was delivered to the wrong endpoint",
     message_story<[](Completion& c, Bytes) { c.remote = srd::Qpn{0x101}; }>},
    {"the_endpoint_that_gets_a_message", "was delivered to the wrong endpoint",
     [](Court& c, bool broken) {
       const auto send = c.send();
       const std::uint8_t endpoint = broken ? kUnsolicited : kSolicited;
       Completion arrival = c.arrival_of(send, c.post_receive(endpoint));
       arrival.endpoint = c.plan.hosts[kReceiver].endpoints[endpoint].qpn;
       c.receiver_polls(arrival);
       c.end(send);
     }},
    {"no_message_with_a_flaw", "was delivered to the wrong endpoint",
     [](Court& c, bool broken) {
       const auto send = c.post({.act = Act::send, .flaw = Flaw::bad_qkey, .length = 24});
       if (broken) {
         c.deliver(send);
       }
       c.end(send, Status::bad_qkey);
     }},
    {"the_immediate_data_of_a_message_is_told", "was delivered with wrong immediate data",
     message_story<[](Completion& c, Bytes) { c.has_immediate = false; }>},
    {"the_immediate_data_of_a_message", "was delivered with wrong immediate data",
     message_story<[](Completion& c, Bytes) { ++c.immediate; }>},
    {"the_bytes_of_a_message", "was delivered with wrong bytes",
     message_story<[](Completion&, Bytes bytes) { bytes[23] ^= std::byte{1}; }>},
    {"immediate_data_that_was_sent", "immediate data that nobody sent",
     immediate_story<[](Completion& c) { c.immediate = 99; }>},
    {"immediate_data_is_told", "immediate data that nobody sent",
     immediate_story<[](Completion& c) { c.has_immediate = false; }>},
    {"the_endpoint_that_sent_immediate_data", "came with wrong particulars",
     immediate_story<[](Completion& c) { c.remote = srd::Qpn{0x101}; }>},
    {"the_length_that_immediate_data_tells", "came with wrong particulars",
     immediate_story<[](Completion& c) { --c.length; }>},
    {"the_endpoint_that_gets_immediate_data", "came with wrong particulars",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(broken ? kSolicited : kUnsolicited);
       c.place(write);
       c.receiver_polls(c.unsolicited_arrival_of(write));
       c.end(write);
     }},
    {"no_immediate_data_with_a_flaw", "came with wrong particulars",
     [](Court& c, bool broken) {
       const auto write = c.post({.act = Act::write,
                                  .peer_endpoint = kUnsolicited,
                                  .flaw = Flaw::bad_key,
                                  .immediate = true,
                                  .length = 24});
       if (broken) {
         c.receiver_polls(c.unsolicited_arrival_of(write));
       }
       c.end(write, Status::bad_key);
     }},
    {"immediate_data_after_all_bytes", "its immediate data came before all of its bytes",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(kUnsolicited);
       c.place(write);
       c.place_of(write)[23] ^= broken ? std::byte{1} : std::byte{0};
       c.receiver_polls(c.unsolicited_arrival_of(write));
       c.place(write);
       c.end(write);
     }},
    {"a_message_once", "was delivered twice",
     [](Court& c, bool broken) {
       const auto send = c.send();
       c.deliver(send);
       if (broken) {
         c.deliver(send);
       }
       c.end(send);
     }},
    {"immediate_data_once", "was delivered twice",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(kUnsolicited);
       c.place(write);
       c.receiver_polls(c.unsolicited_arrival_of(write));
       if (broken) {
         c.receiver_polls(c.unsolicited_arrival_of(write));
       }
       c.end(write);
     }},
    {"a_message_in_one_life", "was delivered to two lives of host 1",
     [](Court& c, bool broken) {
       if (broken) {  // what the first life may have taken is not sent to the next
         c.history.heard(c.now, kSender, 0, kReceiver, 0, true);
       }
       const auto send = c.send();
       c.deliver(send);
       c.restart(kReceiver);
       c.deliver(send);
       c.end(send);
     }},
    {"nothing_of_a_former_life", "came from a former life of host 0",
     [](Court& c, bool broken) {
       const auto send = c.send();
       c.judge.orphan(kSender);
       // The judge has freed the memory of the orphaned request, and the late message still brings
       // what was in it.
       send.request.buffer = GuardedBuffer(24);
       paint(send.request.buffer.bytes(), send.request.key);
       std::memcpy(send.request.buffer.bytes().data(), &send.number, sizeof send.number);
       c.restart(kSender);
       c.history.heard(c.now, kReceiver, 0, kSender, broken ? 1 : 0, false);
       c.now += 1us;
       c.deliver(send);
     }},
    {"what_completed_well", "completed well and was never delivered",
     [](Court& c, bool broken) {
       const auto send = c.send();
       if (!broken) {
         c.deliver(send);
       }
       c.end(send);
     }},
    {"immediate_data_that_completed_well", "completed well and was never delivered",
     [](Court& c, bool broken) {
       const auto write = c.write_with_immediate(kUnsolicited);
       c.place(write);
       if (!broken) {
         c.receiver_polls(c.unsolicited_arrival_of(write));
       }
       c.end(write);
     }},
};
INSTANTIATE_TEST_SUITE_P(Arrivals, JudgeRules, ::testing::ValuesIn(kArrivals),
                         [](const auto& rule) { return std::string{rule.param.name}; });

}  // namespace
}  // namespace weft::swarm
