// Owns one run of the guest: its files, its streams, and its end.
//
// This process only passes bytes on: it polls all streams at once, and none may hold up another.
// The run is over when the guest has written the job's exit code, not when QEMU ends: a guest takes
// a moment to power off, and QEMU is killed instead.
#include "emu/softroce/guest.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "emu/launch/child.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/stream_writer.hpp"
#include "emu/roce/wire/addresses.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/address_text.hpp"

namespace weft::softroce {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  srd::UniqueFd reader;
  srd::UniqueFd writer;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("pipe"));
  }
  return Pipe{srd::UniqueFd(ends[0]), srd::UniqueFd(ends[1])};
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? Result<void>() : fail(ErrorCode::io_error, "cannot write '" + path + "'");
}

// The guest gets the addresses that a NIC of ours would have, so its device has the same GIDs. The
// link-local one its kernel makes itself.
Result<void> write_files(const GuestOptions& options) {
  std::string addresses;
  for (const srd::Address& address : roce::wire::addresses_of(options.place.address)) {
    if (!roce::wire::is_link_local(address)) {
      addresses += srd::to_text(address) + (address.is_v4() ? "/16\n" : "/64\n");
    }
  }
  return write_file(options.folder + "/job", options.job + "\n").and_then([&] {
    return write_file(options.folder + "/addresses", addresses);
  });
}

// The last lines of a file, for an error.
std::string tail_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  constexpr std::size_t kShown = 1500;
  return text.size() > kShown ? text.substr(text.size() - kShown) : text;
}

// The streams between us and the guest while it runs.
class Streams {
 public:
  static Result<Streams> make() {
    Streams streams;
    for (Pipe* pipe : {&streams.in_, &streams.out_, &streams.errors_, &streams.control_}) {
      auto made = make_pipe();
      if (!made) {
        return tl::unexpected(made.error());
      }
      *pipe = std::move(*made);
    }
    // A guest that does not read must not hold us up.
    ::fcntl(streams.in_.writer.get(), F_SETFL, O_NONBLOCK);
    return streams;
  }

  [[nodiscard]] GuestStreams of_guest() const {
    return {out_.writer.get(), errors_.writer.get(), control_.writer.get()};
  }
  [[nodiscard]] int guest_input() const { return in_.reader.get(); }
  // After the start: then the guest's ends are its own.
  void close_guest_ends() {
    in_.reader = {};
    out_.writer = {};
    errors_.writer = {};
    control_.writer = {};
  }

  [[nodiscard]] bool is_up() const { return said_.starts_with("up\n"); }
  [[nodiscard]] bool is_serving() const { return said_.find("serving\n") != std::string::npos; }
  // The job's exit code, once a whole line on the control stream is a number. Words such as "up"
  // come before it, and that somebody listens may be said just behind it.
  [[nodiscard]] std::optional<int> code() const {
    std::istringstream lines(said_);
    for (std::string line; std::getline(lines, line) && !lines.eof();) {
      if (!line.empty() && line[0] >= '0' && line[0] <= '9') {
        return std::atoi(line.c_str());
      }
    }
    return std::nullopt;
  }
  // Nobody reads what the job prints.
  [[nodiscard]] bool reader_left() const { return reader_left_; }
  // The errno for which output was lost, or 0.
  [[nodiscard]] int failure() const {
    return stdout_.failure() != 0 ? stdout_.failure() : stderr_.failure();
  }
  // One round, of `wait` at the most. A reader of ours that does not read holds up the guest's
  // output, and nothing else.
  void turn(std::chrono::milliseconds wait) {
    std::array<pollfd, 7> fds{{{stdout_.is_full() ? -1 : out_.reader.get(), POLLIN, 0},
                               {stderr_.is_full() ? -1 : errors_.reader.get(), POLLIN, 0},
                               {control_.reader.get(), POLLIN, 0},
                               {may_read() ? STDIN_FILENO : -1, POLLIN, 0},
                               {input_.empty() ? -1 : in_.writer.get(), POLLOUT, 0},
                               {stdout_.pending() == 0 ? -1 : stdout_.fd(), POLLOUT, 0},
                               {stderr_.pending() == 0 ? -1 : stderr_.fd(), POLLOUT, 0}}};
    if (::poll(fds.data(), fds.size(), static_cast<int>(wait.count())) <= 0) {
      return;
    }
    if (fds[0].revents != 0) {
      pass_on(out_.reader, &stdout_);
    }
    if (fds[1].revents != 0) {
      pass_on(errors_.reader, &stderr_);
    }
    if (fds[2].revents != 0) {
      pass_on(control_.reader, nullptr);
    }
    if (fds[3].revents != 0) {
      read_input();
    }
    if (fds[4].revents != 0) {
      write_input();
    }
    for (launch::StreamWriter* writer : {&stdout_, &stderr_}) {
      reader_left_ = !writer->write_some() || reader_left_;
    }
  }
  // After the guest's end: what is still on its way.
  void drain() {
    input_.clear();
    input_ended_ = true;
    while (out_.reader || errors_.reader || stdout_.pending() + stderr_.pending() > 0) {
      launch::check_interrupt();
      turn(std::chrono::milliseconds{1000});
    }
  }

