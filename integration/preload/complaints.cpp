// Owns the words on stderr, written past the wrappers of this library.
#include "integration/preload/complaints.hpp"

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

}  // namespace weft::preload
