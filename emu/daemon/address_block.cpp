// Owns claiming a block. The claim is a name in the abstract namespace of unix sockets: that
// belongs to the network namespace, as loopback does, and the kernel frees the name when the
// process ends.
#include "emu/daemon/address_block.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>

namespace weft::daemon {
namespace {

std::string file_of(const std::string& directory) { return directory + "/block"; }

bool is_block(unsigned block) {
  return block >= AddressBlock::kFirst && block <= AddressBlock::kLast;
}

// A socket with the name of that block; none, with errno, if it is taken.
srd::UniqueFd claim(unsigned block) {
  const std::string name = "weft/addresses/127." + std::to_string(block);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // behind a zero: abstract
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  srd::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    const int why = errno;
    socket.reset();
    errno = why;
  }
  return socket;
}

}  // namespace

Result<AddressBlock> AddressBlock::take(const std::string& directory) {
  unsigned remembered = 0;
  if (std::ifstream(file_of(directory)) >> remembered; is_block(remembered)) {
    if (srd::UniqueFd socket = claim(remembered)) {
      return AddressBlock(static_cast<std::uint8_t>(remembered), std::move(socket));
    }
  }
  for (unsigned block = kFirst; block <= kLast; ++block) {
    if (srd::UniqueFd socket = claim(block)) {
      return AddressBlock(static_cast<std::uint8_t>(block), std::move(socket));
    }
    if (errno != EADDRINUSE) {
      return fail(ErrorCode::io_error, srd::errno_text("a block of addresses"));
    }
  }
  return fail(ErrorCode::out_of_resources,
              "other networks have all " + std::to_string(kLast - kFirst + 1) +
                  " blocks of loopback addresses; end one (`weft down`), or start this one in a "
                  "network namespace of its own (unshare -n)");
}

void AddressBlock::remember(const std::string& directory) const {
  std::ofstream(file_of(directory)) << static_cast<unsigned>(block_) << "\n";
}

}  // namespace weft::daemon
