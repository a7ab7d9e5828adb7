// Owns the lock on a network's directory.
#include "emu/launch/network_claim.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "emu/launch/interrupt.hpp"

namespace weft::launch {
namespace {

// Whether that path still leads to the open directory.
bool is_at(int directory, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(directory, &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

}  // namespace

Result<NetworkClaim> NetworkClaim::take(const std::string& name, bool create) {
  const auto give_up = std::chrono::steady_clock::now() + kMaxClaim;
  do {
    auto path = named_directory(name, create);
    if (!path) {
      return tl::unexpected(path.error());
    }
    srd::UniqueFd lock(::open(path->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    // The former holder may have removed the directory while this process opened it: then the lock
    // is on a directory that no path leads to.
    if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 && is_at(lock.get(), *path)) {
      std::error_code error;
      const bool is_empty = std::filesystem::is_empty(*path, error);
      return NetworkClaim(std::move(*path), std::move(lock), is_empty);
    }
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  } while (std::chrono::steady_clock::now() < give_up);
  return fail(ErrorCode::already_exists,
              "another weft is starting or ending '" + name + "' and does not come to an end");
}

NetworkClaim::~NetworkClaim() {
  if (lock_ && was_empty_) {
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
  }
}

}  // namespace weft::launch
