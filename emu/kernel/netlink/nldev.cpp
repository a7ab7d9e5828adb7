// Owns the messages and attributes of the RDMA core's netlink interface, by which libibverbs and
// the `rdma` tool list devices.
// A request is a datagram of messages, each a header (nlmsghdr) and attributes of number, length
// and value, which may nest. A request for one device is answered by one message; a dump
// (NLM_F_DUMP) by one for each device and a last one that says that it is over. What the tool may
// ask for and an emulated device does not have is EOPNOTSUPP, as from an older kernel.
//
// libibverbs asks here first and falls back to sysfs if nobody answers; the answers therefore have
// to agree with the tree of emu/kernel/sysfs.
#include "emu/kernel/netlink/nldev.hpp"

#include <linux/netlink.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "emu/kernel/abi/uverbs.hpp"

namespace weft::kernel::nldev {
namespace {

constexpr unsigned kClient = 5;  // of the netlink families of the RDMA core: devices
constexpr unsigned kClientShift = 10;
constexpr std::uint16_t kCommandMask = 0x3FF;
constexpr std::uint16_t kFirstOwnType = 16;  // below are netlink's own

// The numbers of the kernel's rdma_netlink.h; others are EOPNOTSUPP.
enum Command : std::uint16_t {
  kGet = 1,
  kGetPort = 5,
  kGetSystem = 6,
  kGetResources = 9,
  kGetCharacterDevice = 15,
  kGetStatistics = 17,
};

// The numbers of the kernel's attributes. Some are used on several levels of nesting.
enum Attribute : std::uint16_t {
  kDeviceIndex = 1,
  kDeviceName = 2,
  kPortIndex = 3,
  kCapabilities = 4,
  kFirmware = 5,
  kNodeGuid = 6,
  kSystemGuid = 7,
  kPortState = 12,
  kPortPhysicalState = 13,
  kNodeType = 14,
  kResources = 15,
  kResource = 16,
  kResourceName = 17,
  kResourceCount = 18,
  kInterfaceIndex = 50,
  kInterfaceName = 51,
  kNamespaceMode = 66,
  kCharacterType = 69,
  kCharacterName = 70,
  kCharacterAbi = 71,
  kCharacterNumber = 72,
  kDriverId = 73,
  kCounters = 80,
  kCounter = 81,
  kCounterName = 82,
  kCounterValue = 83,
  kCopyOnFork = 93,
};

constexpr std::uint32_t kOnlyPort = 1;
constexpr std::uint64_t kVerbsAbi = 1;

// One message; attributes are appended to it. Lengths are written at the end, by finish() and
// nest(), since only then they are known. Everything is padded to four bytes; a length does not
// count its padding.
class Message {
 public:
  Message(std::uint16_t type, std::uint16_t flags, const nlmsghdr& asked, std::uint32_t port) {
    const nlmsghdr header{0, type, flags, asked.nlmsg_seq, port};
    put_bytes(&header, sizeof header);
  }
  template <class T>
  Message& put(std::uint16_t attribute, T value) {
    return put_attribute(attribute, &value, sizeof value);
  }
  Message& put(std::uint16_t attribute, const std::string& text) {
    return put_attribute(attribute, text.c_str(), text.size() + 1);
  }
  // Attributes within an attribute.
  template <class Fill>
  Message& nest(std::uint16_t attribute, Fill&& fill) {
    const std::size_t begin = bytes_.size();
    put_attribute(attribute | NLA_F_NESTED, nullptr, 0);
    fill();
    const auto length = static_cast<std::uint16_t>(bytes_.size() - begin);
    std::memcpy(bytes_.data() + begin, &length, sizeof length);
    return *this;
  }
  void put_bytes(const void* from, std::size_t size) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  [[nodiscard]] std::vector<std::byte> finish() {
    const auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &length, sizeof length);
    return std::move(bytes_);
  }

