// Owns the translation between the connection manager's values and the kernel's layouts of them.
#pragma once

#include <optional>
#include <span>

#include "emu/kernel/abi/ucma.hpp"
#include "emu/roce/cm/manager.hpp"

namespace weft::kernel {

// The size that a socket address of this family has; 0: no such family here.
[[nodiscard]] std::size_t socket_size(std::span<const std::byte> socket);
// Nothing, if it is of no family that the manager knows.
[[nodiscard]] std::optional<roce::cm::SocketAddress> read_socket(std::span<const std::byte> socket);
// Returns the size. Leaves `to` alone if the address is not known.
std::size_t write_socket(const roce::cm::SocketAddress& address, std::span<std::byte> to);

[[nodiscard]] std::uint64_t big_endian(std::uint64_t value);
[[nodiscard]] std::uint32_t big_endian(std::uint32_t value);
[[nodiscard]] std::uint16_t big_endian(std::uint16_t value);

[[nodiscard]] roce::cm::ConnectParameters read_parameters(const abi::ucma::ConnParam& from);
[[nodiscard]] abi::ucma::EventReply event_reply(const roce::cm::Event& event);
[[nodiscard]] abi::ucma::QpAttributes qp_attributes(const roce::cm::QpSettings& settings);
// As QUERY_ROUTE gives it, and as QUERY_PATH does.
[[nodiscard]] abi::ucma::PathRecord path_record(const roce::cm::Connection& id);
[[nodiscard]] abi::ucma::PathData path_data(const roce::cm::Connection& id);
// The address of InfiniBand that QUERY_GID gives in the place of a socket address.
[[nodiscard]] abi::ucma::SocketStorage gid_socket(const roce::cm::Connection& id, bool source);

}  // namespace weft::kernel
