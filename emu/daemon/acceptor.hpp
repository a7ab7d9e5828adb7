// Owns a socket that listens, and the rules for letting somebody in.
#pragma once

#include <sys/types.h>

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <string_view>

#include "emu/daemon/client_socket.hpp"
#include "emu/daemon/side_threads.hpp"
#include "emu/daemon/watch.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// A bounded number of connections a turn, so that whoever else waits for the control thread gets
// one in between.
class Acceptor {
 public:
  // It is up to `take` whether the connection stays.
  using Take = std::function<void(ClientSocket socket)>;
  // Tells the other side, without waiting, why it is not let in.
  using Refuse = std::function<void(int socket, std::string_view why)>;

  // With `strangers` anybody may connect; else only this user and root.
  struct Rules {
    bool strangers = false;
    bool tell_strangers = false;
    Take take;
    Refuse refuse;
  };
  Acceptor(boost::asio::io_context& io, SideThreads& side, srd::UniqueFd listener, Rules rules);

  static constexpr int kAcceptsATurn = 16;

 private:
  void wait();
  void accept_some();
  void look_again_later();
  [[nodiscard]] std::optional<ClientSocket> accept_one();
  void refuse_one();

  SideThreads& side_;
  Rules rules_;
  Watch listener_;
  boost::asio::steady_timer later_;
  srd::UniqueFd spare_;  // lent to a connection to tell it that there are no others
};

}  // namespace weft::daemon
