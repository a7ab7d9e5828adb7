// Owns one connection of a StreamServer: reading requests and writing answers.
#include "emu/daemon/stream_server.hpp"

#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <span>
#include <utility>

namespace weft::daemon {

namespace asio = boost::asio;

// Kept alive by the operation that is under way: reading or writing, never both. So from a client
// that does not read its answer, no further request is read.
class StreamServer::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(StreamServer& server, ClientSocket socket)
      : server_(server),
        fd_(std::move(socket)),
        socket_(server.io_, asio::generic::stream_protocol(AF_UNIX, 0), fd_.get()),
        deadline_(server.io_) {
    ++server_.open_;
  }
  ~Session() {
    boost::system::error_code ignored;
    socket_.release(ignored);  // the descriptor is closed by fd_, which knows how
    --server_.open_;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void read() {
    allow(server_.options_.idle);
    socket_.async_wait(socket_.wait_read, [self = shared_from_this()](const auto& error) {
      if (!error) {
        self->hear();
      }
    });
  }

 private:
  void hear() {
    const ssize_t size = fd_.read(std::as_writable_bytes(std::span(buffer_)));
    if (size > 0) {
      input_.append(buffer_.data(), static_cast<std::size_t>(size));
      answer();
    } else if (size < 0 && errno == EAGAIN) {
      read();
    }
  }

  void answer() {
    auto text = server_.options_.answer(input_, closing_);
    if (text) {
      output_ = std::move(*text);
      sent_ = 0;
      write();
    } else if (input_.size() <= server_.options_.max_input) {
      read();
    }
  }

  void write() {
    allow(server_.options_.stuck);
    socket_.async_write_some(asio::buffer(output_) + sent_,
                             [self = shared_from_this()](const auto& error, std::size_t size) {
                               self->written(error, size);
                             });
  }

  void written(const boost::system::error_code& error, std::size_t size) {
    if (error) {
      return;
    }
    sent_ += size;
    if (sent_ < output_.size()) {
      write();
    } else if (!closing_) {
      answer();
    }
  }

  // Sets the deadline of the next operation: after it, the operation and with it the session end.
  void allow(Duration patience) {
    deadline_.expires_after(patience);
    deadline_.async_wait([weak = weak_from_this()](const auto& error) {
      const auto self = weak.lock();
      if (self && !error && self->deadline_.expiry() <= asio::steady_timer::clock_type::now()) {
        self->socket_.cancel();
      }
    });
  }

  StreamServer& server_;
  ClientSocket fd_;
  asio::generic::stream_protocol::socket socket_;
  asio::steady_timer deadline_;
  std::array<char, 4096> buffer_;
  std::string input_;
  std::string output_;
  std::size_t sent_ = 0;  // of it
  bool closing_ = false;
};

void StreamServer::listen(srd::UniqueFd listener, bool strangers) {
  acceptors_.push_back(std::make_unique<Acceptor>(
      io_, side_, std::move(listener),
      Acceptor::Rules{
          .strangers = strangers,
          .tell_strangers = false,
          .take = [this](ClientSocket socket) { take(std::move(socket)); },
          .refuse = [this](int socket, std::string_view why) { refuse(socket, why); }}));
}

void StreamServer::take(ClientSocket socket) {
  if (open_ >= options_.max_connections) {
    refuse(socket.get(), "weftd has " + std::to_string(open_) + " such connections; close some");
    return;
  }
  std::make_shared<Session>(*this, std::move(socket))->read();
}

void StreamServer::refuse(int socket, std::string_view why) const {
  const std::string text = options_.refusal(why);
  [[maybe_unused]] const auto sent =
      ::send(socket, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace weft::daemon
