// Owns what write(2), read(2) and ioctl(2) do on the device files of this process.
#include "integration/preload/device_calls.hpp"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "integration/preload/complaints.hpp"
#include "integration/preload/open_file.hpp"
#include "integration/preload/waiting_call.hpp"
#include "srd/io/posix.hpp"

namespace weft::preload {
namespace {

int refuse(int error) {
  errno = error;
  return -1;
}

// Runs `work` with the file, which is null if there is none behind the descriptor.
template <class Work>
ssize_t with_file(int fd, const std::shared_ptr<OpenFile>& file, const Work& work) {
  ssize_t result = -EIO;
  if (file == nullptr) {
    result = -error_without_file(fd);
  } else if (!in_vfork_child()) {
    result = is_entered(*file) ? -EDEADLK : work(*file);
  }
  if (result == -EMFILE) {
    complain_of_few_descriptors();
  }
  return result < 0 ? refuse(static_cast<int>(-result)) : result;
}

// With EAGAIN, the call is to sleep at the file if the program wants that.
void sleep_for(const OpenFile& file, ssize_t result, WaitingCall& call) {
  call.sleeps = result == -EAGAIN && wants_to_wait(*file.ends());
  if (call.sleeps && call.at == nullptr) {
    call.at = file.ends();
    call.at->holders.fetch_add(1, std::memory_order_relaxed);
  }
}

// An attempt at a call that may have slept already. A file that has no number any more has nothing
// for it, and never will.
template <class Work>
ssize_t attempt(int fd, WaitingCall& call, const Work& work) {
  const srd::Uncancellable here;
  const auto file = call.at == nullptr ? file_of(fd) : file_with(*call.at);
  call.is_closed = call.at != nullptr && file == nullptr;
  call.sleeps = call.is_closed;
  return call.is_closed ? -1 : with_file(fd, file, work);
}

[[gnu::noinline]] ssize_t try_write(int fd, const void* buffer, std::size_t size,
                                    WaitingCall& call) {
  return attempt(fd, call, [&](OpenFile& file) -> ssize_t {
    if (!file.can_be_written()) {
      return -EBADF;
    }
    if (file.verbs != nullptr) {
      return file.verbs->write(fd, buffer, size);
    }
    if (file.datagrams != nullptr) {
      const ssize_t result = file.datagrams->write(buffer, size);
      file.datagrams->expect_messages();  // an answer may come, or a time-out
      return result;
    }
    const ssize_t result = file.connections->write(buffer, size);
    sleep_for(file, result, call);
    if (call.sleeps) {
      file.connections->expect_events();
    }
    return result;
  });
}

[[gnu::noinline]] ssize_t try_read(int fd, void* buffer, std::size_t size, WaitingCall& call) {
  return attempt(fd, call, [&](OpenFile& file) -> ssize_t {
    if (!file.can_be_read()) {
      return -EBADF;
    }
    if (file.datagrams == nullptr) {  // closed meanwhile, and the number is another device file's
      return -EBADF;
    }
    const ssize_t result = file.datagrams->read(buffer, size);
    sleep_for(file, result, call);
    file.datagrams->expect_messages();
    return result;
  });
}

}  // namespace

// What a child of vfork() posts goes its parent's way, as with a real device. But a child that was
// made past fork() has a copy of the NIC, which knows nothing of what the parent's sends.
bool write_post(int fd, const void* buffer, std::size_t size, ssize_t& result) {
  const srd::Uncancellable here;
  const auto file = is_own_copy() ? file_of(fd) : nullptr;
  if (file == nullptr || file->verbs == nullptr || !file->can_be_written() || is_entered(*file)) {
    return false;
  }
  const auto posted = file->verbs->try_post_send(buffer, size);
  if (posted) {
    result = *posted < 0 ? refuse(static_cast<int>(-*posted)) : *posted;
  }
  return posted.has_value();
}

ssize_t write_device(int fd, const void* buffer, std::size_t size) {
  return repeat_until_done([=](WaitingCall& call) { return try_write(fd, buffer, size, call); });
}

ssize_t read_datagram(int fd, void* buffer, std::size_t size) {
  return repeat_until_done([=](WaitingCall& call) { return try_read(fd, buffer, size, call); });
}

int access_mode(int fd) {
  const auto file = file_of(fd);
  return file == nullptr ? O_RDWR : file->access_mode;
}

int ioctl_device(int fd, unsigned long request, void* argument) {
  const srd::Uncancellable here;
  const auto address = reinterpret_cast<std::uintptr_t>(argument);
  return static_cast<int>(with_file(fd, file_of(fd), [&](OpenFile& file) -> ssize_t {
    if (file.datagrams != nullptr) {
      const int result = file.datagrams->ioctl(request, address);
      file.datagrams->expect_messages();
      return result;
    }
    return file.verbs == nullptr ? -ENOTTY : file.verbs->ioctl(request, address);
  }));
}

}  // namespace weft::preload
