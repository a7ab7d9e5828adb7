// Owns the framing of ioctl methods, and the methods that have no command of the older kind.
//
// The newer interface is one ioctl whose argument names an object type and a method, followed by a
// list of attributes, each with a number, a length, and a value or the address of one. A method
// lists the attributes that it knows (IoctlAttributeSpec); check() holds the list that came against
// it and copies what goes in, before the method runs. Answers are written to the addresses in the
// attributes, in the order in which the method gives them.
//
// Libraries try the ioctl first and fall back to a written command where the answer is
// EPROTONOSUPPORT, so only what has no such command is here.
#include "emu/kernel/uverbs/ioctl.hpp"

#include <algorithm>
#include <cerrno>

#include "emu/kernel/user_memory.hpp"
#include "emu/kernel/uverbs/call.hpp"

namespace weft::kernel {

using abi::IoctlAttribute;
using abi::IoctlObject;
using Kind = IoctlAttributeSpec::Kind;

namespace {
constexpr std::size_t kMaxAttributes = 64;
constexpr std::size_t kMaxAttributeBytes = 4096;
constexpr std::size_t kInlineBytes = sizeof(IoctlAttribute::value);
}  // namespace

// The header and the list of attributes, as the program sees them at this moment; values that lie
// elsewhere are read by take().
Outcome<void> IoctlCall::read(std::uint64_t argument, std::uint32_t driver_id) {
  if (!copy_from_user(std::as_writable_bytes(std::span(&header_, 1)), argument)) {
    return refuse(EFAULT);
  }
  const std::size_t expected = sizeof header_ + header_.attributes * sizeof(IoctlAttribute);
  if (header_.length != expected || header_.attributes > kMaxAttributes) {
    return refuse(EINVAL);
  }
  if (header_.reserved != 0 || header_.reserved2 != 0) {
    return refuse(EPROTONOSUPPORT);
  }
  if (header_.driver_id != driver_id) {
    return refuse(EINVAL);
  }
  std::vector<IoctlAttribute> attributes(header_.attributes);
  const std::uint64_t begin = argument + sizeof header_;
  if (!copy_from_user(std::as_writable_bytes(std::span(attributes)), begin)) {
    return refuse(EFAULT);
  }
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    if (has(attributes[i].id)) {
      return refuse(EINVAL);
    }
    given_.push_back({attributes[i], begin + i * sizeof(IoctlAttribute), {}});
  }
  return {};
}

// One attribute against its entry in the method's list. Short values lie in the attribute itself.
Outcome<void> IoctlCall::take(const IoctlAttributeSpec& spec, Given& given) {
  const IoctlAttribute& attribute = given.attribute;
  if (attribute.reserved != 0 ||
      (attribute.flags & ~(abi::kIoctlMandatory | abi::kIoctlValidOutput)) != 0) {
    return refuse(EINVAL);
  }
  if (spec.kind == Kind::object || spec.kind == Kind::new_object) {
    return attribute.length == 0 && attribute.value <= 0xFFFFFFFF ? Outcome<void>{}
                                                                  : refuse(EINVAL);
  }
  if (attribute.length < spec.size || attribute.length > kMaxAttributeBytes) {
    return refuse(EINVAL);
  }
  if (spec.kind == Kind::out) {
    return user_range_ok(attribute.value, attribute.length, true) ? Outcome<void>{}
                                                                  : refuse(EFAULT);
  }
  given.bytes.resize(attribute.length);
  if (attribute.length <= kInlineBytes) {
    std::memcpy(given.bytes.data(), &attribute.value, attribute.length);
  } else if (!copy_from_user(given.bytes, attribute.value)) {
    return refuse(EFAULT);
  }
  // What a newer library says beyond what we know has to be nothing.
  const bool known = std::all_of(given.bytes.begin() + spec.size, given.bytes.end(),
                                 [](std::byte byte) { return byte == std::byte{0}; });
  return known ? Outcome<void>{} : refuse(EOPNOTSUPP);
}

// An attribute that the method does not know is refused only if the library says that it matters.
Outcome<void> IoctlCall::check(Spec spec) {
  for (Given& given : given_) {
    const auto known = std::find_if(spec.begin(), spec.end(), [&](const IoctlAttributeSpec& one) {
      return one.id == given.attribute.id;
    });
    if (known == spec.end()) {
      if ((given.attribute.flags & abi::kIoctlMandatory) != 0) {
        return refuse(EPROTONOSUPPORT);
      }
      continue;
    }
    if (const auto taken = take(*known, given); !taken) {
      return taken;
    }
  }
  const bool complete =
      std::all_of(spec.begin(), spec.end(),
                  [this](const IoctlAttributeSpec& one) { return !one.required || has(one.id); });
  return complete ? Outcome<void>{} : refuse(EINVAL);
}

