// Owns the calls on device files that the program makes by descriptor. All may come from any
// thread, and from signal handlers.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace weft::preload {

// As write(2) and ioctl(2).
[[nodiscard]] ssize_t write_device(int fd, const void* buffer, std::size_t size);
[[nodiscard]] int ioctl_device(int fd, unsigned long request, void* argument);
// Of its flags, as F_GETFL.
[[nodiscard]] int access_mode(int fd);
// Of datagrams only: as read(2).
[[nodiscard]] ssize_t read_datagram(int fd, void* buffer, std::size_t size);

// write_device() with no system call at all, where these bytes are a post: then `result` is what it
// returns. Not even whether the number still is the device is asked: a program that has closed it
// past our wrappers, and writes the command with the handle of a queue pair of ours to another file
// of that number, posts.
[[nodiscard]] bool write_post(int fd, const void* buffer, std::size_t size, ssize_t& result);

}  // namespace weft::preload
