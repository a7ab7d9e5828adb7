// Tests of commands with bodies of the wrong size and replies to nowhere, for every command of the
// older form that all drivers have, but get_context.
#include <unistd.h>

#include <new>
#include <tuple>

#include "emu/kernel/uverbs/call.hpp"
#include "tests/unit/emu/kernel/raw_client.hpp"

namespace weft::kernel {
namespace {

using abi::Command;

struct Shape {
  const char* name;
  Command command;
  std::size_t body;         // with the response address
  std::size_t reply_words;  // 0: there is none
};

// Written down from the interface, not taken from the implementation.
constexpr Shape kShapes[] = {
    {"QueryDevice", Command::query_device, 8, 44},
    {"QueryPort", Command::query_port, 16, 10},
    {"AllocPd", Command::alloc_pd, 8, 1},
    {"DeallocPd", Command::dealloc_pd, 4, 0},
    {"CreateAh", Command::create_ah, 56, 1},
    {"DestroyAh", Command::destroy_ah, 4, 0},
    {"RegMr", Command::reg_mr, 40, 3},
    {"DeregMr", Command::dereg_mr, 4, 0},
    {"CreateCompChannel", Command::create_comp_channel, 8, 1},
    {"CreateCq", Command::create_cq, 32, 2},
    {"DestroyCq", Command::destroy_cq, 16, 2},
    {"CreateQp", Command::create_qp, 56, 8},
    {"QueryQp", Command::query_qp, 16, 32},
    {"ModifyQp", Command::modify_qp, 112, 0},
    {"DestroyQp", Command::destroy_qp, 16, 1},
};

// Addresses that no reply may be written to.
// Also those that a check of the first byte alone, or of a sum that wraps around, would let
// through.
enum class Nowhere { null, low, in_kernel, beyond_all, unmapped, read_only, across_the_end };
constexpr std::pair<const char*, Nowhere> kNowheres[] = {{"Null", Nowhere::null},
                                                         {"Low", Nowhere::low},
                                                         {"InKernel", Nowhere::in_kernel},
                                                         {"BeyondAll", Nowhere::beyond_all},
                                                         {"Unmapped", Nowhere::unmapped},
                                                         {"ReadOnly", Nowhere::read_only},
                                                         {"AcrossTheEnd", Nowhere::across_the_end}};

// Sizes are changed by so many bytes or words; everything else is as it should be.
struct Case {
  std::string name;
  Shape shape;
  int error;
  std::ptrdiff_t body_change = 0;
  std::ptrdiff_t reply_change = 0;
  std::ptrdiff_t announced_change = 0;
  Nowhere response = Nowhere::null;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Shape& shape : kShapes) {
    const std::string name = shape.name;
    all.push_back({name + "BodyOneWordShort", shape, ENOSPC, -4, 0, 0, Nowhere::null});
    all.push_back({name + "NoBody", shape, ENOSPC, -static_cast<std::ptrdiff_t>(shape.body), 0, 0,
                   Nowhere::null});
    all.push_back({name + "AnnouncedTooLong", shape, EINVAL, 0, 0, 1, Nowhere::null});
    all.push_back({name + "AnnouncedTooShort", shape, EINVAL, 0, 0, -1, Nowhere::null});
    if (shape.reply_words == 0) {
      continue;
    }
    all.push_back({name + "ReplyOneWordShort", shape, ENOSPC, 0, -1, 0, Nowhere::null});
    for (const auto& [where, response] : kNowheres) {
      all.push_back({name + "ReplyTo" + where, shape, EFAULT, 0, 0, 0, response});
    }
  }
  return all;
}

// Two pages: one that may only be read, and one with a hole behind it.
class RefusedCommand : public RawClient, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    open_context();
    constexpr std::size_t kPage = 4096;
    auto* const pages = static_cast<std::byte*>(
        mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_EQ(mprotect(pages, kPage, PROT_READ), 0);
    ASSERT_EQ(munmap(pages + 2 * kPage, kPage), 0);
    read_only = pages;
    hole = pages + 2 * kPage;
  }
  ~RefusedCommand() override { munmap(read_only, 8192); }
  [[nodiscard]] std::uint64_t address(Nowhere where) const {
    switch (where) {
      case Nowhere::null:
        return 0;
      case Nowhere::low:
        return 0x18;
      case Nowhere::in_kernel:
        return 0xFFFF880000000000;
      case Nowhere::beyond_all:
        return ~std::uint64_t{0} - 3;
      case Nowhere::unmapped:
        return reinterpret_cast<std::uint64_t>(hole);
      case Nowhere::read_only:
        return reinterpret_cast<std::uint64_t>(read_only);
      case Nowhere::across_the_end:
        return reinterpret_cast<std::uint64_t>(hole) - 2;
    }
    return 0;
  }
  std::byte* read_only = nullptr;
  std::byte* hole = nullptr;
};

