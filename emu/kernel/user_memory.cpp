// Owns checked copies, which the real kernel makes for us.
//
// process_vm_readv() on the own process returns EFAULT where a plain memcpy() would fault: exactly
// what a kernel does with a bad pointer of its caller, and safe against a mapping that disappears
// meanwhile.
#include "emu/kernel/user_memory.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "emu/kernel/mappings.hpp"
#include "srd/base/lent_memory.hpp"

namespace weft::kernel {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kFewBytes = 16 * kPage;

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

// False only if the memory is not accessible. Where a sandbox refuses the call itself, a guarded
// copy of our own (lent_memory.hpp) takes its place.
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
  return to_user ? copy_to_lent(pointer(user), local, length)
                 : copy_from_lent(local, pointer(user), length);
}

// For replies and buffers of a few pages: exact, and one system call. The pages are faulted in, as
// a real registration would pin them; no byte changes. Nothing: the kernel cannot (before 5.14), or
// not for this kind of mapping.
std::optional<bool> populate(std::uint64_t address, std::uint64_t length, bool writable) {
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, MADV_POPULATE_WRITE
  constexpr int kPopulateWrite = 23;
  const std::uint64_t begin = address & ~(kPage - 1);
  if (madvise(pointer(begin), address + length - begin,
              writable ? kPopulateWrite : kPopulateRead) == 0) {
    return true;
  }
  return errno == ENOMEM || errno == EFAULT ? std::optional(false) : std::nullopt;
}

// A larger range may be gigabytes, most of which is never touched. A real device pins all of it;
// here that would cost time and memory for nothing. So the list of mappings is checked instead, and
// one byte at both ends of each: a mapping of a device, or one beyond the end of its file, is
// listed as readable but is not.
bool is_mapped(std::uint64_t begin, std::uint64_t end, bool writable) {
  Mappings mappings;
  if (!mappings.good()) {
    std::byte value{};
    return copy_from_user(std::span(&value, 1), begin) &&
           copy_from_user(std::span(&value, 1), end - 1);
  }
  while (begin < end) {
    const std::optional<MemoryArea> mapping = mappings.find(begin);
    if (!mapping || !mapping->readable || (writable && !mapping->writable)) {
      return false;
    }
    const std::uint64_t stop = std::min(end, mapping->end);
    for (const std::uint64_t edge : {begin, stop - 1}) {
      std::byte value{};
      if (!copy_from_user(std::span(&value, 1), edge)) {
        return false;
      }
    }
    begin = stop;
  }
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
  if (length <= kFewBytes) {
    if (const std::optional<bool> there = populate(address, length, writable)) {
      return *there;
    }
  }
  return is_mapped(address, address + length, writable);
}

}  // namespace weft::kernel
