// Owns the calls of job control.
#include "emu/launch/terminal.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace weft::launch {
namespace {

// tcsetpgrp() from a background process group stops the caller by SIGTTOU, unless that is blocked.
void set_foreground(int fd, pid_t group) {
  sigset_t mask;
  sigset_t before;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGTTOU);
  ::sigprocmask(SIG_BLOCK, &mask, &before);
  ::tcsetpgrp(fd, group);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

Terminal::Terminal() {
  if (::isatty(STDIN_FILENO) != 0) {
    fd_ = srd::UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  }
}

bool Terminal::is_ours() const { return fd_ && ::tcgetpgrp(fd_.get()) == ::getpgrp(); }

void Terminal::lend(pid_t group) {
  set_foreground(fd_.get(), group);
  lent_ = true;
}

void Terminal::take_back() {
  if (lent_) {
    set_foreground(fd_.get(), ::getpgrp());
    lent_ = false;
  }
}

void Terminal::claim_for_this_process() { set_foreground(STDIN_FILENO, ::getpgrp()); }

}  // namespace weft::launch