 private:
  Message& put_attribute(unsigned attribute, const void* value, std::size_t size) {
    const nlattr header{static_cast<std::uint16_t>(NLA_HDRLEN + size),
                        static_cast<std::uint16_t>(attribute)};
    put_bytes(&header, sizeof header);
    put_bytes(value, size);
    return *this;
  }
  std::vector<std::byte> bytes_;
};

// The attributes of a request that matter here; absent ones are empty.
struct Asked {
  std::optional<std::uint32_t> device;
  std::optional<std::uint32_t> port;
  std::string character_type;
};

// Attributes that mean nothing here are skipped, as in the kernel. False: a length is wrong, so
// nothing behind it can be trusted.
bool read_attributes(std::span<const std::byte> bytes, Asked& asked) {
  while (bytes.size() >= sizeof(nlattr)) {
    nlattr header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.nla_len < sizeof header || header.nla_len > bytes.size()) {
      return false;
    }
    const auto value = bytes.subspan(sizeof header, header.nla_len - sizeof header);
    const unsigned type = header.nla_type & NLA_TYPE_MASK;
    if (type == kDeviceIndex || type == kPortIndex) {
      std::uint32_t number = 0;
      if (value.size() < sizeof number) {
        return false;
      }
      std::memcpy(&number, value.data(), sizeof number);
      (type == kDeviceIndex ? asked.device : asked.port) = number;
    } else if (type == kCharacterType) {
      const auto* const text = reinterpret_cast<const char*>(value.data());
      if (value.empty() || text[value.size() - 1] != '\0') {
        return false;
      }
      asked.character_type.assign(text);
    }
    bytes = bytes.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  }
  return true;
}

// Answers the messages of one datagram, in their order. Lives for one call of answer().
class Conversation {
 public:
  Conversation(std::uint32_t port, std::span<const DeviceFacts> devices,
               std::span<const CharacterDevice> others)
      : port_(port), devices_(devices), others_(others) {}

  // Answers like netlink's core: messages that are no requests get no answer, netlink's own kinds
  // at most the acknowledgement that they ask for. An error is always told.
  void take(const nlmsghdr& header, std::span<const std::byte> attributes) {
    if ((header.nlmsg_flags & NLM_F_REQUEST) == 0) {
      return;
    }
    int error = 0;
    bool done = false;
    if (header.nlmsg_type >= kFirstOwnType) {
      error = serve(header, attributes, done);
    }
    if (error != 0 || (!done && (header.nlmsg_flags & NLM_F_ACK) != 0)) {
      acknowledge(header, error);
    }
  }
  [[nodiscard]] Datagrams finish() { return std::move(answers_); }

 private:
  // An errno. `done`: the answers end with a message that says so.
  int serve(const nlmsghdr& header, std::span<const std::byte> attributes, bool& done) {
    Asked asked;
    if (header.nlmsg_type >> kClientShift != kClient || !read_attributes(attributes, asked)) {
      return EINVAL;
    }
    const bool all = (header.nlmsg_flags & NLM_F_DUMP) != 0;
    const std::uint16_t command = header.nlmsg_type & kCommandMask;
    const DeviceFacts* const device = find(asked);
    switch (command) {
      case kGet:
      case kGetResources:
        if (!all && device == nullptr) {
          return EINVAL;
        }
        break;
      case kGetPort:
      case kGetStatistics:
        if (device == nullptr || (!all && asked.port != kOnlyPort) ||
            (all && command == kGetStatistics)) {
          return EINVAL;  // counters bound to queue pairs, which a dump would list, are none
        }
        break;
      case kGetSystem:
        answers_.push_back(Message(header.nlmsg_type, 0, header, port_)
                               .put(kNamespaceMode, std::uint8_t{1})
                               .put(kCopyOnFork, std::uint8_t{1})
                               .finish());
        return 0;
      case kGetCharacterDevice:
        return tell_character_device(header, asked, device);
      default:
        return EOPNOTSUPP;
    }
    for (const DeviceFacts& one : devices_) {
      const bool wanted = device == nullptr || device == &one;
      if (wanted) {
        tell(header, command, one, all);
      }
    }
    if (all) {
      Message end(NLMSG_DONE, NLM_F_MULTI, header, port_);
      constexpr int kGood = 0;
      end.put_bytes(&kGood, sizeof kGood);
      answers_.push_back(end.finish());
      done = true;
    }
    return 0;
  }

  // Null: none was named, or there is none of that index.
  // A device is asked for by index only, as the tool does after a dump.
  [[nodiscard]] const DeviceFacts* find(const Asked& asked) const {
    const auto found =
        std::find_if(devices_.begin(), devices_.end(),
                     [&](const DeviceFacts& device) { return asked.device == device.index; });
    return found == devices_.end() ? nullptr : &*found;
  }