TEST_P(RefusedCommand, IsRefusedAndLeavesTheDeviceWell) {
  const Case& test = GetParam();
  const auto plus = [](std::size_t value, std::ptrdiff_t change) {
    return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(value) + change);
  };
  std::vector<std::byte> body(plus(test.shape.body, test.body_change));
  if (test.shape.reply_words > 0 && body.size() >= 8) {
    const std::uint64_t response = address(test.response);
    std::memcpy(body.data(), &response, sizeof response);
  }
  const abi::CommandHeader header{
      static_cast<std::uint32_t>(test.shape.command),
      static_cast<std::uint16_t>(plus((body.size() + 8) / 4, test.announced_change)),
      static_cast<std::uint16_t>(plus(test.shape.reply_words, test.reply_change))};
  EXPECT_EQ(write(join(header, body)), test.error);
  // Nothing was made that would now be in the way.
  const std::uint32_t pd = alloc_pd();
  EXPECT_EQ(destroy(Command::dealloc_pd, pd), 0);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedCommand, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

// --- Handles that name nothing, something gone, or something else.

struct HandleCase {
  const char* name;
  Command command;
  int kind;  // which of the fixture's objects is the right one
};
// Those five commands that destroy something, each given each kind of handle: of the right kind, of
// the four others, and of the three kinds of none.
constexpr HandleCase kUsers[] = {
    {"DeallocPd", Command::dealloc_pd, 0}, {"DeregMr", Command::dereg_mr, 1},
    {"DestroyAh", Command::destroy_ah, 2}, {"DestroyCq", Command::destroy_cq, 3},
    {"DestroyQp", Command::destroy_qp, 4},
};

class WrongHandle : public RawClient,
                    public ::testing::WithParamInterface<std::tuple<HandleCase, int>> {};

TEST_P(WrongHandle, IsRefused) {
  const auto& [user, given] = GetParam();
  open_context();
  static std::array<std::byte, 4096> memory;
  std::array<std::uint32_t, 5> handles{};
  handles[0] = alloc_pd();
  std::array<std::uint32_t, 3> keys{};
  ASSERT_EQ(reg_mr(handles[0], memory.data(), memory.size(), 1, keys), 0);
  handles[1] = keys[0];
  std::uint16_t ah = 0;
  ASSERT_EQ(create_ah(handles[0], gid_of(*srd::parse_address("10.1.2.3")), ah), 0);
  // Address handles have numbers of their own; as a handle of the file this is the third object.
  handles[2] = 2;
  CqHandle cq;
  ASSERT_EQ(create_cq(cq_request(16), cq_words(), cq), 0);
  handles[3] = cq.handle;
  QpHandle qp;
  ASSERT_EQ(create_qp(qp_request(handles[0], cq.handle), qp_words(), qp), 0);
  handles[4] = qp.core.handle;
  constexpr int kNever = 5;
  constexpr int kHuge = 6;
  constexpr int kGone = 7;
  if (given == kNever) {
    EXPECT_EQ(destroy(user.command, 1000), ENOENT);
  } else if (given == kHuge) {
    EXPECT_EQ(destroy(user.command, ~0U), ENOENT);
  } else if (given == kGone) {
    for (const int index : {4, 3, 2, 1, 0}) {
      const Command commands[] = {Command::dealloc_pd, Command::dereg_mr, Command::destroy_ah,
                                  Command::destroy_cq, Command::destroy_qp};
      ASSERT_EQ(destroy(commands[index], handles[static_cast<std::size_t>(index)]), 0) << index;
    }
    EXPECT_EQ(destroy(user.command, handles[static_cast<std::size_t>(user.kind)]), ENOENT);
  } else if (given == user.kind) {
    // The domain and the completion queue, by the queue pair.
    const bool in_use = given == 0 || given == 3;
    EXPECT_EQ(destroy(user.command, handles[static_cast<std::size_t>(given)]), in_use ? EBUSY : 0);
  } else {
    EXPECT_EQ(destroy(user.command, handles[static_cast<std::size_t>(given)]), EINVAL);
  }
}

std::string name_of(const ::testing::TestParamInfo<WrongHandle::ParamType>& test) {
  constexpr std::array kGiven = {"Pd", "Mr", "Ah", "Cq", "Qp", "Never", "Huge", "Gone"};
  return std::string(std::get<0>(test.param).name) + "With" +
         kGiven.at(static_cast<std::size_t>(std::get<1>(test.param)));
}

INSTANTIATE_TEST_SUITE_P(All, WrongHandle,
                         ::testing::Combine(::testing::ValuesIn(kUsers), ::testing::Range(0, 8)),
                         name_of);

// A program may limit its memory, and ask for more.
TEST(RefusedCommands, WhatFindsNoMemoryIsTheCallersError) {
  EXPECT_EQ(error_of([]() -> Outcome<void> { throw std::bad_alloc(); }), ENOMEM);
  EXPECT_EQ(error_of([] { return Outcome<void>{}; }), 0);
}

}  // namespace
}  // namespace weft::kernel
