// Owns the words on stderr, written past the wrappers of this library.
#include "integration/preload/complaints.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace weft::preload {

void complain(const std::string& text) {
  const int error = errno;
  const std::string line = "weft: " + text + "\n";
  (void)!syscall(SYS_write, 2, line.data(), line.size());
  errno = error;
}

void complain_of_few_descriptors() {
  complain("this process has as many descriptors as it may; a device needs up to 20 (ulimit -n)");
}

bool has_no_descriptor_left() {
  const auto one_more = static_cast<int>(syscall(SYS_fcntl, 2, F_DUPFD_CLOEXEC, 0));
  if (one_more >= 0) {
    syscall(SYS_close, one_more);
  }
  return one_more < 0 && errno == EMFILE;
}

}  // namespace weft::preload
