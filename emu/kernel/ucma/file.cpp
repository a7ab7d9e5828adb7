// Owns the framing of commands, and events on their way to the program.
//
// A command is one write(): a header with the number and two sizes, then the body. The answer is
// not read from the descriptor but stored where the body says, so its address is checked before
// anything is done. A row of kCommands has for each command: the least body, the size of the
// answer, the least room that the program must have for it, where in the body its address lies, and
// the handler.
#include "emu/kernel/ucma/file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "emu/kernel/native.hpp"
#include "emu/kernel/ucma/call.hpp"
#include "emu/kernel/ucma/layouts.hpp"
#include "emu/kernel/user_memory.hpp"

namespace weft::kernel {
namespace {

namespace ucma = abi::ucma;
using ucma::Command;

constexpr std::size_t kMaxCommandBytes = 512;  // longer than any of them
constexpr std::size_t kNoReply = 0;

}  // namespace

const CmFile::Entry CmFile::kCommands[] = {
    {Command::create_id, sizeof(ucma::CreateId), sizeof(ucma::IdReply), sizeof(ucma::IdReply),
     offsetof(ucma::CreateId, response), &CmFile::create_id},
    {Command::destroy_id, sizeof(ucma::DestroyId), sizeof(ucma::EventsReply),
     sizeof(ucma::EventsReply), 0, &CmFile::destroy_id},
    {Command::bind_ip, sizeof(ucma::BindIp), kNoReply, 0, 0, &CmFile::bind_ip},
    {Command::resolve_ip, sizeof(ucma::ResolveIp), kNoReply, 0, 0, &CmFile::resolve_ip},
    {Command::resolve_route, sizeof(ucma::ResolveRoute), kNoReply, 0, 0, &CmFile::resolve_route},
    {Command::query_route, sizeof(ucma::Query), sizeof(ucma::QueryRouteReply),
     offsetof(ucma::QueryRouteReply, ibdev_index), 0, &CmFile::query_route},
    {Command::connect, ucma::kLeastConnect, kNoReply, 0, 0, &CmFile::connect},
    {Command::listen, sizeof(ucma::Listen), kNoReply, 0, 0, &CmFile::listen},
    {Command::accept, ucma::kLeastAccept, kNoReply, 0, 0, &CmFile::accept},
    {Command::reject, sizeof(ucma::Reject), kNoReply, 0, 0, &CmFile::reject},
    {Command::disconnect, sizeof(ucma::Disconnect), kNoReply, 0, 0, &CmFile::disconnect},
    {Command::init_qp_attr, sizeof(ucma::InitQpAttr), sizeof(ucma::QpAttributes),
     sizeof(ucma::QpAttributes), 0, &CmFile::init_qp_attr},
    {Command::get_event, sizeof(ucma::GetEvent), sizeof(ucma::EventReply), ucma::kLeastEvent, 0,
     &CmFile::get_event},
    {Command::set_option, sizeof(ucma::SetOption), kNoReply, 0, 0, &CmFile::set_option},
    {Command::notify, sizeof(ucma::Notify), kNoReply, 0, 0, &CmFile::notify},
    {Command::join_ip_multicast, sizeof(ucma::JoinIpMulticast), sizeof(ucma::IdReply),
     sizeof(ucma::IdReply), 0, &CmFile::join_ip_multicast},
    {Command::leave_multicast, sizeof(ucma::DestroyId), sizeof(ucma::EventsReply),
     sizeof(ucma::EventsReply), 0, &CmFile::leave_multicast},
    {Command::migrate_id, sizeof(ucma::MigrateId), sizeof(ucma::EventsReply),
     sizeof(ucma::EventsReply), 0, &CmFile::migrate_id},
    {Command::query, sizeof(ucma::Query), sizeof(ucma::QueryAddrReply), ucma::kLeastQueryPath, 0,
     &CmFile::query},
    {Command::bind, sizeof(ucma::Bind), kNoReply, 0, 0, &CmFile::bind},
    {Command::resolve_addr, sizeof(ucma::ResolveAddr), kNoReply, 0, 0, &CmFile::resolve_addr},
    {Command::join_multicast, sizeof(ucma::JoinMulticast), sizeof(ucma::IdReply),
     sizeof(ucma::IdReply), 0, &CmFile::join_multicast},
};

CmFile::~CmFile() {
  host_.exclusively([this](roce::cm::Manager& manager, TimePoint now) {
    while (Contexts::Context* const context = contexts_.first_of(*this)) {
      (void)destroy(manager, now, *context);
    }
  });
}

// The order of checks is the kernel's. A longer body than known is cut: a newer library's end is
// not looked at.
ssize_t CmFile::write(const void* buffer, std::size_t size) {
  ucma::Header header{};
  if (size < sizeof header) {
    return -EINVAL;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  if (!copy_from_user(std::as_writable_bytes(std::span(&header, 1)), address)) {
    return -EFAULT;
  }
  const auto command = static_cast<Command>(header.command);
  if (command > Command::join_multicast || header.in + sizeof header > size) {
    return -EINVAL;
  }
  const auto* const entry =
      std::find_if(std::begin(kCommands), std::end(kCommands),
                   [command](const Entry& known) { return known.command == command; });
  if (entry == std::end(kCommands)) {
    return -ENOSYS;  // GET_OPTION
  }
  if (header.in < entry->body) {
    return -EINVAL;
  }
  if (header.out < entry->least_room) {
    return -ENOSPC;
  }
  std::byte bytes[kMaxCommandBytes];
  const std::span body = std::span(bytes).first(std::min<std::size_t>(header.in, sizeof bytes));
  if (!copy_from_user(body, address + sizeof header)) {
    return -EFAULT;
  }
  const int error = command == Command::migrate_id ? take_over(*entry, body, header.out)
                                                   : run(*entry, body, header.out);
  return error != 0 ? -error : static_cast<ssize_t>(size);
}

int CmFile::run(const Entry& entry, std::span<const std::byte> body, std::size_t room,
                CmFile* other) {
  room = std::min(room, entry.reply);
  std::uint64_t response = 0;
  if (entry.reply > 0) {  // looked at before: what is done is not undone
    std::memcpy(&response, &body[entry.response], sizeof response);
    if (!user_range_ok(response, room, true)) {
      return EFAULT;
    }
  }
  int error = 0;
  std::vector<std::byte> reply;
  host_.exclusively([&](roce::cm::Manager& manager, TimePoint now) {
    Call call{manager, now, body, room, other};
    error = (this->*entry.handler)(call);
    reply = std::move(call.reply);
  });
  if (error != 0 || reply.empty()) {
    return error;
  }
  return copy_to_user(response, std::span(reply).first(std::min(room, reply.size()))) ? 0 : EFAULT;
}

// The other file is looked for before anything is locked, and stays open meanwhile.
int CmFile::take_over(const Entry& entry, std::span<const std::byte> body, std::size_t room) {
  ucma::MigrateId command{};
  std::memcpy(&command, body.data(), sizeof command);
  const int fd = static_cast<int>(command.fd);
  const std::shared_ptr<CmFile> other = host_.file_of(fd);
  if (other == nullptr) {
    return native::is_open(fd) ? EINVAL : ENOENT;
  }
  return run(entry, body, room, other.get());
}

// A context is named by number, because the program may destroy it before it takes the event.
void CmFile::queue(const Contexts::Context& context, const roce::cm::Event& event) {
  CmEventQueue::Entry& entry = events_.entries().emplace_back();
  entry.context = context.id;
  entry.reply = event_reply(event);
  entry.reply.uid = context.uid;
  entry.reply.id = context.id;
  if (event.kind == roce::cm::EventKind::multicast_join) {
    Contexts::Group* const group = contexts_.find_group(event.group);
    if (group == nullptr) {  // left meanwhile
      events_.entries().pop_back();
      return;
    }
    entry.of_group = true;
    entry.reply.uid = group->uid;
    entry.reply.id = group->number;
  }
  entry.brings_connection = event.kind == roce::cm::EventKind::connect_request;
  entry.connection = event.connection;
  events_.signal();
}

int CmFile::get_event(Call& call) {
  if (events_.entries().empty()) {
    event_handler_.store(0, std::memory_order_relaxed);
    return EAGAIN;
  }
  event_handler_.store(native::thread_id(), std::memory_order_relaxed);
  CmEventQueue::Entry entry = events_.entries().front();
  events_.entries().pop_front();
  events_.signal();
  // destroy() removes the events of a context, so the context of an event in the queue exists.
  Contexts::Context& context = *contexts_.find(entry.context);
  ++context.events_reported;
  if (entry.of_group) {
    ++contexts_.find_group(entry.reply.id)->events_reported;
  }
  if (entry.brings_connection) {
    // Only now does a connection request become an id: a request that is never taken costs none.
    call.manager.took_request(context.handle);
    entry.reply.id = contexts_.add(*this, entry.connection, 0).id;
  }
  call.answer(entry.reply);
  return 0;
}

void CmFile::part(roce::cm::Manager& manager, TimePoint now, const Contexts::Context& context) {
  std::erase_if(events_.entries(), [&](const CmEventQueue::Entry& entry) {
    if (entry.context == context.id && entry.brings_connection) {
      manager.destroy(now, entry.connection);
    }
    return entry.context == context.id;
  });
  events_.signal();
  manager.destroy(now, context.handle);
}

std::uint32_t CmFile::destroy(roce::cm::Manager& manager, TimePoint now,
                              const Contexts::Context& context) {
  const std::uint32_t reported = context.events_reported;
  part(manager, now, context);
  contexts_.remove(context.id);
  return reported;
}

int CmFile::migrate_id(Call& call) {
  const auto command = call.read<ucma::MigrateId>();
  CmFile* const from = call.other;
  Contexts::Context* context = nullptr;
  if (const int error = contexts_.find(*from, command.id, context); error != 0) {
    return error;
  }
  // Events that wait move with their id, or they would be taken from the wrong descriptor.
  if (from != this) {
    std::erase_if(from->events_.entries(), [&](const CmEventQueue::Entry& entry) {
      if (entry.context != command.id) {
        return false;
      }
      events_.entries().push_back(entry);
      return true;
    });
    context->file = this;
    from->events_.signal();
    events_.signal();
  }
  call.answer(ucma::EventsReply{context->events_reported});
  return 0;
}

}  // namespace weft::kernel