const IoctlCall::Given* IoctlCall::find(std::uint16_t id) const {
  const auto found = std::find_if(given_.begin(), given_.end(),
                                  [id](const Given& given) { return given.attribute.id == id; });
  return found == given_.end() ? nullptr : &*found;
}

std::uint32_t IoctlCall::handle(std::uint16_t id) const {
  const Given* const given = find(id);
  return given == nullptr ? 0xFFFFFFFF : static_cast<std::uint32_t>(given->attribute.value);
}

std::size_t IoctlCall::room(std::uint16_t id) const {
  const Given* const given = find(id);
  return given == nullptr ? 0 : given->attribute.length;
}

// Marks the attribute as filled, as the kernel does; a value that is too long is cut to the room
// there is.
Outcome<void> IoctlCall::answer_bytes(std::uint16_t id, std::span<const std::byte> bytes) {
  const Given* const given = find(id);
  if (given == nullptr) {
    return {};
  }
  const auto flags = static_cast<std::uint16_t>(given->attribute.flags | abi::kIoctlValidOutput);
  const std::size_t length = std::min<std::size_t>(bytes.size(), given->attribute.length);
  const bool copied = copy_to_user(given->attribute.value, bytes.first(length)) &&
                      copy_to_user(given->place + offsetof(IoctlAttribute, flags),
                                   std::as_bytes(std::span(&flags, 1)));
  return copied ? Outcome<void>{} : refuse(EFAULT);
}

Outcome<void> IoctlCall::answer_handle(std::uint16_t id, std::uint32_t handle) {
  const Given* const given = find(id);
  const std::uint64_t value = handle;
  const bool copied =
      given != nullptr && copy_to_user(given->place + offsetof(IoctlAttribute, value),
                                       std::as_bytes(std::span(&value, 1)));
  return copied ? Outcome<void>{} : refuse(EFAULT);
}

// --- Methods. Attributes are numbered from 0 per method; a device type's own begin at 0x1000.

namespace {

constexpr IoctlAttributeSpec kQueryPort[] = {{0, Kind::in, 1}, {1, Kind::out, 4}};
constexpr IoctlAttributeSpec kQueryGidTable[] = {
    {0, Kind::in, 8}, {1, Kind::in, 4, false}, {2, Kind::out, 1}, {3, Kind::out, 8}};
constexpr IoctlAttributeSpec kQueryGidEntry[] = {
    {0, Kind::in, 4}, {1, Kind::in, 4}, {2, Kind::in, 4, false}, {3, Kind::out, 1}};
constexpr IoctlAttributeSpec kQueryPortSpeed[] = {{0, Kind::in, 4}, {1, Kind::out, 8}};
constexpr IoctlAttributeSpec kCounterCapabilities[] = {
    {0, Kind::out, 4, false}, {1, Kind::out, 8, false}, {2, Kind::out, 4, false}};
constexpr IoctlAttributeSpec kCreateCounter[] = {
    {0, Kind::new_object},
    {abi::kFirstOwnIoctl, Kind::in, sizeof(abi::BufferDescriptor)},
    {abi::kFirstOwnIoctl + 1, Kind::in, sizeof(abi::BufferDescriptor)}};
constexpr IoctlAttributeSpec kOneCounter[] = {{0, Kind::object}};
constexpr IoctlAttributeSpec kModifyCounter[] = {
    {0, Kind::object}, {1, Kind::in, 1}, {2, Kind::in, 1}, {3, Kind::in, 8}};
constexpr IoctlAttributeSpec kReadCounter[] = {
    {0, Kind::object}, {1, Kind::in, 1}, {2, Kind::out, 8}};
constexpr IoctlAttributeSpec kAttachCounter[] = {
    {0, Kind::object}, {1, Kind::object}, {2, Kind::in, 4}};

}  // namespace

const UverbsFile::Method UverbsFile::kMethods[] = {
    {IoctlObject::device, 2, kQueryPort, &UverbsFile::ioctl_query_port},
    {IoctlObject::device, 4, {}, nullptr},  // query_context: after the import of a device
    {IoctlObject::device, 5, kQueryGidTable, &UverbsFile::ioctl_query_gid_table},
    {IoctlObject::device, 6, kQueryGidEntry, &UverbsFile::ioctl_query_gid_entry},
    {IoctlObject::device, 7, kQueryPortSpeed, &UverbsFile::ioctl_query_port_speed},
    {IoctlObject::device, 8, kCounterCapabilities, &UverbsFile::ioctl_counter_capabilities},
    {IoctlObject::qp, 2, kAttachCounter, &UverbsFile::ioctl_attach_counter},
    {IoctlObject::mr, 0, {}, nullptr},  // of device memory
    {IoctlObject::mr, 2, {}, nullptr},  // advise
    {IoctlObject::mr, 4, {}, nullptr},  // of a dma-buf
    {IoctlObject::counter, 0, kCreateCounter, &UverbsFile::ioctl_create_counter},
    {IoctlObject::counter, 1, kOneCounter, &UverbsFile::ioctl_destroy_counter},
    {IoctlObject::counter, 2, kModifyCounter, &UverbsFile::ioctl_modify_counter},
    {IoctlObject::counter, 3, kReadCounter, &UverbsFile::ioctl_read_counter},
};

