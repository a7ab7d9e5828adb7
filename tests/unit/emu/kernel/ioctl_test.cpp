// Tests of ioctl methods: what they answer, and how malformed calls are refused.
//
// Objects and methods have their numbers here, as in the header that libraries are compiled with,
// so that a wrong number in ours does not agree with itself. Call(0, ...) is the device (2 its
// port, 5 and 6 its GIDs, 7 its speed, 8 what its counters can), Call(4, 2) gives a queue pair a
// counter, Call(7, ...) is a region, Call(19, 0 ... 3) makes, destroys, changes and reads a
// counter.
#include "tests/unit/emu/kernel/raw_client.hpp"

namespace weft::kernel {
namespace {

using abi::BufferDescriptor;
using abi::IoctlAttribute;
using abi::IoctlHeader;

Abilities counting_nic() {
  Abilities nic = test_abilities();
  nic.completion_counters = true;
  return nic;
}

// A call under construction; good unless a case spoils it.
struct Call {
  IoctlHeader header{};
  std::vector<IoctlAttribute> attributes;
  std::vector<std::byte> bytes;

  Call(std::uint16_t object, std::uint16_t method) {
    header.object_id = object;
    header.method_id = method;
    // EFA's number among the drivers of Linux; rxe's is 14.
    header.driver_id = 17;
  }
  template <class T>
  Call& in(std::uint16_t id, const T& value) {
    IoctlAttribute attribute{id, sizeof value, 1, 0, 0};
    if constexpr (sizeof value <= 8) {
      std::memcpy(&attribute.value, &value, sizeof value);
    } else {
      attribute.value = reinterpret_cast<std::uint64_t>(&value);
    }
    attributes.push_back(attribute);
    return *this;
  }
  template <class T>
  Call& out(std::uint16_t id, T& value) {
    attributes.push_back({id, sizeof value, 1, 0, reinterpret_cast<std::uint64_t>(&value)});
    return *this;
  }
  Call& object(std::uint16_t id, std::uint64_t handle) {
    attributes.push_back({id, 0, 1, 0, handle});
    return *this;
  }
};

// Lays a call out as the library does (a header, then the attributes), unless the test has set a
// length or a count of its own.
class PlainIoctl : public RawClient {
 protected:
  explicit PlainIoctl(const Abilities& abilities = test_abilities()) : RawClient(abilities) {}
  int run(Call& call) {
    const bool length_given = call.header.length != 0;
    call.header.attributes = static_cast<std::uint16_t>(
        call.header.attributes != 0 ? call.header.attributes : call.attributes.size());
    if (!length_given) {
      call.header.length = static_cast<std::uint16_t>(
          sizeof(IoctlHeader) + call.header.attributes * sizeof(IoctlAttribute));
    }
    call.bytes.resize(sizeof(IoctlHeader) + call.attributes.size() * sizeof(IoctlAttribute));
    std::memcpy(call.bytes.data(), &call.header, sizeof(IoctlHeader));
    if (!call.attributes.empty()) {
      std::memcpy(call.bytes.data() + sizeof(IoctlHeader), call.attributes.data(),
                  call.attributes.size() * sizeof(IoctlAttribute));
    }
    const int result = file.ioctl(abi::kIoctl, reinterpret_cast<std::uint64_t>(call.bytes.data()));
    if (!call.attributes.empty()) {
      std::memcpy(call.attributes.data(), call.bytes.data() + sizeof(IoctlHeader),
                  call.attributes.size() * sizeof(IoctlAttribute));
    }
    return -result;
  }
};

// With one object of each kind that a method may be given.
class Ioctl : public PlainIoctl {
 protected:
  Ioctl() : PlainIoctl(counting_nic()) {}
  void SetUp() override {
    open_context();
    pd = alloc_pd();
    ASSERT_EQ(create_cq(cq_request(16), cq_words(), cq), 0);
    ASSERT_EQ(create_qp(qp_request(pd, cq.handle), qp_words(), qp), 0);
    std::array<std::uint32_t, 3> keys{};
    ASSERT_EQ(reg_mr(pd, numbers.data(), sizeof numbers, 1, keys), 0);
    mr = keys[0];
  }
  int create_counter(std::uint32_t& handle) {
    const BufferDescriptor good{1, 0, 0, 0, reinterpret_cast<std::uint64_t>(&numbers[0]), 8};
    const BufferDescriptor bad{1, 0, 0, 0, reinterpret_cast<std::uint64_t>(&numbers[1]), 8};
    Call call = Call(19, 0).object(0, 0).in(0x1000, good).in(0x1001, bad);
    const int error = run(call);
    handle = static_cast<std::uint32_t>(call.attributes[0].value);
    return error;
  }
  alignas(8) std::array<std::uint64_t, 4> numbers{};
  std::uint32_t pd = 0;
  std::uint32_t mr = 0;
  CqHandle cq;
  QpHandle qp;
};

// State 4 is active; the speed is in 100 Mb/s.
TEST_F(Ioctl, TellsAboutThePort) {
  abi::QueryPortExtended port{};
  Call call = Call(0, 2).in(0, std::uint8_t{1}).out(1, port);
  ASSERT_EQ(run(call), 0);
  EXPECT_EQ(port.base.state, 4);
  EXPECT_EQ(port.base.max_msg_sz, 8928U);
  EXPECT_EQ(call.attributes[1].flags, 3);  // there is output
  std::uint64_t speed = 0;
  Call speed_call = Call(0, 7).in(0, std::uint32_t{1}).out(1, speed);
  ASSERT_EQ(run(speed_call), 0);
  EXPECT_EQ(speed, 1000U);
}

// The library says for which driver it was written. Another driver's methods have the same numbers,
// and other meanings.
TEST_F(Ioctl, OfAnotherDriverIsRefused) {
  std::uint64_t speed = 0;
  Call call = Call(0, 7).in(0, std::uint32_t{1}).out(1, speed);
  call.header.driver_id = 14;
  EXPECT_EQ(run(call), EINVAL);
  Call unknown(0, 999);
  unknown.header.driver_id = 0;
  EXPECT_EQ(run(unknown), EINVAL);
}

// A method of EFA's own (0x1000): which interconnect a region uses. An emulated NIC has none to
// tell.
TEST_F(Ioctl, KnowsNoInterconnectOfARegion) {
  std::array<std::uint16_t, 4> answers{9, 9, 9, 9};
  Call call = Call(7, 0x1000)
                  .object(0x1000, mr)
                  .out(0x1001, answers[0])
                  .out(0x1002, answers[1])
                  .out(0x1003, answers[2])
                  .out(0x1004, answers[3]);
  ASSERT_EQ(run(call), 0);
  EXPECT_EQ(answers[0], 0);
}

// A counter is two words in the program's memory, for completions that went well and that failed.
// It cannot be destroyed while a queue pair counts with it.
TEST_F(Ioctl, CountersCountWhatCompletes) {
  std::uint32_t most = 0;
  std::uint32_t operations = 0;
  std::uint64_t largest = 0;
  Call capabilities = Call(0, 8).out(0, most).out(1, largest).out(2, operations);
  ASSERT_EQ(run(capabilities), 0);
  EXPECT_EQ(most, 512U);
  EXPECT_EQ(largest, 2147483647U);
  // Bits of what a counter can do, as EFA's driver tells them.
  EXPECT_EQ(operations, 0x17U);
  std::uint32_t counter = 0;
  ASSERT_EQ(create_counter(counter), 0);
  Call attach = Call(4, 2).object(0, qp.core.handle).object(1, counter).in(2, std::uint32_t{1});
  ASSERT_EQ(run(attach), 0);
  Call destroy_early = Call(19, 1).object(0, counter);
  EXPECT_EQ(run(destroy_early), EBUSY);

  to_rts(qp);
  std::byte* const sq = map(qp.own.sq_key, 8 * 64, PROT_WRITE);
  std::byte* const doorbell = map(qp.own.sq_doorbell_key, 4096, PROT_WRITE);
  efa::WqeHead wqe{};
  wqe.ctrl1 = 0x80;
  wqe.ctrl2 = 0x1C;
  // The cheapest completion: no packet leaves for an address handle that is not there.
  wqe.ah = 0x7777;  // fails
  std::memcpy(sq, &wqe, sizeof wqe);
  ring(doorbell, 1);
  EXPECT_EQ(numbers[0], 0U);
  EXPECT_EQ(numbers[1], 1U);

  Call set = Call(19, 2)
                 .object(0, counter)
                 .in(1, std::uint8_t{0})
                 .in(2, std::uint8_t{0})
                 .in(3, std::uint64_t{40});
  ASSERT_EQ(run(set), 0);
  Call add = Call(19, 2)
                 .object(0, counter)
                 .in(1, std::uint8_t{0})
                 .in(2, std::uint8_t{1})
                 .in(3, std::uint64_t{2});
  ASSERT_EQ(run(add), 0);
  std::uint64_t value = 0;
  Call read = Call(19, 3).object(0, counter).in(1, std::uint8_t{0}).out(2, value);
  ASSERT_EQ(run(read), 0);
  // Set to 40, and 2 added: the two kinds of change.
  EXPECT_EQ(value, 42U);
  ASSERT_EQ(destroy(abi::Command::destroy_qp, qp.core.handle), 0);
  Call destroy_late = Call(19, 1).object(0, counter);
  EXPECT_EQ(run(destroy_late), 0);
}

// EINVAL where the question makes no sense yet, an answer of none, and EOPNOTSUPP for making one
// all the same.
TEST_F(PlainIoctl, ADeviceWithoutCountersSaysSo) {
  std::uint32_t most = 0;
  std::uint64_t places[2] = {};
  const BufferDescriptor first{1, 0, 0, 0, reinterpret_cast<std::uint64_t>(&places[0]), 8};
  const BufferDescriptor second{1, 0, 0, 0, reinterpret_cast<std::uint64_t>(&places[1]), 8};
  Call capabilities = Call(0, 8).out(0, most);
  Call create = Call(19, 0).object(0, 0).in(0x1000, first).in(0x1001, second);
  EXPECT_EQ(run(capabilities), EINVAL);  // no context yet
  open_context();
  most = 99;
  EXPECT_EQ(run(capabilities), 0);
  EXPECT_EQ(most, 0U);
  EXPECT_EQ(run(create), EOPNOTSUPP);
}

// Programs ask whether these are there, and take other ways if the answer is this one.
// To register a dma-buf, to query a context, to register device memory, to give advice on a region.
TEST_F(PlainIoctl, WhatKernelsKnowAndDevicesLackIsNotSupported) {
  open_context();
  const std::uint32_t pd = alloc_pd();
  std::uint32_t number = 0;
  Call dmabuf = Call(7, 4)
                    .object(0, 0)
                    .object(1, pd)
                    .in(2, std::uint64_t{0})
                    .in(3, std::uint64_t{4096})
                    .in(4, std::uint64_t{0})
                    .in(5, std::uint32_t{0})
                    .in(6, std::uint32_t{1})
                    .out(7, number)
                    .out(8, number);
  EXPECT_EQ(run(dmabuf), EOPNOTSUPP);
  for (const auto& [object, method] : {std::pair{0, 4}, std::pair{7, 0}, std::pair{7, 2}}) {
    Call call(static_cast<std::uint16_t>(object), static_cast<std::uint16_t>(method));
    EXPECT_EQ(run(call), EOPNOTSUPP) << object << ' ' << method;
  }
}

// The entry has grown with the versions of the library, which says how long its own is: a shorter
// one is filled as far as it goes, and what a longer one has more is zero.
TEST_F(PlainIoctl, TheGidIsInTheTable) {
  open_context();
  const srd::Address gid = gid_of(*srd::parse_address(kTestAddress));
  abi::GidEntry entry{};
  Call one = Call(0, 6).in(0, 1U).in(1, 0U).in(2, 0U).out(3, entry);
  ASSERT_EQ(run(one), 0);
  EXPECT_EQ(entry.gid, gid.bytes);
  EXPECT_EQ(entry.port, 1U);
  EXPECT_EQ(entry.index, 0U);

  std::uint64_t count = 0;
  std::array<abi::GidEntry, 2> table{};
  Call all = Call(0, 5).in(0, std::uint64_t{sizeof entry}).in(1, 0U).out(2, table).out(3, count);
  ASSERT_EQ(run(all), 0);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(table[0].gid, gid.bytes);
  EXPECT_EQ(table[1].port, 0U);
  // Entries of a library that knows less, and of one that knows more.
  std::array<std::byte, 16> shorter{};
  Call less = Call(0, 5).in(0, std::uint64_t{16}).in(1, 0U).out(2, shorter).out(3, count);
  ASSERT_EQ(run(less), 0);
  EXPECT_EQ(shorter, gid.bytes);
  std::array<std::byte, 40> longer;
  longer.fill(std::byte{7});
  Call more = Call(0, 5).in(0, std::uint64_t{40}).in(1, 0U).out(2, longer).out(3, count);
  ASSERT_EQ(run(more), 0);
  EXPECT_EQ(longer[39], std::byte{0});

  for (const auto& [port, index, flags] : {std::array{0U, 0U, 0U}, std::array{2U, 0U, 0U},
                                           std::array{1U, 1U, 0U}, std::array{1U, 0U, 1U}}) {
    Call wrong = Call(0, 6).in(0, port).in(1, index).in(2, flags).out(3, entry);
    EXPECT_EQ(run(wrong), EINVAL);
  }
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{65}, ~std::uint64_t{0}}) {
    Call wrong = Call(0, 5).in(0, size).in(1, 0U).out(2, table).out(3, count);
    EXPECT_EQ(run(wrong), EINVAL) << size;
  }
}

