// Owns the format of the file of places: a head, and eight bytes for each place.
#include "emu/daemon/places.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

namespace weft::daemon {
namespace {

// In the machine's byte order: the file is read on the machine that wrote it.
constexpr std::uint64_t kMagic = 0x314C504657ULL;
using Head = std::array<std::uint64_t, 2>;

static_assert(sizeof(Places::Place) == 8);

bool read_all(int file, void* to, std::size_t size, std::size_t at) {
  return ::pread(file, to, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
}

}  // namespace

Result<Places> Places::open(const std::string& file, std::size_t places) {
  Places all;
  all.file_ = srd::UniqueFd(
      ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!all.file_) {
    return fail(ErrorCode::io_error, srd::errno_text("file '" + file + "'"));
  }
  all.places_.resize(places);
  const int fd = all.file_.get();
  Head head{};
  const Head wanted{kMagic, places};
  const std::size_t size = places * sizeof(Place);
  if (!read_all(fd, head.data(), sizeof head, 0) || head != wanted ||
      !read_all(fd, all.places_.data(), size, sizeof head)) {
    all.places_.assign(places, Place{});
    if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, wanted.data(), sizeof wanted, 0) < 0 ||
        ::ftruncate(fd, static_cast<off_t>(sizeof head + size)) != 0) {
      return fail(ErrorCode::io_error, srd::errno_text("file '" + file + "'"));
    }
  }
  return all;
}

void Places::set(std::size_t place, const Place& what) {
  if (place >= places_.size()) {
    return;
  }
  places_[place] = what;
  [[maybe_unused]] const ssize_t written = ::pwrite(
      file_.get(), &what, sizeof what, static_cast<off_t>(sizeof(Head) + place * sizeof(Place)));
}

}  // namespace weft::daemon
