// Owns finding out whether, and why, standard output was lost.
#include "emu/cli/output.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"

namespace weft::cli {
namespace {

// Flushes. 0, or the errno of what was lost, now or by an earlier write: that one left its mark on
// the stream, which a later flush of an empty buffer does not see, but not its errno.
int lost_output() {
  if (std::fflush(stdout) != 0) {
    return errno;
  }
  if (std::ferror(stdout) == 0) {
    return 0;
  }
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  // The errno is gone. A pipe without a reader still shows as POLLERR; anything else is told as
  // EIO.
  const bool reader_left = ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
  return reader_left ? EPIPE : EIO;
}

}  // namespace

void flush_output() {
  if (const int error = lost_output(); error != 0) {
    throw std::system_error(error, std::generic_category(), "standard output");
  }
}

int end_output(int code) {
  const int error = lost_output();
  if (error == 0) {
    return code;
  }
  if (error == EPIPE) {
    return 128 + SIGPIPE;
  }
  complain("weft: standard output: {}\n", std::strerror(error));
  return code == kSuccess ? kFailure : code;
}

}  // namespace weft::cli
