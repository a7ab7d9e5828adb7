// Owns the framing of commands: header words, bodies, replies, and the handle table.
//
// A command of the older interface is one write(2): a header that says which command it is and how
// long it is, then the body. The body begins with the address to which the reply is to be written
// (where there is a reply), goes on with the part that is common to all drivers, and ends with the
// driver's own part.
// - write() copies all of it, once: from there on the program cannot change what was checked.
// - run_legacy() and run_extended() hold the lengths against a table. Direction and size of what is
//   copied come from the table, never from the caller, so no handler can read or write too much.
// - run() calls the handler with the device locked, then whatever must not be called under that
//   lock: the hooks, which may load code.
//
// A wrong length is refused before the handler runs. Once a handler has succeeded, only a reply
// address that has gone meanwhile can make the command fail.
#include "emu/kernel/uverbs/file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "emu/kernel/user_memory.hpp"
#include "emu/kernel/uverbs/call.hpp"
#include "srd/base/lent_memory.hpp"

namespace weft::kernel {
namespace {

using abi::Command;

constexpr std::uint32_t number(Command command) { return static_cast<std::uint32_t>(command); }

// Longer than any command of any library, and short enough for the stack of a small thread.
constexpr std::size_t kMaxCommandBytes = 4096;
// Bytes of destroy_cq: as rdma-core 18 and 19 say, and as it is.
constexpr std::size_t kShortDestroyCq = 16;
constexpr std::size_t kWholeDestroyCq = 24;

}  // namespace

// Command, least bytes of the common body and reply, handler, and whether only some drivers have
// it. The kernel's own table says the same; refused_commands_test.cpp tries the lengths of those
// that all drivers have.
const UverbsFile::Entry UverbsFile::kLegacy[] = {
    {number(Command::get_context), 8, 8, &UverbsFile::get_context},
    {number(Command::query_device), 8, sizeof(abi::QueryDevice), &UverbsFile::query_device},
    {number(Command::query_port), 16, sizeof(abi::QueryPort), &UverbsFile::query_port},
    {number(Command::alloc_pd), 8, 4, &UverbsFile::alloc_pd},
    {number(Command::dealloc_pd), 4, 0, &UverbsFile::dealloc_pd},
    {number(Command::create_ah), sizeof(abi::CreateAh), 4, &UverbsFile::create_ah},
    {number(Command::destroy_ah), 4, 0, &UverbsFile::destroy_ah},
    {number(Command::reg_mr), sizeof(abi::RegMr), 12, &UverbsFile::reg_mr},
    {number(Command::rereg_mr), sizeof(abi::ReregMr), 8, &UverbsFile::rereg_mr, true},
    {number(Command::dereg_mr), 4, 0, &UverbsFile::dereg_mr},
    {number(Command::alloc_mw), sizeof(abi::AllocMw), 8, &UverbsFile::alloc_mw, true},
    {number(Command::dealloc_mw), 4, 0, &UverbsFile::dealloc_mw, true},
    {number(Command::create_comp_channel), 8, 4, &UverbsFile::create_comp_channel},
    {number(Command::create_cq), sizeof(abi::CreateCq), 8, &UverbsFile::create_cq},
    {number(Command::resize_cq), sizeof(abi::ResizeCq), 8, &UverbsFile::resize_cq, true},
    {number(Command::destroy_cq), 16, 8, &UverbsFile::destroy_cq},
    {number(Command::req_notify_cq), sizeof(abi::RequestNotify), 0, &UverbsFile::req_notify_cq,
     true},
    {number(Command::create_qp), sizeof(abi::CreateQp), sizeof(abi::CreateQpReply),
     &UverbsFile::create_qp},
    {number(Command::query_qp), 16, sizeof(abi::QueryQp), &UverbsFile::query_qp},
    {number(Command::modify_qp), sizeof(abi::ModifyQp), 0, &UverbsFile::modify_qp},
    {number(Command::destroy_qp), 16, 4, &UverbsFile::destroy_qp},
    {number(Command::post_send), sizeof(abi::PostSend), 4, &UverbsFile::post_send, true},
    {number(Command::attach_multicast), sizeof(abi::Multicast), 0, &UverbsFile::attach_multicast,
     true},
    {number(Command::detach_multicast), sizeof(abi::Multicast), 0, &UverbsFile::detach_multicast,
     true},
    {number(Command::create_srq), sizeof(abi::CreateSrq), sizeof(abi::CreateSrqReply),
     &UverbsFile::create_srq, true},
    {number(Command::modify_srq), sizeof(abi::ModifySrq), 0, &UverbsFile::modify_srq, true},
    {number(Command::query_srq), 16, sizeof(abi::QuerySrqReply), &UverbsFile::query_srq, true},
    {number(Command::destroy_srq), 16, 4, &UverbsFile::destroy_srq, true},
};

const UverbsFile::Entry UverbsFile::kExtended[] = {
    {number(Command::query_device), 8, abi::kLeastExtendedQueryDevice,
     &UverbsFile::query_device_extended},
    {number(Command::create_cq), sizeof(abi::CreateCqExtended), sizeof(abi::CreateCqExtendedReply),
     &UverbsFile::create_cq_extended, true},
    {number(Command::create_qp), sizeof(abi::CreateQpExtended), sizeof(abi::CreateQpExtendedReply),
     &UverbsFile::create_qp_extended, true},
    {number(Command::modify_qp), sizeof(abi::ModifyQpExtended), 0, &UverbsFile::modify_qp_extended,
     true},
};

UverbsFile::UverbsFile(Device& device, Runner& runner, LibraryHooks* hooks)
    : device_(device), runner_(runner), hooks_(hooks) {}

// With the device to itself, so that no packet arrives while half of the objects are gone.
UverbsFile::~UverbsFile() {
  runner_.exclusively([this] {
    // Queue pairs before the completion queues and domains they stand on, channels last.
    for (const ObjectKind kind :
         {ObjectKind::qp, ObjectKind::srq, ObjectKind::ah, ObjectKind::mw, ObjectKind::mr,
          ObjectKind::cq, ObjectKind::pd, ObjectKind::channel, ObjectKind::counter}) {
      for (auto& object : objects_) {
        if (object != nullptr && object->kind() == kind) {
          remove(object);
        }
      }
    }
    device_.statistics().live.contexts -= has_context_ ? 1U : 0U;
    device_.forget(async_);
  });
}

int UverbsFile::open() {
  if (const int error = queues_.open(); error != 0) {
    errno = error;
    return -1;
  }
  return queues_.fd();
}

// One command, as write(2) brings it. The application's bytes are copied first: another thread may
// change them at any moment.
ssize_t UverbsFile::write(int fd, const void* buffer, std::size_t size) {
  abi::CommandHeader header{};
  if (size < sizeof header) {
    return -EINVAL;
  }
  if (size > kMaxCommandBytes) {
    return -EINVAL;
  }
  if (const auto posted = try_post_send(buffer, size)) {
    return *posted;
  }
  if (!copy_from_user(std::as_writable_bytes(std::span(&header, 1)),
                      reinterpret_cast<std::uintptr_t>(buffer))) {
    return -EFAULT;
  }
  // rdma-core 18 and 19 give this command a shorter length than it has, though all of it is there.
  const bool known_to_be_longer = header.command == number(Command::destroy_cq) &&
                                  size == kShortDestroyCq &&
                                  header.in_words * std::size_t{4} == kShortDestroyCq;
  const std::size_t length = known_to_be_longer ? kWholeDestroyCq : size;
  std::byte bytes[kMaxCommandBytes];
  const std::span all = std::span(bytes).first(length);
  if (!copy_from_user(all, reinterpret_cast<std::uintptr_t>(buffer))) {
    return -EFAULT;
  }
  std::memcpy(&header, bytes, sizeof header);
  header.in_words =
      static_cast<std::uint16_t>(known_to_be_longer ? kWholeDestroyCq / 4 : header.in_words);
  if ((header.command & ~(abi::kExtended | abi::kCommandMask)) != 0) {
    return -EINVAL;
  }
  const auto body = all.subspan(sizeof header);
  const int error = (header.command & abi::kExtended) != 0 ? run_extended(fd, header, body)
                                                           : run_legacy(fd, header, body);
  return error != 0 ? -error : static_cast<ssize_t>(size);
}

std::optional<ssize_t> UverbsFile::try_post_send(const void* buffer, std::size_t size) {
  struct {
    abi::CommandHeader header;
    abi::PostSend request;
  } command{};
  // Where the fault guard is installed a bad pointer costs no system call; else the kernel copies.
  const auto copy = [](std::span<std::byte> to, const void* from) {
    return lent_memory.touch != nullptr
               ? copy_from_lent(to.data(), from, to.size())
               : copy_from_user(to, reinterpret_cast<std::uintptr_t>(from));
  };
  if (size != sizeof command || !device_.rings_by_command() ||
      !copy(std::as_writable_bytes(std::span(&command, 1)), buffer) ||
      command.header.command != number(Command::post_send) ||
      command.header.in_words * sizeof(std::uint32_t) != size || command.header.out_words == 0) {
    return std::nullopt;
  }
  std::optional<ssize_t> result;
  const auto fetch = [&] {
    if (Qp* const qp = find<Qp>(command.request.handle, ObjectKind::qp)) {
      const auto outcome = device_.post_send(*qp);
      result = outcome ? static_cast<ssize_t>(size) : -outcome.error();
    }
  };
  runner_.post(std::ref(fetch));  // of a size that needs no memory of its own
  return result;
}

const UverbsFile::Entry* UverbsFile::find_entry(std::span<const Entry> table,
                                                std::uint32_t command) const {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [command](const Entry& e) { return e.command == command; });
  return found == table.end() || (found->optional && !device_.has_optional_commands()) ? nullptr
                                                                                       : &*found;
}

