// Owns the format of the file of places: a head, and eight bytes for each place.
#include "emu/daemon/places.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

namespace weft::daemon {
namespace {

// In the machine's byte order: the file is read on the machine that wrote it.
constexpr std::uint64_t kMagic = 0x324C504657ULL;
using Head = std::array<std::uint64_t, 3>;

std::string first_line(const char* file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

// Stands for the pid namespace of this process: its number, which the next one may get, with the
// time when its first process began, and the boot. 0: there is no telling.
std::uint64_t pid_namespace() {
  struct stat info {};
  const std::string first = first_line("/proc/1/stat");
  const std::size_t name_end = first.rfind(')');
  if (::stat("/proc/self/ns/pid", &info) != 0 || name_end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(first.substr(name_end + 1));
  std::string began;
  for (int field = 3; field <= 22; ++field) {  // proc(5): starttime
    fields >> began;
  }
  const std::string text = std::to_string(info.st_ino) + " " + began + " " +
                           first_line("/proc/sys/kernel/random/boot_id");
  std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return hash;
}

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
  const Head wanted{kMagic, places, pid_namespace()};
  const std::size_t size = places * sizeof(Place);
  const bool known = read_all(fd, head.data(), sizeof head, 0) && head[0] == wanted[0] &&
                     head[1] == wanted[1] && read_all(fd, all.places_.data(), size, sizeof head);
  if (known && (head[2] != wanted[2] || wanted[2] == 0)) {
    all.forget_processes();
    if (::pwrite(fd, wanted.data(), sizeof wanted, 0) < 0) {
      return fail(ErrorCode::io_error, srd::errno_text("file '" + file + "'"));
    }
  } else if (!known) {
    all.places_.assign(places, Place{});
    if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, wanted.data(), sizeof wanted, 0) < 0 ||
        ::ftruncate(fd, static_cast<off_t>(sizeof head + size)) != 0) {
      return fail(ErrorCode::io_error, srd::errno_text("file '" + file + "'"));
    }
  }
  return all;
}

void Places::forget_processes() {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (places_[place].process > 0) {
      set(place, {.life = places_[place].life, .process = kUnknown});
    }
  }
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
