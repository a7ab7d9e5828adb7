// Owns the system calls behind file descriptors, shared memory and doorbells.
#include "srd/io/posix.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace weft::srd {

UniqueFd::UniqueFd(int fd) : fd_(keep_fd(fd)) {}

void UniqueFd::reset() {
  if (fd_ >= 0) {
    const int fd = std::exchange(fd_, -1);
    forget_fd(fd);
    ::syscall(SYS_close, fd);
  }
}

Uncancellable::Uncancellable() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }

Uncancellable::~Uncancellable() { ::pthread_setcancelstate(before_, nullptr); }

std::string errno_text(const std::string& what) { return what + ": " + std::strerror(errno); }

Result<Mapping> Mapping::map(int memfd, std::size_t size) {
  struct stat info {};
  if (::fstat(memfd, &info) != 0) {
    return fail(ErrorCode::io_error, errno_text("shared memory: fstat"));
  }
  if (info.st_size < 0 || static_cast<std::size_t>(info.st_size) != size) {
    return fail(ErrorCode::invalid_argument, "shared memory: it has " +
                                                 std::to_string(info.st_size) +
                                                 " bytes instead of " + std::to_string(size));
  }
  const int seals = ::fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return fail(ErrorCode::invalid_argument, "shared memory: it is not sealed against shrinking");
  }
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::out_of_resources, errno_text("shared memory: mmap"));
  }
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.size_ = size;
  return mapping;
}

void Mapping::unmap() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
    data_ = nullptr;
    size_ = 0;
  }
}

Result<UniqueFd> create_shared_memory(const char* name, std::size_t size) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) {
    return fail(ErrorCode::out_of_resources, errno_text("shared memory: memfd_create"));
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail(ErrorCode::out_of_resources, errno_text("shared memory: sizing it"));
  }
  return fd;
}

Result<UniqueFd> open_to_write(const std::string& path, Existing existing) {
  const int append = existing == Existing::append ? O_APPEND : 0;
  UniqueFd file(::open(path.c_str(),
                       O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | append,
                       S_IRUSR | S_IWUSR | S_IRGRP));
  struct stat info {};
  if (!file && errno != ENXIO) {  // a pipe without a reader
    return fail(ErrorCode::io_error, errno_text("file '" + path + "'"));
  }
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return fail(ErrorCode::invalid_argument,
                "'" + path + "' is no regular file: give one, or a name that is free");
  }
  if (existing == Existing::empty && ::ftruncate(file.get(), 0) != 0) {
    return fail(ErrorCode::io_error, errno_text("file '" + path + "'"));
  }
  return file;
}

Result<UniqueFd> create_event_fd() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) {
    return fail(ErrorCode::out_of_resources, errno_text("eventfd"));
  }
  return fd;
}

// System calls by number: libc's functions are points at which a thread can be cancelled, and these
// are called with a lock held.
void signal_event_fd(int fd) {
  const std::uint64_t one = 1;
  // EAGAIN means that it is signalled already.
  [[maybe_unused]] const auto written = ::syscall(SYS_write, fd, &one, sizeof one);
}

void clear_event_fd(int fd) {
  std::uint64_t count;
  [[maybe_unused]] const auto read = ::syscall(SYS_read, fd, &count, sizeof count);
}

}  // namespace weft::srd