// The older form: lengths count words of 4 bytes, the response address is the first word of the
// body, and a body longer than the table says goes on with the driver's own part. The room for the
// reply is checked before the handler runs: a command that changed something must not fail for lack
// of it.
int UverbsFile::run_legacy(int fd, const abi::CommandHeader& header,
                           std::span<const std::byte> body) {
  const Entry* const entry = find_entry(kLegacy, header.command);
  if (entry == nullptr) {
    return EOPNOTSUPP;
  }
  if (header.in_words * std::size_t{4} != body.size() + sizeof header) {
    return EINVAL;
  }
  if (body.size() < entry->body) {
    return ENOSPC;
  }
  const std::size_t room = header.out_words * std::size_t{4};
  if (room < entry->reply) {
    return ENOSPC;
  }
  Call call{.fd = fd,
            .body = body.first(entry->body),
            .reply = {},
            .udata = {.in = body.subspan(entry->body), .out = {}},
            .hook = nullptr,
            .touched = {},
            .expects_events = false};
  std::uint64_t response = 0;
  if (entry->reply > 0) {
    std::memcpy(&response, body.data(), sizeof response);
    if (!user_range_ok(response, room, true)) {
      return EFAULT;
    }
  }
  if (const int error = run(*entry, call); error != 0) {
    return error;
  }
  call.reply.resize(entry->reply);
  call.reply.insert(call.reply.end(), call.udata.out.begin(), call.udata.out.end());
  const std::size_t length = std::min(room, call.reply.size());
  return copy_to_user(response, std::span(call.reply).first(length)) ? 0 : EFAULT;
}