// --- Malformed and wrong calls.

std::uint64_t scratch[8];

// Each row spoils a good call in one way. Unknown attributes are refused only where the library
// says that they are mandatory, and input that is longer than we know must be zero there: so newer
// libraries work, and are told when they ask for more.
struct BadCall {
  const char* name;
  int error;
  // Gets a good QUERY_PORT; `mr` and `qp` are handles.
  void (*spoil)(Call& call, std::uint32_t mr, std::uint32_t qp);
};
class BadIoctl : public Ioctl, public ::testing::WithParamInterface<BadCall> {};

TEST_P(BadIoctl, IsRefused) {
  static abi::QueryPortExtended port;
  Call call = Call(0, 2).in(0, std::uint8_t{1}).out(1, port);
  GetParam().spoil(call, mr, qp.core.handle);
  EXPECT_EQ(run(call), GetParam().error);
}

using Handle = std::uint32_t;
constexpr std::uint64_t kNowhere = 0x10;
const BufferDescriptor kGoodBuffer{1, 0, 0, 0, reinterpret_cast<std::uint64_t>(&scratch[0]), 8};
const BufferDescriptor kDmaBuffer{0, 3, 0, 0, 0, 8};
const BufferDescriptor kShortBuffer{1, 0, 0, 0, reinterpret_cast<std::uint64_t>(&scratch[0]), 4};
const BufferDescriptor kOddBuffer{1, 0, 0, 0, reinterpret_cast<std::uint64_t>(&scratch[0]) + 1, 8};
const BufferDescriptor kWildBuffer{1, 0, 0, 0, kNowhere & ~7ULL, 8};
const BufferDescriptor kFlaggedBuffer{1, 0, 1, 0, reinterpret_cast<std::uint64_t>(&scratch[0]), 8};