// What is not here exists as a command, which libraries write after EPROTONOSUPPORT, or not at all.
// What kernels know and devices lack is EOPNOTSUPP, for which programs look.
int UverbsFile::ioctl(unsigned long request, std::uint64_t argument) {
  if (request != abi::kIoctl) {
    return -ENOTTY;
  }
  IoctlCall call;
  if (const auto read = call.read(argument, device_.driver_id()); !read) {
    return -read.error();
  }
  return -run_method(call);
}

// An unknown method is answered as unknown even before the file has a context: by that libraries
// find out what they have to write as a command instead.
int UverbsFile::run_method(IoctlCall& call) {
  const auto is_meant = [&call](const auto& one) {
    return static_cast<std::uint16_t>(one.object) == call.object() && one.method == call.method();
  };
  const auto* const method = std::find_if(std::begin(kMethods), std::end(kMethods), is_meant);
  const auto own_methods = device_.own_ioctl_methods();
  const auto own = std::ranges::find_if(own_methods, is_meant);
  if (method == std::end(kMethods) && own == own_methods.end()) {
    return EPROTONOSUPPORT;
  }
  if (!has_context_) {
    return EINVAL;
  }
  if (method == std::end(kMethods)) {
    return run_own_method(call, *own);
  }
  if (method->handler == nullptr) {
    return EOPNOTSUPP;
  }
  if (const auto good = call.check(method->attributes); !good) {
    return good.error();
  }
  return run_counted([&] { return (this->*method->handler)(call); });
}

// A method of one kind of device (efadv_query_mr). It works on an object, found here by its handle.
int UverbsFile::run_own_method(IoctlCall& call, const OwnIoctlMethod& method) {
  if (const auto good = call.check(method.attributes); !good) {
    return good.error();
  }
  return run_counted([&]() -> Outcome<void> {
    auto* const object = find<Object>(call.handle(method.handle), method.kind);
    return object != nullptr ? method.run(call, *object) : refuse(ENOENT);
  });
}

// Counted like commands: exporters show the sum of both.
int UverbsFile::run_counted(const std::function<Outcome<void>()>& handler) {
  int error = 0;
  runner_.exclusively([&] {
    error = error_of(handler);
    CommandCounters& counters = device_.statistics().commands;
    ++counters.submitted;
    ++counters.completed;
    counters.failed += error != 0 ? 1U : 0U;
  });
  return error;
}

Outcome<void> UverbsFile::ioctl_query_port(IoctlCall& call) {
  abi::QueryPortExtended attributes{};
  const auto known = device_.query_port(call.get<std::uint8_t>(0), attributes.base);
  return known ? call.answer(1, attributes) : known;
}

// An array of entries, each as long as the caller's library knows them. All must fit.
Outcome<void> UverbsFile::ioctl_query_gid_table(IoctlCall& call) {
  const auto size = call.get<std::uint64_t>(0);
  if (size == 0 || size > call.room(2) || call.get<std::uint32_t>(1) != 0) {
    return refuse(EINVAL);
  }
  const auto gids = device_.gids();
  if (gids.size() > call.room(2) / size) {
    return refuse(EINVAL);
  }
  std::vector<std::byte> bytes(gids.size() * size);  // what it knows beyond ours is zero
  for (std::size_t i = 0; i < gids.size(); ++i) {
    std::memcpy(bytes.data() + i * size, &gids[i], std::min<std::size_t>(size, sizeof gids[i]));
  }
  const auto told = call.answer_bytes(2, bytes);
  return told ? call.answer(3, std::uint64_t{gids.size()}) : told;
}

Outcome<void> UverbsFile::ioctl_query_gid_entry(IoctlCall& call) {
  const auto port = call.get<std::uint32_t>(0);
  const auto index = call.get<std::uint32_t>(1);
  const auto gids = device_.gids();
  if (port != 1 || index >= gids.size() || call.get<std::uint32_t>(2) != 0) {
    return refuse(EINVAL);
  }
  return call.answer(3, gids[index]);
}