// The extended form: lengths count words of 8 bytes, and the common part and the driver's own part
// have lengths of their own, in the body as in the reply.
int UverbsFile::run_extended(int fd, const abi::CommandHeader& header,
                             std::span<const std::byte> body) {
  const Entry* const entry = find_entry(kExtended, header.command & abi::kCommandMask);
  if (entry == nullptr) {
    return EOPNOTSUPP;
  }
  abi::ExtendedHeader more{};
  if (body.size() < sizeof more) {
    return EINVAL;
  }
  std::memcpy(&more, body.data(), sizeof more);
  body = body.subspan(sizeof more);
  const std::size_t core = header.in_words * std::size_t{8};
  if (core + more.provider_in_words * std::size_t{8} != body.size()) {
    return EINVAL;
  }
  if (core < entry->body) {
    return ENOSPC;
  }
  const std::size_t core_room = header.out_words * std::size_t{8};
  const std::size_t own_room = more.provider_out_words * std::size_t{8};
  const bool wants_reply = more.response != 0;
  if (more.reserved != 0 || wants_reply != (core_room + own_room != 0)) {
    return EINVAL;
  }
  if (wants_reply && core_room < entry->reply) {
    return ENOSPC;
  }
  Call call{.fd = fd,
            .body = body.first(core),
            .reply = {},
            .udata = {.in = body.subspan(core), .out = {}},
            .hook = nullptr,
            .touched = {},
            .expects_events = false};
  if (!user_range_ok(more.response, core_room + own_room, true)) {
    return EFAULT;
  }
  if (const int error = run(*entry, call); error != 0) {
    return error;
  }
  const bool copied =
      copy_to_user(more.response,
                   std::span(call.reply).first(std::min(core_room, call.reply.size()))) &&
      copy_to_user(more.response + core_room,
                   std::span(call.udata.out).first(std::min(own_room, call.udata.out.size())));
  return copied ? 0 : EFAULT;
}