INSTANTIATE_TEST_SUITE_P(All, BadIoctl,
                         ::testing::Values(BadCall{"Good", 0, [](Call&, Handle, Handle) {}},
                                           BadCall{"LengthTooSmall", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.length = 24;
                                                   }},
                                           BadCall{"LengthTooLarge", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.length = 72;
                                                   }},
                                           BadCall{"LengthOdd", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.length = 55;
                                                   }},
                                           BadCall{"TooManyAttributes", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.attributes = 65;
                                                   }},
                                           BadCall{"Reserved", EPROTONOSUPPORT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.reserved = 1;
                                                   }},
                                           BadCall{"Reserved2", EPROTONOSUPPORT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.reserved2 = 1;
                                                   }},
                                           BadCall{"UnknownObject", EPROTONOSUPPORT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.object_id = 99;
                                                   }},
                                           BadCall{"UnknownMethod", EPROTONOSUPPORT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.method_id = 99;
                                                   }},
                                           BadCall{"InvokeWrite", EPROTONOSUPPORT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.method_id = 0;
                                                   }},
                                           BadCall{"GetContext", EPROTONOSUPPORT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.header.method_id = 3;
                                                   }},
                                           BadCall{"SameTwice", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes.push_back(c.attributes[0]);
                                                   }},
                                           BadCall{"UnknownMandatory", EPROTONOSUPPORT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes.push_back({77, 0, 1, 0, 0});
                                                   }},
                                           BadCall{"UnknownOptional", 0,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes.push_back({77, 0, 0, 0, 0});
                                                   }},
                                           BadCall{"UnknownFlags", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[0].flags = 0x80;
                                                   }},
                                           BadCall{"AttributeReserved", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[0].reserved = 1;
                                                   }},
                                           BadCall{"MissingInput", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes.erase(c.attributes.begin());
                                                   }},
                                           BadCall{
                                               "MissingOutput", EINVAL,
                                               [](Call& c, Handle, Handle) {
                                                 c.attributes.pop_back();
                                               }},
                                           BadCall{
                                               "InputTooShort", EINVAL,
                                               [](Call& c, Handle, Handle) {
                                                 c.attributes[0].length = 0;
                                               }},
                                           BadCall{"InputOfANewerLibrary", 0,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[0].length = 8;
                                                   }},
                                           BadCall{"InputThatSaysMore", EOPNOTSUPP,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[0].length = 8;
                                                     c.attributes[0].value = 0x101;
                                                   }},
                                           BadCall{"InputTooLong", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[0].length = 5000;
                                                   }},
                                           BadCall{"InputNowhere", EFAULT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[0].length = 16;
                                                     c.attributes[0].value = kNowhere;
                                                   }},
                                           BadCall{"OutputTooShort", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[1].length = 3;
                                                   }},
                                           BadCall{"OutputNowhere", EFAULT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[1].value = kNowhere;
                                                   }},
                                           BadCall{"OutputInTheKernel", EFAULT,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[1].value = ~0ULL << 47;
                                                   }},
                                           BadCall{"NoSuchPort", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c.attributes[0].value = 2;
                                                   }},
                                           BadCall{"SpeedOfNoPort", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(0, 7)
                                                             .in(0, std::uint32_t{257})
                                                             .out(1, scratch[0]);
                                                   }},
                                           BadCall{"NoSuchRegion", ENOENT,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(7, 0x1000)
                                                             .object(0x1000, 9999)
                                                             .out(0x1001, scratch[0])
                                                             .out(0x1002, scratch[1])
                                                             .out(0x1003, scratch[2])
                                                             .out(0x1004, scratch[3]);
                                                   }},
                                           BadCall{"RegionIsAQueuePair", ENOENT,
                                                   [](Call& c, Handle, Handle qp) {
                                                     c = Call(7, 0x1000)
                                                             .object(0x1000, qp)
                                                             .out(0x1001, scratch[0])
                                                             .out(0x1002, scratch[1])
                                                             .out(0x1003, scratch[2])
                                                             .out(0x1004, scratch[3]);
                                                   }},
                                           BadCall{"HandleTooWide", EINVAL,
                                                   [](Call& c, Handle mr, Handle) {
                                                     c = Call(7, 0x1000)
                                                             .object(0x1000, mr | 1ULL << 32)
                                                             .out(0x1001, scratch[0])
                                                             .out(0x1002, scratch[1])
                                                             .out(0x1003, scratch[2])
                                                             .out(0x1004, scratch[3]);
                                                   }},
                                           BadCall{"CounterWithoutBuffers", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(19, 0).object(0, 0);
                                                   }},
                                           BadCall{"CounterInForeignMemory", EOPNOTSUPP,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(19, 0)
                                                             .object(0, 0)
                                                             .in(0x1000, kDmaBuffer)
                                                             .in(0x1001, kGoodBuffer);
                                                   }},
                                           BadCall{"CounterTooShort", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(19, 0)
                                                             .object(0, 0)
                                                             .in(0x1000, kGoodBuffer)
                                                             .in(0x1001, kShortBuffer);
                                                   }},
                                           BadCall{"CounterNotAligned", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(19, 0)
                                                             .object(0, 0)
                                                             .in(0x1000, kOddBuffer)
                                                             .in(0x1001, kGoodBuffer);
                                                   }},
                                           BadCall{"CounterNowhere", EFAULT,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(19, 0)
                                                             .object(0, 0)
                                                             .in(0x1000, kWildBuffer)
                                                             .in(0x1001, kGoodBuffer);
                                                   }},
                                           BadCall{"CounterWithFlags", EINVAL,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(19, 0)
                                                             .object(0, 0)
                                                             .in(0x1000, kFlaggedBuffer)
                                                             .in(0x1001, kGoodBuffer);
                                                   }},
                                           BadCall{"DestroyNoCounter", ENOENT,
                                                   [](Call& c, Handle, Handle) {
                                                     c = Call(19, 1).object(0, 4711);
                                                   }},
                                           BadCall{"ReadNoCounter", ENOENT,
                                                   [](Call& c, Handle mr, Handle) {
                                                     c = Call(19, 3)
                                                             .object(0, mr)
                                                             .in(1, std::uint8_t{0})
                                                             .out(2, scratch[0]);
                                                   }},
                                           BadCall{"ModifyNoCounter", ENOENT,
                                                   [](Call& c, Handle, Handle qp) {
                                                     c = Call(19, 2)
                                                             .object(0, qp)
                                                             .in(1, std::uint8_t{0})
                                                             .in(2, std::uint8_t{0})
                                                             .in(3, std::uint64_t{0});
                                                   }},
                                           BadCall{"AttachNoCounter", ENOENT,
                                                   [](Call& c, Handle mr, Handle qp) {
                                                     c = Call(4, 2).object(0, qp).object(1, mr).in(
                                                         2, std::uint32_t{1});
                                                   }},
                                           BadCall{"AttachToNoQueuePair", ENOENT,
                                                   [](Call& c, Handle mr, Handle) {
                                                     c = Call(4, 2).object(0, mr).object(1, mr).in(
                                                         2, std::uint32_t{1});
                                                   }}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::kernel
