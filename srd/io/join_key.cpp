// Owns the reading and making of key files.
#include "srd/io/join_key.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "srd/io/posix.hpp"

namespace weft::srd {
namespace {

Result<void> check(const std::string& path, const struct stat& info) {
  const auto bad = [&](const std::string& text) {
    return fail(ErrorCode::not_permitted, "key file '" + path + "' " + text);
  };
  if (!S_ISREG(info.st_mode)) {
    return bad("is no regular file");
  }
  if (info.st_uid != ::geteuid()) {
    return bad("belongs to another user");
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return bad("can be read by others; chmod 600 it");
  }
  if (info.st_size != static_cast<off_t>(JoinKey::kBytes)) {
    return bad("does not hold the " + std::to_string(JoinKey::kBytes) +
               " bytes of a key; make one with `weft up --new-join-key FILE`");
  }
  return {};
}

}  // namespace

Result<JoinKey> read_join_key(const std::string& path) {
  // O_NOFOLLOW: not through a symbolic link that another user made. O_NONBLOCK: opening a pipe must
  // not wait for its writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) {
    return fail(ErrorCode::io_error, errno_text("key file '" + path + "'"));
  }
  if (auto ok = check(path, info); !ok) {
    return tl::unexpected(ok.error());
  }
  JoinKey key;
  if (::read(file.get(), key.bytes.data(), key.bytes.size()) !=
      static_cast<ssize_t>(key.bytes.size())) {
    return fail(ErrorCode::io_error, errno_text("key file '" + path + "'"));
  }
  return key;
}

Result<void> create_join_key(const std::string& path) {
  JoinKey key;
  if (::getrandom(key.bytes.data(), key.bytes.size(), 0) !=
      static_cast<ssize_t>(key.bytes.size())) {
    return fail(ErrorCode::io_error, errno_text("random numbers for a key"));
  }
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                             S_IRUSR | S_IWUSR));
  if (!file || ::write(file.get(), key.bytes.data(), key.bytes.size()) !=
                   static_cast<ssize_t>(key.bytes.size())) {
    return fail(ErrorCode::io_error, errno_text("key file '" + path + "'"));
  }
  return {};
}

}  // namespace weft::srd