// As in the kernel, get_context has to be the first command of a file.
int UverbsFile::run(const Entry& entry, Call& call) {
  if (!has_context_ && entry.handler != &UverbsFile::get_context) {
    return EINVAL;
  }
  int error = 0;
  runner_.exclusively([&] {
    error = error_of([&] { return (this->*entry.handler)(call); });
    count(entry, error);
  });
  if (error == 0 && call.expects_events) {
    runner_.expect_events();
  }
  if (error == 0 && hooks_ != nullptr && call.hook != nullptr) {
    call.touched.fd = call.fd;
    call.touched.rings_by_command = device_.rings_by_command();
    (hooks_->*call.hook)(call.touched);  // not under the device's lock: it may load code
  }
  return error;
}

// As the EFA driver counts, whose counters exporters read.
void UverbsFile::count(const Entry& entry, int error) {
  CommandCounters& counters = device_.statistics().commands;
  ++counters.submitted;
  ++counters.completed;
  if (error == 0) {
    return;
  }
  ++counters.failed;
  const std::pair<Handler, std::uint64_t&> by_kind[] = {
      {&UverbsFile::get_context, counters.failed_contexts},
      {&UverbsFile::alloc_pd, counters.failed_pds},
      {&UverbsFile::reg_mr, counters.failed_mrs},
      {&UverbsFile::create_ah, counters.failed_ahs},
      {&UverbsFile::create_cq, counters.failed_cqs},
      {&UverbsFile::create_qp, counters.failed_qps},
  };
  for (const auto& [handler, errors] : by_kind) {
    errors += handler == entry.handler ? 1U : 0U;
  }
}

// The lowest free handle, as in the kernel.
std::uint32_t UverbsFile::insert(std::unique_ptr<Object> object) {
  const std::uint32_t handle = handles_.take();
  if (handle >= objects_.size()) {
    objects_.resize(handle + std::size_t{1});
  }
  if (std::uint64_t* const count = count_of(object->kind())) {
    ++*count;
  }
  objects_[handle] = std::move(object);
  return handle;
}

// Counts the object out and destroys it. Its place in the table stays, free for the next object.
void UverbsFile::remove(std::unique_ptr<Object>& object) {
  if (std::uint64_t* const count = count_of(object->kind())) {
    --*count;
  }
  object.reset();
  handles_.give_back(static_cast<std::uint32_t>(&object - objects_.data()));
}

std::uint64_t* UverbsFile::count_of(ObjectKind kind) {
  LiveObjects& live = device_.statistics().live;
  switch (kind) {
    case ObjectKind::pd:
      return &live.pds;
    case ObjectKind::mr:
      return &live.mrs;
    case ObjectKind::ah:
      return &live.ahs;
    case ObjectKind::cq:
      return &live.cqs;
    case ObjectKind::qp:
      return &live.qps;
    case ObjectKind::srq:
      return &live.srqs;
    case ObjectKind::mw:
    case ObjectKind::channel:
    case ObjectKind::counter:
      break;
  }
  return nullptr;
}

int UverbsFile::nothing_of_the_kind(std::uint32_t handle) const {
  return handle < objects_.size() && objects_[handle] != nullptr ? EINVAL : ENOENT;
}

// Of all kinds of objects but completion queues, queue pairs and shared receive queues, whose
// commands also answer how many events were sent about them.
Outcome<void> UverbsFile::destroy(std::uint32_t handle, ObjectKind kind) {
  Object* const object = find<Object>(handle, kind);
  if (object == nullptr) {
    return refuse(nothing_of_the_kind(handle));
  }
  if (object->busy()) {
    return refuse(object->error_of_busy());
  }
  remove(objects_[handle]);
  return {};
}

// From the end: a descriptor that was closed may have been given to a newer channel.
Channel* UverbsFile::find_channel(int fd) {
  const auto found = std::find_if(channels_.rbegin(), channels_.rend(),
                                  [fd](const auto& entry) { return entry.first == fd; });
  return found == channels_.rend() ? nullptr : found->second;
}

}  // namespace weft::kernel
