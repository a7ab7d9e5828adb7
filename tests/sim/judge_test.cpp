// Owns the proof that each rule of the swarm's judge fires. A story is told twice, by hand and
// without an engine that would have to break: as it should be, which the judge lets pass, and with
// the one thing wrong that the rule is about. Here: the ends of requests, and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/judge_court.hpp"

namespace weft::swarm {
std::string JudgeRules::verdict_on(bool broken) {
  Court court(GetParam().plan());
  GetParam().story(court, broken);
  court.judge.check_at_the_end();
  return court.judge.verdict();
}

namespace {

TEST_P(JudgeRules, FiresWhereItIsBroken) {
  EXPECT_THAT(verdict_on(true), ::testing::HasSubstr(GetParam().verdict));
}

TEST_P(JudgeRules, IsSilentWhereItIsKept) { EXPECT_THAT(verdict_on(false), ::testing::IsEmpty()); }

// --- The end of a request

constexpr JudgeRule kEnds[] = {
    {"a_request_that_was_made", "a request it never made",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       Completion end = c.end_of(write);
       end.cookie += broken ? 1 : 0;
       c.sender_polls(end);
     }},
    {"a_request_of_this_host", "host 1 has a completion for a request it never made",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       c.judge.completed(c.now, broken ? kReceiver : kSender, c.end_of(write), 0);
     }},
    {"once", "completes a second time",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       c.end(write);
       if (broken) {
         c.end(write);
       }
     }},
    {"not_after_its_process", "completes a second time",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.judge.orphan(kSender);
       if (broken) {
         c.end(write);
       }
     }},
    {"as_its_kind", "completes as something else",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       Completion end = c.end_of(write);
       end.kind = broken ? Kind::read : end.kind;
       c.sender_polls(end);
     }},
    {"at_its_endpoint", "completes as something else",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       Completion end = c.end_of(write);
       end.endpoint = broken ? srd::Qpn{0x101} : end.endpoint;
       c.sender_polls(end);
     }},
    {"at_all", "has not completed",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       if (!broken) {
         c.end(write);
       }
     }},
};
INSTANTIATE_TEST_SUITE_P(Ends, JudgeRules, ::testing::ValuesIn(kEnds),
                         [](const auto& rule) { return std::string{rule.param.name}; });

// --- Its memory

// All memory holds kBlank from the start, so a story that writes kBlank changes nothing. After a
// completion it is the other way round: the judge has overwritten the buffer with kScribble.
constexpr JudgeRule kMemory[] = {
    {"margins_of_a_request", "bytes around its buffer have changed",
     [](Court& c, bool broken) {
       const auto read = c.read();
       c.bring(read);
       std::byte* const behind = read.request.buffer.bytes().data() + read.request.step.length;
       *behind = broken ? kScribble : kBlank;
       c.end(read);
     }},
    {"source", "its source memory has changed",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       write.request.buffer.bytes()[23] ^= broken ? std::byte{1} : std::byte{0};
       c.end(write);
     }},
    {"number_in_the_source", "its source memory has changed",
     [](Court& c, bool broken) {
       const auto send = c.send();
       c.deliver(send);
       send.request.buffer.bytes()[0] ^= broken ? std::byte{0x80} : std::byte{0};
       c.end(send);
     }},
    {"what_was_written", "its bytes are not all in place",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       c.place_of(write)[23] ^= broken ? std::byte{1} : std::byte{0};
       c.end(write);
     }},
    {"what_was_read", "the read brought wrong bytes",
     [](Court& c, bool broken) {
       const auto read = c.read();
       c.bring(read);
       read.request.buffer.bytes()[23] ^= broken ? std::byte{1} : std::byte{0};
       c.end(read);
     }},
    {"what_was_read_in_part", "the read brought wrong bytes",
     [](Court& c, bool broken) {
       const auto read = c.read();
       c.bring(read);
       read.request.buffer.bytes()[23] = broken ? kScribble : kBlank;
       c.history.flushed(c.now, kSender, kSolicited, kReceiver);
       c.end(read, Status::flushed);
     }},
    {"a_request_that_has_ended", "its memory was written after its completion",
     [](Court& c, bool broken) {
       c.history.flushed(c.now, kSender, kSolicited, kReceiver);
       c.end(c.write(), Status::flushed);  // the first one's memory is freed
       const auto write = c.write();
       c.end(write, Status::flushed);
       write.request.buffer.bytes()[0] = broken ? kBlank : kScribble;
     }},
    {"margins_of_a_region", "written outside",
     [](Court& c, bool broken) {
       auto& region = c.process(kReceiver).region(RegionKind::writable);
       *(region.memory.bytes().data() - 1) = broken ? kScribble : kBlank;
     }},
    {"a_region_that_nobody_writes", "holds bytes that nobody may have written",
     [](Court& c, bool broken) {
       auto& region = c.process(kReceiver).region(RegionKind::local_only);
       region.memory.bytes()[100] = broken ? kScribble : kBlank;
     }},
    {"a_region_that_is_read", "holds bytes that nobody may have written",
     [](Court& c, bool broken) {
       auto& region = c.process(kReceiver).region(RegionKind::readable);
       region.memory.bytes()[100] ^= broken ? std::byte{1} : std::byte{0};
     }},
    {"the_place_of_a_write_that_has_ended", "holds bytes that nobody may have written",
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       c.end(write);
       if (broken) {
         c.place(write);
       }
     }},
    {"a_region_that_was_deregistered", "written after it was deregistered",
     [](Court& c, bool broken) {
       Process& process = c.process(kReceiver);
       Process::Region& region = process.region(RegionKind::replaceable);
       const std::uint64_t offset = region.slots.take(8, 1);  // of a write that was under way
       EXPECT_EQ(process.replace_region(c.world.engine(kReceiver)), "");
       if (broken) {
         paint(region.memory.bytes().subspan(offset, 8), 1);
       }
     }},
    {"the_memory_of_a_former_life", "holds bytes that nobody may have written",
     [](Court& c, bool broken) {
       auto& region = c.process(kReceiver).region(RegionKind::writable);
       c.restart(kReceiver);
       region.memory.bytes()[100] = broken ? kScribble : kBlank;
     }},
};
INSTANTIATE_TEST_SUITE_P(Memory, JudgeRules, ::testing::ValuesIn(kMemory),
                         [](const auto& rule) { return std::string{rule.param.name}; });

TEST(Judge, KeepsItsFirstVerdict) {
  Court court(small_plan());
  court.judge.condemn("first");
  court.judge.condemn("second");
  EXPECT_EQ(court.judge.verdict(), "first");
}

}  // namespace
}  // namespace weft::swarm
