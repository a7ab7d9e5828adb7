// Owns the bytes by which a descriptor is readable.
#include "emu/kernel/readable_pair.hpp"

#include <sys/socket.h>

#include "emu/kernel/native.hpp"

namespace weft::kernel {

void ReadablePair::signal(std::size_t waiting) {
  std::byte byte{};
  while (bytes_ < waiting &&
         native::send(pair_.ours(), &byte, sizeof byte, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) {
    ++bytes_;
  }
  while (bytes_ > waiting &&
         native::receive(pair_.duplicate(), &byte, sizeof byte, MSG_DONTWAIT) == 1) {
    --bytes_;
  }
}

}  // namespace weft::kernel
