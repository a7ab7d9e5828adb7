// Owns the checked copies, made by the real kernel on our behalf.
#include "emu/kernel/user_memory.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace weft::emu::kernel {
namespace {

constexpr std::uint64_t kPage = 4096;

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

// False only for memory that is not there: where a sandbox refuses the call itself, trust the
// pointer.
bool transfer(void* local, std::uint64_t user, std::size_t length, bool to_user) {
  if (length == 0) {
    return true;
  }
  const iovec here{local, length};
  const iovec there{pointer(user), length};
  const ssize_t moved = to_user ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                                : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  if (moved == static_cast<ssize_t>(length)) {
    return true;
  }
  if (moved >= 0 || errno == EFAULT || user < kPage) {
    return false;
  }
  std::memcpy(to_user ? pointer(user) : local, to_user ? local : pointer(user), length);
  return true;
}

}  // namespace

bool copy_from_user(std::span<std::byte> to, std::uint64_t from) {
  return transfer(to.data(), from, to.size(), false);
}

bool copy_to_user(std::uint64_t to, std::span<const std::byte> from) {
  return transfer(const_cast<std::byte*>(from.data()), to, from.size(), true);
}

bool user_range_ok(std::uint64_t address, std::uint64_t length, bool writable) {
  if (length == 0) {
    return true;
  }
  if (address + length < address) {
    return false;
  }
  constexpr std::size_t kPagesAtOnce = 4096;
  std::array<unsigned char, kPagesAtOnce> residency;
  const std::uint64_t end = address + length;
  for (std::uint64_t page = address & ~(kPage - 1); page < end; page += kPagesAtOnce * kPage) {
    const std::uint64_t span = std::min(end - page, kPagesAtOnce * kPage);
    if (mincore(pointer(page), span, residency.data()) != 0 && errno == ENOMEM) {
      return false;
    }
  }
  for (const std::uint64_t edge : {address, end - 1}) {
    std::byte value{};
    if (!copy_from_user(std::span(&value, 1), edge)) {
      return false;
    }
    // The byte goes back where it came from: whoever registers memory does not write it at that
    // moment.
    if (writable && !copy_to_user(edge, std::span(&value, 1))) {
      return false;
    }
  }
  return true;
}

}  // namespace weft::emu::kernel
