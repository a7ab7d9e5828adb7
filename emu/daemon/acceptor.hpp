// Owns a listening socket, and the rules by which a connection is accepted.
#pragma once

#include <sys/types.h>

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "emu/daemon/client_socket.hpp"
#include "emu/daemon/side_threads.hpp"
#include "emu/daemon/watch.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// Accepts a bounded number of connections per turn, so that other work of the control thread is not
// kept waiting. Lives on the control thread, and as long as the io_context runs: its handlers keep
// `this`.
class Acceptor {
 public:
  // Decides whether the connection stays: dropping the socket closes it.
  using Take = std::function<void(ClientSocket socket)>;
  // Tells the other side, without waiting, why it is refused.
  using Refuse = std::function<void(int socket, std::string_view why)>;

  // Why a connection may not stay; nothing if it may.
  using Refusal = std::function<std::optional<std::string>(int socket)>;

  // With `strangers` any user may connect; else users that `refusal` lets pass, or without it only
  // this user and root.
  struct Rules {
    bool strangers = false;
    Refusal refusal{};
    bool tell_strangers = false;
    Take take;
    Refuse refuse;
  };
  Acceptor(boost::asio::io_context& io, SideThreads& side, srd::UniqueFd listener, Rules rules);

  static constexpr int kAcceptsATurn = 16;

 private:
  [[nodiscard]] std::optional<std::string> refusal_of(int socket) const;
  // Waits for the next connection, or a moment if none may be accepted now.
  void wait();
  void accept_some();
  void look_again_later();
  // Nothing: no connection waits, or it was refused for lack of a descriptor.
  [[nodiscard]] std::optional<ClientSocket> accept_one();
  void refuse_one();

  SideThreads& side_;
  Rules rules_;
  Watch listener_;
  boost::asio::steady_timer later_;
  srd::UniqueFd spare_;  // given up to accept, and refuse, a connection when no other is left
};

}  // namespace weft::daemon
