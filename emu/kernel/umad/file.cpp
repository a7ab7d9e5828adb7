// Owns reading and writing datagrams, and the calls that register agents, with Linux's errors in
// Linux's order. Nothing that the program wrote is believed, and a bad pointer changes nothing.
#include "emu/kernel/umad/file.hpp"

#include <algorithm>
#include <boost/endian/conversion.hpp>
#include <cerrno>
#include <cstring>
#include <span>

#include "emu/kernel/user_memory.hpp"
#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/mad_owners.hpp"

namespace weft::kernel {
namespace {

namespace umad = abi::umad;
namespace wire = roce::wire;
namespace endian = boost::endian;

// The first part of every datagram of a class with long messages, and what is looked at of any
// other.
constexpr std::size_t kRmppHeaderBytes = 36;
constexpr std::size_t kTransaction = 8;
constexpr std::size_t kRmppFlags = 26;
constexpr unsigned kRmppActive = 1;

// Where the data of a class begin: behind its own headers, so a shorter datagram is none.
std::size_t data_offset(std::uint8_t management_class) {
  constexpr std::uint8_t kSubnetAdministration = 0x03;
  if (management_class == kSubnetAdministration) {
    return 56;
  }
  return wire::names_vendor(management_class) ? 40
         : may_be_long(management_class)      ? 64
                                              : wire::kMadHeader;
}

template <class T>
bool fetch(T& to, std::uint64_t from) {
  return copy_from_user(std::as_writable_bytes(std::span(&to, 1)), from);
}

}  // namespace

bool may_be_long(std::uint8_t management_class) {
  constexpr std::uint8_t kLong[] = {0x03, 0x06, 0x10, 0x12};
  return wire::names_vendor(management_class) ||
         std::ranges::find(kLong, management_class) != std::end(kLong);
}

UmadFile::~UmadFile() {
  port_.host().exclusively([this](TimePoint /*now*/) {
    for (const Agent& agent : agents_) {
      if (agent.number != 0) {
        port_.remove(agent.number);
      }
    }
  });
}

// The datagram is fetched in steps, as in the kernel: its header, the first bytes, by which it is
// judged, and the rest when the agent is known.
ssize_t UmadFile::write(const void* buffer, std::size_t size) {
  const auto from = reinterpret_cast<std::uint64_t>(buffer);
  int error = 0;
  port_.host().exclusively([&](TimePoint now) {
    const std::size_t head = header_size();
    UmadSend call;
    if (size < head + kRmppHeaderBytes) {
      error = EINVAL;
    } else if (!copy_from_user(std::as_writable_bytes(std::span(&call.header, 1)).first(head),
                               from)) {
      error = EFAULT;
    } else if (call.header.id >= agents_.size()) {
      error = EINVAL;
    } else if (!copy_from_user(std::span(call.message.bytes).first(kRmppHeaderBytes),
                               from + head)) {
      error = EFAULT;
    } else {
      error = send(now, call, from + head, size - head);
    }
  });
  return error != 0 ? -error : static_cast<ssize_t>(size);
}

// `body`: of the program's datagram, whose first bytes are in the message.
int UmadFile::send(TimePoint now, UmadSend& send, std::uint64_t body, std::size_t size) {
  const Agent& agent = agents_[send.header.id];
  if (agent.number == 0) {
    return EIO;
  }
  if (const int error = address(send); error != 0) {
    return error;
  }
  auto& bytes = send.message.bytes;
  const auto management_class = std::to_integer<std::uint8_t>(bytes[1]);
  const bool active = may_be_long(management_class) &&
                      (std::to_integer<unsigned>(bytes[kRmppFlags]) & kRmppActive) != 0;
  // The kernel's own segmentation (RMPP) is not emulated; programs that segment themselves may go
  // on.
  if (active && agent.kernel_segments) {
    return EOPNOTSUPP;  // the kernel would cut it into segments
  }
  if (size < data_offset(management_class) || size > bytes.size()) {
    return EINVAL;
  }
  // Only the rest: what was looked at above must be what is sent.
  if (!copy_from_user(std::span(bytes).first(size).subspan(kRmppHeaderBytes),
                      body + kRmppHeaderBytes)) {
    return EFAULT;
  }
  if ((agent.rmpp_version != 0 && !may_be_long(management_class)) ||
      management_class == wire::kSubnetDirected) {
    return EINVAL;
  }
  send.file = this;
  send.agent = agent.number;
  send.may_repeat = active;
  send.mad = wire::read_mad_header(bytes);
  // The agent's number goes into the transaction, so that the answer finds this process and agent;
  // the lower half stays the program's, which will see it again in the answer.
  if (!wire::is_answer(send.mad)) {
    send.mad.transaction =
        std::uint64_t{agent.number} << wire::kAgentShift | (send.mad.transaction & 0xFFFFFFFF);
    endian::store_big_u64(reinterpret_cast<unsigned char*>(&bytes[kTransaction]),
                          send.mad.transaction);
  }
  return port_.send(now, send);
}

// What the kernel asks of an address handle. It looks for the peer, and waits a second for it; here
// weftd knows at once.
int UmadFile::address(UmadSend& send) const {
  const umad::Header& header = send.header;
  if (header.grh_present == 0) {
    return EINVAL;  // LIDs lead nowhere
  }
  const auto addresses = port_.addresses();
  if (header.gid_index >= addresses.size()) {
    return ENODATA;
  }
  send.message.from = addresses[header.gid_index];
  std::memcpy(send.message.to.bytes.data(), header.gid, sizeof header.gid);
  if (wire::is_mapped_ipv4(send.message.from) != wire::is_mapped_ipv4(send.message.to)) {
    return EINVAL;
  }
  if (!port_.host().may_exist(send.message.to)) {
    return ETIMEDOUT;
  }
  send.message.to_qpn = endian::big_to_native(header.qpn_be) & 0xFFFFFF;
  send.message.traffic_class = header.traffic_class;
  send.message.hop_limit = header.hop_limit;
  return 0;
}

ssize_t UmadFile::read(void* buffer, std::size_t size) {
  ssize_t result = 0;
  port_.host().exclusively([&](TimePoint /*now*/) { result = take_first(buffer, size); });
  return result;
}

// One that cannot be read so stays the first.
ssize_t UmadFile::take_first(void* buffer, std::size_t size) {
  const std::size_t head = header_size();
  if (size < head) {
    return -EINVAL;
  }
  if (unread_.empty()) {
    return -EAGAIN;
  }
  const Unread& first = unread_.front();
  if (size < head + first.size) {
    return -EINVAL;
  }
  const auto to = reinterpret_cast<std::uint64_t>(buffer);
  const auto header = std::as_bytes(std::span(&first.header, 1)).first(head);
  if (!copy_to_user(to, header) ||
      !copy_to_user(to + head, std::span(first.mad).first(first.size))) {
    return -EFAULT;
  }
  const auto count = static_cast<ssize_t>(head + first.size);
  unread_.pop_front();
  readable_.signal(unread_.size());
  return count;
}

// The program is too slow: what does not fit is lost, as in the kernel.
void UmadFile::queue(const Unread& unread) {
  if (unread_.size() < kMaxUnread) {
    unread_.push_back(unread);
    readable_.signal(unread_.size());
  }
}

void UmadFile::deliver(std::uint32_t id, const ManagementArrival& arrival) {
  constexpr std::uint8_t kHopLimit = 64;  // of the way back
  Unread unread{};
  umad::Header& header = unread.header;
  header.id = id;
  header.length = static_cast<std::uint32_t>(header_size() + arrival.message.size());
  header.qpn_be = endian::native_to_big(arrival.from_qpn);
  header.grh_present = 1;
  const auto addresses = port_.addresses();
  const auto own = std::ranges::find(addresses, arrival.to);
  header.gid_index = static_cast<std::uint8_t>(own - addresses.begin());
  header.hop_limit = kHopLimit;
  header.traffic_class = arrival.traffic_class;
  header.flow_label_be = endian::native_to_big(arrival.flow_label);
  std::memcpy(header.gid, arrival.from.bytes.data(), sizeof header.gid);
  unread.size = std::min(arrival.message.size(), unread.mad.size());
  std::copy_n(arrival.message.begin(), unread.size, unread.mad.begin());
  queue(unread);
}

// Gives the program its own datagram back, with a status: it knows by the transaction which one.
void UmadFile::expire(const UmadSend& send) {
  Unread unread{};
  unread.header = send.header;
  unread.header.status = ETIMEDOUT;
  unread.size = wire::kMadHeader;
  std::copy_n(send.message.bytes.begin(), unread.size, unread.mad.begin());
  queue(unread);
}

int UmadFile::ioctl(unsigned long request, std::uint64_t argument) {
  int error = ENOTTY;
  port_.host().exclusively([&](TimePoint /*now*/) {
    switch (request & 0xFFFFFFFF) {
      case umad::kRegisterAgent:
        error = register_agent(argument);
        break;
      case umad::kRegisterAgent2:
        error = register_agent2(argument);
        break;
      case umad::kUnregisterAgent:
        error = unregister_agent(argument);
        break;
      case umad::kEnablePkey:
        error = enable_pkey();
        break;
      default:
        break;
    }
  });
  return -error;
}

int UmadFile::register_agent(std::uint64_t argument) {
  umad::RegisterAgent request{};
  if (!fetch(request, argument)) {
    return EFAULT;
  }
  UmadRegistration wanted{.qpn = request.qpn,
                          .management_class = request.management_class,
                          .class_version = request.class_version,
                          .methods = {},
                          .oui = endian::load_big_u24(request.oui),
                          .rmpp_version = request.rmpp_version,
                          .flags = 0};
  std::memcpy(wanted.methods.data(), request.methods, sizeof request.methods);
  const int error = add(wanted, argument);
  used_ = used_ || error == 0;
  return error;
}

int UmadFile::register_agent2(std::uint64_t argument) {
  umad::RegisterAgent2 request{};
  if (!fetch(request, argument)) {
    return EFAULT;
  }
  // An unknown flag is answered with the flags that are known, in the program's own struct.
  if (request.qpn <= 1 && (request.flags & ~umad::kUserRmpp) != 0) {
    const std::uint32_t known = umad::kUserRmpp;
    const auto bytes = std::as_bytes(std::span(&known, 1));
    return copy_to_user(argument + offsetof(umad::RegisterAgent2, flags), bytes) ? EINVAL : EFAULT;
  }
  if (request.qpn <= 1 && request.management_class != 0 && request.oui >> 24 != 0) {
    return EINVAL;
  }
  const UmadRegistration wanted{.qpn = request.qpn,
                                .management_class = request.management_class,
                                .class_version = request.class_version,
                                .methods = {request.methods[0], request.methods[1]},
                                .oui = request.oui,
                                .rmpp_version = request.rmpp_version,
                                .flags = request.flags};
  const int error = add(wanted, argument);
  if (error == 0 && !used_) {
    used_ = true;
    has_pkey_ = true;
  }
  return error;
}

// The number of the agent is told where both requests have it, at their beginning.
int UmadFile::add(const UmadRegistration& wanted, std::uint64_t argument) {
  if (wanted.qpn > 1) {
    return EINVAL;
  }
  const auto free = std::ranges::find(agents_, 0U, &Agent::number);
  if (free == agents_.end()) {
    return ENOMEM;
  }
  const auto id = static_cast<std::uint32_t>(free - agents_.begin());
  std::uint32_t number = 0;
  if (const int error = port_.add(*this, id, wanted, number); error != 0) {
    return error;
  }
  if (!copy_to_user(argument, std::as_bytes(std::span(&id, 1)))) {
    port_.remove(number);
    return EFAULT;
  }
  *free = {.number = number,
           .rmpp_version = wanted.rmpp_version,
           .kernel_segments = wanted.rmpp_version != 0 && (wanted.flags & umad::kUserRmpp) == 0};
  return 0;
}

int UmadFile::unregister_agent(std::uint64_t argument) {
  std::uint32_t id = 0;
  if (!fetch(id, argument)) {
    return EFAULT;
  }
  if (id >= agents_.size() || agents_[id].number == 0) {
    return EINVAL;
  }
  port_.remove(agents_[id].number);
  agents_[id] = {};
  return 0;
}

// Only before the first agent, since the size of headers may not change while the program reads.
int UmadFile::enable_pkey() {
  if (used_) {
    return EINVAL;
  }
  has_pkey_ = true;
  return 0;
}

}  // namespace weft::kernel
