// Owns connections with textual requests and answers: those of the control socket and of metrics.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/daemon/acceptor.hpp"
#include "srd/base/time.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// On the control thread. A client that sends too much without asking anything, or does not take its
// answer, loses its connection; one too many is refused with a reason.
class StreamServer {
 public:
  // Takes one request off the front of `input`. Nothing: it is not complete yet. `close` is set
  // when the connection ends after the answer.
  using Answer = std::function<std::optional<std::string>(std::string& input, bool& close)>;

  struct Options {
    Answer answer;
    std::function<std::string(std::string_view why)> refusal;
    std::size_t max_connections = 64;
    std::size_t max_input = 1 << 16;            // of a request that is not complete
    Duration idle = std::chrono::minutes{5};    // nothing was asked
    Duration stuck = std::chrono::seconds{10};  // nothing of an answer was taken
  };
  StreamServer(boost::asio::io_context& io, SideThreads& side, Options options)
      : io_(io), side_(side), options_(std::move(options)) {}

  // Connections to all of its listeners count together. With `strangers` any user may connect.
  void listen(srd::UniqueFd listener, bool strangers);

 private:
  class Session;

  void take(ClientSocket socket);
  void refuse(int socket, std::string_view why) const;

  boost::asio::io_context& io_;
  SideThreads& side_;
  Options options_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::size_t open_ = 0;
};

}  // namespace weft::daemon