 private:
  // Not before the guest is there: what another program could read is not taken.
  [[nodiscard]] bool may_read() const { return is_up() && !input_ended_ && input_.empty(); }

  void pass_on(srd::UniqueFd& from, launch::StreamWriter* to) {
    std::array<char, 65536> data;
    const ssize_t got = ::read(from.get(), data.data(), data.size());
    if (got > 0 && to != nullptr) {
      to->add(std::string(data.data(), static_cast<std::size_t>(got)));
    } else if (got > 0) {
      said_.append(data.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      from = {};
    }
  }
  void read_input() {
    std::array<char, 4096> data;
    const ssize_t got = ::read(STDIN_FILENO, data.data(), data.size());
    if (got > 0) {
      input_.assign(data.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      input_ended_ = true;
      in_.writer = {};  // the job sees the end, too
    }
  }
  void write_input() {
    const ssize_t written = ::write(in_.writer.get(), input_.data(), input_.size());
    if (written > 0) {
      input_.erase(0, static_cast<std::size_t>(written));
    } else if (errno != EAGAIN && errno != EINTR) {
      input_.clear();
      input_ended_ = true;
    }
  }

  Pipe in_, out_, errors_, control_;
  std::string said_;  // on the control stream
  launch::StreamWriter stdout_{STDOUT_FILENO};
  launch::StreamWriter stderr_{STDERR_FILENO};
  bool reader_left_ = false;
  std::string input_;  // for the guest
  bool input_ended_ = false;
};

}  // namespace

Result<int> run_guest(const GuestOptions& options) {
  if (const auto written = write_files(options); !written) {
    return tl::unexpected(written.error());
  }
  auto streams = Streams::make();
  if (!streams) {
    return tl::unexpected(streams.error());
  }
  const std::string log_path = options.folder + "/qemu.log";
  const srd::UniqueFd log(
      ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const GuestStreams ends = streams->of_guest();
  auto qemu = launch::Child::start({.words = qemu_words(options, ends),
                                    .in = streams->guest_input(),
                                    .out = log.get(),
                                    .errors = log.get(),
                                    .keep = {ends.out, ends.errors, ends.control},
                                    .death_signal = SIGKILL});
  if (!qemu) {
    return tl::unexpected(qemu.error());
  }
  streams->close_guest_ends();
  const auto begin = Clock::now();
  bool serves = false;
  std::string wrong;
  while (!streams->code() && !streams->reader_left() && wrong.empty()) {
    launch::check_interrupt();
    const bool has_ended = qemu->ended().has_value();
    streams->turn(std::chrono::milliseconds{has_ended ? 0 : 100});
    if (options.on_serving && !serves && streams->is_serving()) {
      serves = true;
      options.on_serving();
    }
    const auto passed = Clock::now() - begin;
    if (has_ended && !streams->code()) {
      wrong = "the guest ended by itself";
    } else if (!streams->is_up() && passed > options.boot_limit) {
      wrong = "the guest did not start in time";
    } else if (options.limit.count() > 0 && passed > options.limit) {
      wrong = "the guest's time is over";
    }
  }
  const std::optional<int> code = streams->code();
  qemu->end();
  streams->drain();
  ::unlink(options.place.own_socket.c_str());
  if (streams->reader_left()) {
    return 128 + SIGPIPE;  // as it would have ended the job without a guest
  }
  if (const int error = streams->failure(); error != 0) {
    return fail(ErrorCode::io_error,
                std::string("the job's output cannot be written: ") + std::strerror(error));
  }
  if (code) {
    return *code;
  }
  return fail(ErrorCode::io_error,
              wrong + "\n" + tail_of(log_path) + tail_of(options.folder + "/console.log"));
}

}  // namespace weft::softroce