  // One message about one device; which attributes it has depends on the command.
  void tell(const nlmsghdr& header, std::uint16_t command, const DeviceFacts& device, bool all) {
    Message message(header.nlmsg_type, all ? NLM_F_MULTI : 0, header, port_);
    message.put(kDeviceIndex, device.index).put(kDeviceName, device.name);
    if (command == kGetResources) {
      tell_named(message, device.resources, {kResources, kResource, kResourceName, kResourceCount});
      answers_.push_back(message.finish());
      return;
    }
    message.put(kPortIndex, kOnlyPort);  // of a device: how many there are
    if (command == kGet) {
      message.put(kCapabilities, std::uint64_t{0})
          .put(kFirmware, std::string("EMULATED"))
          .put(kNodeGuid, device.guid)
          .put(kSystemGuid, device.guid)
          .put(kNodeType, device.node_type);
    } else if (command == kGetPort) {
      message.put(kCapabilities, std::uint64_t{0})
          .put(kPortState, abi::port_state(device.up))
          .put(kPortPhysicalState, abi::port_physical_state(device.up));
      if (!device.interface.empty()) {
        message.put(kInterfaceIndex, device.interface_index).put(kInterfaceName, device.interface);
      }
    } else {
      tell_named(message, device.port_counters, {kCounters, kCounter, kCounterName, kCounterValue});
    }
    answers_.push_back(message.finish());
  }

  struct Names {
    std::uint16_t table;
    std::uint16_t entry;
    std::uint16_t name;
    std::uint16_t value;
  };
  // A table of names and numbers: counters, or how many objects of each kind there are.
  static void tell_named(Message& message, const Named& all, const Names& names) {
    message.nest(names.table, [&] {
      for (const auto& [name, value] : all) {
        message.nest(names.entry, [&, &name = name, value = value] {
          message.put(names.name, name).put(names.value, value);
        });
      }
    });
  }

  int tell_character_device(const nlmsghdr& header, const Asked& asked, const DeviceFacts* device) {
    if (asked.character_type.empty()) {
      return EINVAL;
    }
    const auto other = std::ranges::find(others_, asked.character_type, &CharacterDevice::type);
    if (other != others_.end()) {
      answers_.push_back(Message(header.nlmsg_type, 0, header, port_)
                             .put(kCharacterName, other->name)
                             .put(kCharacterAbi, other->abi)
                             .put(kCharacterNumber, other->number)
                             .finish());
      return 0;
    }
    if (asked.character_type != "uverbs") {
      return EOPNOTSUPP;
    }
    if (device == nullptr) {
      return EINVAL;
    }
    answers_.push_back(Message(header.nlmsg_type, 0, header, port_)
                           .put(kCharacterName, device->character_device)
                           .put(kCharacterAbi, kVerbsAbi)
                           .put(kCharacterNumber, device->device_number)
                           .put(kDriverId, device->driver)
                           .finish());
    return 0;
  }

  void acknowledge(const nlmsghdr& header, int error) {
    Message message(NLMSG_ERROR, 0, header, port_);
    const nlmsgerr body{-error, header};
    message.put_bytes(&body, sizeof body);
    answers_.push_back(message.finish());
  }

  std::uint32_t port_;
  std::span<const DeviceFacts> devices_;
  std::span<const CharacterDevice> others_;
  Datagrams answers_;
};

}  // namespace

Datagrams answer(std::span<const std::byte> request, std::uint32_t port,
                 std::span<const DeviceFacts> devices, std::span<const CharacterDevice> others) {
  constexpr int kMaxMessages = 64;
  Conversation conversation(port, devices, others);
  for (int i = 0; i < kMaxMessages && request.size() >= sizeof(nlmsghdr); ++i) {
    nlmsghdr header{};
    std::memcpy(&header, request.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > request.size()) {
      break;  // as the kernel: where the next one begins is unknown
    }
    conversation.take(header, request.subspan(sizeof header, header.nlmsg_len - sizeof header));
    request = request.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), request.size()));
  }
  return conversation.finish();
}

}  // namespace weft::kernel::nldev
