// Owns unix sockets that keep message boundaries and carry file descriptors.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/base/time.hpp"
#include "srd/io/posix.hpp"

namespace weft::attach {

// A message and the descriptors that came with it, which are this object's to close. `nothing`:
// none has come yet. `closed`: the connection has ended, or is broken.
struct Received {
  enum class State { message, nothing, closed };
  State state = State::nothing;
  std::vector<std::byte> bytes;
  std::vector<srd::UniqueFd> fds;

  // The message as a T if it has exactly that size.
  template <class T>
  [[nodiscard]] std::optional<T> as() const {
    if (bytes.size() != sizeof(T)) {
      return std::nullopt;
    }
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
};

// The address of a unix socket at that path, which may have 107 characters at the most.
[[nodiscard]] Result<sockaddr_un> unix_address(const std::string& path);
// Waits at most `patience` for a server that is behind with accepting; 0: not at all.
[[nodiscard]] Result<srd::UniqueFd> connect_seqpacket(const std::string& path,
                                                      Duration patience = std::chrono::seconds{5});
// Replaces a socket file on which no process listens; fails if one does. Mode 0600.
[[nodiscard]] Result<srd::UniqueFd> listen_unix(const std::string& path, int type);

// Whether the process at the other end is this user's or root's; its number, -1 if unknown; its
// user. For the side that connected, that is the process that listens.
[[nodiscard]] bool may_connect(int socket);
[[nodiscard]] pid_t peer_process(int socket);
[[nodiscard]] uid_t peer_user(int socket);

// Neither blocks. send_message() is false if the other side does not read, or is gone: nothing was
// sent then. A received message that is larger than any of ours, or brings more than four
// descriptors, is returned as an empty one without any; an empty datagram ends the connection.
[[nodiscard]] bool send_message(int socket, std::span<const std::byte> bytes,
                                std::initializer_list<int> fds = {});
template <class T>
[[nodiscard]] bool send_struct(int socket, const T& value, std::initializer_list<int> fds = {}) {
  return send_message(socket, std::as_bytes(std::span(&value, 1)), fds);
}
[[nodiscard]] Received receive_message(int socket);
// Closes descriptors that came with a message. Sockets among them do not linger (SO_LINGER is
// switched off); closing other kinds may still block.
void close_unwanted(std::vector<srd::UniqueFd>& fds);
// Waits up to that long for a message. State::nothing: none came.
[[nodiscard]] Received await_message(int socket, int milliseconds);

}  // namespace weft::attach
