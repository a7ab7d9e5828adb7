// Owns the two ways of asking the kernel which memory of this process is mapped, and how: one
// address at a time (an ioctl of /proc/self/maps, from Linux 6.11 on), or the text of that file,
// which has to be read from its beginning.
//
// Text is read forwards only: callers ask for ascending addresses, and the latest line that was
// read is kept until an address behind it is asked for. Everything is read by system calls of our
// own (native::), since libc's may be wrapped by this very library.
#include "emu/kernel/mappings.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "emu/kernel/native.hpp"

namespace weft::kernel {
namespace {

// PROCMAP_QUERY of linux/fs.h, which the headers of older systems do not have.
struct Query {
  std::uint64_t size;
  std::uint64_t flags;  // none: the mapping that covers the address, or ENOENT
  std::uint64_t address;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t found_flags;
  std::uint64_t page_size;
  std::uint64_t offset;
  std::uint64_t inode;
  std::uint32_t device[2];
  std::uint32_t name_size;
  std::uint32_t build_id_size;
  std::uint64_t name;
  std::uint64_t build_id;
};
static_assert(sizeof(Query) == 104);
constexpr std::uint64_t kReadable = 1;
constexpr std::uint64_t kWritable = 2;
constexpr unsigned long kQuery = _IOWR('f', 17, Query);

// "7f0000000000-7f0000001000 rw-p ..."
std::optional<MemoryArea> parse(std::string_view line) {
  MemoryArea mapping;
  const char* const end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, mapping.begin, 16);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '-') {
    return std::nullopt;
  }
  const auto second = std::from_chars(first.ptr + 1, end, mapping.end, 16);
  if (second.ec != std::errc{} || end - second.ptr < 3) {
    return std::nullopt;
  }
  mapping.readable = second.ptr[1] == 'r';
  mapping.writable = second.ptr[2] == 'w';
  return mapping;
}

}  // namespace

Mappings::Mappings(Source source)
    : fd_(native::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)), text_(source == Source::text) {}

Mappings::~Mappings() {
  if (fd_ >= 0) {
    native::close(fd_);
  }
}

// Asks for one mapping. False: the kernel does not know the question.
bool Mappings::ask(std::uint64_t address, std::optional<MemoryArea>& found) const {
  Query query{};
  query.size = sizeof query;
  query.address = address;
  if (native::ioctl(fd_, kQuery, &query) != 0) {
    return errno == ENOENT;
  }
  found = MemoryArea{query.begin, query.end, (query.found_flags & kReadable) != 0,
                     (query.found_flags & kWritable) != 0};
  return true;
}

// Nothing: the end of the text.
std::optional<MemoryArea> Mappings::next_line() {
  for (;;) {
    const std::string_view unread{buffer_ + taken_, used_ - taken_};
    if (const std::size_t length = unread.find('\n'); length != std::string_view::npos) {
      taken_ += length + 1;
      return parse(unread.substr(0, length));
    }
    std::memmove(buffer_, unread.data(), unread.size());
    used_ = unread.size();
    taken_ = 0;
    const long more = native::read(fd_, buffer_ + used_, kBuffer - used_);
    if (more <= 0) {
      return std::nullopt;
    }
    used_ += static_cast<std::size_t>(more);
  }
}

// After the first refusal of the ioctl the object stays with the text.
std::optional<MemoryArea> Mappings::find(std::uint64_t address) {
  std::optional<MemoryArea> found;
  if (!good() || (!text_ && ask(address, found))) {
    return found;
  }
  text_ = true;
  while (!latest_ || latest_->end <= address) {
    latest_ = next_line();
    if (!latest_) {
      return std::nullopt;
    }
  }
  return latest_->begin <= address ? latest_ : std::nullopt;
}

}  // namespace weft::kernel
