// Owns the end of a process that found a bug in itself.
#include "srd/base/check.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace weft {
namespace {

void write_error(const char* text) {
  // The result is of no use here: the process is about to abort whether or not anyone reads this.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

}  // namespace

void check_failed(const char* expression, const char* file, int line) {
  char digits[16];
  char* cursor = digits + sizeof digits;
  *--cursor = '\0';
  do {
    *--cursor = static_cast<char>('0' + line % 10);
    line /= 10;
  } while (line != 0);
  for (const char* part : {"weft: check failed: ", expression, " at ", file, ":",
                           static_cast<const char*>(cursor), "\n"}) {
    write_error(part);
  }
  std::abort();
}

}  // namespace weft
