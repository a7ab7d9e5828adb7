// Owns what each command of rdma_cm does with an id.
//
// Each handler reads its command from the call, finds the id, and asks the connection manager
// (emu/roce/cm), which has the state machine; nothing here waits. A handler returns 0 or an errno,
// and the order of its checks is that of the kernel: a program sees the same error for a call that
// is wrong in two ways. CmFile::run() holds the lock of the host around every handler.
#include <cerrno>

#include "emu/kernel/ucma/call.hpp"
#include "emu/kernel/ucma/layouts.hpp"
#include "emu/kernel/user_memory.hpp"

namespace weft::kernel {
namespace {

namespace cm = roce::cm;
namespace ucma = abi::ucma;

// An IP port space determines the queue pair type; with PortSpace::ib the program chooses it.
std::optional<cm::Transport> transport_of(cm::PortSpace space, std::uint8_t qp_type) {
  switch (space) {
    case cm::PortSpace::tcp:
      return cm::Transport::rc;
    case cm::PortSpace::udp:
    case cm::PortSpace::ipoib:
      return cm::Transport::ud;
    case cm::PortSpace::ib: {
      const auto transport = static_cast<cm::Transport>(qp_type);
      const bool known = transport == cm::Transport::rc || transport == cm::Transport::uc ||
                         transport == cm::Transport::ud;
      return known ? std::optional(transport) : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

// For commands that the kernel accepts only after the address has been resolved to a device.
int CmFile::find_on_nic(const Call& call, std::uint32_t id, Contexts::Context*& found) {
  const int error = find(id, found);
  return error == 0 && !call.manager.look(found->handle).has_nic ? EINVAL : error;
}

int CmFile::create_id(Call& call) {
  const auto command = call.read<ucma::CreateId>();
  const auto space = static_cast<cm::PortSpace>(command.port_space);
  const auto transport = transport_of(space, command.qp_type);
  if (!transport) {
    return EINVAL;
  }
  const std::optional<cm::Handle> handle = call.manager.create(space, *transport);
  if (!handle) {
    return ENOMEM;
  }
  call.answer(ucma::IdReply{contexts_.add(*this, *handle, command.uid).id});
  return 0;
}

// Waits for nothing: events that the program has fetched and not acknowledged are the library's
// affair, which is why it is told how many there were.
int CmFile::destroy_id(Call& call) {
  Contexts::Context* context = nullptr;
  if (const int error = find(call.read<ucma::DestroyId>().id, context); error != 0) {
    return error;
  }
  call.answer(ucma::EventsReply{destroy(call.manager, call.now, *context)});
  return 0;
}

int CmFile::bind_ip(Call& call) {
  const auto command = call.read<ucma::BindIp>();
  const auto address = read_socket(command.address);
  Contexts::Context* context = nullptr;
  if (const int error = find(command.id, context); error != 0) {
    return error;
  }
  return address ? call.manager.bind(context->handle, *address) : EINVAL;
}

// BIND takes an address of any kind, with its length; BIND_IP above has room for an IPv6 address at
// most. The library probes with an InfiniBand address first, and uses the older commands if that
// fails.
int CmFile::bind(Call& call) {
  const auto command = call.read<ucma::Bind>();
  const auto address = read_socket(command.address);
  if (command.reserved != 0 || command.address_size != socket_size(command.address) || !address) {
    return EINVAL;
  }
  Contexts::Context* context = nullptr;
  const int error = find(command.id, context);
  return error != 0 ? error : call.manager.bind(context->handle, *address);
}

int CmFile::resolve_ip(Call& call) {
  const auto command = call.read<ucma::ResolveIp>();
  const auto destination = read_socket(command.destination);
  const auto source = read_socket(command.source);
  Contexts::Context* context = nullptr;
  if (const int error = find(command.id, context); error != 0) {
    return error;
  }
  if (!destination) {
    return EINVAL;
  }
  return call.manager.resolve_address(context->handle, source.value_or(cm::SocketAddress{}),
                                      *destination);
}

int CmFile::resolve_addr(Call& call) {
  const auto command = call.read<ucma::ResolveAddr>();
  const auto destination = read_socket(command.destination);
  const auto source = read_socket(command.source);
  const bool has_source = command.source_size != 0;
  if (command.reserved != 0 || command.destination_size != socket_size(command.destination) ||
      !destination ||
      (has_source && (command.source_size != socket_size(command.source) || !source))) {
    return EINVAL;
  }
  Contexts::Context* context = nullptr;
  if (const int error = find(command.id, context); error != 0) {
    return error;
  }
  return call.manager.resolve_address(context->handle, has_source ? *source : cm::SocketAddress{},
                                      *destination);
}

int CmFile::resolve_route(Call& call) {
  Contexts::Context* context = nullptr;
  const int error = find_on_nic(call, call.read<ucma::ResolveRoute>().id, context);
  return error != 0 ? error : call.manager.resolve_route(context->handle);
}

int CmFile::query_route(Call& call) {
  Contexts::Context* context = nullptr;
  if (const int error = find(call.read<ucma::Query>().id, context); error != 0) {
    return error;
  }
  // An id without a device is no error: the reply then holds its addresses only.
  const cm::Connection& id = call.manager.look(context->handle);
  ucma::QueryRouteReply reply{};
  (void)write_socket(id.binding.address, reply.source);
  (void)write_socket(id.destination, reply.destination);
  reply.ibdev_index = cm::LocalNic{}.index;
  if (id.has_nic) {
    const cm::LocalNic& nic = call.manager.nic_of(context->handle);
    reply.node_guid = big_endian(nic.guid);
    reply.port_num = 1;
    reply.ibdev_index = nic.index;
    reply.num_paths = id.has_path ? 1 : 0;
    reply.route[0] = path_record(id);
  }
  call.answer(reply);
  return 0;
}

int CmFile::query(Call& call) {
  const auto command = call.read<ucma::Query>();
  Contexts::Context* context = nullptr;
  if (const int error = find(command.id, context); error != 0) {
    return error;
  }
  const cm::Connection& id = call.manager.look(context->handle);
  if (command.option == ucma::kQueryPath) {
    ucma::QueryPathReply reply{};
    reply.num_paths = id.has_path ? 1 : 0;
    if (id.has_path) {
      reply.path = path_data(id);
    }
    call.answer(reply);
    // If there is no path, or no room for one, only the head with the number of paths goes back.
    call.reply.resize(id.has_path && call.room >= sizeof reply ? sizeof reply
                                                               : ucma::kLeastQueryPath);
    return 0;
  }
  if (command.option != ucma::kQueryAddr && command.option != ucma::kQueryGid) {
    return ENOSYS;
  }
  // A program built against an older header has no ibdev_index, and less room.
  if (call.room < offsetof(ucma::QueryAddrReply, ibdev_index)) {
    return ENOSPC;
  }
  ucma::QueryAddrReply reply{};
  reply.ibdev_index = cm::LocalNic{}.index;
  if (id.has_nic) {
    const cm::LocalNic& nic = call.manager.nic_of(context->handle);
    reply.node_guid = big_endian(nic.guid);
    reply.port_num = 1;
    reply.pkey = big_endian(cm::kDefaultPkey);
    reply.ibdev_index = nic.index;
  }
  if (command.option == ucma::kQueryGid) {
    reply.source = gid_socket(id, true);
    reply.destination = gid_socket(id, false);
    reply.source_size = reply.destination_size = ucma::kInfiniBandSize;
  } else {
    reply.source_size = static_cast<std::uint16_t>(write_socket(id.binding.address, reply.source));
    reply.destination_size =
        static_cast<std::uint16_t>(write_socket(id.destination, reply.destination));
  }
  call.answer(reply);
  return 0;
}

int CmFile::connect(Call& call) {
  const auto command = call.read<ucma::Connect>();
  if (command.param.valid == 0) {
    // The library always sends the parameters; the kernel demands the mark.
    return EINVAL;
  }
  Contexts::Context* context = nullptr;
  if (const int error = find_on_nic(call, command.id, context); error != 0) {
    return error;
  }
  return call.manager.connect(call.now, context->handle, read_parameters(command.param));
}

int CmFile::listen(Call& call) {
  const auto command = call.read<ucma::Listen>();
  Contexts::Context* context = nullptr;
  const int error = find(command.id, context);
  return error != 0 ? error : call.manager.listen(context->handle, command.backlog);
}

int CmFile::accept(Call& call) {
  const auto command = call.read<ucma::Accept>();
  Contexts::Context* context = nullptr;
  if (const int error = find_on_nic(call, command.id, context); error != 0) {
    return error;
  }
  // An accept without parameters leaves the uid as it is, as in the kernel.
  if (command.param.valid == 0) {
    return call.manager.accept(call.now, context->handle, nullptr);
  }
  const cm::ConnectParameters parameters = read_parameters(command.param);
  const int error = call.manager.accept(call.now, context->handle, &parameters);
  if (error == 0) {
    // Until now the id had no uid, and Contexts::dispatch() gave its events to no file.
    context->uid = command.uid;
  }
  return error;
}

// The program says no to a request; what goes over the wire depends on the id's phase.
int CmFile::reject(Call& call) {
  const auto command = call.read<ucma::Reject>();
  const auto reason =
      // A program may give only these two reasons; 0 means `consumer`.
      command.reason == 0 ? cm::Reason::consumer : static_cast<cm::Reason>(command.reason);
  if (reason != cm::Reason::consumer && reason != cm::Reason::vendor_option) {
    return EINVAL;
  }
  Contexts::Context* context = nullptr;
  if (const int error = find_on_nic(call, command.id, context); error != 0) {
    return error;
  }
  return call.manager.reject(call.now, context->handle, reason,
                             {command.private_data, command.private_data_len});
}

int CmFile::disconnect(Call& call) {
  Contexts::Context* context = nullptr;
  const int error = find_on_nic(call, call.read<ucma::Disconnect>().id, context);
  return error != 0 ? error : call.manager.disconnect(call.now, context->handle);
}

// The library asks before each transition of its queue pair, and applies the answer unchanged.
int CmFile::init_qp_attr(Call& call) {
  const auto command = call.read<ucma::InitQpAttr>();
  if (command.qp_state > cm::kQpError) {
    return EINVAL;
  }
  Contexts::Context* context = nullptr;
  if (const int error = find_on_nic(call, command.id, context); error != 0) {
    return error;
  }
  cm::QpSettings settings;
  const int error = call.manager.qp_settings(context->handle, command.qp_state, settings);
  if (error == 0) {
    call.answer(qp_attributes(settings));
  }
  return error;
}

int CmFile::set_option(Call& call) {
  const auto command = call.read<ucma::SetOption>();
  Contexts::Context* context = nullptr;
  if (const int error = find(command.id, context); error != 0) {
    return error;
  }
  std::uint32_t value = 0;
  // As in the kernel: copied first, judged afterwards; a bad address is EFAULT even for an unknown
  // option.
  const std::size_t length = std::min<std::size_t>(command.length, sizeof value);
  if (!copy_from_user(std::as_writable_bytes(std::span(&value, 1)).first(length), command.value)) {
    return EFAULT;
  }
  if (command.level != ucma::kLevelId || command.name > ucma::kOptionAckTimeout) {
    return ENOSYS;
  }
  const bool is_byte = command.name == ucma::kOptionTos || command.name == ucma::kOptionAckTimeout;
  if (command.length != (is_byte ? 1 : sizeof value)) {
    return EINVAL;
  }
  switch (command.name) {
    case ucma::kOptionTos:
      call.manager.set_traffic_class(context->handle, static_cast<std::uint8_t>(value));
      return 0;
    case ucma::kOptionReuseAddress:
      return call.manager.set_reuse(context->handle, value != 0);
    case ucma::kOptionAfOnly:
      return call.manager.set_own_family(context->handle, value != 0);
    default:
      return call.manager.set_ack_timeout(context->handle, static_cast<std::uint8_t>(value));
  }
}

int CmFile::notify(Call& call) {
  const auto command = call.read<ucma::Notify>();
  Contexts::Context* context = nullptr;
  if (const int error = find_on_nic(call, command.id, context); error != 0) {
    return error;
  }
  return command.event == ucma::kCommunicationEstablished ? call.manager.establish(context->handle)
                                                          : EINVAL;
}

int CmFile::join_ip_multicast(Call& call) {
  const auto command = call.read<ucma::JoinIpMulticast>();
  const auto address = read_socket(command.address);
  return address ? join(call, command.id, command.uid, *address) : EINVAL;
}

int CmFile::join_multicast(Call& call) {
  const auto command = call.read<ucma::JoinMulticast>();
  const auto address = read_socket(command.address);
  const bool known_flag =
      command.join_flags == ucma::kJoinFullMember || command.join_flags == ucma::kJoinSendOnly;
  if (!address || command.address_size != socket_size(command.address) || !known_flag) {
    return EINVAL;
  }
  return join(call, command.id, command.uid, *address);
}

// The group's number is what the program leaves by, and what the join's event names.
int CmFile::join(Call& call, std::uint32_t id, std::uint64_t uid,
                 const cm::SocketAddress& address) {
  Contexts::Context* context = nullptr;
  if (const int error = find_on_nic(call, id, context); error != 0) {
    return error;
  }
  Contexts::Group* const group = contexts_.add_group(context->id, uid);
  if (group == nullptr) {
    return ENOMEM;
  }
  const std::uint32_t number = group->number;
  const int error = call.manager.join(context->handle, address, number);
  if (error != 0) {
    contexts_.remove_group(number);
    return error;
  }
  call.answer(ucma::IdReply{number});
  return 0;
}

int CmFile::leave_multicast(Call& call) {
  const auto number = call.read<ucma::DestroyId>().id;
  const Contexts::Group* const group = contexts_.find_group(number);
  if (group == nullptr) {
    return ENOENT;
  }
  if (contexts_.find(group->context)->file != this) {
    return EINVAL;
  }
  std::erase_if(events_.entries(), [number](const CmEventQueue::Entry& entry) {
    return entry.of_group && entry.reply.id == number;
  });
  events_.signal();
  call.answer(ucma::EventsReply{group->events_reported});
  contexts_.remove_group(number);
  return 0;
}

}  // namespace weft::kernel