// For rates that the coded fields of query_port cannot say.
Outcome<void> UverbsFile::ioctl_query_port_speed(IoctlCall& call) {
  abi::QueryPort attributes{};
  const auto port = call.get<std::uint32_t>(0);
  if (port > 0xFF) {
    return refuse(EINVAL);
  }
  const auto known = device_.query_port(static_cast<std::uint8_t>(port), attributes);
  return known ? call.answer(1, device_.port_speed()) : known;
}

Outcome<void> UverbsFile::ioctl_counter_capabilities(IoctlCall& call) {
  // A device without them says so by having none.
  const CompletionCounterLimits limits = device_.completion_counters();
  auto told = call.answer(0, limits.max_counters);
  told = told ? call.answer(1, limits.max_value) : told;
  return told ? call.answer(2, limits.operations) : told;
}

// The two numbers lie in the application's memory; the device counts there.
Outcome<void> UverbsFile::ioctl_create_counter(IoctlCall& call) {
  const CompletionCounterLimits limits = device_.completion_counters();
  if (limits.operations == 0) {
    return refuse(EOPNOTSUPP);
  }
  std::array<std::uint64_t*, CompletionCounter::kEntries> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto where =
        call.get<abi::BufferDescriptor>(static_cast<std::uint16_t>(abi::kFirstOwnIoctl + i));
    if (where.type != abi::kBufferInMemory) {
      return refuse(EOPNOTSUPP);
    }
    if (where.flags != 0 || where.length != sizeof(std::uint64_t) ||
        where.address % sizeof(std::uint64_t) != 0) {
      return refuse(EINVAL);
    }
    if (!user_range_ok(where.address, where.length, true)) {
      return refuse(EFAULT);
    }
    values[i] = reinterpret_cast<std::uint64_t*>(static_cast<std::uintptr_t>(where.address));
  }
  const auto existing = std::count_if(objects_.begin(), objects_.end(), [](const auto& object) {
    return object != nullptr && object->kind() == ObjectKind::counter;
  });
  if (existing >= static_cast<std::ptrdiff_t>(limits.max_counters)) {
    return refuse(ENOMEM);
  }
  auto counter = std::make_unique<CompletionCounter>();
  counter->values = values;
  const std::uint32_t handle = insert(std::move(counter));
  const auto told = call.answer_handle(0, handle);
  if (!told) {
    (void)destroy(handle, ObjectKind::counter);
  }
  return told;
}

Outcome<void> UverbsFile::ioctl_destroy_counter(IoctlCall& call) {
  if (find<CompletionCounter>(call.handle(0), ObjectKind::counter) == nullptr) {
    return refuse(ENOENT);
  }
  return destroy(call.handle(0), ObjectKind::counter);
}

// Operation 0 sets the number, 1 adds to it.
Outcome<void> UverbsFile::ioctl_modify_counter(IoctlCall& call) {
  auto* const counter = find<CompletionCounter>(call.handle(0), ObjectKind::counter);
  const auto entry = call.get<std::uint8_t>(1);
  const auto operation = call.get<std::uint8_t>(2);
  if (counter == nullptr) {
    return refuse(ENOENT);
  }
  if (entry >= CompletionCounter::kEntries || operation > 1) {
    return refuse(EINVAL);
  }
  const auto value = call.get<std::uint64_t>(3);
  const bool done = operation == 0 ? counter->set(entry, value) : counter->add(entry, value);
  return done ? Outcome<void>{} : refuse(EFAULT);
}

Outcome<void> UverbsFile::ioctl_read_counter(IoctlCall& call) {
  auto* const counter = find<CompletionCounter>(call.handle(0), ObjectKind::counter);
  const auto entry = call.get<std::uint8_t>(1);
  if (counter == nullptr) {
    return refuse(ENOENT);
  }
  if (entry >= CompletionCounter::kEntries) {
    return refuse(EINVAL);
  }
  std::uint64_t value = 0;
  return counter->get(entry, value) ? call.answer(2, value) : refuse(EFAULT);
}

// The queue pair keeps the counter from being destroyed.
Outcome<void> UverbsFile::ioctl_attach_counter(IoctlCall& call) {
  auto* const qp = find<Qp>(call.handle(0), ObjectKind::qp);
  auto* const counter = find<CompletionCounter>(call.handle(1), ObjectKind::counter);
  const auto operations = call.get<std::uint32_t>(2);
  if (qp == nullptr || counter == nullptr) {
    return refuse(ENOENT);
  }
  if (operations == 0) {
    return refuse(EINVAL);
  }
  if ((operations & ~device_.completion_counters().operations) != 0) {
    return refuse(EOPNOTSUPP);
  }
  return qp->attach(*counter, operations) ? Outcome<void>{} : refuse(ENOMEM);
}

}  // namespace weft::kernel
