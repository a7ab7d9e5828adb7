// Owns making directories for temporary files, and removing abandoned ones.
#include "emu/launch/temporary_directory.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "emu/launch/leftovers.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "weft-";
constexpr std::size_t kRandomSize = 6;
// A directory without this file is not removed: its name alone does not prove that weft made it.
// The file gets its name when its maker has locked it.
constexpr const char* kOwnerFile = ".weft-owner";
constexpr const char* kOwnerDraft = ".weft-owner-draft";

// The lock on a directory whose maker has ended; none if it has not.
srd::UniqueFd lock_abandoned(const fs::path& directory) {
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      info.st_uid != ::geteuid()) {
    return {};
  }
  srd::UniqueFd owner(::open((directory / kOwnerFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return owner && ::flock(owner.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(owner) : srd::UniqueFd();
}

// Removes what killed programs of this user have left.
void sweep(const std::string& base) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() != std::string(kPrefix).size() + kRandomSize || !name.starts_with(kPrefix)) {
      continue;
    }
    if (const srd::UniqueFd lock = lock_abandoned(entry.path())) {
      end_processes_of(entry.path());
      fs::remove_all(entry.path(), error);
    }
  }
}

}  // namespace

bool is_own_directory(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The variable is checked, because after `su` it still names the former user's directory.
std::string runtime_directory() {
  const char* base = ::getenv("XDG_RUNTIME_DIR");
  return base != nullptr && *base == '/' && is_own_directory(base) && ::access(base, W_OK) == 0
             ? base
             : "/tmp";
}

Result<TemporaryDirectory> TemporaryDirectory::create() {
  const std::string base = runtime_directory();
  sweep(base);
  TemporaryDirectory directory;
  std::string path = base + "/" + kPrefix + std::string(kRandomSize, 'X');
  if (::mkdtemp(path.data()) == nullptr) {
    return fail(ErrorCode::io_error, srd::errno_text("making directory '" + path + "'"));
  }
  directory.path_ = path;
  const std::string owner = path + "/" + kOwnerFile;
  const std::string draft = path + "/" + kOwnerDraft;
  directory.owner_ = srd::UniqueFd(
      ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!directory.owner_ || ::flock(directory.owner_.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::rename(draft.c_str(), owner.c_str()) != 0) {
    return fail(ErrorCode::io_error, srd::errno_text("'" + owner + "'"));
  }
  return directory;
}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})), owner_(std::move(other.owner_)) {}

TemporaryDirectory::~TemporaryDirectory() {
  if (!path_.empty()) {
    std::error_code error;
    fs::remove_all(path_, error);
  }
}

}  // namespace weft::launch
